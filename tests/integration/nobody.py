# SPDX-License-Identifier: Apache-2.0
"""What whoever runs this can do with files, folders and sockets: tries all on each of its arguments, and prints as JSON
{what: [paths where it worked]}. Given to python3 as text, as nobody may not be able to read this file."""
import fcntl
import json
import os
import socket
import sys


def read(path):
    if os.path.isdir(path):
        os.listdir(path)
    else:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


def write(path):
    if os.path.isdir(path):
        os.close(os.open(f"{path}/new", os.O_WRONLY | os.O_CREAT, 0o666))
    else:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


def lock(path):
    fcntl.flock(os.open(path, os.O_RDONLY | os.O_NONBLOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)  # and keeps it


def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)


def remove(path):
    if os.path.isdir(path):
        os.rmdir(path)
    else:
        os.unlink(path)


TRIES = {
    "read": read, "write": write, "lock": lock, "connect": connect, "truncate": lambda path: os.truncate(path, 0),
    "link": lambda path: os.symlink("/etc/passwd", f"{path}.link"), "bind": lambda path: os.mkfifo(f"{path}.fifo"),
    "chmod": lambda path: os.chmod(path, 0o777), "chown": lambda path: os.chown(path, os.geteuid(), os.getegid()),
    "touch": os.utime, "attribute": lambda path: os.setxattr(path, "user.x", b"x"),
    "rename": lambda path: os.rename(path, f"{path}.old"), "remove": remove}

worked = {}
for what, attempt in TRIES.items():
    for each in sys.argv[1:]:
        try:
            attempt(each)
            worked.setdefault(what, []).append(each)
        except OSError:
            pass
print(json.dumps(worked), flush=True)
sys.stdin.read()  # locks are held until then
