#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardctl policy: the files, what is in force, and the difference.

    policy_commands.py VIRTGUARDD VIRTGUARDCTL
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

DAEMON, CTL = sys.argv[1:3]
DEADLINE = 20


class Policy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.file = self.folder / "virtguard.toml"
        self.file.write_text('mode = "observe"\n[overcommit]\ncpu = 3\n')

    def start(self):
        with open(self.folder / "log", "wb") as log:
            daemon = subprocess.Popen(
                [DAEMON, "--run-dir", self.folder / "run", "--state-dir", self.folder / "state",
                 "--policy-dir", self.folder, "--libvirt-uri", "test:///default",
                 "--topology", "numa:2(memory=16GiB) core:4 pu:1"], stderr=log)
        self.addCleanup(daemon.wait, DEADLINE)
        self.addCleanup(daemon.kill)
        self.wait_until(lambda: self.ctl("show").returncode == 0)
        return daemon

    def wait_until(self, is_so):
        deadline = time.monotonic() + DEADLINE
        while not is_so():
            self.assertLess(time.monotonic(), deadline, (self.folder / "log").read_text())
            time.sleep(0.05)

    def ctl(self, *arguments):
        return subprocess.run([CTL, "--socket", self.folder / "run/hook.sock", "policy", *arguments],
                              capture_output=True, text=True, check=False, timeout=DEADLINE)

    def lines(self):
        return {line.split(" = ")[0]: line for line in self.ctl("show").stdout.splitlines()}

    def test_what_is_in_force_and_who_set_it(self):
        self.start()
        lines = self.lines()
        self.assertRegex(lines["mode"], f'^mode = "observe" +# {self.file}:1$')
        self.assertRegex(lines["overcommit.cpu"], f"^overcommit.cpu = 3 +# {self.file}:3$")
        self.assertRegex(lines["hook.timeout"], '^hook.timeout = "2s" +# default$')

    def test_what_is_shown_is_a_policy_that_changes_nothing(self):
        self.start()
        shown = self.folder / "shown.toml"
        shown.write_text(self.ctl("show").stdout)
        done = self.ctl("diff", shown)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_file_that_was_changed_differs_until_it_is_in_force(self):
        daemon = self.start()
        self.assertEqual(self.ctl("diff", self.folder).returncode, 0)
        self.file.write_text('[overcommit]\nmemory = 1.5\ncpu = 3\n')
        done = self.ctl("diff", self.folder)
        self.assertEqual((done.returncode, done.stdout), (
            1, f'- mode = "observe"  # {self.file}:1\n+ mode = "enforce"  # default\n'
               f"+ overcommit.memory = 1.5  # {self.file}:2\n"))
        changes = json.loads(self.ctl("diff", "--json", self.folder).stdout)["changes"]
        self.assertEqual(changes[1], {"in_force": None, "in_files": {
            "key": "overcommit.memory", "value": "1.5", "origin": f"{self.file}:2"}})
        daemon.send_signal(signal.SIGHUP)
        self.wait_until(lambda: self.ctl("diff", self.folder).returncode == 0)

    def test_a_bad_policy_is_in_nobodys_way_and_is_said(self):
        daemon = self.start()
        self.file.write_text("mode = 7\n")
        daemon.send_signal(signal.SIGHUP)
        self.wait_until(lambda: self.ctl("show").stdout.startswith(f"# not in force: {self.file}:1:8: mode: "))
        self.assertIn('"observe"', self.lines()["mode"])
        self.assertEqual(len(json.loads(self.ctl("show", "--json").stdout)["problems"]), 1)
        self.assertEqual(self.ctl("diff", self.folder).returncode, 2)

    def test_check_asks_nobody(self):
        done = self.ctl("check", self.folder)
        self.assertEqual((done.returncode, done.stdout),
                         (0, f"{self.folder}: well written, and possible on this host\n"))
        self.file.write_text('mode = 7\n[reserve.node.999]\nmemory = "1GiB"\n')
        done = self.ctl("check", self.file)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith(f"virtguardctl: {self.file}:1:8: mode: "), done.stderr)
        self.file.write_text('[reserve.node.999]\nmemory = "1GiB"\n')
        self.assertEqual(self.ctl("check", self.file).returncode, 1)
        self.assertEqual(self.ctl("check", self.folder / "absent").returncode, 1)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: virtguardd's socket is root's, and this is not root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
