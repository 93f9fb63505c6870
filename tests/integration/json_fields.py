#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The documents of --json have exactly the keys that docs/json.md lists.

    json_fields.py VIRTGUARDD VIRTGUARDCTL
"""
import json
import re

import alone
from alone import PREPARE, REFUSED, SOURCE

DOCS = SOURCE / "docs/json.md"
RESOURCE = re.compile(r"cpu|memory|hugepages-\w+")
DOMAIN = ("<domain type='kvm'><name>{}</name><uuid>00000000-0000-4000-8000-00000000000{}</uuid><memory unit='GiB'>{}</memory>"
          "<vcpu cpuset='0-1'>2</vcpu><os><type arch='x86_64'>hvm</type></os></domain>")


def sections():
    """By heading: the text below it."""
    parts = re.split(r"^#+ (.+)\n", DOCS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def table_keys(text):
    """The keys in the first column of the tables, of each line all."""
    keys = set()
    for cell in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE):
        keys |= set(re.findall(r"`([a-z_]+)`", cell))
    return keys


class Fields(alone.DaemonTest):
    def setUp(self):
        super().setUp()
        self.docs = sections()
        for name, number, gib in (("small", 1, 1), ("large", 2, 400)):
            (self.folder / f"{name}.xml").write_text(DOMAIN.format(name, number, gib))
        self.start_daemon()
        self.wait_for(self.is_ready, "virtguardd is ready")  # and libvirt's test driver runs a guest

    def document(self, *arguments):
        return json.loads(self.ctl(*arguments, "--json", cwd=self.folder).stdout)

    def check(self, document, *headings, absent=()):
        keys = set().union(*(table_keys(self.docs[heading]) for heading in headings))
        self.assertEqual(set(document), keys - set(absent), headings)

    def check_figures(self, figures, *more):
        self.assertEqual(set(figures) - set(more), table_keys(self.docs["Figures"]))
        for quantities in (value for key, value in figures.items() if key not in more):
            self.assertTrue(all(RESOURCE.fullmatch(name) for name in quantities), quantities)

    def check_prose(self, document, heading, word):
        """Every key stands somewhere in the section, of which a sentence or a cell lists them."""
        for key in document:
            self.assertIn(f"`{key}`", self.docs[heading], word)

    def check_outcome(self, outcome, *absent):
        text = self.docs["An outcome"]
        outcome_keys = table_keys(text.partition("A piece has")[0])
        self.assertEqual(set(outcome), outcome_keys - set(absent))
        for piece in outcome["pieces"]:
            self.assertEqual(set(piece), {"resource", "amount", "nodes", "whole"})
            self.check_prose(piece, "An outcome", "piece")
        for reason in outcome.get("reasons", []):
            self.assertEqual(set(reason), table_keys(text.partition("A reason has")[2]))

    def check_fits(self, outcome):
        self.assertTrue(outcome["fits"])
        for fit in outcome["fits"]:
            self.assertEqual(set(fit), {"resource", "largest", "nodes", "per_node"})
            self.check_prose(fit, "check, explain", "fit")
            for there in fit["per_node"]:
                self.assertEqual(set(there), {"node", "largest"})
                self.check_prose(there, "check, explain", "per_node")

    def test_status_nodes_and_domains(self):
        status = self.document("status")
        # Nobody's memory is looked at where the topology is a description.
        self.check(status, "status", absent=["foreign_memory", "message", "units"])
        self.assertEqual(set(status["decisions"]), {"admitted", "refused", "would_refuse"})
        self.check_prose(status["decisions"], "status", "decisions")
        self.check_figures(status["host"])
        for node in status["nodes"]:
            self.check_figures(node, "id", "cpus")
        for domain in status["domains"]:
            self.assertEqual(set(domain), {"name", "uuid", "scheduler", "accepted", "state", "demand"})
            self.check_prose(domain, "status", "domain")
        self.assertEqual(self.ctl("mode", "maintenance").returncode, 0)
        self.check(self.document("status"), "status", absent=["foreign_memory", "units"])
        self.check(self.document("mode"), "policy show")
        self.assertEqual(self.document("nodes"), {"nodes": status["nodes"]})
        self.assertEqual(self.document("domains"), {"domains": status["domains"]})

    def test_reservations(self):
        self.assertEqual(self.ctl("reservation", "add", "cortex", "spot", "memory@1=1Gi").returncode, 1)
        self.assertEqual(self.ctl("reservation", "add", "default-scheduler", "spot", "memory@1=1Gi", "--uuid",
                                  "00000000-0000-4000-8000-0000000000aa").returncode, 0)
        document = self.document("reservation", "list")
        self.assertEqual(document["reservations"], self.document("status")["reservations"])
        for reservation in document["reservations"]:
            self.check(reservation, "nodes, domains, reservation list")
        self.assertEqual(document["reservations"][0]["booked"], {"memory@1": 1 << 30})

    def test_check_and_explain(self):
        for arguments in (("check", "small.xml"), ("check", "large.xml"),
                          ("explain", "--libvirt-uri", "test:///default", "test")):
            outcome = self.document(*arguments)
            self.check_outcome(outcome, *({"notes"} - set(outcome)))
            self.check_fits(outcome)

    def test_recent(self):
        self.assertEqual(self.hook(PREPARE, DOMAIN.format("large", 2, 400))[0], REFUSED)
        document = self.document("recent")
        self.assertEqual(set(document), {"starts"})
        start = document["starts"][0]
        self.check(start, "recent")
        self.assertEqual(start["domain"], "large")
        for reason in start["reasons"]:
            self.assertEqual(set(reason), table_keys(self.docs["An outcome"].partition("A reason has")[2]))

    def test_simulate(self):
        topology = "numa:2(memory=16GiB) core:4 pu:1"
        document = self.document("simulate", "--topology", topology, "large.xml", "running:small.xml", "stop:small")
        self.check(document, "simulate")
        start, running, stop = document["events"]
        absent = {"notes", "fits"}
        self.assertEqual((start.pop("event"), running.pop("event"), stop.pop("event")),
                         ("large.xml", "running:small.xml", "stop:small"))
        self.check_outcome(start, *(absent - set(start)))
        self.check_outcome(running, "verdict", "reasons", *(absent - set(running)))
        self.assertEqual(stop, {})
        self.check_figures(document["host"])

    def test_doctor(self):
        document = self.document("doctor", "--root", str(self.folder), "--policy-dir", str(self.folder),
                                 "--libvirt-uri", "test:///default")
        self.check(document, "doctor")
        for finding in document["findings"]:
            self.assertEqual(set(finding), {"subject", "ok", "text", "remedy"})
            self.check_prose(finding, "doctor", "finding")

    def test_policy(self):
        document = self.document("policy", "show")
        self.check(document, "policy show")
        for setting in document["settings"]:
            self.assertEqual(set(setting), {"key", "value", "origin"})
            self.check_prose(setting, "policy show", "setting")
        self.assertEqual(self.ctl("overcommit", "set", "cpu", "2").returncode, 0)
        for arguments in (("policy", "show"), ("overcommit", "get")):
            document = self.document(*arguments)
            self.check(document, "policy show")
            self.assertEqual(document["replaced"], [{"key": "overcommit.cpu", "value": "1", "origin": "default"}])
        (self.folder / "other.toml").write_text('mode = "off"\n')
        document = self.document("policy", "diff", "other.toml")
        self.check(document, "policy diff")
        self.check(self.document("policy", "check", "other.toml"), "policy check")
        for change in document["changes"]:
            self.assertEqual(set(change), {"in_force", "in_files"})
            self.check_prose(change, "policy diff", "change")


if __name__ == "__main__":
    alone.main()
