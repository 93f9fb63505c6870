#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardd takes the socket that systemd passes it, and leaves it in place when it ends.

    socket_activation.py VIRTGUARDD VIRTGUARDCTL
"""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

DAEMON, CTL = sys.argv[1:3]
FIRST_PASSED = 3  # SD_LISTEN_FDS_START
DEADLINE = 10


class SocketActivation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = str(self.folder / "hook.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.listener.close)
        self.listener.bind(self.path)
        self.listener.listen()

    def start(self, name):
        folder = self.folder

        def become_service():
            os.dup2(self.listener.fileno(), FIRST_PASSED)
            os.set_inheritable(FIRST_PASSED, True)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES=name)
            os.execv(DAEMON, [DAEMON, "--run-dir", f"{folder}/run", "--state-dir", f"{folder}/state",
                              "--policy-dir", str(folder), "--libvirt-uri", "test:///default",
                              "--topology", "numa:1(memory=16GiB) core:4 pu:1"])

        # The process id must be in the environment, so the child sets it itself.
        pid = os.fork()
        if pid == 0:
            become_service()
        return pid

    def stop(self, pid):
        os.kill(pid, 15)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def status(self, path):
        return subprocess.run([CTL, "--socket", path, "status"], capture_output=True, text=True, timeout=DEADLINE)

    def test_a_start_that_waits_in_the_passed_socket_is_answered(self):
        waiting = subprocess.Popen([CTL, "--socket", self.path, "status"], stdout=subprocess.PIPE, text=True)
        pid = self.start("hook")
        self.assertIn("mode enforce", waiting.communicate(timeout=DEADLINE)[0])
        self.assertFalse((self.folder / "run/hook.sock").exists())
        self.assertEqual(self.stop(pid), 0)
        self.assertTrue(pathlib.Path(self.path).is_socket(), "systemd's socket is not ours to remove")

    def test_a_passed_socket_of_another_name_is_not_the_hooks(self):
        pid = self.start("other")
        own = self.folder / "run/hook.sock"
        deadline = time.monotonic() + DEADLINE
        while self.status(str(own)).returncode != 0:
            self.assertLess(time.monotonic(), deadline, "virtguardd made no socket of its own")
            time.sleep(0.05)
        self.assertEqual(self.stop(pid), 0)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: virtguardd's socket is root's, and this is not root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
