# SPDX-License-Identifier: Apache-2.0
"""Runs virtguardctl simulate, checks what holds of every document, and writes domain XML."""
import json
import pathlib
import subprocess

GIB = 1 << 30
MIB = 1 << 20
COLUMNS = ("capacity", "reserved", "allocatable", "effective", "allocated", "pending", "booked", "foreign", "free")
# Nothing but the guests' own RAM and no reserve: figures that can be worked out by hand.
BARE = 'memory = { overhead = "none" }\nreserve = { memory = "0" }\n'


def uuid(number):
    return f"00000000-0000-4000-8000-{number:012x}"


def domain(name, memory=GIB, vcpus=1, number=None, inside="", backing="", numatune="", cpuset="", metadata=""):
    """The XML of a domain; memory in bytes."""
    identity = f"<uuid>{uuid(number)}</uuid>" if number is not None else ""
    cpuset = f" cpuset='{cpuset}'" if cpuset else ""
    return (f"<domain type='kvm'><name>{name}</name>{identity}<metadata>{metadata}</metadata>"
            f"<memory unit='b'>{memory}</memory><vcpu{cpuset}>{vcpus}</vcpu>"
            f"<memoryBacking>{backing}</memoryBacking><numatune>{numatune}</numatune>"
            f"<os><type arch='x86_64' machine='q35'>hvm</type></os>{inside}</domain>")


def strict(nodes):
    return f"<memory mode='strict' nodeset='{nodes}'/>"


def scheduler(name):
    return ("<virtguard:admission xmlns:virtguard='https://virtguard.org/xmlns/admission/1'>"
            f"<virtguard:scheduler>{name}</virtguard:scheduler></virtguard:admission>")


VFIO = ("<devices><hostdev mode='subsystem' type='pci' managed='yes'><source>"
        "<address domain='0' bus='6' slot='0' function='0'/></source></hostdev></devices>")


class Simulator:
    """virtguardctl simulate in a folder of its own."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = pathlib.Path(folder)

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return name

    def run(self, *arguments):
        """(exit status, stdout, stderr)"""
        done = subprocess.run([self.program, "simulate", *arguments], cwd=self.folder, capture_output=True,
                              text=True, check=False, timeout=120, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def document(self, topology, *events, pages=(), policy=None):
        """The exit status and the JSON document, whose sums have been checked."""
        options = ["--topology", topology, "--json"]
        for setting in pages:
            options += ["--pages", setting]
        if policy is not None:
            options += ["--policy", self.write("policy.toml", policy)]
        status, out, err = self.run(*options, "--", *events)
        if status not in (0, 1) or err:
            raise AssertionError(f"exit status {status}: {err}")
        document = json.loads(out)
        check_sums(document)
        return status, document


def check_sums(document):
    """What must hold of every document."""
    host, nodes = document["host"], document["nodes"]
    for resource in host["capacity"]:
        for figures in (host, *nodes):
            if resource not in figures["capacity"]:
                continue
            row = {column: figures[column][resource] for column in COLUMNS}
            assert 0 <= row["reserved"] <= row["capacity"], (resource, row)
            assert row["allocatable"] == row["capacity"] - row["reserved"], (resource, row)
            # Effective is negative, too, where more is whole than there is.
            assert min(row[column] for column in COLUMNS if column not in ("effective", "free")) >= 0, (resource, row)
        row = {column: host[column][resource] for column in COLUMNS}
        held = row["allocated"] + row["pending"] + row["booked"] + row["foreign"]
        assert row["free"] == row["effective"] - held, (resource, row)
        of_nodes = [node for node in nodes if resource in node["capacity"]]
        # Nodes of HBM share the CPUs of those beside them, and what is host-wide lies on no node.
        if resource != "cpu" and of_nodes:
            for column in ("capacity", "reserved", "allocatable"):
                assert sum(node[column][resource] for node in of_nodes) == row[column], (resource, column)
        for column in ("allocated", "pending", "booked"):
            # What lies on a node must be part of the host's.
            assert all(node[column][resource] <= row[column] for node in of_nodes), (resource, column)
