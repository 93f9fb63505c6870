# SPDX-License-Identifier: Apache-2.0
"""All that virtguard shows and keeps, for tests of what must not be in it."""
import os
import pathlib
import socket
import subprocess

# What virtguardctl shows without naming a guest.
COMMANDS = [(*command, *form) for command in (
    ("status",), ("nodes",), ("domains",), ("recent",), ("policy", "show"), ("policy", "diff"), ("overcommit",), ("mode",),
    ("reservation", "list"), ("doctor",)) for form in ((), ("--json",))] + [
    ("metrics",), *(("export", "--format", kind, "--name", "host") for kind in ("machinepool", "hypervisor", "placement"))]


def listen_as_journal():
    """A socket in journald's place, in mounts of the test's own."""
    os.makedirs("/run/systemd", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "journal", "/run/systemd"], check=True)
    os.mkdir("/run/systemd/journal")
    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind("/run/systemd/journal/socket")
    return journal


def stream_of(log):
    """$JOURNAL_STREAM of who writes to that file, and is to take it for the journal."""
    found = os.stat(log)
    return f"{found.st_dev}:{found.st_ino}"


def drain(journal):
    """What has come since."""
    entries = b""
    try:
        while True:
            entries += journal.recv(1 << 20, socket.MSG_DONTWAIT) + b"\n"
    except BlockingIOError:
        return entries


def in_files(*folders):
    """By path, what the regular files below have."""
    return {str(path): path.read_bytes() for folder in folders for path in pathlib.Path(folder).rglob("*")
            if path.is_file() and not path.is_symlink()}


def in_memory(pid):
    """What a process has in memory that it can write to."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            places, mode = line.split()[:2]
            if not mode.startswith("rw"):
                continue
            begin, end = (int(place, 16) for place in places.split("-"))
            memory.seek(begin)
            try:
                found.append(memory.read(end - begin))
            except OSError:  # the kernel's
                pass
    return b"".join(found)
