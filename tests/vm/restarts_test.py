# SPDX-License-Identifier: Apache-2.0
"""Services that end and come back, with guests running: none is lost, and starts go on being decided."""
import suite
from suite import MachineTest, wait_until

# Each daemon is killed as soon as it is ready or, which it hardly ever is, after 3 seconds.
CRASH_LOOP = """
end=$(($(date +%s) + 60))
while [ $(date +%s) -lt $end ]; do
    sleep 3
    kill -9 $(systemctl show -P MainPID virtguardd) 2>/dev/null
done
"""


def qemus():
    """A pid for each guest."""
    return suite.host.do("cd /run/libvirt/qemu && grep --with-filename . bound.pid huge.pid")


class Restarts(MachineTest):
    @classmethod
    def setUpClass(cls):
        cls().set_policy(suite.ROOMY)
        cls().assert_starts("bound", node=1, confined=True)
        cls().assert_starts("huge", hugepages=True)

    @classmethod
    def tearDownClass(cls):
        cls().remove_guests()

    def tearDown(self):
        self.assertEqual(self.running(), {"bound", "huge"})
        self.assert_ledger_agrees()

    def restart(self, *units):
        before = qemus()
        suite.host.do(f"systemctl restart {' '.join(units)}")
        wait_until(lambda: suite.host.run("virsh version").status == 0, "libvirtd answers")
        self.assertEqual(qemus(), before)
        wait_until(lambda: suite.status()["state"] == "ready", "virtguardd is ready")
        self.assert_ledger_agrees()
        self.assert_decides()

    def test_virtguardd_restarts(self):
        self.restart("virtguardd")

    def test_libvirtd_restarts(self):
        self.restart("libvirtd")

    def test_dbus_restarts_and_virtguardd_is_on_it_again(self):
        self.restart("dbus")
        wait_until(lambda: suite.host.run("busctl --list tree org.virtguard1").status == 0, "it is on the bus")

    def test_a_daemon_that_is_killed_for_a_minute_leaves_the_socket_and_the_guests_alone(self):
        loop = suite.host.start(CRASH_LOOP)
        self.assert_starts("meanwhile")
        suite.host.do("virsh destroy meanwhile")
        suite.host.finish(loop)
        restarts = int(suite.host.do("systemctl show -P NRestarts virtguardd"))
        print(f"restarted {restarts} times", end=" ", flush=True)
        self.assertGreater(restarts, 5)
        self.assertEqual(suite.host.do("systemctl is-active virtguardd.socket"), "active")
        self.assert_decides()
        wait_until(lambda: suite.status()["state"] == "ready", "virtguardd is ready")
