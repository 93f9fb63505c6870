#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Guests start and end at random while virtguardd, libvirtd and QEMUs are killed at random: at no time ran more
than fits, and afterwards the ledger is what libvirt runs. No start is let in unchecked ("deny").

VIRTGUARD_SCHEDULES is how many schedules there are; from 100 on there is a storm as well. VIRTGUARD_SEED is the
seed of the first one, each next one's is one more.
"""
import collections
import concurrent.futures
import contextlib
import os
import random
import signal
import time
import unittest

import lab

SCHEDULES = int(os.environ.get("VIRTGUARD_SCHEDULES", 12))
SEED = int(os.environ.get("VIRTGUARD_SEED", random.randrange(10**9)))
LONG_RUN = 100
STORM = 200  # starts and stops
GUESTS = ["a-16", "b-16", "c-32", "d-32", "e-48", "f-48", "g-64", "h-64"]  # NAME-MIB
ROOM_MIB = 120
AT_ONCE = 3

host = None
seen = collections.Counter()


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())
    host.reload_policy(host.policy_with_room(ROOM_MIB, more="""
[hook]
unavailable = "deny"
[claim]
lease = "1s"
return = "100ms"
"""))
    for name in GUESTS:
        host.define(lab.domain_xml(name, memory_mib=int(name.rpartition("-")[2])))


def tearDownModule():
    print(", ".join(f"{what}: {count}" for what, count in sorted(seen.items())))


# --- what happens in a schedule; each does what it can, since libvirtd may be away

def start(name):
    result = host.virsh("start", name, "--paused")
    outcomes = {"needs": "refused", "did not answer": "refused without an answer", "already active": "already active"}
    seen["starts " + next((said for text, said in outcomes.items() if text in result.err),
                          "failed" if result.status else "admitted")] += 1


def destroy(number):
    if name := one_that_lives(number):
        host.virsh("destroy", name)
        seen["destroyed"] += 1


def kill_qemu(number):
    if name := one_that_lives(number):
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            os.kill(host.qemu_pid(name), signal.SIGKILL)
            seen["QEMU killed"] += 1


def one_that_lives(number):
    names = sorted(host.qemus())
    return names[number % len(names)] if names else None


def kill_virtguardd(seconds):
    host.stop_daemon(signal.SIGKILL)
    time.sleep(seconds)
    host.start_daemon()
    seen["virtguardd killed"] += 1


def kill_libvirtd(seconds):
    host.stop_libvirtd(signal.SIGKILL)
    time.sleep(seconds)
    host.start_libvirtd()
    seen["libvirtd killed"] += 1


def make_schedule(seed):
    """When (in seconds) what is done with what: up to ten starts, and what disturbs them."""
    chance = random.Random(seed)
    length = chance.uniform(0.5, 3)

    def some(least, most, action, arguments):
        return [(chance.uniform(0, length), action, arguments()) for _ in range(chance.randint(least, most))]

    def guest():
        return chance.choice(GUESTS)

    def number():
        return chance.randrange(len(GUESTS))

    def pause():
        return chance.choice([0, chance.uniform(0, 0.5)])

    return sorted(some(3, 10, start, guest) + some(0, 4, destroy, number) + some(0, 2, kill_qemu, number)
                  + some(1, 3, kill_virtguardd, pause) + some(0, chance.choice([0, 1]), kill_libvirtd, pause),
                  key=lambda event: event[0])


def run(schedule):
    """Guests are started and ended by several threads, daemons killed by one."""
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as guests, concurrent.futures.ThreadPoolExecutor(1) as kills:
        doing = []
        for when, action, argument in schedule:
            time.sleep(max(0, began + when - time.monotonic()))
            threads = kills if action in (kill_virtguardd, kill_libvirtd) else guests
            doing.append(threads.submit(action, argument))
        for each in doing:
            each.result()


def storm(chance):
    """Starts and stops without a pause, while virtguardd is killed again and again."""
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
        actions = [threads.submit(start, chance.choice(GUESTS)) if chance.random() < 0.6
                   else threads.submit(destroy, chance.randrange(len(GUESTS))) for _ in range(STORM)]
        while not all(each.done() for each in actions):
            time.sleep(chance.uniform(0.1, 2))
            kill_virtguardd(chance.choice([0, chance.uniform(0, 0.3)]))
        for each in actions:
            each.result()


def holds_what_runs():
    running = sum(int(name.rpartition("-")[2]) for name in host.running())
    return host.held("memory", "free") == (ROOM_MIB - running) * lab.MIB


def differences(libvirtd_killed):
    """A libvirtd that was killed in a start may list its guest for ever, and virtguardd counts what it lists."""
    ghost = "libvirt runs it, and no QEMU of it is there"
    return [line for line in host.doctor().splitlines() if not (libvirtd_killed and ghost in line)]


class Schedules(unittest.TestCase):
    def check(self, action, *arguments):
        killed = seen["libvirtd killed"]
        try:
            with lab.Watch(host) as watch:
                action(*arguments)
                host.settle()
            self.assertLessEqual(watch.most_mib, ROOM_MIB, f"more ran than fits: {watch.when}")
            # A QEMU that was killed last may be news to libvirt, and its end to virtguardd.
            lab.wait_until(holds_what_runs, "what is held is what runs", 10)
            libvirtd_killed = seen["libvirtd killed"] != killed
            lab.wait_until(lambda: differences(libvirtd_killed) == [], "daemon, libvirt and kernel agree", 10)
        finally:
            if seen["libvirtd killed"] == killed:
                host.destroy_all()
            else:
                host.kill_all()
            lab.wait_until(lambda: host.ledger() == {}, "the ledger is empty")
        lab.wait_until(lambda: host.doctor() == "", "nothing is left of them")

    def test_random_schedules(self):
        for seed in range(SEED, SEED + SCHEDULES):
            schedule = make_schedule(seed)
            with self.subTest(seed=seed, schedule=[(f"{when:.2f}", action.__name__, argument)
                                                   for when, action, argument in schedule]):
                print(f"seed {seed}", flush=True)
                self.check(run, schedule)
        self.assertGreater(seen["starts admitted"], 0)

    if SCHEDULES >= LONG_RUN:
        def test_storm(self):
            self.check(storm, random.Random(SEED))


if __name__ == "__main__":
    lab.main()
