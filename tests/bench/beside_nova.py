#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What reading a domain and deciding on it costs, against nova's numa_fit_instance_to_host on the same hosts and requests.

    beside_nova.py VIRTGUARDCTL

The host has eight nodes of 32 CPUs; guests have one cell, or four, each of two vCPUs and 2 GiB on pages of 2 MiB. nova
starts from its  Ours is virtguardctl simulate, with as many starts of one file in its arguments as make it long
enough, less what it takes with none of them: reading the file, its XML, the decision, the claim and the line it prints.
Both are times of the processor, the least of several rounds. Both must give the expected answer.
"""
import os
import resource
import subprocess
import sys
import tempfile
import time

from figures import figure

try:
    from nova.objects.instance_numa import InstanceNUMACell, InstanceNUMATopology
    from nova.objects.network_metadata import NetworkMetadata
    from nova.objects.numa import NUMACell, NUMAPagesTopology, NUMATopology, NUMATopologyLimits
    from nova.virt import hardware
except ImportError as error:
    print(f"SKIPPED: no nova to compare with: {error}")
    sys.exit(77)

ROUNDS, GUESTS, TIMES = 5, 200, 10
NODES, CPUS, PAGES, CELL_PAGES = 8, 32, 16384, 1024
NODE_GIB = 64
# Cells of the guest, how many cells' room there is on each node, and whether the guest fits.
CASES = {
    "empty host, guest of one cell": (1, [16] * NODES, True),
    "empty host, guest of four cells": (4, [16] * NODES, True),
    "room for one cell on each of four nodes, guest of four cells": (4, [0, 1] * 4, True),
    "room for one cell on each of three nodes, guest of four cells": (4, [0, 1] * 3 + [0, 0], False),
}


def least(measure):
    return min(measure() for _ in range(ROUNDS))


def nova_seconds(cells, room, fits):
    host = NUMATopology(cells=[NUMACell(
        id=node, cpuset=set(range(CPUS * node, CPUS * (node + 1))), pcpuset=set(), memory=NODE_GIB << 10, cpu_usage=0,
        memory_usage=0, pinned_cpus=set(), siblings=[], socket=node,
        network_metadata=NetworkMetadata(physnets=set(), tunneled=False),
        mempages=[NUMAPagesTopology(size_kb=2048, total=PAGES, used=PAGES - CELL_PAGES * places)])
        for node, places in enumerate(room)])
    guests = [InstanceNUMATopology(cells=[InstanceNUMACell(
        id=cell, cpuset={2 * cell, 2 * cell + 1}, pcpuset=set(), memory=(CELL_PAGES - less) * 2, pagesize=2048)
        for cell in range(cells)]) for less in range(GUESTS)]
    limits = NUMATopologyLimits(cpu_allocation_ratio=16.0, ram_allocation_ratio=1.0)

    def measure():
        began = time.process_time()
        for guest in guests:
            assert (hardware.numa_fit_instance_to_host(host, guest, limits) is not None) == fits
        return (time.process_time() - began) / GUESTS

    return least(measure)


def domain(name, cells, nodes=(), less=0):
    """Its first cells each bound to one of the nodes; with so many pages less."""
    kib = (CELL_PAGES - less) * 2048
    bound = "".join(f"<memnode cellid='{cell}' mode='strict' nodeset='{node}'/>" for cell, node in enumerate(nodes))
    numa = "".join(f"<cell id='{cell}' cpus='{2 * cell}-{2 * cell + 1}' memory='{kib}'/>" for cell in range(cells))
    return (f"<domain type='kvm'><name>{name}</name><memory unit='KiB'>{cells * kib}</memory><vcpu>{2 * cells}</vcpu>"
            "<memoryBacking><hugepages><page size='2' unit='M'/></hugepages></memoryBacking>"
            f"<numatune>{bound}</numatune><os><type arch='x86_64' machine='q35'>hvm</type></os>"
            f"<cpu><numa>{numa}</numa></cpu></domain>")


class Simulator:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.write("policy.toml", '[overcommit]\ncpu = 16\n[memory]\noverhead = "none"\n')

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
        return name

    def seconds(self, cells, room, fits):
        """Of one start. What is not free is held by a guest with a cell on each node for each place that is taken."""
        guests = [self.write(f"guest-{less}.xml", domain("guest", cells, less=less)) for less in range(GUESTS)]
        running, taken = [], [PAGES // CELL_PAGES - places for places in room]
        while any(taken):
            nodes = [node for node, left in enumerate(taken) if left]
            taken = [max(0, left - 1) for left in taken]
            name = f"holds-{len(running)}"
            running.append("running:" + self.write(f"{name}.xml", domain(name, len(nodes), nodes)))
        pages = [word for node in range(NODES) for word in ("--pages", f"{node}:2Mi={PAGES}")]
        command = [self.program, "simulate", "--topology", f"numa:{NODES}(memory={NODE_GIB}GiB) core:{CPUS} pu:1",
                   "--policy", "policy.toml", *pages, *running]

        def run(starts):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([*command, *starts], cwd=self.folder, capture_output=True, text=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert done.returncode == (0 if fits or not starts else 1), done
            assert done.stdout.count("admitted guest" if fits else "refused guest") == len(starts), done
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        return (least(lambda: run(guests * TIMES)) - least(lambda: run([]))) / (GUESTS * TIMES)


def main():
    with tempfile.TemporaryDirectory() as folder:
        simulator = Simulator(os.path.abspath(sys.argv[1]), folder)
        for name, case in CASES.items():
            ours, theirs = simulator.seconds(*case), nova_seconds(*case)
            how = f"{name}; processor time, the least of {ROUNDS} rounds"
            figure("ours: reading, deciding, claiming", 1e6 * ours, "us", how)
            figure("nova: deciding", 1e6 * theirs, "us", how)
            figure("nova / ours", theirs / ours, "x", how)


if __name__ == "__main__":
    main()
