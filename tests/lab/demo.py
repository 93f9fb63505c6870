#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What virtguard does, on this machine: './dev demo'.

A private libvirtd starts small guests until one is refused for memory, one for hugepages, one for
cpu, one for its scheduler. Then a place is given back, and given again.
"""
import os
import pathlib
import sys

import lab

POOL_PAGES = 96  # of 2 MiB
ROOM_MIB = 640
VCPUS = 4


def online_pus():
    """What /sys has as "0-3,8", as a list of numbers."""
    spans = pathlib.Path("/sys/devices/system/cpu/online").read_text().strip().split(",")
    ends = [[int(end) for end in span.split("-")] for span in spans]
    return [pu for span in ends for pu in range(span[0], span[-1] + 1)]


def policy(capacity_kib, pus):
    """Holds back all of this machine but a corner, so that a few small guests reach each limit."""
    used, spare = pus[:2], ",".join(map(str, pus[2:]))
    return f"""\
# All of this machine but a corner is kept back.
[reserve]
memory = "{capacity_kib - ROOM_MIB * 1024}KiB"
cpus = "{spare}"

[overcommit]
cpu = {VCPUS // len(used)}

[scheduler.accept.cortex]
"""


def say(text):
    print(f"\n{text}" if text else "", flush=True)


def show(words, result):
    print(f"  $ {' '.join(words)}")
    for line in (result.out + "\n" + result.err).strip().splitlines():
        print(f"    {line}", flush=True)


class Demo:
    def __init__(self, host):
        self.host = host

    def start(self, name, expected, memory_mib=128, vcpus=1, **asked):
        """Starts a guest and shows what virsh says; expected is in its error, or None where it runs."""
        known = self.host.virsh("domuuid", name).status == 0
        if not known:
            self.host.define(lab.domain_xml(name, memory_mib, vcpus, **asked))
        result = self.host.virsh("start", name)
        show(("virsh", "start", name), result)
        if (result.status == 0) != (expected is None) or (expected or "") not in result.err:
            sys.exit(f"demo: expected {expected or 'that it runs'}")

    def run(self):
        say("The policy, on this machine's real topology")
        for line in lab.POLICY.read_text().splitlines():
            print(f"    {line}")

        say("Guests start, libvirt asks, virtguard lets them in")
        self.start("web-1", None)
        self.start("web-2", None, scheduler="cortex")

        say("Memory: 256 MiB and QEMU's own are more than is left")
        self.start("database", "memory: needs", memory_mib=256)

        say(f"Hugepages: a pool of {POOL_PAGES * 2} MiB has room for one guest of 128 MiB, not for two")
        self.start("packets-1", None, hugepages=True)
        self.start("packets-2", "hugepages-2Mi: needs", hugepages=True)

        say(f"CPU: overcommitted they are {VCPUS}, and 3 are taken")
        self.start("wide", "cpu: needs", memory_mib=32, vcpus=2)

        say("Scheduler: this host serves the default one and cortex")
        self.start("pod-7", "scheduler", memory_mib=32, scheduler="kubernetes")

        say("What virtguard counts is what libvirt runs")
        show(("virtguardctl", "status"), lab.ctl("status"))
        if not self.host.ledger_agrees():
            sys.exit("demo: the ledger is not what libvirt runs")

        say("A guest ends, and its place is given again: the database starts now")
        show(("virsh", "destroy", "web-1"), self.host.virsh("destroy", "web-1"))
        self.start("database", None)
        say("That is all. The guests, libvirtd, virtguardd and the hugepages go now.")


def main():
    if os.geteuid() != 0:
        print("demo: needs root: the private libvirtd lives in namespaces of its own", file=sys.stderr)
        return 2
    lab.enter()
    print("==> starting a private libvirtd and virtguardd", flush=True)
    with lab.Lab(hugepages=POOL_PAGES) as host:
        capacity = host.held("memory", "capacity") // 1024
        host.reload_policy(policy(capacity, online_pus()))
        Demo(host).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
