# SPDX-License-Identifier: Apache-2.0
"""The package is replaced, removed, purged and installed again, while guests start."""
import suite
from suite import MachineTest, wait_until

APT = "DEBIAN_FRONTEND=noninteractive apt-get -y"
# Starts and ends a guest again and again while there is the file; writes a line for each start.
STORM = """
while [ -e /run/storm ]; do
    virsh start --paused storm >/dev/null && echo started || echo FAILED
    virsh destroy storm >/dev/null
done
"""


class Upgrade(MachineTest):
    @classmethod
    def setUpClass(cls):
        suite.mount_payload()

    def test_no_start_fails_while_the_package_is_upgraded(self):
        # Where no answer is a refusal each start needs one. virtguardd takes 3 seconds to start here, so hooks wait
        # longer than they usually do.
        self.set_policy(suite.ROOMY + "[hook]\nunavailable = \"deny\"\ntimeout = \"60s\"\n")
        self.assert_starts("stays")
        self.define("storm")
        suite.host.do("touch /run/storm")
        storm = suite.host.start(STORM)
        old = suite.host.do("dpkg-query -W -f '${Version}' virtguard")
        suite.host.do("sleep 10")
        print(suite.host.do(f"{APT} install /payload/newer.deb 2>&1", seconds=1200))
        suite.host.do("sleep 10; rm /run/storm")
        result = suite.host.finish(storm)
        print(f"{result.out.count('started')} starts", end=" ", flush=True)
        self.assertEqual(set(result.out.split()), {"started"}, result)
        self.assertEqual(suite.host.do("dpkg-query -W -f '${Version}' virtguard"), f"{old}+newer")
        self.assert_ledger_agrees()

    def test_starts_work_without_the_package(self):
        suite.host.do(f"{APT} remove virtguard", seconds=1200)
        self.assertEqual(self.running(), {"stays"})
        self.assert_starts("unguarded")
        suite.host.do("systemctl restart libvirtd")
        self.assertEqual(self.running(), {"stays", "unguarded"})
        self.assertEqual(suite.host.do("find /etc/libvirt/hooks -name '*virtguard*'"), "")

    def test_a_purge_leaves_nothing(self):
        suite.host.do(f"{APT} purge virtguard", seconds=1200)
        self.assertEqual(suite.host.do("find / -xdev -name '*virtguard*' -not -path '/proc/*' -not -path '/payload/*'"
                                       " -not -path '/var/lib/systemd/*'; find /run -name '*virtguard*'"), "")

    def test_it_is_installed_again_with_guests_running(self):
        suite.host.do(f"{APT} install /payload/newer.deb", seconds=1200)
        wait_until(lambda: suite.status()["state"] == "ready", "virtguardd is ready")
        self.assert_ledger_agrees()
        self.assertEqual(suite.ledger(), {"stays": "running", "unguarded": "running"})
        self.remove_guests()
