# SPDX-License-Identifier: Apache-2.0
"""Topologies as facts: read from what topology-dump prints, or made here and written as hwloc XML."""
import dataclasses

from simulator import GIB, MIB

KIB = 1 << 10


@dataclasses.dataclass
class Node:
    id: int
    pus: frozenset
    memory: int  # bytes, the hugepages' among them
    pools: dict = dataclasses.field(default_factory=dict)  # pages by their size in bytes
    kind: str = ""

    @property
    def ordinary_memory(self):
        """Without the pools'; a GPU's is not for guests."""
        if self.kind == "GPUMemory":
            return 0
        return max(0, self.memory - sum(size * count for size, count in self.pools.items()))


@dataclasses.dataclass
class Topology:
    nodes: list  # by id
    cores: list  # frozensets of online PUs
    base_page: int = 4 * KIB

    @property
    def online(self):
        return frozenset().union(*self.cores)


def read_ids(text):
    """ "0-3,8" as a set."""
    ranges = [item.split("-") for item in text.split(",") if item]
    return frozenset(i for r in ranges for i in range(int(r[0]), int(r[-1]) + 1))


def show_ids(ids):
    """A set as "0-3,8"."""
    ids = sorted(ids)
    starts = [i for i in ids if i - 1 not in ids]
    ends = [i for i in ids if i + 1 not in ids]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends))


def from_dump(text):
    """What topology-dump says of one file; nothing where it says that there is no topology in it."""
    lines = [line.split("\t") for line in text.splitlines()]
    if lines[0][0] != "topology":
        return None
    nodes = [Node(int(id), read_ids(pus), int(memory), dict(map(int, page.split("*")) for page in pages.split()), kind)
             for _, id, kind, pus, memory, pages in (line for line in lines if line[0] == "node")]
    cores = [read_ids(line[1]) for line in lines if line[0] == "core"]
    return Topology(nodes, cores, base_page=int(lines[0][5]))


def bitmap(ids):
    """A set as hwloc writes it: words of 32 bits, the highest first."""
    number = sum(1 << i for i in ids)
    words = []
    while number or not words:
        words.append(f"0x{number & 0xffffffff:08x}")
        number >>= 32
    return ",".join(reversed(words))


