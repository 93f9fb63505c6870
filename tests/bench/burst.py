#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What many starts at once cost: 1, 8, 64 and 256 hooks' requests reach virtguardd's socket at the same moment.

    burst.py VIRTGUARDD VIRTGUARDCTL           (VIRTGUARD_STARTS chooses how many of each)

One process asks for all of them: it connects and sends for each, then takes the answers as they come. A start's time is
from before the first of them connects to its own answer. Half of them fit, and it is checked that exactly those are
admitted. virtguardd's main thread and who asks are real-time processes, so that it is not measured how the kernel shares
the CPUs. The state is in a tmpfs, as /run is.
"""
import json
import os
import select
import socket
import struct
import subprocess
import time

import alone
from alone import ADMITTED, PREPARE, REFUSED, RELEASE, DaemonTest
from figures import figure, quantile

STARTS = int(os.environ.get("VIRTGUARD_STARTS", "5000"))
STATUS = 6
GOALS = {(256, 2): 25, (256, 10): 60}  # milliseconds
DEVICE = "<controller type='pci' index='1' model='pcie-root-port'><model name='pcie-root-port'/></controller>\n"


def padded_xml(number, kib, kilobytes):
    """Of that much memory, and that long."""
    start = (f"<domain type='kvm'><name>burst-{number}</name><uuid>00000000-0000-4000-8000-{number:012x}</uuid>"
             f"<memory unit='KiB'>{kib}</memory><vcpu>2</vcpu><os><type arch='x86_64'>hvm</type></os><devices>")
    return (start + DEVICE * ((1000 * kilobytes - len(start)) // len(DEVICE) + 1) + "</devices></domain>").encode()


class Burst(DaemonTest):
    topology = "numa:4(memory=1TiB) core:64 pu:2"

    def request(self, operation, body=b"", kind=socket.SOCK_STREAM):
        """A connection on which that was asked."""
        connection = socket.socket(socket.AF_UNIX, kind)
        connection.settimeout(alone.DEADLINE)
        connection.connect(str(self.socket))
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        connection.sendall(struct.pack("<4sHHQIII", b"VGRQ", 1, operation, now, 10000, 0, len(body)) + body)
        return connection

    def held(self, column):
        with self.request(STATUS) as connection:
            document = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        return json.loads(document[12:])["host"][column].get("memory", 0)

    def one_burst(self, bodies):
        """(milliseconds, verdict) of each, in the order of their answers."""
        answers, waiting, poll = [], {}, select.epoll()
        began = time.monotonic()
        for body in bodies:
            connection = self.request(PREPARE, body)
            waiting[connection.fileno()] = connection
            poll.register(connection, select.EPOLLIN)
        while waiting:
            for descriptor, _ in poll.poll():
                reply = waiting[descriptor].recv(4096)
                answers.append((1000 * (time.monotonic() - began), struct.unpack_from("<4sHH", reply)[2]))
                waiting.pop(descriptor).close()
        return answers

    def measure(self, count, kilobytes):
        fit = max(1, count // 2)
        kib = self.held("effective") // 1024 // fit
        times, seconds = [], 0
        for number in range(max(1, STARTS // count)):
            bodies = [padded_xml(count * number + i, kib, kilobytes) for i in range(count)]
            answers = self.one_burst(bodies)
            verdicts = [verdict for _, verdict in answers]
            self.assertEqual((verdicts.count(ADMITTED), verdicts.count(REFUSED)), (fit, count - fit))
            times += [milliseconds for milliseconds, _ in answers]
            seconds += answers[-1][0] / 1000
            for body in bodies:
                self.request(RELEASE, body).close()
            self.wait_for(lambda: self.held("pending") == 0, "all are released")
            time.sleep(answers[-1][0] / 1000)  # the kernel stops real-time processes that leave no time to others
        how = f"{len(times)} starts with {kilobytes} KB of XML, {count} at once; none answered wrongly"
        figure(f"{count} at once: answers", len(times) / seconds, "1/s", how)
        for name, part in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
            goal = GOALS.get((count, kilobytes)) if name == "p99" else None
            figure(f"{count} at once: {name}", quantile(times, part), "ms", how, f"<= {goal}" if goal else "")

    def test_all(self):
        (self.folder / "node.xml").write_text("<node/>")
        self.libvirt_uri = f"test://{self.folder}/node.xml"
        self.policy.write_text('[overcommit]\ncpu = 100\n[memory]\noverhead = "none"\n[claim]\nreturn = "0s"\n')
        daemon = self.start_daemon()
        self.wait_for(self.is_ready, "virtguardd answers")
        for process in (0, daemon.pid):
            os.sched_setscheduler(process, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        for kilobytes in (2, 10):
            for count in (1, 8, 64, 256):
                self.measure(count, kilobytes)


if __name__ == "__main__":
    alone.in_private_mounts()
    if os.geteuid() == 0:
        subprocess.run(["mount", "-t", "tmpfs", "bench", "/tmp"], check=True)
    alone.main()
