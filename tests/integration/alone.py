# SPDX-License-Identifier: Apache-2.0
"""virtguardd alone: its host is a description, and libvirt the test driver in its own process.

    class Something(alone.DaemonTest):
        def test_something(self):
            self.start_daemon()
    if __name__ == "__main__":
        alone.main()          # FILE.py VIRTGUARDD VIRTGUARDCTL [unittest's options]
"""
import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

DAEMON, CTL = map(os.path.abspath, sys.argv[1:3])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
DEADLINE = 20

PREPARE, STARTED, RELEASE = 1, 2, 3
ADMITTED, REFUSED = 1, 2


def xml(name, number, size, unit="GiB", more=""):
    """A domain of 2 vCPUs whose UUID ends in a number."""
    return (f"<domain type='kvm'><name>{name}</name><uuid>00000000-0000-4000-8000-{number:012x}</uuid>"
            f"<memory unit='{unit}'>{size}</memory><vcpu>2</vcpu>{more}<os><type arch='x86_64'>hvm</type></os></domain>")


class DaemonTest(unittest.TestCase):
    topology = "numa:2(memory=16GiB) core:4 pu:2"
    libvirt_uri = "test:///default"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.policy = self.folder / "policy/virtguard.toml"
        self.policy.parent.mkdir()
        self.run_folder = self.folder / "run"
        self.socket = self.run_folder / "hook.sock"
        self.log = self.folder / "log"
        self.log.touch()
        self.environment = dict(os.environ)

    def run_for_test(self, command, **options):
        """A process that ends with the test."""
        process = subprocess.Popen([str(word) for word in command], **{"env": self.environment, "text": True, **options})
        self.addCleanup(process.wait, DEADLINE)
        self.addCleanup(process.kill)
        return process

    def daemon_command(self):
        return [DAEMON, "--run-dir", self.run_folder, "--state-dir", self.folder / "state",
                "--policy-dir", self.policy.parent, "--libvirt-uri", self.libvirt_uri, "--topology", self.topology]

    def start_daemon(self, **options):
        with open(self.log, "ab") as log:
            return self.run_for_test(self.daemon_command(), **{"stderr": log, **options})

    def wait_for(self, is_so, what):
        deadline = time.monotonic() + DEADLINE
        while not is_so():
            if time.monotonic() > deadline:
                self.fail(f"{what}: not so after {DEADLINE} s\n{self.log.read_text()}")
            time.sleep(0.02)

    def ctl(self, *command, **options):
        return subprocess.run([CTL, "--socket", self.socket, *command], capture_output=True, text=True,
                              timeout=DEADLINE, check=False, **options)

    def status(self):
        done = self.ctl("status", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def is_ready(self):
        """It answers, and has heard of libvirt."""
        done = self.ctl("status", "--json")
        return done.returncode == 0 and json.loads(done.stdout)["state"] == "ready"

    def hook(self, operation, domain, timeout_ms=2000):
        """The verdict, as the hook gets it, and how long it took; None where none is due, or comes in time."""
        body = domain.encode()
        began = time.monotonic()
        with socket.socket(socket.AF_UNIX) as hook:
            hook.settimeout(DEADLINE)
            hook.connect(str(self.socket))
            now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            hook.sendall(struct.pack("<4sHHQIII", b"VGRQ", 1, operation, now, timeout_ms, 0, len(body)) + body)
            reply = hook.recv(1 << 20)
        return struct.unpack_from("<4sHH", reply)[2] if reply else None, time.monotonic() - began


def in_private_mounts():
    """Goes on, as root, in a mount namespace of its own, where what is mounted ends with the test."""
    inside = "VIRTGUARD_TEST_MOUNTS"
    if os.geteuid() == 0 and inside not in os.environ:
        os.environ[inside] = "private"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def main(tools=()):
    """The tests, where there is what they need."""
    if os.geteuid() != 0:
        skip("virtguardd's socket is root's, and this is not root")
    for tool in tools:
        if shutil.which(tool) is None:
            skip(f"there is no {tool}")
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