class Writer:
    """hwloc's XML, version 2: a package per set of PUs that nodes have, with those nodes inside."""

    def __init__(self, topology):
        self.topology = topology
        self.all_nodes = bitmap(node.id for node in topology.nodes)
        self.index = 0

    def element(self, kind, os_index, pus, nodes, content="", attributes=""):
        self.index += 1
        sets = "".join(f' {prefix}{name}="{value}"' for name, value in (("cpuset", bitmap(pus)), ("nodeset", nodes))
                       for prefix in (("", "complete_", "allowed_") if kind == "Machine" else ("", "complete_")))
        return (f'<object type="{kind}" os_index="{os_index}"{sets} gp_index="{self.index}"{attributes}>'
                f"{content}</object>\n")

    def node(self, node):
        base = self.topology.base_page
        pages = {base: (node.memory - sum(size * count for size, count in node.pools.items())) // base, **node.pools}
        content = "".join(f'<page_type size="{size}" count="{count}"/>' for size, count in pages.items())
        subtype = f' subtype="{node.kind}"' if node.kind else ""
        return self.element("NUMANode", node.id, node.pus, bitmap([node.id]), content,
                            f' local_memory="{node.memory}"{subtype}')

    def core(self, pus, nodes):
        content = "".join(self.element("PU", pu, [pu], nodes) for pu in sorted(pus))
        return self.element("Core", min(pus), pus, nodes, content)

    def xml(self):
        content = ""
        rest = set(self.topology.cores)
        for number, pus in enumerate(dict.fromkeys(node.pus for node in self.topology.nodes)):
            local = [node for node in self.topology.nodes if node.pus == pus]
            if not pus:
                for node in local:
                    content += self.element("Group", node.id, pus, bitmap([node.id]), self.node(node),
                                            ' kind="1001" subkind="0"')
                continue
            ids = bitmap(node.id for node in local)
            cores = [core for core in self.topology.cores if core <= pus]
            rest -= set(cores)
            inside = "".join(map(self.node, local)) + "".join(self.core(core, ids) for core in cores)
            content += self.element("Package", number, pus, ids, inside)
        content += "".join(self.core(core, bitmap([])) for core in self.topology.cores if core in rest)
        machine = self.element("Machine", 0, self.topology.online, self.all_nodes, content)
        return ('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                f'<topology version="2.0">\n{machine}</topology>\n')


def blocks(count, cores, threads, first=0, step=1):
    """For each of so many nodes its cores, PUs numbered on."""
    ids = iter(range(first, first + count * cores * threads * step, step))
    return [[frozenset(next(ids) for _ in range(threads)) for _ in range(cores)] for _ in range(count)]


def pus_of(cores):
    return frozenset().union(*cores)


def symmetric(count, cores, threads, memory, pools=None, ids=None, **options):
    """Nodes alike."""
    all_cores = blocks(count, cores, threads)
    nodes = [Node(id, pus_of(own), memory, dict(pools or {}))
             for id, own in zip(ids or range(count), all_cores)]
    return Topology(nodes, sum(all_cores, []), **options)


def own_topologies():
    """By name, those that real collections are short of."""
    two_sizes = {2 * MIB: 2048, GIB: 4}
    gaps = blocks(3, 4, 2, first=8, step=3)
    flat = blocks(4, 4, 2)
    hybrid = [frozenset({0, 1}), frozenset({2, 3}), *(frozenset({pu}) for pu in range(4, 12))]
    split = blocks(2, 6, 1)
    return {
        "one small node": symmetric(1, 2, 2, 8 * GIB, {2 * MIB: 256}),
        "two nodes": symmetric(2, 8, 2, 64 * GIB, two_sizes),
        "more than 1,024 PUs": symmetric(8, 80, 2, 512 * GIB, two_sizes),
        "64 nodes": symmetric(64, 4, 1, 8 * GIB, {2 * MIB: 256}),
        "node ids with gaps": symmetric(4, 4, 1, 16 * GIB, {GIB: 2}, ids=[1, 4, 33, 252]),
        "unequal nodes, PU ids with gaps": Topology(
            [Node(0, pus_of(gaps[0]), 8 * GIB), Node(2, pus_of(gaps[1]), 24 * GIB, {2 * MIB: 1024}),
             Node(7, pus_of(gaps[2]), 16 * GIB, {GIB: 3})], sum(gaps, [])),
        "HBM beside DRAM": Topology(
            [Node(i, pus_of(flat[i]), 32 * GIB, {2 * MIB: 512}, "DRAM") for i in range(4)] +
            [Node(i + 4, pus_of(flat[i]), 4 * GIB, {2 * MIB: 128}, "HBM") for i in range(4)], sum(flat, [])),
        "CXL without CPUs": Topology(
            [Node(0, pus_of(split[0]), 32 * GIB), Node(1, pus_of(split[1]), 32 * GIB),
             Node(2, frozenset(), 128 * GIB, {GIB: 8}), Node(3, frozenset(), 128 * GIB)], sum(split, [])),
        "CPUs and memory apart": Topology(
            [Node(0, pus_of(split[0]), 0), Node(1, pus_of(split[1]), 0),
             Node(5, frozenset(), 32 * GIB, {2 * MIB: 512}), Node(6, frozenset(), 8 * GIB)], sum(split, [])),
        "memory of a GPU": Topology(
            [Node(0, pus_of(split[0]), 32 * GIB), Node(1, pus_of(split[1]), 32 * GIB, {2 * MIB: 512}),
             Node(9, frozenset(), 16 * GIB, {}, "GPUMemory")], sum(split, [])),
        "base pages of 64 KiB": symmetric(2, 16, 4, 64 * GIB, {2 * MIB: 512, 512 * MIB: 8, 16 * GIB: 1},
                                          base_page=64 * KIB),
        "unequal cores, PUs of no node": Topology(
            [Node(0, pus_of(hybrid[:6]), 16 * GIB), Node(1, pus_of(hybrid[6:9]), 16 * GIB)], hybrid),
    }
