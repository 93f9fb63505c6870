# SPDX-License-Identifier: Apache-2.0
"""The system's bus, as it is on a Debian machine: anyone may read, and who changes something is asked who they are."""
import suite
from suite import MachineTest

NOBODY = "setpriv --reuid nobody --regid nogroup --clear-groups"
MANAGER = "org.virtguard1 /org/virtguard1 org.virtguard1.Manager"


class Bus(MachineTest):
    def test_a_normal_user_reads_the_status(self):
        self.assertEqual(suite.host.do(f"{NOBODY} busctl get-property {MANAGER} State Mode"), 's "ready"\ns "enforce"')
        free = suite.status()["host"]["free"]["memory"]
        self.assertIn(f'"memory" {free}', suite.host.do(f"{NOBODY} busctl get-property {MANAGER} Free"))
        self.assertIn("/org/virtguard1/node/3", suite.host.do(f"{NOBODY} busctl --list tree org.virtguard1"))

    def test_a_normal_user_changes_nothing(self):
        for method in ("Reload", "Resync"):
            result = suite.host.run(f"{NOBODY} busctl call {MANAGER} {method}")
            self.assertEqual(result.status, 1, result)
            self.assertEqual(result.err, "Call failed: Access denied")

    def test_root_does(self):
        suite.host.do(f"busctl call {MANAGER} Reload")
