#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What guests that run cost virtguardd: start-up, looks at all of them (Resync), memory, and an idle minute.

    guests.py VIRTGUARDD VIRTGUARDCTL          (VIRTGUARD_QEMUS chooses how many real ones)

A private libvirtd has libvirt's test driver run 0 to 10,000 guests, and then QEMU some that are paused. virtguardd asks
it over its socket, as everywhere. Times are beside those of the calls alone, made in turn by a client that does nothing
with the answers: connect, list the guests, ask for the XML of each. Start-up is from exec until virtguardd counts all
guests; Resync from the call on the bus until what the bus shows is new. Memory is the kernel's smaps_rollup.
"""
import json
import os
import pathlib
import re
import socket
import statistics
import struct
import time

import alone
import lab
import libvirt
import on_bus
from figures import figure, ratio_of
from on_bus import MANAGER, NAME, ROOT, BusTest, Raw

QEMUS = int(os.environ.get("VIRTGUARD_QEMUS", "50"))
IDLE_SECONDS = 60
ROUNDS = 5
STATUS = 6
QEMU_URI = "qemu:///system"
GOALS = {1000: "<= 16"}  # MiB of private dirty memory, by guests


def domain(number):
    """As many devices as a usual guest has: 5 KB."""
    nics = "".join(f"<interface type='bridge'><mac address='52:54:00:{number >> 8:02x}:{number & 255:02x}:{nic:02x}'/>"
                   "<source bridge='br0'/><model type='virtio'/></interface>" for nic in range(12))
    return alone.xml(f"guest-{number}", number, 1).replace("'kvm'", "'test'").replace("</domain>", f"<devices>{nics}</devices></domain>")


def plain_seconds(uri):
    """Of connecting and asking, and of asking alone."""
    began = time.monotonic()
    connection = libvirt.openReadOnly(uri)
    connected = time.monotonic()
    for guest in connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE):
        guest.XMLDesc(0)
    ended = time.monotonic()
    connection.close()
    return ended - began, ended - connected


def waits_and_cpu(pid):
    """What the kernel has counted: {whose: how often they began to wait}, and nanoseconds of CPU."""
    waits, cpu = {"libvirt's thread": 0, "all other threads": 0}, 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        whose = "libvirt's thread" if (task / "comm").read_text() == "libvirt\n" else "all other threads"
        waits[whose] += int(re.search(r"\nvoluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text())[1])
        cpu += int((task / "schedstat").read_text().split()[0])
    return waits, cpu


class Guests(BusTest):
    topology = "numa:8(memory=4TiB) core:64 pu:2"

    def knows(self, count):
        """It counts so many guests. Asked without virtguardctl, which takes longer to start than virtguardd."""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(self.socket))
                now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
                client.sendall(struct.pack("<4sHHQIII", b"VGRQ", 1, STATUS, now, 20000, 0, 0))
                document = json.loads(b"".join(iter(lambda: client.recv(1 << 20), b""))[12:])
        except OSError:
            return False
        return document["state"] == "ready" and len(document["domains"]) == count

    def start_up_seconds(self, count):
        """Of a virtguardd that knows of nothing; it goes on."""
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()
        for path in (self.run_folder, self.folder / "state"):
            for file in sorted(path.rglob("*"), reverse=True):
                file.unlink() if not file.is_dir() else file.rmdir()
        began = time.monotonic()
        self.daemon = self.start_daemon()
        lab.wait_until(lambda: self.knows(count), f"it counts {count} guests", 120)
        return time.monotonic() - began

    def snapshot(self):
        self.raw.call(NAME, ROOT, "org.freedesktop.DBus.Properties", "Get", MANAGER, "SnapshotTimestamp")
        return self.raw.answer()

    def resync_seconds(self):
        before, began = self.snapshot()[1][-8:], time.monotonic()
        self.raw.call(NAME, ROOT, MANAGER, "Resync")
        self.raw.answer()
        while self.snapshot()[1][-8:] == before:
            time.sleep(0.0005)
        return time.monotonic() - began

    def measure_times(self, kind, count):
        ours, plain = [], []
        for _ in range(ROUNDS):
            ours.append(self.start_up_seconds(count))
            plain.append(plain_seconds(self.libvirt_uri)[0])
        how = f"start-up, {kind}: median of {ROUNDS} in turn"
        figure(f"{count} guests", 1000 * statistics.median(ours), "ms", how)
        figure(f"{count} guests / plain calls", ratio_of(ours, plain), "x", how)
        self.wait_for(lambda: self.property("State") == "ready", "virtguardd is on the bus")
        ours, plain = [], []
        for _ in range(ROUNDS):
            ours.append(self.resync_seconds())
            plain.append(plain_seconds(self.libvirt_uri)[1])
        how = f"Resync, {kind}: median of {ROUNDS} in turn"
        figure(f"{count} guests", 1000 * statistics.median(ours), "ms", how)
        figure(f"{count} guests / plain calls", ratio_of(ours, plain), "x", how, "<= 1.2")

    def measure_memory(self, count):
        text = pathlib.Path(f"/proc/{self.daemon.pid}/smaps_rollup").read_text()
        how = "memory, guests of libvirt's test driver, once they are counted"
        for name, goal in (("Rss", ""), ("Private_Dirty", GOALS.get(count, ""))):
            figure(f"{count} guests: {name}", int(re.search(rf"{name}:\s+(\d+) kB", text)[1]) / 1024, "MiB", how, goal)

    def measure_idle(self, count):
        time.sleep(2)
        waits_before, cpu_before = waits_and_cpu(self.daemon.pid)
        time.sleep(IDLE_SECONDS)
        waits, cpu = waits_and_cpu(self.daemon.pid)
        how = f"{IDLE_SECONDS} s in which nobody asks, with guests of QEMU"
        for whose, number in waits.items():
            figure(f"{count} guests: wake-ups of {whose}", number - waits_before[whose], "",
                   how, "<= 2" if whose == "all other threads" else "")
        figure(f"{count} guests: CPU", (cpu - cpu_before) / 1e6, "ms", how)

    def begin(self):
        self.policy.write_text("[overcommit]\ncpu = 1000\n")
        self.daemon = None
        # All are real-time processes, so that it is not measured how the kernel shares the CPUs with others.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        self.start_bus()
        self.raw = Raw(f"{self.folder}/bus", reads=True)
        self.raw.answer()

    def test_guests_of_the_test_driver(self):
        self.begin()
        with lab.Lab(daemon=False):
            for count in (0, 10, 100, 1000, 10000):
                node = self.folder / f"{count}.xml"
                node.write_text(f"<node>{''.join(map(domain, range(1, count + 1)))}</node>")
                self.libvirt_uri = f"test+unix://{node}"
                if count in (10, 100, 1000):
                    self.measure_times("libvirt's test driver", count)
                else:
                    self.start_up_seconds(count)
                if count == 0:
                    self.wait_for(lambda: self.property("State") == "ready", "virtguardd is on the bus")
                    figure("no guests", 1000 * statistics.median(self.resync_seconds() for _ in range(ROUNDS)), "ms",
                           f"Resync, libvirt's test driver: median of {ROUNDS} in turn")
                self.measure_memory(count)

    def test_guests_of_qemu(self):
        self.libvirt_uri = QEMU_URI
        self.begin()
        with lab.Lab(daemon=False) as host:
            self.start_up_seconds(0)
            self.measure_idle(0)
            names = [f"guest-{number}" for number in range(QEMUS)]
            for name in names:
                host.define(lab.domain_xml(name, memory_mib=32))
            for count in sorted({min(10, QEMUS), QEMUS}):
                results = host.start_all([name for name in names[:count] if name not in host.running()], "--paused")
                self.assertEqual({result.status for result in results.values()}, {0}, results)
                self.measure_times("paused guests of QEMU", count)
            self.measure_idle(QEMUS)
            host.kill_all()


if __name__ == "__main__":
    lab.enter()
    on_bus.main()
