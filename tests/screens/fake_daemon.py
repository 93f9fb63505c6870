# SPDX-License-Identifier: Apache-2.0
"""A socket that answers virtguardctl with documents of ours, and figures to make them of."""
import json
import os
import socket
import struct
import threading
import time

CHECK, STATUS, RECENT, POLICY = 5, 6, 7, 9
GIB = 1 << 30
COLUMNS = ("capacity", "reserved", "allocatable", "effective", "allocated", "pending", "booked", "foreign", "free")


class FakeDaemon:
    """Serves its documents by operation until closed."""

    def __init__(self, path, documents):
        self.documents = documents
        self.delay = 0  # seconds before each answer
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.fspath(path))
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection:
                header = connection.recv(28, socket.MSG_WAITALL)
                if len(header) < 28:
                    return
                _, _, operation, _, _, _, length = struct.unpack("<4sHHQIII", header)
                connection.recv(length, socket.MSG_WAITALL)
                time.sleep(self.delay)
                body = json.dumps(self.documents[operation]).encode()
                connection.sendall(struct.pack("<4sHHI", b"VGRP", 1, 3, len(body)) + body)

    def close(self):
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(self.listener.getsockname())
        self.thread.join()
        self.listener.close()


def figures(free=None, **resources):
    """Of each resource: capacity, reserved, ratio, whole, allocated, pending, booked, foreign. A node's free may be
    told, else it is the sum."""
    result = {column: {} for column in COLUMNS}
    for name, (capacity, reserved, ratio, whole, *held) in resources.items():
        name = name.replace("_", "-")
        allocatable = capacity - reserved
        effective = int((allocatable - whole) * ratio) + whole
        row = (capacity, reserved, allocatable, effective, *held,
               (free or {}).get(name, effective - sum(held)))
        for column, value in zip(COLUMNS, row):
            result[column][name] = value
    return result


def domain(name, number, state="running", scheduler="default-scheduler", accepted=True, **demand):
    return {"name": name, "uuid": f"00000000-0000-4000-8000-{number:012x}", "scheduler": scheduler,
            "accepted": accepted, "state": state,
            "demand": {resource.replace("_", "-"): amount for resource, amount in demand.items()}}
