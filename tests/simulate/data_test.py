#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardctl simulate over a collection of real topologies and domains.

    tests/simulate/data_test.py VIRTGUARDCTL [FOLDER]

FOLDER holds topologies/ and domains/, each with an INDEX.tsv; by default ../shared/data beside the project.
0: every run gave a document whose sums hold, or a clear error; 1: a line per file that did not; 77: SKIPPED.
"""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from simulator import COLUMNS, GIB, MIB, VFIO, Simulator, check_sums, domain, strict

DEFAULT_FOLDER = pathlib.Path(__file__).resolve().parents[3] / "shared/data"
BIG_HOST = "numa:16(memory=16TiB) core:64 pu:2"
BATCH = 100


def rows_of(index):
    with index.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


class Run:
    def __init__(self, program, folder):
        self.simulator = Simulator(pathlib.Path(program).resolve(), folder)
        self.failures = 0
        self.errors = 0

    def fail(self, where, what):
        print(f"{where}: {what}")
        self.failures += 1

    def document(self, where, *arguments):
        """The document; nothing for a clear error."""
        try:
            status, out, err = self.simulator.run(*arguments)
        except subprocess.TimeoutExpired:
            return self.fail(where, "took too long")
        if status == 2 and not out and err.startswith("virtguardctl: ") and err.count("\n") == 1:
            self.errors += 1
            return None
        if status not in (0, 1) or err:
            return self.fail(where, f"exit status {status}, stderr {err!r}")
        document = json.loads(out)
        refused = any(event.get("verdict") == "refuse" for event in document["events"])
        if status != int(refused):
            return self.fail(where, f"exit status {status}, refused {refused}")
        for event in document["events"]:
            if event.get("verdict") == "refuse" and not event["reasons"]:
                return self.fail(where, f"{event['event']} is refused without a reason")
        try:
            check_sums(document)
        except AssertionError as error:
            return self.fail(where, f"the sums do not hold: {error}")
        return document


def guests(simulator):
    """A handful of generated guests, as events."""
    huge = "<hugepages><page size='2' unit='MiB'/></hugepages>"
    for name, text in {
            "small": domain("small", 512 * MIB, 1, number=1),
            "strict": domain("strict", GIB, 2, number=2, numatune=strict("0")),
            "pinned": domain("pinned", GIB, 1, number=3, cpuset="0"),
            "vfio": domain("vfio", 2 * GIB, 2, number=4, inside=VFIO),
            "huge": domain("huge", 64 * MIB, 1, number=5, backing=huge),
            "giant": domain("giant", 1 << 50, 4000, number=6),
            "wide": domain("wide", GIB, 8, number=7, cpuset="0-3", numatune=strict("0-1")),
    }.items():
        yield simulator.write(f"{name}.xml", text)


def check_topologies(run, folder):
    """Every topology, empty, with guests, and with guests stopped again."""
    rows = rows_of(folder / "INDEX.tsv")
    events = list(guests(run.simulator))
    for row in rows:
        source = str((folder / row["file"]).resolve())
        empty = run.document(row["file"], "--topology", source, "--json")
        full = run.document(row["file"], "--topology", source, "--json", *events, "ratio:cpu=1.5", "running:giant.xml")
        stopped = run.document(row["file"], "--topology", source, "--json", *events, "stop:small", "stop:strict",
                               "stop:pinned", "stop:vfio", "stop:huge", "stop:giant", "stop:wide")
        if empty is None or full is None or stopped is None:
            continue
        if len(full["nodes"]) != len(empty["nodes"]):
            run.fail(row["file"], "nodes have come or gone")
        for column in COLUMNS:
            if stopped["host"][column] != empty["host"][column]:
                run.fail(row["file"], f"{column} is not what it was before the guests")
        if full["host"]["free"]["cpu"] >= 0 or full["events"][-1]["demand"]["cpu"] != 4000:
            run.fail(row["file"], "a running guest is not counted")
    return len(rows)


def check_domains(run, folder):
    """Every complete domain on a big host, many to a process; where a batch is refused, one by one."""
    files = [row["file"] for row in rows_of(folder / "INDEX.tsv") if row["complete"] == "1"]
    paths = [str((folder / file).resolve()) for file in files]
    options = ("--topology", BIG_HOST, "--json", "--pages", "0:2Mi=65536", "0:1Gi=4096")

    def check(batch):
        before = run.errors
        document = run.document(batch[0], *options, "--", *batch)
        if document is None and run.errors > before and len(batch) > 1:
            run.errors = before
            check(batch[:len(batch) // 2])
            check(batch[len(batch) // 2:])
        elif document is not None:
            for event in document["events"]:
                if event["verdict"] == "admit" and not event["demand"].get("memory"):
                    run.fail(event["event"], "is admitted with nothing")
    for first in range(0, len(paths), BATCH):
        check(paths[first:first + BATCH])
    return len(paths)


# Marks of systems in domains of theirs, and how many real domains have them at least.
MARKS = {"nova": ("openstack.org/xmlns/libvirt/nova", 2), "ovirt": ("http://ovirt.org/vm/", 15),
         "kubevirt": ("http://kubevirt.io", 2)}


def check_recognised(run, folder):
    """The ready-made files know the real guests of each system, and nobody else's."""
    shipped = pathlib.Path(__file__).resolve().parents[2] / "conf/recognise"
    policy = run.simulator.folder / "recognise.toml"
    policy.write_text("".join(file.read_text(encoding="utf-8") for file in shipped.iterdir()), encoding="utf-8")
    found = dict.fromkeys(MARKS, 0)
    for row in rows_of(folder / "INDEX.tsv"):
        text = (folder / row["file"]).read_text(encoding="utf-8", errors="replace")
        marks = [name for name, (mark, _) in MARKS.items() if mark in text and "<metadata" in text]
        if not marks:
            continue
        document = run.document(row["file"], "--topology", BIG_HOST, "--policy", str(policy), "--json", "--",
                                str((folder / row["file"]).resolve()))
        scheduler = document["events"][0]["scheduler"] if document else None
        if scheduler in found:
            found[scheduler] += 1
            if scheduler not in marks:
                run.fail(row["file"], f"is taken for {scheduler}'s")
    for name, (_, least) in MARKS.items():
        if found[name] < least:
            run.fail(name, f"{found[name]} real domains are recognised: expected {least}")
    return found


def main(program, folder=os.environ.get("VIRTGUARD_DATA", DEFAULT_FOLDER)):
    folder = pathlib.Path(folder)
    if not (folder / "topologies/INDEX.tsv").exists() or not (folder / "domains/INDEX.tsv").exists():
        print(f"SKIPPED: {folder} has no topologies and domains: nothing real was simulated")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(program, scratch)
        topologies = check_topologies(run, folder / "topologies")
        unread = run.errors
        domains = check_domains(run, folder / "domains")
        recognised = check_recognised(run, folder / "domains")
    print(f"{topologies} topologies ({unread} runs ended in a clear error), {domains} domains "
          f"({run.errors - unread} are a clear error), {run.failures} failures")
    print("recognised:", ", ".join(f"{count} of {name}" for name, count in recognised.items()))
    return 1 if run.failures or not topologies or not domains else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
