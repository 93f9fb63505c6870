# SPDX-License-Identifier: Apache-2.0
"""What is set at run time outlives virtguardd and a boot; and a virtguardd without its folder in /run."""
import json

import suite
from suite import MachineTest, wait_until


def reservations():
    listed = json.loads(suite.host.do("virtguardctl reservation list --json"))["reservations"]
    return [(entry["owner"], entry["name"]) for entry in listed]


def cpu_ratio():
    return suite.host.do("busctl get-property org.virtguard1 /org/virtguard1 org.virtguard1.Manager Overcommit")


class Kept(MachineTest):
    @classmethod
    def setUpClass(cls):
        cls().set_policy(suite.ROOMY)

    def assert_kept(self):
        wait_until(lambda: suite.status()["state"] == "ready", "virtguardd is ready", 120)
        self.assertEqual(reservations(), [("default-scheduler", "spot")])
        self.assertIn('"cpu" "3"', cpu_ratio())

    def test_an_overcommit_ratio_and_a_reservation_outlive_the_daemon(self):
        suite.host.do("virtguardctl overcommit set cpu 3")
        suite.host.do("virtguardctl reservation add default-scheduler spot memory=64Mi --expires never")
        self.assert_kept()
        suite.host.do("systemctl restart virtguardd")
        self.assert_kept()

    def test_they_outlive_a_boot(self):
        suite.host.reboot()
        self.assert_kept()
        suite.host.do("virtguardctl overcommit reset; virtguardctl reservation cancel default-scheduler spot")

    def test_somebody_deletes_its_folder_in_run(self):
        self.assert_starts("stays")
        suite.host.do("rm -rf /run/virtguard")
        told = suite.host.run("virtguardctl doctor").out
        self.assertIn("> as root: systemctl restart virtguardd.socket virtguardd;", told)
        suite.host.do("systemctl restart virtguardd")  # as after a crash: systemd called it a failure to set up a namespace
        suite.host.do("systemctl restart virtguardd.socket virtguardd")
        wait_until(lambda: suite.status()["state"] == "ready", "virtguardd is ready", 120)
        self.assertEqual(suite.ledger(), {"stays": "running"})
        self.assert_ledger_agrees()
        self.assert_decides()
        self.remove_guests()
