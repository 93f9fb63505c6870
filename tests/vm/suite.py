# SPDX-License-Identifier: Apache-2.0
"""What the tests of the machine have in common. run.py sets 'host', the one machine of all of them."""
import functools
import json
import pathlib
import shlex
import sys
import unittest
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lab"))
from lab import domain_xml  # noqa: E402  pylint: disable=wrong-import-position
from machine import CPUS, PATIENCE, wait_until  # noqa: E402  pylint: disable=wrong-import-position

MIB = 1 << 20
POLICY = "/etc/virtguard/conf.d/50-test.toml"
# Guests count as what their XML says, and CPUs do not matter.
ROOMY = """[memory]
overhead = "none"
[overcommit]
cpu = 1000
"""
# Compiling a profile takes most of a start here. Where a test is not about AppArmor its guests have none;
# the hook runs below libvirtd's profile all the same.
TOO_LARGE = "memory: needs 8.79 GiB, more than the "
UNCONFINED = "<seclabel type='none' model='apparmor'/>"

host = None


class MachineTest(unittest.TestCase):
    """Tests run in the order they are written: installing comes before starting guests, and a boot takes a minute."""

    def define(self, name, memory_mib=64, vcpus=1, *, confined=False, node=None, more="", **asked):
        asked["uuid"] = uuid.uuid5(uuid.NAMESPACE_DNS, name)  # so that it may be defined again
        if node is not None and node >= CPUS:
            # Of a strict one libvirt 11 has QEMU run on the node's CPUs, where there are some or not.
            more += f"<numatune><memory mode='restrictive' nodeset='{node}'/></numatune>"
        elif node is not None:
            asked["nodeset"] = str(node)
        xml = domain_xml(name, memory_mib, vcpus, more=more + ("" if confined else UNCONFINED), **asked)
        host.do("virsh define /dev/stdin", stdin=xml)
        return xml

    def start(self, name, memory_mib=64, **asked):
        """What 'virsh start' says. The guest is paused: here even a BIOS that finds no disk keeps a CPU busy."""
        self.define(name, memory_mib, **asked)
        return host.run(f"virsh start --paused {name}")

    def assert_starts(self, name, memory_mib=64, **asked):
        result = self.start(name, memory_mib, **asked)
        self.assertEqual(result.status, 0, result)

    def assert_refused(self, result, *reasons):
        """reasons are whole, or the beginning of the only one."""
        self.assertEqual(result.status, 1, result)
        self.assertIn("virtguard: refused ", result.err)
        told = result.err.split("virtguard: refused ")[1].split(": ", 1)[1]
        self.assertTrue(told.startswith("; ".join(reasons)), result)

    def assert_decides(self):
        """A guest for which there is no room is refused."""
        self.assert_refused(self.start("too-large", 9000), TOO_LARGE)

    def running(self):
        return set(host.do("virsh list --name").split())

    def assert_ledger_agrees(self):
        result = wait_until(lambda: (done := doctor()).status == 0 and done, "the ledger agrees", 90)
        self.assertEqual(result.status, 0, result)

    def remove_guests(self):
        host.do("for name in $(virsh list --name); do virsh destroy $name; done;"
                "for name in $(virsh list --all --name); do virsh undefine $name; done")
        self.assertEqual(ledger(), {})

    def set_policy(self, text):
        host.write(POLICY, text)
        host.do("systemctl reload virtguardd")
        wait_until(lambda: status()["problems"] == [], "the policy is in force")


def have_hooks_wait():
    """Where others use the processors, too, virtguardd may take longer to answer than hooks wait by default."""
    if PATIENCE > 1:
        host.write("/etc/virtguard/conf.d/40-patience.toml", '[hook]\ntimeout = "30s"\n')
        host.do("systemctl reload virtguardd")


def mount_payload():
    """Packages are in /payload then, until the next boot."""
    host.do("mkdir -p /payload && { mountpoint -q /payload || mount -o ro /dev/vdb /payload; }")


def doctor():
    return host.run("virtguardctl doctor --ledger")


def status():
    return json.loads(host.do("virtguardctl status --json"))


def ledger():
    """State by name of all that virtguard holds something for, but places kept for a moment."""
    return {guest["name"]: guest["state"] for guest in status()["domains"] if guest["state"] != "returning"}


def denials():
    """What AppArmor denied since the machine was made, a line each."""
    return host.run("journalctl --dmesg -b all --grep 'apparmor=\"DENIED\"' -o cat").out.splitlines()


def journal(what="", since=""):
    return host.do(f"journalctl -o cat {what}" + (f" --since {shlex.quote(since)}" if since else ""))


def now():
    """The machine's time, for journal()."""
    return host.do("date '+%F %T'")


def in_parallel(commands):
    """Their results, in order."""
    return [host.finish(started) for started in list(map(functools.partial(host.start), commands))]
