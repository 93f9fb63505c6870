#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardd takes the socket that systemd passes it, and leaves it in place when it ends.

    socket_activation.py VIRTGUARDD VIRTGUARDCTL
"""
import os
import pathlib
import socket
import subprocess

import alone
from alone import CTL, DAEMON, DEADLINE

FIRST_PASSED = 3  # SD_LISTEN_FDS_START


class SocketActivation(alone.DaemonTest):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "hook.sock")
        self.listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.listener.close)
        self.listener.bind(self.path)
        self.listener.listen()

    def start(self, name):
        def become_service():
            os.dup2(self.listener.fileno(), FIRST_PASSED)
            os.set_inheritable(FIRST_PASSED, True)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES=name)
            os.execv(DAEMON, [str(word) for word in self.daemon_command()])

        # The process id must be in the environment, so the child sets it itself.
        pid = os.fork()
        if pid == 0:
            become_service()
        return pid

    def stop(self, pid):
        os.kill(pid, 15)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def test_a_start_that_waits_in_the_passed_socket_is_answered(self):
        waiting = subprocess.Popen([CTL, "--socket", self.path, "status"], stdout=subprocess.PIPE, text=True)
        pid = self.start("hook")
        self.assertIn("mode enforce", waiting.communicate(timeout=DEADLINE)[0])
        self.assertFalse(self.socket.exists())
        self.assertEqual(self.stop(pid), 0)
        self.assertTrue(pathlib.Path(self.path).is_socket(), "systemd's socket is not ours to remove")

    def test_a_passed_socket_of_another_name_is_not_the_hooks(self):
        pid = self.start("other")
        self.wait_for(lambda: self.ctl("status").returncode == 0, "virtguardd made a socket of its own")
        self.assertEqual(self.stop(pid), 0)


if __name__ == "__main__":
    alone.main()
