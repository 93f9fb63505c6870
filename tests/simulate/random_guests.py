# SPDX-License-Identifier: Apache-2.0
"""Random policies, guests and events that suit a topology, as values and as the files that virtguardctl reads."""
import collections
import dataclasses
import fractions
import typing

from referee import CPU, MEMORY, hugepages
from simulator import MIB, VFIO, uuid
from topologies import show_ids


@dataclasses.dataclass
class Policy:
    ratios: dict
    cores: bool = False
    exclusive: bool = True
    maximum_vcpus: bool = False
    dedicated: typing.Optional[frozenset] = None
    shared: typing.Optional[frozenset] = None
    reserved_cpus: frozenset = frozenset()
    reserved_memory: typing.Optional[int] = None
    reserved_on: dict = dataclasses.field(default_factory=dict)  # bytes of memory by node
    reserved_pages: dict = dataclasses.field(default_factory=dict)  # bytes by (node, page size)
    memory_nodes: typing.Optional[frozenset] = None
    current_memory: bool = False
    requested_virtio_mem: bool = False
    overhead: bool = True

    def toml(self):
        lines = [f'overcommit = {{ cpu = "{float(self.ratios[CPU])}", memory = "{float(self.ratios[MEMORY])}" }}',
                 "[cpu]", f'count = "{"cores" if self.cores else "threads"}"',
                 f'pinning = "{"exclusive" if self.exclusive else "shared"}"',
                 f'vcpus = "{"maximum" if self.maximum_vcpus else "current"}"']
        lines += [f'{key} = "{show_ids(pus)}"' for key, pus in (("dedicated", self.dedicated), ("shared", self.shared))
                  if pus is not None]
        lines += ["[memory]", f'count = "{"current" if self.current_memory else "maximum"}"',
                  f'virtio-mem = "{"requested" if self.requested_virtio_mem else "size"}"']
        if not self.overhead:
            lines.append('overhead = "none"')
        if self.memory_nodes is not None:
            lines.append(f'nodes = "{show_ids(self.memory_nodes)}"')
        lines += ["[reserve]", f'cpus = "{show_ids(self.reserved_cpus)}"']
        if self.reserved_memory is not None:
            lines.append(f"memory = {self.reserved_memory}")
        for id in sorted(self.reserved_on.keys() | {id for id, _ in self.reserved_pages}):
            lines.append(f"[reserve.node.{id}]")
            if id in self.reserved_on:
                lines.append(f"memory = {self.reserved_on[id]}")
            pages = [f'"{hugepages(size)[10:]}" = {amount}' for (node, size), amount in self.reserved_pages.items()
                     if node == id]
            lines.append(f"hugepages = {{ {', '.join(pages)} }}")
        return "\n".join(lines) + "\n"


@dataclasses.dataclass
class Part:
    """A guest cell or memory device."""
    size: int
    pages: typing.Union[int, str, None] = None  # bytes of a page, "default", or nothing: base pages
    nodes: typing.Optional[frozenset] = None  # those that bind it
    wish: typing.Optional[frozenset] = None  # those that do not
    device: str = ""  # "dimm", "virtio-mem", or nothing: a cell
    requested: int = 0


@dataclasses.dataclass
class Guest:
    name: str
    uuid: str = ""
    parts: list = dataclasses.field(default_factory=list)  # cells, then devices, which are of cell 0
    vcpus: int = 1
    current_vcpus: int = 1
    pins: dict = dataclasses.field(default_factory=dict)  # set of PUs by vCPU
    cpuset: typing.Optional[frozenset] = None
    current_memory: int = 0
    locked: bool = False
    vfio: bool = False
    preallocated: bool = False
    iothreads: int = 0

    @property
    def memory(self):
        return sum(part.size for part in self.parts)

    @property
    def is_whole(self):
        return self.locked or self.vfio or self.preallocated

    def vcpu_sets(self, all_of_them):
        """How many vCPUs may run on each set of PUs."""
        return collections.Counter(self.pins.get(vcpu, self.cpuset)
                                   for vcpu in range(self.vcpus if all_of_them else self.current_vcpus))

    def xml(self):
        cells = [part for part in self.parts if not part.device]
        numa = "".join(f"<cell id='{i}' memory='{cell.size // 1024}'/>" for i, cell in enumerate(cells))
        cell_pages = "".join(f"<page size='{cell.pages // 1024}' nodeset='{i}'/>" for i, cell in enumerate(cells)
                             if isinstance(cell.pages, int))
        backing = f"<hugepages>{cell_pages}</hugepages>" if any(cell.pages for cell in cells) else ""
        tune = "".join(f"<memnode cellid='{i}' mode='{'strict' if cell.nodes else 'preferred'}' "
                       f"nodeset='{show_ids(cell.nodes or cell.wish)}'/>" for i, cell in enumerate(cells)
                       if cell.nodes or cell.wish)
        pins = "".join(f"<vcpupin vcpu='{vcpu}' cpuset='{show_ids(pus)}'/>" for vcpu, pus in self.pins.items())
        cpuset = f" cpuset='{show_ids(self.cpuset)}'" if self.cpuset else ""
        identity = f"<uuid>{self.uuid}</uuid>" if self.uuid else ""
        backing += "<locked/>" * self.locked + "<allocation mode='immediate'/>" * self.preallocated
        return (f"<domain type='kvm'><name>{self.name}</name>{identity}"
                f"<memory unit='b'>{self.memory}</memory><currentMemory unit='b'>{self.current_memory}</currentMemory>"
                f"<vcpu current='{self.current_vcpus}'{cpuset}>{self.vcpus}</vcpu>"
                f"<iothreads>{self.iothreads}</iothreads><memoryBacking>{backing}</memoryBacking>"
                f"<numatune>{tune}</numatune><cputune>{pins}</cputune><cpu><numa>{numa}</numa></cpu>"
                "<os><type arch='x86_64' machine='q35'>hvm</type></os>"
                f"{VFIO * self.vfio}<devices>{''.join(map(device_xml, self.parts))}</devices></domain>")


