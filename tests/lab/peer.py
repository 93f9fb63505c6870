# SPDX-License-Identifier: Apache-2.0
"""A second host, for migrations: a Lab in mount and host name namespaces of its own, within the first one's.

    with lab.Lab() as host, peer.Peer() as other:
        other.write_policy(...)             # any method of Lab, run over there
        host.virsh("migrate", "--live", "web-1", peer.URI, peer.MIGRATE_URI)

Processes and the network are shared, and FOLDER.
"""
import multiprocessing.connection
import os
import pathlib
import subprocess
import sys
import threading

import lab
import namespace

FOLDER = pathlib.Path("/run/peer")
URI = f"qemu+unix:///system?socket={FOLDER}/libvirt/libvirt-sock"
MIGRATE_URI = "tcp://127.0.0.1"


class Peer:
    """Each method and property of Lab, called, one call at a time. What it raises over there is raised here."""

    def __init__(self, **options):
        for folder in ("libvirt", "log"):
            (FOLDER / folder).mkdir(parents=True)
        self._pipe, theirs = multiprocessing.connection.Pipe()
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            ["unshare", "--mount", "--uts", "--propagation", "private", sys.executable, __file__, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),))
        theirs.close()
        self._pipe.send(options)

    def __enter__(self):
        self._receive()  # it is up
        return self

    def __exit__(self, *_):
        self._pipe.close()
        self._process.wait(timeout=60)

    def __getattr__(self, name):
        def call(*arguments, **options):
            with self._lock:
                self._pipe.send((name, arguments, options))
                return self._receive()
        return call

    def _receive(self):
        result = self._pipe.recv()
        if isinstance(result, Exception):
            raise result
        return result


def serve(pipe):
    namespace.make_private([str(lab.ROOT), str(lab.BUILD), str(FOLDER)], host_name="peer")
    os.mkdir("/run/libvirt")
    for folder, place in (("libvirt", "/run/libvirt"), ("log", "/var/log")):
        subprocess.run(["mount", "--bind", FOLDER / folder, place], check=True)
    with lab.Lab(**pipe.recv()) as host:
        pipe.send("up")
        while True:
            try:
                name, arguments, options = pipe.recv()
            except EOFError:
                return
            try:
                member = getattr(host, name)
                pipe.send(member(*arguments, **options) if callable(member) else member)
            except Exception as error:  # pylint: disable=broad-except
                pipe.send(error)


if __name__ == "__main__":
    serve(multiprocessing.connection.Connection(int(sys.argv[1])))
