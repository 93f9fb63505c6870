#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""libvirt gives its hooks the passwords of guests that are restored and migrated: virtguard keeps, logs and shows none."""
import pathlib
import signal
import unittest

import lab
import peer
import seen

ROOM_MIB = 112  # one guest, and not another one
GUEST_MIB = 64
PASSWORD = "s3cr3t-8"  # VNC takes eight characters
DEVICES = f"<graphics type='vnc' port='-1' autoport='yes' listen='127.0.0.1' passwd='{PASSWORD}'/>"
HEARD = pathlib.Path("/run/peer/heard")  # by hooks, on both hosts
SAVED = "/var/lab/guest.save"

host = other = journal = None


def setUpModule():
    global host, other, journal
    journal = seen.listen_as_journal()
    log = pathlib.Path("/var/log/virtguardd.log")
    log.touch()
    lab.ENVIRONMENT["JOURNAL_STREAM"] = seen.stream_of(log)
    host = unittest.enterModuleContext(lab.Lab())
    other = unittest.enterModuleContext(peer.Peer())
    HEARD.mkdir()
    for each in (host, other):
        each.write_hook("90-hear", f"cat >>{HEARD}/$2\n")
        each.reload_policy(each.policy_with_room(ROOM_MIB, more='[hook]\nunavailable = "deny"\ntimeout = "20s"\n'))
    for name in ("guest", "rival"):
        host.define(lab.domain_xml(name, memory_mib=GUEST_MIB, devices=DEVICES))


def heard(operation):
    """What hooks were given with it."""
    path = HEARD / operation
    return path.read_text() if path.exists() else ""


def restart_daemons():
    for each in (host, other):
        each.stop_daemon(signal.SIGKILL)
        each.start_daemon()


class SecretsKept(unittest.TestCase):
    def setUp(self):
        restart_daemons()  # so that nothing is in their memory

    def tearDown(self):
        for each in (host, other):
            each.destroy_all()
            each.end_kept_places()

    def virsh(self, *words, status=0):
        result = host.virsh(*words)
        self.assertEqual(result.status, status, result)
        self.assertNotIn(PASSWORD, result.err)

    def assert_kept(self, in_memory=False):
        """By both hosts; and in no memory of theirs."""
        found = {command: lab.ctl(*command).out.encode() for command in seen.COMMANDS}
        found["journal"] = seen.drain(journal)
        for pid, log in ((host.daemon_pid, "/var/log"), (other.daemon_pid(), peer.FOLDER / "log")):
            root = f"/proc/{pid}/root"
            found |= seen.in_files(f"{root}/run/virtguard", f"{root}/var/lib/virtguard")
            found[log] = pathlib.Path(log, "virtguardd.log").read_bytes()
            if not in_memory:
                found[f"memory of {pid}"] = seen.in_memory(pid)
                self.assertIn(b"virtguard", found[f"memory of {pid}"])
        self.assertEqual([what for what, text in found.items() if PASSWORD.encode() in text], [])

    def test_restored(self):
        self.virsh("start", "guest", "--paused")
        self.virsh("save", "guest", SAVED)
        self.virsh("restore", SAVED)
        self.assertIn(PASSWORD, heard("restore"))
        self.assert_kept()

    def test_refused_when_it_is_restored(self):
        self.virsh("start", "guest", "--paused")
        self.virsh("managedsave", "guest")
        self.virsh("start", "rival", "--paused")
        self.virsh("start", "guest", status=1)
        self.assertIn("VIRTGUARD_VERDICT=refuse", entries := seen.drain(journal).decode())
        self.assertNotIn(PASSWORD, entries)
        self.assert_kept()
        self.virsh("managedsave-remove", "guest")

    def test_migrated(self):
        self.virsh("start", "guest", "--paused")
        self.virsh("migrate", "--live", "guest", peer.URI, peer.MIGRATE_URI)
        self.assertIn(PASSWORD, heard("migrate"))
        lab.wait_until(lambda: other.ledger() == {"guest": "running"}, "it runs over there")
        self.assert_kept()

    def test_read_from_libvirts_own_files(self):
        """A virtguardd that starts reads in them what runs: in its memory they may be, so the unit lets it leave no core."""
        self.virsh("start", "guest", "--paused")
        self.assertIn(PASSWORD, (lab.STATUS / "guest.xml").read_text())
        restart_daemons()
        lab.wait_until(lambda: host.ledger() == {"guest": "running"}, "it is known")
        self.assert_kept(in_memory=True)
        self.assertIn("\nLimitCORE=0\n", (lab.ROOT / "conf/virtguardd.service.in").read_text())


if __name__ == "__main__":
    lab.main()
