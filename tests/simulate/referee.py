# SPDX-License-Identifier: Apache-2.0
"""Decides starts anew, from what docs and manual pages promise: the check on the decision core.

Shares no code with it. What is held is a list of claims, each an amount that may be divided at will over a set of
places; whether all can be carried is asked of Hall's condition, subset by subset, where places are few, else of
networkx' maximum flow. Ratios are fractions and amounts integers, so all is exact.
"""
import collections
import dataclasses
import fractions
import math

import networkx
from networkx.algorithms.flow import shortest_augmenting_path

from simulator import COLUMNS, GIB, MIB

CPU, MEMORY = "cpu", "memory"
FEW_PLACES = 6


def hugepages(size):
    """The resource of a page size in bytes."""
    unit = max(unit for unit in range(0, 60, 10) if size % (1 << unit) == 0)
    return f"hugepages-{size >> unit}{['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'][unit // 10]}"


@dataclasses.dataclass(frozen=True)
class Claim:
    resource: str
    places: frozenset  # CPUs or nodes; none: nothing that it names is there
    amount: int
    whole: bool = False


class Carrier:
    """Carries amounts on sets of places that take so much; counts how it was found out."""

    def __init__(self):
        self.asked = collections.Counter()

    def most(self, room, amounts):
        """The most that can be carried. room: by place; amounts: by set of places."""
        room = dict(room)
        carried = 0
        rest = collections.Counter()
        for places, amount in amounts.items():
            there = frozenset(place for place in places if room.get(place))
            if len(there) == 1:  # can lie nowhere else, so it may as well come first
                (place,) = there
                taken = min(amount, room[place])
                room[place] -= taken
                carried += taken
            else:
                rest[there] += amount
        # Places that no set tells apart are one.
        groups = collections.Counter()
        for place, left in room.items():
            if of := frozenset(places for places in rest if place in places):
                groups[of] += left
        sets = {places: frozenset(of for of in groups if places in of) for places in rest}
        amounts = {places: amount for places, amount in rest.items() if sets[places]}
        few = len(groups) <= FEW_PLACES
        self.asked["by Hall's condition" if few else "by maximum flow"] += 1
        most = (most_by_subsets if few else most_by_flow)(groups, sets, amounts)
        if few and sum(self.asked.values()) % 16 == 0:
            self.asked["by both"] += 1
            assert most == most_by_flow(groups, sets, amounts), (groups, sets, amounts)
        return carried + most


def most_by_subsets(room, sets, amounts):
    """Of each subset: what lies only inside it is carried as far as there is room, all else at best in full."""
    bits = {place: 1 << i for i, place in enumerate(room)}
    masks = [(sum(bits[place] for place in sets[places]), amount) for places, amount in amounts.items()]
    rooms = [0]
    for left in room.values():
        rooms += [left + other for other in rooms]
    return min(inside + sum(amount for mask, amount in masks if mask & ~subset)
               for subset, inside in enumerate(rooms))


def most_by_flow(room, sets, amounts):
    graph = networkx.DiGraph()
    for place, left in room.items():
        graph.add_edge(("place", place), "sink", capacity=left)
    for places, amount in amounts.items():
        graph.add_edge("source", ("claim", places), capacity=amount)
        graph.add_edges_from((("claim", places), ("place", place)) for place in sets[places])
    if "source" not in graph:
        return 0
    return networkx.maximum_flow_value(graph, "source", "sink", flow_func=shortest_augmenting_path)


@dataclasses.dataclass
class Pool:
    capacity: dict  # by place
    reserved: dict
    unbound: frozenset  # where claims lie that name no place
    ratio: fractions.Fraction = fractions.Fraction(1)
    always_whole: frozenset = frozenset()

    def allocatable(self, place):
        return self.capacity[place] - self.reserved[place]

    def somewhere(self):
        return self.unbound or frozenset(self.capacity)


