#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""status, --json, D-Bus, metrics and export say the same of random ledgers: one report, shown in many ways.

    agreement.py VIRTGUARDD VIRTGUARDCTL         (VIRTGUARD_SEED chooses the ledgers)
"""
import collections
import fractions
import json
import math
import os
import random
import re

import on_bus
from alone import ADMITTED, PREPARE, RELEASE, STARTED
from on_bus import ROOT, BusTest
from metrics import host, samples
from simulator import COLUMNS, GIB, MIB, domain, scheduler, strict
from topologies import Writer

PROPERTIES = {"effective": "EffectiveCapacity"} | {column: column.capitalize() for column in COLUMNS if column != "effective"}
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
SUFFIXES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
CELL = re.compile(r"(over by )?(\d+(?:\.\d+)?)(?: ([KMGT]?i?B))?(?=\s|$)")


def quantity(text):
    """Of Kubernetes, as an integer."""
    factor = SUFFIXES.get(text[-2:], 1)
    return int(text[:-2] if factor > 1 else text) * factor


class Agreement(BusTest):
    def setUp(self):
        super().setUp()
        self.topology = self.folder / "host.xml"
        self.topology.write_text(Writer(host()).xml())
        self.chance = random.Random(int(os.environ.get("VIRTGUARD_SEED", "1")))

    # ------------------------------------------------------------ each way, beside --json

    def check_screen(self, status, text):
        self.assertTrue(text.startswith(f"virtguardd {status['version']}: {status['state']}, mode {status['mode']}\n"), text)
        self.assertEqual("\nmaintenance: new kernel\n" in text, status["mode"] == "maintenance")
        ratios = status["overcommit"]
        rows = {f"node {node['id']}": node for node in status["nodes"]} | {"host": status["host"]}
        shown = 0
        for line in text.splitlines():
            row = re.match(r"(host|node \d+) +([\w-]+) +(?:\d+%|-)? +(.*)", line)
            if row is None:
                continue
            figures, resource = rows[row[1]], row[2]
            cells = CELL.findall(row[3])
            self.assertEqual(fractions.Fraction(cells.pop(2)[1]), fractions.Fraction(ratios[resource]), line)
            columns = [column for column in COLUMNS if column != "allocatable"]
            self.assertEqual(len(cells), len(columns), line)
            for column, (over, number, unit) in zip(columns, cells):
                amount = fractions.Fraction(number) * UNITS[unit] * (-1 if over else 1)
                self.assertLessEqual(abs(amount - figures[column][resource]), UNITS[unit] / 100, f"{column}: {line}")
                shown += 1
        self.assertEqual(shown, 8 * sum(len(figures["capacity"]) for figures in rows.values()))
        for guest in status["domains"]:
            self.assertRegex(text, rf"(?m)^{guest['name']} +{guest['state']} +{guest['scheduler']} ")

    def check_bus(self, status, manager, objects):
        decisions = status["decisions"]
        if status["mode"] == "maintenance":
            self.assertEqual(status["message"], "new kernel")
        expected = {"Version": status["version"], "Mode": status["mode"], "State": status["state"],
                    "Problems": status["problems"], "Overcommit": status["overcommit"],
                    "OverCapacity": status["over_capacity"], "SnapshotTimestamp": status["snapshot_us"],
                    "DecisionsAdmitted": decisions["admitted"], "DecisionsRefused": decisions["refused"],
                    "DecisionsWouldRefuse": decisions["would_refuse"],
                    **{name: status["host"][column] for column, name in PROPERTIES.items()}}
        self.assertEqual({name: manager[name] for name in expected}, expected)
        self.assertEqual(len(objects), len(status["nodes"]) + len(status["domains"]))
        for node in status["nodes"]:
            expected = {"Id": node["id"], "Cpus": node["cpus"], **{name: node[key] for key, name in PROPERTIES.items()}}
            self.assertEqual(objects[f"{ROOT}/node/{node['id']}"]["org.virtguard1.Node"], expected)
        for guest in status["domains"]:
            shown = objects[f"{ROOT}/domain/{guest['uuid'].replace('-', '_')}"]["org.virtguard1.Domain"]
            self.assertEqual([shown[key] for key in ("Name", "Uuid", "Scheduler", "State", "Demand")],
                             [guest[key.lower()] for key in ("Name", "Uuid", "Scheduler", "State", "Demand")])
            pieces = collections.Counter()
            for resource, amount, _, _ in shown["Pieces"]:
                pieces[resource] += amount
            self.assertEqual(pieces, collections.Counter(guest["demand"]))

    def check_metrics(self, status, text):
        metrics = samples(text)
        shown = collections.Counter()
        for level, labels, figures in [("host", [], status["host"])] + [
                ("node", [("node", str(node["id"]))], node) for node in status["nodes"]]:
            for column in COLUMNS:
                for resource, amount in figures[column].items():
                    unit, more = ("vcpus", []) if resource == "cpu" else ("bytes", [("resource", resource)])
                    self.assertEqual(metrics[(f"virtguard_{level}_{column}_{unit}", *labels, *more)], amount)
                    shown[level] += 1
        for level, count in shown.items():
            self.assertEqual(sum(key[0].startswith(f"virtguard_{level}_") for key in metrics), count)
        for resource, ratio in status["overcommit"].items():
            self.assertEqual(metrics["virtguard_overcommit_ratio", ("resource", resource)], float(ratio))
        decisions = {verdict: metrics["virtguard_decisions_total", ("verdict", verdict)]
                     for verdict in ("admit", "refuse", "would-refuse")}
        self.assertEqual(decisions["admit"] + decisions["would-refuse"], status["decisions"]["admitted"])
        self.assertEqual(decisions["refuse"], status["decisions"]["refused"])
        self.assertEqual(decisions["would-refuse"], status["decisions"]["would_refuse"])
        self.assertEqual(metrics["virtguard_decision_latency_seconds_count",], sum(decisions.values()))
        states = collections.Counter(guest["state"] for guest in status["domains"])
        for state in ("pending", "running", "returning"):
            self.assertEqual(metrics["virtguard_domains", ("state", state)], states[state])
        self.assertEqual(metrics["virtguard_mode", ("mode", status["mode"])], 1)
        self.assertEqual(metrics["virtguard_state", ("state", status["state"])], 1)
        self.assertEqual(metrics["virtguard_build_info", ("version", status["version"])], 1)
        self.assertAlmostEqual(metrics["virtguard_snapshot_timestamp_seconds",] * 1e6, status["snapshot_us"], delta=1)

    def check_cell(self, cell, figures):
        for resource, capacity in figures["capacity"].items():
            effective = max(0, figures["effective"][resource])
            self.assertEqual([quantity(cell[key][resource]) for key in ("capacity", "effectiveCapacity")],
                             [capacity, effective])
            self.assertEqual(quantity(cell["allocation"][resource]), effective - figures["free"][resource])
            self.assertEqual({len(cell[key]) for key in ("capacity", "effectiveCapacity", "allocation")},
                             {len(figures["capacity"])})

    def check_exports(self, status, pool, hypervisor, inventories):
        figures = status["host"]
        ratios = [{name: fractions.Fraction(str(ratio)) for name, ratio in shown.items()}
                  for shown in (hypervisor["spec"]["overcommit"], status["overcommit"])]
        self.assertEqual(*ratios)
        self.check_cell(hypervisor["status"], figures)
        self.assertEqual([cell["cellID"] for cell in hypervisor["status"]["cells"]], [node["id"] for node in status["nodes"]])
        for cell, node in zip(hypervisor["status"]["cells"], status["nodes"]):
            self.check_cell(cell, node)
        for resource, capacity in figures["capacity"].items():
            guests = max(0, max(0, figures["effective"][resource]) - figures["foreign"][resource])
            self.assertEqual([quantity(pool["status"][key][resource]) for key in ("capacity", "allocatable")],
                             [capacity, guests])
            unit = 1 if resource == "cpu" else MIB
            kind = {"cpu": "VCPU", "memory": "MEMORY_MB"}.get(resource, "CUSTOM_" + resource.upper().replace("-", "_"))
            total = capacity // unit
            usable = math.floor(guests / ratios[1][resource] / unit)
            self.assertEqual([inventories["inventories"][kind][key] for key in ("total", "reserved")],
                             [total, total - min(usable, total)])

    # ------------------------------------------------------------

    def compare(self):
        """All ways, between two equal statuses: a place may stop being kept at any time."""
        def exported(kind):
            return json.loads(self.ctl("export", "--format", kind, "--name", "host").stdout)

        for _ in range(50):
            before = self.status()
            ways = [(self.check_screen, self.ctl("status").stdout), (self.check_metrics, self.ctl("metrics").stdout),
                    (self.check_bus, self.properties(), self.objects()),
                    (self.check_exports, *map(exported, ("machinepool", "hypervisor", "placement")))]
            # The bus shows what was a moment ago, but never for long.
            if self.status() == before and ways[2][1]["DecisionsAdmitted"] == before["decisions"]["admitted"] and len(
                    ways[2][2]) == len(before["nodes"]) + len(before["domains"]):
                break
        for check, *shown in ways:
            check(before, *shown)
        return before

    def change_policy(self):
        self.policy.write_text(f"[overcommit]\ncpu = {self.chance.choice(['0.5', '1.15', '3', '10'])}\n"
                               f"memory = {self.chance.choice(['0.9', '1', '1.5'])}\n"
                               "[scheduler.accept.cortex]\nquota = { memory = \"10GiB\" }\n"
                               f"[resource-mode]\nmemory = \"{self.chance.choice(['enforce', 'observe'])}\"\n"
                               f"[reserve]\nmemory = \"{self.chance.choice(['0', '1GiB', '3GiB'])}\"\n")
        self.method("Reload")

    def change_at_run_time(self):
        """What is shown then is that, and not what the files say."""
        order = self.chance.choice([("overcommit", "set", "cpu", "2.5"), ("overcommit", "set", "memory", "0.7"),
                                    ("overcommit", "set", "memory", "1.3"), ("overcommit", "reset"),
                                    ("mode", "maintenance", "--message", "new kernel"), ("mode", "observe"), ("mode", "reset"),
                                    ("mode", "reset")])
        self.assertEqual(self.ctl(*order).returncode, 0)

    def check_order(self, status):
        """overcommit and mode say the same of what is set, and who set it."""
        ratios, mode = ({setting["key"]: setting for setting in json.loads(self.ctl(*command, "--json").stdout)["settings"]}
                        for command in (("overcommit",), ("mode",)))
        for resource in ("cpu", "memory"):
            self.assertEqual(ratios[f"overcommit.{resource}"]["value"], status["overcommit"][resource])
        self.assertEqual(mode["mode"]["value"], f'"{status["mode"]}"')

    def check_quota(self):
        """What a check says is left of a quota is what the status says that its scheduler's guests leave; how much they hold."""
        xml, limit = domain("quota", 20 * GIB, 1, 99, metadata=scheduler("cortex")), 10 * GIB
        (self.folder / "quota.xml").write_text(xml)
        status = {}
        while self.status() != status:  # a place may stop being kept at any time
            status = self.status()
            reasons = json.loads(self.ctl("check", "--json", self.folder / "quota.xml").stdout)["reasons"]
            shown = self.method("Check", "s", xml)[1]
        held = sum(guest["demand"].get("memory", 0) for guest in status["domains"]
                   if guest["scheduler"] == "cortex" and guest["state"] != "returning")
        self.assertEqual([(reason["resource"], reason["nodes"], reason["free"], reason["effective"]) for reason in reasons
                          if reason["code"] == "scheduler-quota"], [("memory", [], limit - held, limit)])
        self.assertEqual([reason[1:6] for reason in shown if reason[0] == "scheduler-quota"],
                         [["memory", "", reason["requested"], limit - held, limit] for reason in reasons
                          if reason["code"] == "scheduler-quota"])
        return held

    def test_random_ledgers(self):
        self.start()
        seen = collections.Counter()
        for number in range(2, 62):
            backing = self.chance.choice(["", "", "<hugepages/>", "<hugepages><page size='1' unit='G'/></hugepages>"])
            memory = self.chance.randint(1, 3) * GIB if backing else self.chance.randint(1, 6 * 1024) * MIB
            more = {"metadata": scheduler("cortex")} if self.chance.random() < 0.3 and number > 5 else {}
            xml = domain(f"guest-{number}", memory, self.chance.randint(1, 3), number, backing=backing,
                         numatune=strict(self.chance.randint(0, 1)) if self.chance.random() < 0.5 else "", **more)
            admitted = self.hook(PREPARE, xml)[0] == ADMITTED
            seen["admitted" if admitted else "refused"] += 1
            for operation in self.chance.choice([(), (STARTED,), (RELEASE,), (STARTED, RELEASE)]) if admitted else ():
                self.hook(operation, xml)
            seen.update(guest["state"] for guest in self.status()["domains"])
            if number % 5 == 0:
                self.change_policy()
            if number % 3 == 0:
                self.change_at_run_time()
            if number % 4 == 0:
                status = self.compare()
                self.check_order(status)
                if number > 5:
                    seen["in quota"] += self.check_quota()
                seen[status["mode"]] += 1
                seen["over"] += len(status["over_capacity"])
        self.assertTrue(all(seen[each] for each in ("admitted", "refused", "over", "pending", "running", "returning", "in quota",
                                                   "enforce", "observe", "maintenance")), seen)


if __name__ == "__main__":
    on_bus.main()
