#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What real guests occupy is read as the kernel has it, by node."""
import pathlib
import unittest

import lab

UUID = "6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11"
POOL_PAGES = 32
DUMP = lab.BUILD / "tests/unit/host/residency-dump"

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab(hugepages=POOL_PAGES))


def read(name, *page_sizes, uuid=UUID):
    """Bytes by resource, all nodes together; a text where it cannot be read."""
    done = lab.command(DUMP, name, uuid, *page_sizes)
    if done.status != 0:
        return done.out
    result = {}
    for line in done.out.splitlines():
        resource, _, amount = line.split()
        result[resource] = result.get(resource, 0) + int(amount)
    return result


class Residency(unittest.TestCase):
    def tearDown(self):
        host.destroy_all()

    def start(self, name, **asked):
        host.define(lab.domain_xml(name, uuid=UUID, **asked))
        self.addCleanup(host.virsh, "undefine", name)
        result = host.virsh("start", name, "--paused")
        self.assertEqual(result.status, 0, result)

    def test_a_guest_that_has_touched_all_its_memory(self):
        self.start("full", memory_mib=160, arguments=["-mem-prealloc"])
        resident = read("full")["memory"] // lab.MIB
        self.assertGreaterEqual(resident, 160)
        self.assertLess(resident, 240)

    def test_a_guest_that_has_touched_hardly_any(self):
        self.start("empty", memory_mib=160)
        self.assertLess(read("empty")["memory"] // lab.MIB, 100)

    def test_hugepages_of_a_guest_with_an_odd_name(self):
        name = """<it's-"R&D">"""
        self.start(name, memory_mib=64, hugepages=True)
        resident = read(name, "2Mi")
        self.assertIsInstance(resident, dict)
        self.assertEqual(resident["hugepages-2Mi"], 64 * lab.MIB)
        self.assertLess(resident["memory"] // lab.MIB, 100)

    def test_the_daemon_tells_what_is_nobodys(self):
        lab.wait_until(lambda: "foreign_memory" in host.status(), "the daemon has looked at the host")
        memory = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
        taken = sum(sign * int(memory[key].split()[0]) * 1024
                    for key, sign in (("MemTotal", 1), ("MemAvailable", -1), ("Hugetlb", -1)))
        self.assertLess(host.status()["foreign_memory"], taken + 256 * lab.MIB)

    def test_another_guest_or_none(self):
        self.start("web", memory_mib=32)
        other = UUID.replace("6f", "7f")
        self.assertEqual(read("web", uuid=other), f"/proc/{host.qemu_pid('web')}: not the QEMU of {other}")
        host.destroy_all()
        self.assertEqual(read("web"), "/run/libvirt/qemu/web.pid: No such file or directory")


if __name__ == "__main__":
    lab.main()
