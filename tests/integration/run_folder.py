#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardd goes on answering when its folder in /run is deleted, or nobody reads its log.

    run_folder.py VIRTGUARDD VIRTGUARDCTL
"""
import fcntl
import os
import shutil

import alone
from alone import DEADLINE


class RunFolder(alone.DaemonTest):
    def wait_for_answer(self):
        self.wait_for(lambda: self.ctl("status").returncode == 0, "virtguardd answers")

    def test_without_its_socket(self):
        daemon = self.start_daemon()
        self.wait_for_answer()
        self.socket.unlink()
        self.wait_for_answer()
        self.assertIn("/hook.sock: was deleted or replaced; virtguardd listens there again", self.log.read_text())
        self.assertEqual(self.socket.stat().st_mode & 0o777, 0o600)
        daemon.terminate()
        self.assertEqual(daemon.wait(DEADLINE), 0)

    def test_without_its_folder(self):
        self.start_daemon()
        self.wait_for_answer()
        # In one step: a daemon that is quick makes the folder anew while it is being deleted.
        self.run_folder.rename(self.folder / "away")
        shutil.rmtree(self.folder / "away")
        self.wait_for_answer()
        second = self.start_daemon()
        self.assertEqual(second.wait(DEADLINE), 1)
        self.assertIn(f"{self.run_folder}/lock: another virtguardd runs", self.log.read_text())
        self.wait_for_answer()

    def test_while_nobody_reads_its_log(self):
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        os.write(writer, b"x" * 4096)
        daemon = self.start_daemon(stderr=writer)
        os.close(writer)
        self.wait_for_answer()
        os.read(reader, 4096)
        daemon.terminate()
        self.assertEqual(daemon.wait(DEADLINE), 0)
        self.assertRegex(os.read(reader, 4096), rb"^log: lines that could not be written before this one: [0-9]+\n")


if __name__ == "__main__":
    alone.main()
