#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whatever becomes of the files that one virtguardd leaves to the next: that one starts, says so, and agrees again."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import unittest

import lab

GUESTS = pathlib.Path("/run/virtguard/guests")
UUID = "5105105a-0000-4000-8000-000000000001"
FILE = GUESTS / UUID

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())
    host.reload_policy(host.policy_with_room(1024))
    host.define(lab.domain_xml("known", uuid=UUID))
    host.define(lab.domain_xml("other"))
    for name in ("known", "other"):
        result = host.virsh("start", name, "--paused")
        assert result.status == 0, result


def flip(text, bit):
    flipped = bytearray(text)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def fill(path):
    """Takes all that is left of a file system."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


class StateFiles(unittest.TestCase):
    def setUp(self):
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        lab.wait_until(FILE.is_file, "the guest is kept")

    def restart(self, meanwhile):
        """Kills virtguardd and starts another, which must agree with all; what that one says."""
        host.stop_daemon(signal.SIGKILL)
        meanwhile()
        before = host.daemon_log()
        host.start_daemon()
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        self.assertEqual(host.doctor(), "")
        return host.daemon_log()[len(before):]

    def expect_set_aside(self, what, meanwhile):
        said = self.restart(meanwhile)
        self.assertIn(f"{FILE}: {what}; its guest is not known until libvirt tells whether it runs", said)
        lab.wait_until(FILE.is_file, "the guest is kept again")

    def test_whole_files_are_believed(self):
        self.assertIn("2 guests are known from before", self.restart(lambda: None))

    def test_a_damaged_file_is_said_and_set_aside(self):
        text = FILE.read_bytes()
        no_state_file, damaged = "not a state file", "damaged"
        damages = {"empty": (no_state_file, b""), "cut in the first line": (damaged, text[:20]),
                   "cut in the middle": (damaged, text[:len(text) // 2]), "cut by one": (damaged, text[:-1]),
                   "its first bit": (no_state_file, flip(text, 0)), "its last bit": (damaged, flip(text, 8 * len(text) - 1)),
                   "zeros": (no_state_file, bytes(len(text))),
                   "a newer version": ("written by a newer version", text.replace(b"state 1 ", b"state 2 "))}
        for name, (what, damage) in damages.items():
            with self.subTest(name):
                self.expect_set_aside(what, lambda damage=damage: FILE.write_bytes(damage))
                self.assertEqual(FILE.with_suffix(".damaged").read_bytes(), damage)

    def test_what_cannot_be_read_is_set_aside(self):
        def make_socket(path):
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(str(path))
        for make in (pathlib.Path.mkdir, os.mkfifo, make_socket):
            with self.subTest(make.__name__):
                def put_in_place(make=make):
                    FILE.unlink()
                    make(FILE)
                self.expect_set_aside("not a regular file", put_in_place)

    def test_without_any_files_libvirts_own_tell(self):
        def remove_all():
            shutil.rmtree(GUESTS)
        self.assertIn("2 guests are known from before", self.restart(remove_all))

    def test_a_full_file_system_is_said_and_starts_go_on(self):
        # The folder itself has its only inode.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "lab", GUESTS], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", GUESTS], check=True)
        said = self.restart(lambda: None)
        self.assertIn("No space left on device; what the last virtguardd knew is lost", said)
        problem, = host.status()["problems"]
        self.assertRegex(problem, f"^guests: {re.escape(str(GUESTS))}.*: No space left on device$")
        host.define(lab.domain_xml("more"))
        self.addCleanup(host.virsh, "undefine", "more")
        result = host.virsh("start", "more", "--paused")
        self.assertEqual(result.status, 0, result)
        subprocess.run(["mount", "-o", "remount,nr_inodes=100", GUESTS], check=True)
        host.virsh("destroy", "more")
        lab.wait_until(lambda: host.status()["problems"] == [], "all is written again")
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        self.assertIn("2 guests are known from before", self.restart(lambda: None))

    def test_a_full_state_folder_changes_no_answer(self):
        folder = pathlib.Path("/var/lib/virtguard")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "lab", folder], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", folder], check=True)
        said = self.restart(lambda: fill(folder / "filler"))
        self.assertIn(f"{folder}/hook.conf: cannot be written: No space left on device", said)
        self.assertRegex(said, f"not kept as the last good one: {folder}/last-good-policy.new.*: No space left on device")


if __name__ == "__main__":
    lab.main()
