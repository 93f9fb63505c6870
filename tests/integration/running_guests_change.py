#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What changes a running guest changes what it is counted as, with no hook: at once where libvirt tells somehow."""
import pathlib
import time
import unittest

import lab

AT_ONCE = 15  # seconds: far below the minute between two looks, whatever else this machine does
RATIO = 1000  # of policy_with_room()

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())
    host.reload_policy(host.policy_with_room(4096))


def growing_xml(name):
    """A guest of 128 MiB and one vCPU that can be given more of both."""
    return (lab.domain_xml(name, memory_mib=128)
            .replace("<vcpu>1</vcpu>", "<vcpu current='1'>4</vcpu><maxMemory slots='4' unit='MiB'>2048</maxMemory>"
                     "<cpu><numa><cell id='0' cpus='0-3' memory='128' unit='MiB'/></numa></cpu>"))


def ballooning_xml(name):
    """A guest of 128 MiB that gives back what it is told to."""
    return (lab.domain_xml(name, memory_mib=128, disk=host.boot_disk(lab.FOLLOW_BALLOON))
            .replace("<memballoon model='none'/>", f"<memballoon model='virtio'>{lab.BALLOON_ADDRESS}</memballoon>"))


def memory_device(model, size_mib, more=""):
    path = pathlib.Path(f"/var/lab/{model}.xml")
    path.write_text(f"<memory model='{model}'><target><size unit='MiB'>{size_mib}</size><node>0</node>{more}"
                    "</target></memory>")
    return path


def counted(name):
    guest = next(guest for guest in host.status()["domains"] if guest["name"] == name)
    return guest["demand"]["cpu"], guest["demand"]["memory"] // lab.MIB


class GuestTest(unittest.TestCase):
    def do(self, *words):
        result = host.virsh(*words)
        self.assertEqual(result.status, 0, result)

    def end(self, name):
        host.destroy_all()
        self.do("undefine", name)
        lab.wait_until(lambda: host.ledger() == {}, "the ledger is empty")

    def expect(self, name, cpus, memory_mib):
        began = time.monotonic()
        lab.wait_until(lambda: counted(name) == (cpus, memory_mib), f"{cpus} CPUs and {memory_mib} MiB are counted",
                       AT_ONCE)
        print(f"followed after {time.monotonic() - began:.1f} s")
        self.assertEqual(host.doctor(), "")


class RunningGuestsChange(GuestTest):
    def setUp(self):
        host.define(growing_xml("grows"))
        self.addCleanup(self.end, "grows")
        self.do("start", "grows", "--paused")
        lab.wait_until(host.ledger_agrees, "the guest is counted as running")
        self.assertEqual(counted("grows"), (1, 128))

    def test_vcpus_that_are_added(self):
        self.do("setvcpus", "grows", "3", "--live")
        self.expect("grows", 3, 128)

    def test_a_dimm_that_is_attached(self):
        self.do("attach-device", "grows", memory_device("dimm", 256), "--live")
        self.expect("grows", 1, 384)

    def test_virtio_mem_counts_in_full_when_it_is_attached(self):
        more = "<block unit='KiB'>2048</block><requested unit='KiB'>0</requested>"
        self.do("attach-device", "grows", memory_device("virtio-mem", 256, more), "--live")
        self.expect("grows", 1, 384)

    def test_a_pin_to_one_cpu_takes_it_from_the_others(self):
        before = host.held("cpu", "effective")
        self.do("vcpupin", "grows", "0", "0", "--live")
        lab.wait_until(lambda: host.held("cpu", "effective") == before - RATIO + 1, "the CPU is the guest's alone",
                       AT_ONCE)
        self.assertEqual(host.doctor(), "")

    def test_what_grows_past_capacity_is_reported_and_left_alone(self):
        host.reload_policy(host.policy_with_room(200))
        self.addCleanup(lambda: host.reload_policy(host.policy_with_room(4096)))
        self.do("attach-device", "grows", memory_device("dimm", 256), "--live")
        self.expect("grows", 1, 384)
        self.assertEqual(host.status()["over_capacity"], ["memory"])
        self.assertIn("over capacity: memory", host.daemon_log())
        self.assertEqual(host.running(), {"grows"})


class BalloonsChange(GuestTest):
    def setUp(self):
        counted_current = host.policy_with_room(4096).replace("[memory]", '[memory]\ncount = "current"')
        host.reload_policy(counted_current)
        self.addCleanup(lambda: host.reload_policy(host.policy_with_room(4096)))
        host.define(ballooning_xml("balloon"))
        self.do("start", "balloon")
        self.addCleanup(self.end, "balloon")

    def test_memory_that_a_balloon_took_and_gave_back(self):
        self.expect("balloon", 1, 128)
        for mib in (64, 96, 128):
            self.do("setmem", "balloon", f"{mib}MiB", "--live")
            self.expect("balloon", 1, mib)

    def test_memory_counts_in_full_where_the_maximum_is_counted(self):
        self.do("setmem", "balloon", "64MiB", "--live")
        self.expect("balloon", 1, 64)
        host.reload_policy(host.policy_with_room(4096))
        self.expect("balloon", 1, 128)


if __name__ == "__main__":
    lab.main()
