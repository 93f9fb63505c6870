# SPDX-License-Identifier: Apache-2.0
"""The machine boots: guests that start by themselves are decided, by the last good policy if need be."""
import suite
from suite import MachineTest, wait_until

TYPO = "/etc/virtguard/conf.d/60-typo.toml"


def began(unit):
    """When its program was run, in microseconds since the kernel began."""
    return int(suite.host.do(f"systemctl show -P ExecMainStartTimestampMonotonic {unit}"))


def ready(unit):
    return int(suite.host.do(f"systemctl show -P ActiveEnterTimestampMonotonic {unit}"))


class Boot(MachineTest):
    @classmethod
    def tearDownClass(cls):
        cls().remove_guests()

    def setUp(self):
        self.assertEqual(self.running(), set())

    def tearDown(self):
        suite.host.do("virsh destroy starts")

    def boot(self):
        suite.host.reboot()
        wait_until(lambda: suite.host.run("virsh version").status == 0, "libvirtd serves clients")
        self.assertEqual(self.running(), {"starts"})
        decisions = suite.status()["decisions"]
        self.assertEqual((decisions["admitted"], decisions["refused"]), (1, 1))
        self.assertIn("virtguard: refused is-refused: ", suite.journal("-b -u libvirtd"))
        self.assertIn("refused is-refused: ", suite.journal("-b -u virtguardd VIRTGUARD_VERDICT=refuse"))
        self.assert_ledger_agrees()

    def test_guests_that_start_by_themselves_are_decided_before_libvirtd_serves_clients(self):
        self.set_policy(suite.ROOMY)
        for name, memory_mib in (("starts", 64), ("is-refused", 9000)):
            self.define(name, memory_mib)
            suite.host.do(f"virsh autostart {name}")
        self.boot()
        self.assertLess(ready("virtguardd.service"), began("libvirtd.service"))
        self.assertEqual(suite.status()["state"], "ready")
        added = (ready("virtguardd.service") - began("virtguardd.service")) / 1e6
        print(f"virtguardd was ready after {added:.1f} s;", suite.host.do("systemd-analyze | head -n 1"))

    def test_a_typo_in_the_policy_leaves_the_last_good_one_in_force(self):
        suite.host.write(TYPO, "[overcomit]\ncpu = 2\n")
        self.boot()
        status = suite.status()
        self.assertEqual((status["state"], status["mode"]), ("degraded", "enforce"))
        self.assertIn("60-typo.toml", "\n".join(status["problems"]))
        self.assertEqual(suite.host.do("systemctl is-active virtguardd.socket"), "active")
        suite.host.do(f"rm {TYPO}; systemctl reload virtguardd")
        wait_until(lambda: suite.status()["state"] == "ready", "all is well once it is mended")