class Host:
    """The pools of a topology under a policy."""

    def __init__(self, topology, policy):
        self.topology = topology
        self.policy = policy
        self.node_ids = frozenset(node.id for node in topology.nodes)
        sizes = sorted({size for node in topology.nodes for size in node.pools})
        self.default_pages = 2 * MIB if 2 * MIB in sizes else min(sizes, default=None)
        self.cpu_of_pu = {pu: min(core) if policy.cores else pu for core in topology.cores for pu in core}
        self.pools = {CPU: self.cpus(), MEMORY: self.memory()}
        for size in sizes:
            self.pools[hugepages(size)] = self.pages(size)

    def cpus_of(self, pus):
        return frozenset(self.cpu_of_pu[pu] for pu in pus if pu in self.cpu_of_pu)

    def cpus(self):
        policy = self.policy
        cpus = frozenset(self.cpu_of_pu.values())
        usable = cpus - self.cpus_of(policy.reserved_cpus)
        self.dedicated = self.shared = usable
        if policy.dedicated is not None:
            self.dedicated = usable & self.cpus_of(policy.dedicated)
            self.shared = usable - self.dedicated
        if policy.shared is not None:
            self.shared = usable & self.cpus_of(policy.shared)
            if policy.dedicated is None:
                self.dedicated = usable - self.shared
        split = policy.dedicated is not None or policy.shared is not None
        return Pool({cpu: 1 for cpu in cpus}, {cpu: int(cpu not in self.dedicated | self.shared) for cpu in cpus},
                    self.shared, policy.ratios[CPU], self.dedicated if split else frozenset())

    def memory(self):
        policy = self.policy
        capacity = {node.id: node.ordinary_memory for node in self.topology.nodes}
        reserved = {id: policy.reserved_on.get(id, 0) for id in capacity}
        others = {id: amount for id, amount in capacity.items() if id not in policy.reserved_on}
        total = sum(others.values())
        spread = policy.reserved_memory
        if spread is None:
            spread = 0 if policy.reserved_on else 512 * MIB
        else:
            spread -= sum(policy.reserved_on.values())
        spread = min(spread, total)
        for id, amount in others.items():
            reserved[id] = spread * amount // total if total else 0
        rest = spread - sum(reserved[id] for id in others)
        for id in sorted(others):
            more = min(rest, capacity[id] - reserved[id])
            reserved[id] += more
            rest -= more
        named = self.node_ids if policy.memory_nodes is None else policy.memory_nodes
        unbound = frozenset(id for id in named if capacity[id])
        return Pool(capacity, reserved, unbound or named, policy.ratios[MEMORY])

    def pages(self, size):
        capacity = {node.id: size * node.pools[size] for node in self.topology.nodes if size in node.pools}
        reserved = {id: self.policy.reserved_pages.get((id, size), 0) for id in capacity}
        unbound = frozenset(capacity)
        if self.policy.memory_nodes is not None:
            unbound = unbound & self.policy.memory_nodes or self.policy.memory_nodes
        return Pool(capacity, reserved, unbound)

    def places_on(self, node, resource):
        places = self.cpus_of(node.pus) if resource == CPU else frozenset({node.id})
        return places.intersection(self.pools[resource].capacity)

    def nodes_of(self, resource, places):
        """A CPU is of the lowest node that it is local to."""
        if resource != CPU:
            return places
        lowest = {}
        for node in self.topology.nodes:
            for cpu in self.cpus_of(node.pus):
                lowest.setdefault(cpu, node.id)
        return frozenset(lowest[cpu] for cpu in places if cpu in lowest)

    def shown(self, claim):
        """A claim as a piece of the document."""
        pool = self.pools.get(claim.resource)
        anywhere = pool is None or claim.places == pool.unbound or claim.places >= pool.capacity.keys()
        nodes = [] if anywhere else sorted(self.nodes_of(claim.resource, claim.places))
        return (claim.resource, claim.amount, tuple(nodes), claim.whole)


