# SPDX-License-Identifier: Apache-2.0
"""Guests bound to NUMA nodes, as AppArmor lets them."""
import suite
from suite import MIB, MachineTest

NODES = range(4)
LEFT_MIB = 512  # of ordinary memory, on each node
RULE = "/etc/apparmor.d/local/abstractions/libvirt-qemu"


def held(node, column, resource):
    return suite.status()["nodes"][node][column].get(resource, 0)


def setUpModule():
    reserve = ""
    for node in NODES:
        reserve += (f"[reserve.node.{node}]\n"
                    f'memory = "{held(node, "capacity", "memory") // 1024 - LEFT_MIB * 1024}KiB"\n')
    suite.MachineTest().set_policy(suite.ROOMY + reserve)


class Nodes(MachineTest):
    def tearDown(self):
        self.remove_guests()

    def test_a_guest_bound_to_a_node_is_counted_there(self):
        for node in NODES:
            self.assert_starts(f"on-{node}", node=node, confined=True)
            # QEMU's first pages may lie elsewhere, and do not move.
            self.assertGreater(held(node, "allocated", "memory"), 48 * MIB)
            self.assertEqual(suite.status()["host"]["allocated"]["memory"], 64 * (node + 1) * MIB)
        self.assert_ledger_agrees()
        self.assertEqual(suite.denials(), [])

    def test_a_full_node_refuses_what_is_bound_to_it_and_another_admits_it(self):
        self.assert_starts("fills", 480, node=2)
        self.assert_refused(self.start("more", node=2), "memory on node 2: needs 64 MiB, 32 MiB free of 512 MiB")
        self.assert_starts("elsewhere", node=3)
        self.assert_ledger_agrees()

    def test_an_exhausted_pool_of_hugepages_refuses_what_is_bound_to_it_and_another_admits_it(self):
        self.assert_starts("fills", 96, node=1, hugepages=True)
        self.assert_refused(self.start("more", node=1, hugepages=True),
                            "hugepages-2Mi on node 1: needs 64 MiB, 32 MiB free of 128 MiB")
        self.assert_starts("elsewhere", node=0, hugepages=True)  # QEMU wants a node with CPUs
        self.assertEqual([held(node, "free", "hugepages-2Mi") // MIB for node in NODES], [64, 32, 128, 128])
        self.assert_ledger_agrees()

    def test_a_confined_guest_with_hugepages_of_one_node_needs_a_rule_on_debian_12(self):
        if "VERSION_ID=\"12\"" not in suite.host.do("cat /etc/os-release"):
            self.skipTest("it is Debian 12's profile that lacks it")
        suite.host.write(RULE, "/sys/devices/system/node/node[0-9]*/cpumap r,\n")
        self.assert_starts("confined", node=0, hugepages=True, confined=True)
        self.assert_ledger_agrees()
        self.assertEqual(suite.denials(), [])
