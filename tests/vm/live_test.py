# SPDX-License-Identifier: Apache-2.0
"""What changes a running guest, with no hook called, changes what it is counted as."""
import time

import suite
from suite import MIB, MachineTest, wait_until

AT_ONCE = 20  # seconds; far below the minute between two looks, on a machine where each command takes one
TIMER = 65
GROWS = """<vcpu current='1'>4</vcpu><maxMemory slots='4' unit='MiB'>1024</maxMemory>
<cpu><numa><cell id='0' cpus='0-3' memory='128' unit='MiB'/></numa></cpu>"""
VIRTIO_MEM = "<block unit='KiB'>2048</block><requested unit='KiB'>0</requested>"


def counted():
    guest = next(guest for guest in suite.status()["domains"] if guest["name"] == "grows")
    return guest["demand"]["cpu"], guest["demand"]["memory"] // MIB


def nodes_with_most():
    """Nodes that hold most of a guest of 128 MiB. QEMU's first pages may lie elsewhere, and do not move."""
    return [node["id"] for node in suite.status()["nodes"] if node["allocated"].get("memory", 0) > 96 * MIB]


class RunningGuestsChange(MachineTest):
    """One guest that grows from test to test: a start takes long here."""
    @classmethod
    def setUpClass(cls):
        cls().set_policy(suite.ROOMY)

    def attach(self, model, more=""):
        xml = (f"<memory model='{model}'><target><size unit='MiB'>128</size><node>0</node>{more}</target></memory>")
        suite.host.do("virsh attach-device grows --live /dev/stdin", stdin=xml)

    def follows(self, question, expected, seconds):
        began = time.monotonic()
        wait_until(lambda: question() == expected, f"{expected} is counted", seconds)
        print(f"followed after {time.monotonic() - began:.1f} s", end=" ", flush=True)
        self.assert_ledger_agrees()

    def test_it_starts(self):
        xml = self.define("grows", 128).replace("<vcpu>1</vcpu>", GROWS)
        suite.host.do("virsh undefine grows; virsh define /dev/stdin; virsh start --paused grows", stdin=xml)
        self.assertEqual(counted(), (1, 128))

    def test_vcpus_that_are_added(self):
        suite.host.do("virsh setvcpus grows 3 --live")
        self.follows(counted, (3, 128), AT_ONCE)

    def test_a_dimm_that_is_attached(self):
        self.attach("dimm")
        self.follows(counted, (3, 256), AT_ONCE)

    def test_virtio_mem_that_is_attached_counts_in_full(self):
        self.attach("virtio-mem", VIRTIO_MEM)
        self.follows(counted, (3, 384), AT_ONCE)

    def test_a_pin_to_one_cpu_makes_it_the_guests_alone(self):
        def effective():
            return suite.status()["host"]["effective"]["cpu"]
        before = effective()
        suite.host.do("virsh vcpupin grows 0 1 --live")
        self.follows(effective, before - 1000 + 1, AT_ONCE)
        self.remove_guests()

    def test_a_guest_moved_to_another_node_is_counted_there_within_a_minute(self):
        self.assert_starts("moves", 128, more="<numatune><memory mode='restrictive' nodeset='0'/></numatune>")
        self.assertEqual(nodes_with_most(), [0])
        suite.host.do("virsh numatune moves --nodeset 3 --live")
        self.follows(nodes_with_most, [3], TIMER)
        self.remove_guests()
