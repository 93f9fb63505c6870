#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What clients of the bus cost a start: how long its answer takes while they ask, beside how long it takes alone.

    bus.py VIRTGUARDD VIRTGUARDCTL           (VIRTGUARD_GUESTS, VIRTGUARD_STARTS choose how many)

virtguardd's main thread and who starts are real-time processes, so that it is not measured how the kernel shares the CPUs.
"""
import multiprocessing
import os
import random
import statistics
import time

import on_bus
from alone import ADMITTED, PREPARE, RELEASE, xml
from figures import figure
from on_bus import MANAGER, NAME, ROOT, BusTest, Raw

GUESTS = int(os.environ.get("VIRTGUARD_GUESTS", "500"))
STARTS = int(os.environ.get("VIRTGUARD_STARTS", "1000"))
LARGEST_XML = 256 << 10
BUS = "org.freedesktop.DBus"
PROPERTIES = (NAME, ROOT, "org.freedesktop.DBus.Properties")
OBJECTS = (NAME, ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")


def client(path):
    """One whose Hello was answered."""
    raw = Raw(path, reads=True)
    raw.answer()
    return raw


def read_properties(path, answers):
    """2,000 a second."""
    raw = client(path)
    while True:
        began = time.monotonic()
        for _ in range(20):
            raw.call(*PROPERTIES, "Get", MANAGER, "Free")
        for _ in range(20):
            raw.answer()
        answers.value += 20
        time.sleep(max(0, began + 0.01 - time.monotonic()))


def come_and_go(path, answers):
    """Three hundred that stay and hear all signals, and others that come, ask and go."""
    staying = [client(path) for _ in range(300)]
    for raw in staying:
        raw.call(BUS, "/org/freedesktop/DBus", BUS, "AddMatch", f"type='signal',sender='{NAME}'")
    while True:
        raw = client(path)
        raw.call(*PROPERTIES, "GetAll", MANAGER)
        raw.answer()
        raw.socket.close()
        answers.value += 1
        random.choice(staying).drain()


def never_read(path, answers):
    """It hears all signals, and asks for all objects, as long as anybody takes its questions."""
    raw = Raw(path)
    raw.call(BUS, "/org/freedesktop/DBus", BUS, "AddMatch", "type='signal'")
    raw.socket.settimeout(0.1)
    while True:
        answers.value += raw.call(*OBJECTS)


def send_largest(path, answers):
    """Checks of as much XML as there may be, and of the kind that is read the slowest."""
    raw = client(path)
    chance = random.Random(1)
    pins = "".join(f"<vcpupin vcpu='{vcpu}' cpuset='{','.join(map(str, chance.sample(range(512), 8)))}'/>"
                   for vcpu in range(4000))
    domain = xml("large", 0xffff, 1, more=f"<cputune>{pins}</cputune>").replace(">2<", ">4000<")
    assert 0 <= LARGEST_XML - len(domain) < LARGEST_XML // 10
    while True:
        raw.call(NAME, ROOT, MANAGER, "Check", domain)
        raw.answer()
        answers.value += 1


def ask_for_objects(path, answers):
    """Eight at a time ask for all objects, again as soon as they are answered."""
    raws = [client(path) for _ in range(8)]
    while True:
        for raw in raws:
            raw.call(*OBJECTS)
        for raw in raws:
            raw.answer()
            answers.value += 1


LOADS = {"nobody": None, "2000 reads/s": read_properties, "300 clients": come_and_go, "largest Check": send_largest,
         "all objects": ask_for_objects, "never reads": never_read}


class Bench(BusTest):
    topology = "numa:4(memory=1TiB) core:64 pu:2"

    def one_start(self, number):
        """Its answer's milliseconds."""
        domain = xml(f"start-{number}", GUESTS + 1 + number, 1)
        verdict, seconds = self.hook(PREPARE, domain)
        self.assertEqual(verdict, ADMITTED)
        self.hook(RELEASE, domain)
        return 1000 * seconds

    def measure(self, name, load):
        answers = multiprocessing.Value("Q", lock=False)
        if load is not None:
            process = multiprocessing.Process(target=load, args=(f"{self.folder}/bus", answers), daemon=True)
            process.start()
            self.wait_for(lambda: answers.value > 0, f"{name}: answers")
        chance = random.Random(1)
        times, began, before = [], time.monotonic(), answers.value
        for number in range(STARTS):
            times.append(self.one_start(number))
            time.sleep(chance.random() / 100)
        rate = (answers.value - before) / (time.monotonic() - began)
        if load is not None:
            self.assertTrue(process.is_alive(), name)
            process.kill()
            process.join()
        cuts = statistics.quantiles(times, n=100)
        how = f"a start's answer while {GUESTS} guests run and clients of the bus ask, {STARTS} starts"
        figure(f"{name}: p99", cuts[98], "ms", how)
        print(f"{name:15}{cuts[49]:9.2f}{cuts[98]:9.2f}{max(times):9.2f}{rate:12.0f}{self.memory() / 2**20:13.1f}", flush=True)

    def test_all(self):
        guests = "".join(xml(f"guest-{number}", number, 1).replace("'kvm'", "'test'") for number in range(1, GUESTS + 1))
        (self.folder / "node.xml").write_text(f"<node>{guests}</node>")
        self.libvirt_uri = f"test://{self.folder}/node.xml"
        self.policy.write_text("[overcommit]\ncpu = 100\nmemory = 2\n")
        self.start()
        for process in (0, self.daemon.pid):
            os.sched_setscheduler(process, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        print(f"{STARTS} starts while {GUESTS} guests run and clients of the bus ask; milliseconds\n"
              f"{'who asks':15}{'median':>9}{'p99':>9}{'longest':>9}{'answers/s':>12}{'memory/MiB':>13}")
        for name, load in LOADS.items():
            self.measure(name, load)


if __name__ == "__main__":
    on_bus.main()