class Demand:
    """What a guest claims, and the codes of what no such host has, with their resources."""

    def __init__(self, guest, host):
        self.host, self.policy = host, host.policy
        self.impossible = set()
        self.amounts = collections.Counter()  # by (resource, places, whole)
        self.overhead_nodes = frozenset()
        self.base_ram = 0
        self.add_vcpus(guest)
        for part in guest.parts:
            self.add_part(guest, part)
        self.add_overhead(guest)
        self.claims = [Claim(resource, places, amount, whole)
                       for (resource, places, whole), amount in self.amounts.items() if amount]
        # What a guest that runs names and is not there lies somewhere all the same.
        self.held = [claim if claim.places or claim.resource not in host.pools else
                     dataclasses.replace(claim, places=host.pools[claim.resource].somewhere()) for claim in self.claims]

    def add_vcpus(self, guest):
        host = self.host
        dedicated = set()
        for pus, count in guest.vcpu_sets(all_of_them=self.policy.maximum_vcpus).items():
            if not count:
                continue
            if pus is not None and len(pus) == 1 and self.policy.exclusive:
                places = host.cpus_of(pus) & host.dedicated
                if places:
                    dedicated |= places
                    continue
            else:
                places = host.pools[CPU].unbound if pus is None else host.cpus_of(pus) & host.shared
            if not places:
                self.impossible.add(("cpu-not-available", CPU))
            self.amounts[CPU, places, False] += count
        for cpu in dedicated:
            self.amounts[CPU, frozenset({cpu}), True] = 1

    def size_of(self, part):
        return part.requested if self.policy.requested_virtio_mem else part.size

    def add_part(self, guest, part):
        host = self.host
        size = host.default_pages if part.pages == "default" else part.pages
        if part.pages == "default" and size is None:
            self.impossible.add(("no-such-page-size", ""))
            return
        resource = MEMORY if size in (None, host.topology.base_page) else hugepages(size)
        pool = host.pools.get(resource)
        if pool is None:
            self.impossible.add(("no-such-page-size", resource))
        places = host.pools[MEMORY].unbound if part.nodes is None else part.nodes & host.node_ids
        self.overhead_nodes |= places
        if part.nodes is not None and part.nodes - host.node_ids:
            self.impossible.add(("no-such-node", resource))
        if pool is None:
            places = frozenset()
        elif part.nodes is None:
            places = pool.unbound
        whole = resource != MEMORY or guest.is_whole
        amount = self.size_of(part)
        total = sum(map(self.size_of, guest.parts))
        if self.policy.current_memory and not whole and total:
            amount = math.ceil(fractions.Fraction(amount * min(guest.current_memory, total), total))
        if resource == MEMORY:
            self.base_ram += amount
        else:
            amount = -(-amount // size) * size
        self.amounts[resource, places, whole] += amount

    def add_overhead(self, guest):
        self.overhead = 0
        if self.policy.overhead:
            vcpus = sum(guest.vcpu_sets(all_of_them=self.policy.maximum_vcpus).values())
            self.overhead = (64 * MIB + 8 * MIB * (vcpus + guest.iothreads) -
                             (-2 * MIB * self.base_ram // GIB))
        places = self.overhead_nodes or self.host.pools[MEMORY].unbound
        self.amounts[MEMORY, places, guest.locked] += self.overhead


class Referee:
    """What is held on a host, and what that means for the next start."""

    def __init__(self, topology, policy):
        self.host = Host(topology, policy)
        self.carrier = Carrier()
        self.demands = {}  # of guests that run, by name
        self.reservations = {}  # by name: (claims, the guest's name or nothing)
        self.carried = {}  # what can be carried of all that is held, by resource, as far as known

    # What happens

    def put(self, guest):
        self.demands[guest.name] = Demand(guest, self.host)
        self.carried = {}

    def stop(self, name):
        del self.demands[name]
        self.carried = {}

    def set_ratio(self, resource, ratio):
        self.host.pools[resource].ratio = ratio
        self.carried = {}

    def reserve(self, name, claims, guest):
        self.reservations[name] = (claims, guest)
        self.carried = {}

    # What is held

    def demand_of(self, guest):
        return Demand(guest, self.host)

    def booked(self, demands):
        """What reservations have left. A guest has one reservation, with one claim to a resource."""
        for claims, guest in self.reservations.values():
            for claim in claims:
                drawn = sum(own.amount for own in demands[guest].claims
                            if own.resource == claim.resource and own.places & claim.places) if guest in demands else 0
                yield dataclasses.replace(claim, amount=max(0, claim.amount - drawn))

    def holdings(self, start=None):
        """What guests hold, and what is booked; as a guest that starts finds it."""
        demands = dict(self.demands)
        if start:
            demands[start.name] = Demand(start, self.host)
        claims = [claim for name, demand in demands.items() if not start or name != start.name for claim in demand.held]
        return claims, [claim for claim in self.booked(demands) if claim.amount]

    # What can be carried

    def weight(self, claim):
        """whole + pageable / ratio <= allocatable, all times the ratio's numerator; memory below 1: whole + pageable
        <= allocatable * ratio, all times its denominator."""
        ratio = self.host.pools[claim.resource].ratio
        stretched = claim.resource == MEMORY and ratio < 1
        return ratio.numerator if claim.whole and not stretched else ratio.denominator

    def most(self, resource, claims):
        pool = self.host.pools[resource]
        amounts = collections.Counter()
        for claim in claims:
            amounts[claim.places] += claim.amount * self.weight(claim)
        room = {place: pool.allocatable(place) * pool.ratio.numerator for place in pool.capacity}
        return self.carrier.most(room, amounts)

    def fits_alone(self, resource, claims):
        pool = self.host.pools[resource]
        amounts = collections.Counter()
        for claim in claims:
            amounts[claim.places] += claim.amount
        return self.carrier.most({place: pool.allocatable(place) for place in pool.capacity},
                                 amounts) == sum(amounts.values())

    def fits_beside(self, resource, claims, held, carried=None):
        """In full, on top of as much of what is held as could be carried without it."""
        if carried is None:
            carried = self.most(resource, held)
        return self.most(resource, held + claims) == carried + sum(c.amount * self.weight(c) for c in claims)

    def shortages(self, guest):
        """(code, resource) of all that speaks against a start; "short": beside what is held."""
        demand = Demand(guest, self.host)
        short = set(demand.impossible)
        held, booked = self.holdings(guest)
        usual = guest.name not in self.demands and all(guest.name != other for _, other in self.reservations.values())
        for resource in self.host.pools:
            claims = [claim for claim in demand.claims if claim.resource == resource and claim.places]
            if not claims:
                continue
            if not self.fits_alone(resource, claims):
                short.add(("larger-than-host", resource))
            others = [claim for claim in held + booked if claim.resource == resource]
            if usual and resource not in self.carried:
                self.carried[resource] = self.most(resource, others)
            if not self.fits_beside(resource, claims, others, self.carried.get(resource) if usual else None):
                short.add(("short", resource))
        return short

    # Figures

    def is_bound(self, resource, claim, places):
        """Whether a claim can lie nowhere but on the places. One without room is no way out."""
        if claim.places <= places:
            return True
        roomy = self.roomy(resource, claim.places)
        return bool(roomy) and roomy <= places

    def roomy(self, resource, places):
        pool = self.host.pools[resource]
        return frozenset(place for place in places if place in pool.capacity and pool.allocatable(place) > 0)

    def effective(self, resource, places, bound):
        """Of places and the claims that are bound to them."""
        pool = self.host.pools[resource]
        places = places.intersection(pool.capacity)
        allocatable = sum(pool.allocatable(place) for place in places)
        if resource == MEMORY and pool.ratio < 1:
            return math.floor(allocatable * pool.ratio)
        whole = sum(claim.amount for claim in bound if claim.whole)
        if resource == CPU:
            whole = len(places & pool.always_whole.union(*(claim.places for claim in bound if claim.whole)))
        return math.floor((allocatable - whole) * pool.ratio + whole)

    def row(self, resource, places, held, booked):
        """The nine figures of places; free is the sum's."""
        held, booked = ([claim for claim in claims if claim.resource == resource and
                         (places is None or self.is_bound(resource, claim, places))] for claims in (held, booked))
        row = dict.fromkeys(COLUMNS, 0)
        pool = self.host.pools.get(resource)
        if pool:
            places = frozenset(pool.capacity) if places is None else places.intersection(pool.capacity)
            row["capacity"] = sum(pool.capacity[place] for place in places)
            row["reserved"] = sum(pool.reserved[place] for place in places)
            row["effective"] = self.effective(resource, places, held + booked)
        row["allocatable"] = row["capacity"] - row["reserved"]
        row["allocated"] = sum(claim.amount for claim in held)
        row["booked"] = sum(claim.amount for claim in booked)
        row["free"] = row["effective"] - row["allocated"] - row["booked"]
        return row

    def host_figures(self):
        held, booked = self.holdings()
        resources = self.host.pools.keys() | {claim.resource for claim in held}
        return {resource: self.row(resource, None, held, booked) for resource in resources}

    def node_figures(self, node):
        """Where the node is not over, free is what further claims on it alone would be given together."""
        held, booked = self.holdings()
        figures = {}
        for resource in self.host.pools:
            places = self.host.places_on(node, resource)
            if not places:
                continue
            row = figures[resource] = self.row(resource, places, held, booked)
            if row["free"] >= 0:
                row["free"] = self.most_for(resource, places & self.host.shared if resource == CPU else places,
                                            [claim for claim in held + booked if claim.resource == resource])
        return figures

    def most_for(self, resource, places, held):
        if resource not in self.carried:
            self.carried[resource] = self.most(resource, held)
        pool = self.host.pools[resource]
        more = math.ceil(sum(pool.allocatable(place) for place in places) * pool.ratio) + 1
        extra = Claim(resource, places, more)
        return (self.most(resource, held + [extra]) - self.carried[resource]) // self.weight(extra)

    def reason_figures(self, resource, places, guest):
        """(requested, free, effective) as a reason that names these places must give them. None: all with room, or
        where there are none, all that the guest names."""
        pool = self.host.pools[resource]
        if places is None:
            places = self.roomy(resource, pool.capacity) or frozenset().union(
                *(claim.places for claim in Demand(guest, self.host).claims if claim.resource == resource))
        held, booked = self.holdings(guest)
        others, own = ([claim for claim in claims if claim.resource == resource and claim.places and
                        self.is_bound(resource, claim, places)]
                       for claims in (held + booked, Demand(guest, self.host).claims))
        requested = sum(claim.amount for claim in own)
        slack = (sum(pool.allocatable(place) for place in places.intersection(pool.capacity)) * pool.ratio.numerator -
                 sum(claim.amount * self.weight(claim) for claim in others))
        needed = sum(claim.amount * self.weight(claim) for claim in own)
        return requested, slack * requested // needed if needed else None, self.effective(resource, places, others)
