# SPDX-License-Identifier: Apache-2.0
"""From a fresh Debian with libvirt to a guarded one."""
import machine
import suite
from suite import MachineTest, wait_until


class Install(MachineTest):
    def test_apt_installs_the_package_on_a_host_whose_libvirtd_runs(self):
        suite.mount_payload()
        suite.host.do("virsh version")  # libvirtd has looked for hooks, and there was none
        suite.host.start("timeout 900 virsh event --all --loop")  # a libvirtd without clients ends after two minutes
        before = suite.host.do("systemctl show -P MainPID libvirtd")
        print(suite.host.do("DEBIAN_FRONTEND=noninteractive apt-get install -y /payload/virtguard.deb 2>&1",
                            seconds=600))
        self.assertEqual(suite.host.do("systemctl show -P MainPID libvirtd; pkill -x virsh"), before)

    def test_the_bus_knows_whose_its_name_is_before_it_asks(self):
        wait_until(lambda: suite.host.run("busctl --list tree org.virtguard1").status == 0, "it is on the bus")
        told = [line for line in suite.journal("-u virtguardd").splitlines() if line.startswith("bus: ")]
        self.assertEqual(told, ["bus: there as org.virtguard1"])

    def test_its_sandbox_is_as_tight_as_it_is_said_to_be(self):
        print(suite.host.do("systemd-analyze security --no-pager --threshold=25 virtguardd | tail -n 1"), end=" ")

    def test_the_daemon_and_its_socket_run_and_will_at_the_next_boot(self):
        units = "virtguardd.service virtguardd.socket"
        self.assertEqual(suite.host.do(f"systemctl is-active {units}").split(), ["active"] * 2)
        self.assertEqual(suite.host.do(f"systemctl is-enabled {units}").split(), ["enabled"] * 2)
        self.assertEqual(suite.host.do("systemctl --failed --quiet"), "")

    def test_it_guards_from_the_first_minute(self):
        suite.have_hooks_wait()
        status = suite.status()
        self.assertEqual((status["mode"], status["state"], status["problems"]), ("enforce", "ready", []))
        self.assertEqual(len(status["nodes"]), machine.NODES)
        self.assert_refused(self.start("too-large", 9000), "memory: needs 8.88 GiB, more than the ")

    def test_a_guest_that_fits_starts_and_is_counted(self):
        self.set_policy(suite.ROOMY)
        self.assert_starts("first", confined=True)
        self.assertEqual(suite.ledger(), {"first": "running"})
        self.assert_ledger_agrees()
        self.remove_guests()

    def test_its_autopkgtests_pass(self):
        for name in ("simulate", "guard"):
            suite.host.do(f"AUTOPKGTEST_TMP=$(mktemp -d) /payload/tests/{name}", seconds=600)
        self.assertEqual(suite.denials(), [])

    def test_an_idle_daemon_is_small(self):
        pid = suite.host.do("systemctl show -P MainPID virtguardd")
        resident_kib = int(suite.host.do(f"awk '/VmRSS/{{print $2}}' /proc/{pid}/status"))
        print(f"an idle virtguardd: {resident_kib / 1024:.1f} MiB resident")
        self.assertLess(resident_kib, 64 * 1024)
