#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardd goes on answering when its folder in /run is deleted, or nobody reads its log.

    run_folder.py VIRTGUARDD VIRTGUARDCTL
"""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

DAEMON, CTL = sys.argv[1:3]
DEADLINE = 20


class RunFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_folder = self.folder / "run"
        self.log = self.folder / "log"

    def start(self, stderr=None):
        with open(self.log, "ab") as log:
            daemon = subprocess.Popen(
                [DAEMON, "--run-dir", self.run_folder, "--state-dir", self.folder / "state",
                 "--policy-dir", self.folder, "--libvirt-uri", "test:///default",
                 "--topology", "numa:1(memory=16GiB) core:4 pu:1"], stderr=stderr or log)
        self.addCleanup(daemon.wait, DEADLINE)
        self.addCleanup(daemon.kill)
        return daemon

    def wait_for_answer(self):
        deadline = time.monotonic() + DEADLINE
        while subprocess.run([CTL, "--socket", self.run_folder / "hook.sock", "status"],
                             capture_output=True, timeout=DEADLINE).returncode != 0:
            self.assertLess(time.monotonic(), deadline, self.log.read_text())
            time.sleep(0.05)

    def test_without_its_socket(self):
        daemon = self.start()
        self.wait_for_answer()
        (self.run_folder / "hook.sock").unlink()
        self.wait_for_answer()
        self.assertIn("/hook.sock: was deleted or replaced; virtguardd listens there again", self.log.read_text())
        self.assertEqual(self.run_folder.joinpath("hook.sock").stat().st_mode & 0o777, 0o600)
        daemon.terminate()
        self.assertEqual(daemon.wait(DEADLINE), 0)

    def test_without_its_folder(self):
        self.start()
        self.wait_for_answer()
        # In one step: a daemon that is quick makes the folder anew while it is being deleted.
        self.run_folder.rename(self.folder / "away")
        shutil.rmtree(self.folder / "away")
        self.wait_for_answer()
        second = self.start()
        self.assertEqual(second.wait(DEADLINE), 1)
        self.assertIn(f"{self.run_folder}/lock: another virtguardd runs", self.log.read_text())
        self.wait_for_answer()

    def test_while_nobody_reads_its_log(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"x" * 4096)
        daemon = self.start(stderr=writer)
        os.close(writer)
        self.wait_for_answer()
        os.read(reader, 4096)
        daemon.terminate()
        self.assertEqual(daemon.wait(DEADLINE), 0)
        self.assertRegex(os.read(reader, 4096), rb"^log: lines that could not be written before this one: [0-9]+\n")


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: virtguardd's socket is root's, and this is not root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
