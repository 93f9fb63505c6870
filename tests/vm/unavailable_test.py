# SPDX-License-Identifier: Apache-2.0
"""No daemon: 'hook.unavailable' says what becomes of starts, and doctor names the cause."""
import suite
from suite import MachineTest, wait_until

STOP = "systemctl stop virtguardd.service virtguardd.socket"
START = "systemctl start virtguardd.socket virtguardd.service"


class Unavailable(MachineTest):
    @classmethod
    def tearDownClass(cls):
        cls().remove_guests()
        cls().set_policy(suite.ROOMY)

    def tearDown(self):
        suite.host.do(START)
        wait_until(lambda: suite.status()["state"] == "ready", "virtguardd is ready")

    def test_allow_lets_starts_in_and_the_next_daemon_counts_them(self):
        self.set_policy(suite.ROOMY + "[hook]\nunavailable = \"allow\"\n")
        suite.host.do(STOP)
        since = suite.now()
        self.assert_starts("let-in")
        self.assertIn("let start unchecked", suite.journal("-t virtguard-hook", since))
        suite.host.do(START)
        self.assert_ledger_agrees()
        self.assertEqual(suite.ledger(), {"let-in": "running"})

    def test_deny_refuses_starts_and_leaves_what_runs_alone(self):
        self.set_policy(suite.ROOMY + "[hook]\nunavailable = \"deny\"\n")
        suite.host.do(STOP)
        refused = self.start("not-let-in")
        self.assertEqual(refused.status, 1, refused)
        self.assertIn('and hook.unavailable is "deny"', refused.err)
        suite.host.do("systemctl restart libvirtd")
        self.assertEqual(self.running(), {"let-in"})
        self.assertEqual(suite.host.do("systemctl is-active virtguardd.socket || true"), "inactive")

    def test_doctor_names_the_cause(self):
        suite.host.do(STOP)
        result = suite.host.run("virtguardctl doctor")
        self.assertEqual(result.status, 1, result)
        self.assertIn("systemctl restart virtguardd.socket virtguardd", result.out)