def device_xml(part):
    if not part.device:
        return ""
    source = f"<pagesize>{part.pages // 1024}</pagesize>" if isinstance(part.pages, int) else ""
    source += f"<nodemask>{show_ids(part.nodes)}</nodemask>" if part.nodes else ""
    requested = f"<requested unit='b'>{part.requested}</requested>" if part.device == "virtio-mem" else ""
    return (f"<memory model='{part.device}'><source>{source}</source><target><size unit='b'>{part.size}</size>"
            f"<node>0</node>{requested}</target></memory>")


def random_pages(rng, topology):
    """Pools for --pages to set, of sizes that suit each node: [(node, size, count)]. The topology takes them over."""
    settings = []
    for node in topology.nodes:
        taken = sum(size * count for size, count in node.pools.items())
        sizes = {size for size in node.pools if not node.pools[size]} | {2 * MIB, 1024 * MIB}
        for size in sorted(size for size in sizes if size > topology.base_page):
            most = (node.memory // 2 - taken) // 4 // size
            if most > 0 and rng.random() < 0.4:
                count = rng.randint(1, most)
                settings.append((node.id, size, count))
                node.pools[size] = count
                taken += size * count
    return settings


def some_of(rng, items, least=1):
    items = sorted(items)
    return frozenset(rng.sample(items, rng.randint(min(least, len(items)), len(items))))


def whole_cores(rng, topology, most):
    """PUs of some cores."""
    return frozenset().union(*rng.sample(topology.cores, rng.randint(1, most)))


def random_reserve(rng, topology, policy):
    ordinary = {node.id: node.ordinary_memory for node in topology.nodes}
    if rng.random() < 0.3:
        policy.reserved_memory = rng.randint(0, sum(ordinary.values()) // 8)
    elif rng.random() < 0.4:
        for id in some_of(rng, ordinary):
            policy.reserved_on[id] = rng.randint(0, ordinary[id] // 4)
        if rng.random() < 0.5:
            others = sum(amount for id, amount in ordinary.items() if id not in policy.reserved_on)
            policy.reserved_memory = sum(policy.reserved_on.values()) + rng.randint(0, others // 8)
    for node in topology.nodes:
        for size, count in node.pools.items():
            if count and rng.random() < 0.2:
                policy.reserved_pages[node.id, size] = rng.randint(0, count // 2) * size
    with_memory = [id for id, amount in ordinary.items() if amount]
    if with_memory and rng.random() < 0.2:
        policy.memory_nodes = some_of(rng, with_memory)
    if len(topology.cores) > 1 and rng.random() < 0.4:
        policy.reserved_cpus = whole_cores(rng, topology, max(1, len(topology.cores) // 8))


def random_ratio(rng, resource):
    most = "16" if resource == CPU else "1.25"
    return fractions.Fraction(rng.choice(("1", "1", "1.15", "1.5", "3", "0.75", most)))


def random_policy(rng, topology):
    policy = Policy({resource: random_ratio(rng, resource) for resource in (CPU, MEMORY)},
                    cores=rng.random() < 0.25, exclusive=rng.random() < 0.8, maximum_vcpus=rng.random() < 0.2,
                    current_memory=rng.random() < 0.2, requested_virtio_mem=rng.random() < 0.4,
                    overhead=rng.random() < 0.5)
    random_reserve(rng, topology, policy)
    free = [core for core in topology.cores if not core & policy.reserved_cpus]
    if len(free) > 1 and rng.random() < 0.25:
        dedicated = rng.sample(free, rng.randint(1, len(free) - 1))
        shared = [core for core in free if core not in dedicated]
        which = rng.randrange(3)
        if which != 1:
            policy.dedicated = frozenset().union(*dedicated)
        if which != 0:
            policy.shared = frozenset().union(*shared)
    return policy


class Guests:
    """Draws guests whose sizes suit the host: a hundred of them want more than there is."""

    def __init__(self, rng, host):
        self.rng = rng
        self.topology = topology = host.topology
        self.pus = sorted(topology.online)
        self.own_pus = sorted(host.dedicated)
        # What there is too little of differs from host to host.
        self.smallest = rng.choice((-10, -10, -6, -4))
        self.vcpu_shares = rng.choice(((1, 6, 20), (3, 20, 40, 80), (100, 200)))
        self.sizes = sorted({size for node in topology.nodes for size in node.pools})
        self.had = [size for size in self.sizes if any(node.pools.get(size) for node in topology.nodes)]
        self.sets = [node.pus for node in topology.nodes if node.pus][:8] + [self.some_pus() for _ in range(6)]

    def chance(self, share):
        return self.rng.random() < share

    def some_pus(self):
        first = self.rng.randrange(len(self.pus))
        return frozenset(self.pus[first:first + self.rng.randint(1, max(1, len(self.pus) // 3))])

    def nodes(self):
        """Some, most often few; seldom one that is not there."""
        nodes = self.topology.nodes
        ids = [node.id for node in nodes if node.memory or self.chance(0.1)] or [nodes[0].id]
        chosen = frozenset(self.rng.sample(ids, min(len(ids), self.rng.choice((1, 1, 2, 3)))))
        return chosen | {max(ids) + 1} if self.chance(0.01) else chosen

    def size(self, pages):
        """In MiB, so that libvirt has nothing to round."""
        limit = max(node.memory for node in self.topology.nodes) or 4096 * MIB
        if isinstance(pages, int) and self.chance(0.9):
            pools = [node.pools.get(pages, 0) * pages for node in self.topology.nodes]
            limit = max(pools) or limit
        largest = 0.05 if self.chance(0.05) else -2
        return max(1, int(limit * 2 ** self.rng.uniform(self.smallest, largest)) // MIB) * MIB

    def part(self):
        pages = None
        if self.sizes and self.chance(0.35):
            pages = self.rng.choice(self.had if self.had and self.chance(0.9) else self.sizes)
        elif self.chance(0.02):
            pages = self.rng.choice((self.topology.base_page, 4 * MIB))
        part = Part(self.size(pages), pages)
        if self.chance(0.45):
            part.nodes = self.nodes()
        elif self.chance(0.1):
            part.wish = self.nodes()
        part.requested = part.size
        return part

    def device(self, cell):
        """Bound as its cell is, or on nodes of its own (which would be a wish where the cell's are one)."""
        pages = cell.pages
        part = Part(-(-self.size(pages) // (2 * MIB)) * 2 * MIB, pages, cell.nodes,
                    device=self.rng.choice(("dimm", "virtio-mem")))
        if not cell.wish and self.chance(0.3):
            part.nodes = self.nodes()
        part.requested = self.rng.randint(0, part.size // MIB) * MIB if part.device == "virtio-mem" else part.size
        return part

    def add_vcpus(self, guest):
        rng = self.rng
        guest.vcpus = rng.randint(1, max(1, len(self.pus) // rng.choice(self.vcpu_shares)))
        guest.current_vcpus = rng.randint(1, guest.vcpus) if self.chance(0.2) else guest.vcpus
        style = rng.random()
        if style < 0.35:
            return
        if style < 0.6:
            guest.cpuset = rng.choice(self.sets)
        if style > 0.5:
            pus = self.own_pus if self.chance(0.9) else self.pus
            own = rng.sample(pus, min(guest.vcpus, len(pus)))
            for vcpu in range(guest.vcpus):
                if vcpu < len(own) and self.chance(0.8 if style > 0.8 else 0.2):
                    guest.pins[vcpu] = frozenset({own[vcpu]})
                elif self.chance(0.2):
                    guest.pins[vcpu] = rng.choice(self.sets)
        if self.chance(0.03):
            others = guest.pins.get(0, frozenset()) if self.chance(0.5) else frozenset()
            guest.pins[0] = others | {self.pus[-1] + 1}

    def draw(self, number, name=None):
        rng = self.rng
        guest = Guest(name or f"g{number}", uuid(number) if number % 2 else "")
        guest.parts = [self.part() for _ in range(rng.choice((1, 1, 1, 2, 2, 4)))]
        if self.chance(0.1):  # <hugepages/> alone is for all of them
            for part in guest.parts:
                part.pages = "default"
        if self.chance(0.15):
            guest.parts.append(self.device(guest.parts[0]))
        self.add_vcpus(guest)
        guest.current_memory = rng.randint(1, guest.memory // MIB) * MIB if self.chance(0.3) else guest.memory
        guest.locked = self.chance(0.08)
        guest.vfio = self.chance(0.12)
        guest.preallocated = self.chance(0.05)
        guest.iothreads = rng.choice((0, 0, 0, 1, 4))
        return guest
