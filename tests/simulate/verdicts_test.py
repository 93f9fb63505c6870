#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A hundred random guests on each topology: every verdict, reason and figure of simulate against a referee.

    tests/simulate/verdicts_test.py VIRTGUARDCTL TOPOLOGY_DUMP         topologies made here
    tests/simulate/verdicts_test.py VIRTGUARDCTL TOPOLOGY_DUMP real    those that topologies/INDEX.tsv lists in the folder
                                                                       VIRTGUARD_DATA (../shared/data beside the project)

VIRTGUARD_SEED (1) chooses the guests, VIRTGUARD_ROUNDS (1) how many hundreds of them each topology gets.
0: all as the referee has it; 1: a line per difference; 77: SKIPPED, the data is not here.
"""
import collections
import copy
import csv
import dataclasses
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import typing

try:
    import random_guests
    from referee import CPU, MEMORY, Claim, Referee, hugepages
except ModuleNotFoundError as missing:
    if missing.name != "networkx":
        raise
    print(f"SKIPPED: {missing} (Debian has it as python3-networkx): no random guests were simulated")
    sys.exit(77)
from simulator import COLUMNS, MIB, Simulator
from topologies import Writer, from_dump, own_topologies, read_ids, show_ids

DEFAULT_FOLDER = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
GUESTS = 100
SHORT = ("larger-than-host", "insufficient-capacity", "insufficient-node-capacity")
MOST_NODES_COMPARED = 12


@dataclasses.dataclass
class Event:
    argument: str
    apply: typing.Callable  # to a referee, once the event was compared
    start: typing.Optional[random_guests.Guest] = None


class Script:
    """Random events on a host: guests come, run unasked, change and go; ratios change; space is booked."""

    def __init__(self, rng, host, simulator):
        self.rng = rng
        self.host = host
        self.simulator = simulator
        self.draw = random_guests.Guests(rng, host)
        self.names = []
        self.drawn = 0
        self.files = []  # (guest, file) of all that were drawn
        self.booked_for = {}  # guest by reservation

    def events(self):
        kinds = {self.start: 60, self.run: 2, self.start_again: 6, self.retry: 10, self.stop: 45, self.set_ratio: 4,
                 self.reserve: 3}
        while self.drawn < GUESTS:
            if event := self.rng.choices(list(kinds), list(kinds.values()))[0]():
                yield event

    def guest(self, name=None):
        guest = self.draw.draw(self.drawn, name)
        self.drawn += 1
        file = self.simulator.write(f"{self.drawn}.xml", guest.xml())
        self.files.append((guest, file))
        if not name:
            self.names.append(guest.name)
        return guest, file

    def start(self, name=None):
        guest, file = self.guest(name)
        return Event(file, lambda referee: referee.put(guest), start=guest)

    def retry(self):
        """One of the last, as it was: what was refused may be remembered."""
        if not self.files:
            return None
        guest, file = self.rng.choice(self.files[-8:])
        return Event(file, lambda referee: referee.put(guest), start=guest)

    def start_again(self):
        """An identity that runs, or was refused, in another shape. It must stay the same identity."""
        names = [name for name in self.names if int(name[1:]) % 2 == 0 == self.drawn % 2]
        return self.start(self.rng.choice(names)) if names else None

    def run(self):
        guest, file = self.guest()
        return Event(f"running:{file}", lambda referee: referee.put(guest))

    def stop(self):
        if not self.names:
            return None
        name = self.rng.choice(self.names)
        self.names.remove(name)
        return Event(f"stop:{name}", lambda referee: referee.stop(name))

    def set_ratio(self):
        resource = self.rng.choice((CPU, MEMORY))
        ratio = random_guests.random_ratio(self.rng, resource)
        return Event(f"ratio:{resource}={float(ratio)}", lambda referee: referee.set_ratio(resource, ratio))

    def reserve(self):
        """For a guest that has no other reservation, or for nobody; a claim of each resource at most."""
        name = f"r{self.rng.randrange(5)}"
        guest = self.rng.choice(self.names + [f"g{self.drawn}"]) if self.rng.random() < 0.5 else None
        if guest in (other for reservation, other in self.booked_for.items() if reservation != name):
            guest = None
        claims, items = [], []
        for resource in self.rng.sample(sorted(self.host.pools), self.rng.randint(1, min(3, len(self.host.pools)))):
            if claim_and_item := self.item(resource):
                claims.append(claim_and_item[0])
                items.append(claim_and_item[1])
        if not claims:
            return None
        self.booked_for[name] = guest
        argument = f"reserve:{name}:{','.join(items)}" + (f":{guest}" if guest else "")
        return Event(argument, lambda referee: referee.reserve(name, claims, guest))

    def item(self, resource):
        pool = self.host.pools[resource]
        node = self.rng.choice(self.host.topology.nodes) if self.rng.random() < 0.5 else None
        places = self.host.places_on(node, resource) if node else pool.unbound
        if resource == CPU:
            places &= self.host.shared
        if not places:
            return None
        amount = max(1, sum(pool.capacity[place] for place in places) // self.rng.choice((10, 30, 100)))
        if resource == MEMORY:
            amount = max(1, amount // MIB) * MIB
        elif resource != CPU:
            size = next(size for size in self.draw.sizes if hugepages(size) == resource)
            amount = -(-amount // size) * size
        return (Claim(resource, places, amount, whole=resource not in (CPU, MEMORY)),
                f"{resource}{f'@{node.id}' if node else ''}={amount}")


class Comparison:
    """One host with its guests: what simulate says, and the referee."""

    def __init__(self, run, name, topology, rng):
        self.run = run
        self.name = name
        self.rng = rng
        self.topology = copy.deepcopy(topology)
        self.pages = random_guests.random_pages(rng, self.topology)
        self.policy = random_guests.random_policy(rng, self.topology)
        self.referee = Referee(self.topology, self.policy)
        self.events = list(Script(rng, self.referee.host, run.simulator).events())

    def fail(self, what):
        self.run.fail(self.name, what)

    def document(self, source, events):
        status, document = self.run.simulator.document(
            source, *(event.argument for event in events), policy=self.policy.toml(),
            pages=[f"{node}:{size >> 10}Ki={count}" for node, size, count in self.pages])
        refused = any(event.get("verdict") == "refuse" for event in document["events"])
        if status != int(refused):
            self.fail(f"exit status {status}, refused {refused}")
        return document

    def compare(self, source):
        whole = self.document(source, self.events)
        half = self.rng.randrange(len(self.events))
        for index, (event, shown) in enumerate(zip(self.events, whole["events"])):
            if index == half:
                self.compare_figures(self.document(source, self.events[:half]), f"before event {half}")
            if event.start is None:
                self.happen(event)
            elif self.compare_start(event, shown):
                event.apply(self.referee)
        self.compare_figures(whole, "at the end")
        self.run.tally += self.referee.carrier.asked

    def happen(self, event):
        """stop: of somebody who does not run changes nothing."""
        try:
            event.apply(self.referee)
        except KeyError:
            if not event.argument.startswith("stop:"):
                raise

    def compare_start(self, event, shown):
        """Whether it is admitted, as the referee has it."""
        demand = self.referee.demand_of(event.start)
        pieces = sorted((piece["resource"], piece["amount"], tuple(piece["nodes"]), piece["whole"])
                        for piece in shown["pieces"])
        expected = sorted(map(self.referee.host.shown, demand.claims))
        if pieces != expected or shown["overhead"] != demand.overhead:
            self.fail(f"{event.argument}: pieces {pieces}, overhead {shown['overhead']}: "
                      f"expected {expected}, {demand.overhead}")
        short = self.referee.shortages(event.start)
        verdict = "refuse" if short else "admit"
        self.run.tally["refused" if short else "admitted"] += 1
        if shown["verdict"] != verdict:
            self.fail(f"{event.argument}: {shown['verdict']}, though the referee finds {sorted(short) or 'room'}")
        self.compare_reasons(event, shown["reasons"], short)
        return not short

    def compare_reasons(self, event, reasons, short):
        """Each shortage has its reasons, and nothing else has."""
        named = {(reason["code"], reason["resource"]) for reason in reasons}
        self.run.tally.update(f"reason {code}" for code, _ in named)
        alone = {resource for code, resource in short if code == SHORT[0]}
        # What is too large for an empty host need not be told twice.
        beside = {("short", resource) for code, resource in named if code in SHORT[1:] and resource not in alone}
        told = {(code, resource) for code, resource in named if code not in SHORT[1:]} | beside
        expected = {(code, resource) for code, resource in short if code != "short" or resource not in alone}
        if told != expected:
            self.fail(f"{event.argument}: reasons {sorted(named)}, expected {sorted(short)}")
        for reason in reasons:
            if reason["code"] in SHORT:
                self.compare_reason(event, reason)

    def compare_reason(self, event, reason):
        resource = reason["resource"]
        named = re.match(r"cpu on PUs? ([0-9,-]+)", reason["text"])
        places = frozenset(reason["nodes"]) or None
        if named:
            places = self.referee.host.cpus_of(read_ids(named[1]))
        expected = self.referee.reason_figures(resource, places, event.start)
        shown = reason["requested"], reason["free"], reason["effective"]
        if shown != expected:
            self.fail(f"{event.argument}: {reason['text']!r}: requested, free, effective {shown}: expected {expected}")
        if reason["code"] != "larger-than-host" and reason["free"] >= reason["requested"]:
            self.fail(f"{event.argument}: {reason['text']!r} is no reason")

    def compare_figures(self, document, when):
        self.compare_rows(document["host"], self.referee.host_figures(), f"{when}: host")
        compared = self.topology.nodes
        if len(compared) > MOST_NODES_COMPARED:
            compared = self.rng.sample(compared, MOST_NODES_COMPARED)
        shown = {node["id"]: node for node in document["nodes"]}
        if list(shown) != [node.id for node in self.topology.nodes]:
            self.fail(f"{when}: nodes {list(shown)}")
        for node in compared:
            if shown[node.id]["cpus"] != show_ids(node.pus):
                self.fail(f"{when}: node {node.id}: cpus {shown[node.id]['cpus']}")
            self.compare_rows(shown[node.id], self.referee.node_figures(node), f"{when}: node {node.id}")

    def compare_rows(self, shown, expected, where):
        if shown["capacity"].keys() != expected.keys():
            return self.fail(f"{where}: resources {list(shown['capacity'])}, expected {list(expected)}")
        for resource, row in expected.items():
            got = {column: shown[column][resource] for column in COLUMNS}
            self.run.tally["figures"] += len(row)
            if got != row:
                self.fail(f"{where}: {resource}: {got}: expected {row}")


class Run:
    def __init__(self, program, dump, folder):
        self.simulator = Simulator(pathlib.Path(program).resolve(), folder)
        self.dump = dump
        self.seed = int(os.environ.get("VIRTGUARD_SEED", "1"))
        self.rounds = int(os.environ.get("VIRTGUARD_ROUNDS", "1"))
        self.tally = collections.Counter()
        self.failures = 0

    def fail(self, where, what):
        print(f"{where}: {what}")
        self.failures += 1

    def read(self, source):
        return from_dump(subprocess.run([self.dump, source], capture_output=True, text=True, check=True).stdout)

    def compare(self, name, source, topology):
        for seed in range(self.seed, self.seed + self.rounds):
            rng = random.Random(f"{name} {seed}")
            Comparison(self, f"{name} (VIRTGUARD_SEED={seed})", topology, rng).compare(source)
        self.tally["topologies"] += 1

    def own(self):
        for name, topology in own_topologies().items():
            source = self.simulator.write("topology.xml", Writer(topology).xml())
            read = self.read(str(self.simulator.folder / source))
            if (sorted(read.cores, key=min), read.nodes) != (sorted(topology.cores, key=min), topology.nodes):
                self.fail(name, f"is not read as it was written: {read}")
            self.compare(name, source, topology)

    def real(self, folder):
        with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as stream:
            files = [row["file"] for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)]
        for file in files:
            source = str((folder / file).resolve())
            topology = self.read(source)
            if topology:
                self.compare(file, source, topology)
            elif self.simulator.run("--topology", source, "--json")[0] != 2:
                self.fail(file, "is no topology to topology-dump, though it is one to simulate")
            else:
                self.tally["no topology"] += 1


def main(program, dump, which="own"):
    folder = pathlib.Path(os.environ.get("VIRTGUARD_DATA", DEFAULT_FOLDER)) / "topologies"
    if which == "real" and not (folder / "INDEX.tsv").exists():
        print(f"SKIPPED: {folder} has no topologies: no guests were simulated on real ones")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(program, dump, scratch)
        if which == "real":
            run.real(folder)
        else:
            run.own()
    counts = ", ".join(f"{count} {what}" for what, count in sorted(run.tally.items()))
    print(f"VIRTGUARD_SEED={run.seed} VIRTGUARD_ROUNDS={run.rounds}: {counts}; {run.failures} failures")
    return 1 if run.failures or not run.tally["admitted"] or not run.tally["refused"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
