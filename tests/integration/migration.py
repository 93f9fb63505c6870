#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Guests move between two hosts, or fail to: what each libvirt tells its hooks, and what each virtguardd holds."""
import concurrent.futures
import contextlib
import os
import signal
import unittest

import lab
import peer

ROOM_MIB = 112  # one guest, and not another one
GUEST_MIB = 64
POLICY = """
[hook]
unavailable = "deny"
timeout = "20s"
[claim]
lease = "1s"
return = "1min"  # as long as it takes to be seen on a busy machine
"""
# What QEMU fills memory with, so that there is something to move; at 1 MiB a second that takes a while.
DATA = peer.FOLDER / "data"
FULL = ["-device", f"loader,file={DATA},addr=0x1000000,force-raw=on"]
SLOWLY = ["--bandwidth", "1"]

host = other = None


def setUpModule():
    global host, other
    host = unittest.enterModuleContext(lab.Lab())
    other = unittest.enterModuleContext(peer.Peer())
    DATA.write_bytes(os.urandom(20 * lab.MIB))
    for each in (host, other):
        each.record_hooks()
    other.define(lab.domain_xml("rival", memory_mib=GUEST_MIB))
    host.define(lab.domain_xml("guest", memory_mib=GUEST_MIB, arguments=FULL))


def migrate(*options):
    return host.virsh("migrate", *options, "guest", peer.URI, peer.MIGRATE_URI)


class Migration(unittest.TestCase):
    def setUp(self):
        for each in (host, other):
            each.reload_policy(each.policy_with_room(ROOM_MIB, more=POLICY))
            self.assertEqual(each.ledger(), {})
        result = host.virsh("start", "guest", "--paused")
        self.assertEqual(result.status, 0, result)
        for each in (host, other):
            each.hooks_seen()

    def tearDown(self):
        other.remove_hook("60-test")
        for each in (host, other):
            each.destroy_all()
        self.assert_run(set(), set())

    def assert_hooks(self, here, there):
        self.assertEqual((host.hooks_seen(), other.hooks_seen()),
                         ({"guest": here} if here else {}, {"guest": there} if there else {}))

    def assert_run(self, here, there):
        """Names of guests; nothing is held for others once no place is kept for a return."""
        for each, names in ((host, here), (other, there)):
            lab.wait_until(lambda each=each, names=names: each.running() == names, f"what runs is {names}")
            each.end_kept_places()
            each.settle()
            self.assertEqual(each.ledger(), dict.fromkeys(names, "running"))

    @contextlib.contextmanager
    def half_way(self):
        """A migration that takes long, during which something happens; it must fail."""
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            migration = thread.submit(migrate, "--live", *SLOWLY)
            lab.wait_until(lambda: "Data remaining" in host.virsh("domjobinfo", "guest").out, "memory is moved", 60)
            self.assertEqual((host.ledger(), other.ledger()), ({"guest": "running"},) * 2)
            yield
            self.assertEqual(migration.result().status, 1, migration.result())

    def test_success(self):
        result = migrate("--live")
        self.assertEqual(result.status, 0, result)
        self.assert_run(set(), {"guest"})
        self.assert_hooks(lab.ENDED, ["migrate -"] + lab.STARTED)

    def test_offline(self):
        self.assertEqual(host.virsh("destroy", "guest").status, 0)
        host.hooks_seen()
        result = migrate("--offline", "--persistent")
        self.addCleanup(other.virsh, "undefine", "guest")
        self.assertEqual(result.status, 0, result)
        self.assert_run(set(), set())
        self.assert_hooks([], ["migrate -"])

    def test_refused_over_there(self):
        self.assertEqual(other.virsh("start", "rival", "--paused").status, 0)
        other.hooks_seen()
        result = migrate("--live")
        self.assertEqual(result.status, 1)
        self.assertRegex(result.err, "virtguard: refused guest: memory: needs 64 MiB, 48 MiB free of 112 MiB$")
        self.assert_hooks([], ["migrate -", "prepare -", "stopped -", "release -"])
        self.assertEqual((host.ledger(), other.ledger()), ({"guest": "running"}, {"rival": "running"}))
        self.assertEqual((host.running(), other.running()), ({"guest"}, {"rival"}))

    def test_refused_by_another_hook_over_there(self):
        other.write_hook("60-test", "[ $2 != prepare ]\n")
        self.assertEqual(migrate("--live").status, 1)
        self.assert_run({"guest"}, set())
        self.assert_hooks([], ["migrate -", "prepare pending", "stopped pending", "release -"])

    def test_aborted(self):
        with self.half_way():
            refused = other.virsh("start", "rival", "--paused")
            self.assertRegex(refused.err, "virtguard: refused rival: memory: needs 64 MiB, 48 MiB free of 112 MiB$")
            self.assertEqual(host.virsh("domjobabort", "guest").status, 0)
        self.assert_run({"guest"}, set())
        self.assertEqual(host.hooks_seen(), {})
        self.assertEqual(other.hooks_seen()["guest"], ["migrate -"] + lab.STARTED + lab.ENDED)
        self.assertEqual(other.virsh("start", "rival", "--paused").status, 0)

    def test_qemu_is_killed_over_there(self):
        with self.half_way():
            os.kill(other.qemu_pid("guest"), signal.SIGKILL)
        self.assert_run({"guest"}, set())
        self.assert_hooks([], ["migrate -"] + lab.STARTED + lab.ENDED)

    def test_qemu_is_killed_here(self):
        with self.half_way():
            os.kill(host.qemu_pid("guest"), signal.SIGKILL)
        self.assert_run(set(), set())
        self.assert_hooks(lab.ENDED, ["migrate -"] + lab.STARTED + lab.ENDED)

    def test_libvirtd_is_killed_over_there(self):
        with self.half_way():
            other.stop_libvirtd(signal.SIGKILL)
            host.virsh("migrate-setspeed", "guest", "1000")  # what is noticed is that nobody takes it over
        other.start_libvirtd()
        self.assert_run({"guest"}, set())
        self.assert_hooks([], ["migrate -"] + lab.STARTED + lab.ENDED)

    def test_virtguardd_is_killed_on_both_hosts(self):
        with self.half_way():
            for each in (host, other):
                each.stop_daemon(signal.SIGKILL)
                each.start_daemon()
            self.assertEqual((host.ledger(), other.ledger()), ({"guest": "running"},) * 2)
            self.assertEqual(host.virsh("domjobabort", "guest").status, 0)
        self.assert_run({"guest"}, set())
        self.assert_hooks([], ["migrate -"] + lab.STARTED + lab.ENDED)


if __name__ == "__main__":
    lab.main()
