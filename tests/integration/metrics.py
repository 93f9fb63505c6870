#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The metrics of virtguardd read as Prometheus' format, and so does the dashboard. agreement.py has what they say.

    metrics.py VIRTGUARDD VIRTGUARDCTL
"""
import json
import re
import signal

from prometheus_client.parser import text_string_to_metric_families

import alone
from alone import PREPARE, SOURCE
from simulator import COLUMNS, GIB, MIB, domain
from topologies import Node, Topology, Writer

POLICY = """
[overcommit]
cpu = 1.15
memory = 1.5
[metrics]
textfile-folder = "{}"
"""


DASHBOARD = json.loads((SOURCE / "conf/grafana-dashboard.json").read_text())


def expressions():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def host():
    nodes = [Node(0, frozenset(range(4)), 16 * GIB, {2 * MIB: 1024}), Node(1, frozenset(range(4, 8)), 16 * GIB, {GIB: 2})]
    return Topology(nodes, [frozenset([cpu]) for cpu in range(8)])


def samples(text):
    """By name and labels."""
    return {(sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text) for sample in family.samples}


class MetricsTest(alone.DaemonTest):
    def setUp(self):
        super().setUp()
        self.textfiles = self.folder / "textfiles"
        self.textfiles.mkdir()
        self.topology = self.folder / "host.xml"
        self.topology.write_text(Writer(host()).xml())
        self.policy.write_text(POLICY.format(self.textfiles))
        self.daemon = self.start_daemon()
        self.wait_for(self.is_ready, "virtguardd is ready")


class Metrics(MetricsTest):
    def test_conventions(self):
        xml = domain("too-large", 100 * GIB, 1, 1)
        self.hook(PREPARE, xml)
        text = self.ctl("metrics").stdout
        self.assertRegex(text, 'virtguard_decision_reasons_total{verdict="refuse",reason="larger-than-host",resource="memory"} 1\n')
        for family in text_string_to_metric_families(text):
            self.assertRegex(family.name, "^virtguard_[a-z_]+$")
            self.assertTrue(family.documentation.endswith("."), family.name)
            self.assertIn(family.type, ("gauge", "counter", "histogram"))
            if family.type == "counter":  # the parser takes the ending off
                self.assertIn(f"# TYPE {family.name}_total counter\n", text)
        listed = re.findall(r"^\| `(\w+)`", (SOURCE / "docs/metrics.md").read_text(), re.M)
        there = {re.sub(f"_({'|'.join(COLUMNS)})_", "_FIGURE_", name) for name in re.findall(r"^# TYPE (\S+)", text, re.M)}
        absent = {"virtguard_foreign_memory_bytes",  # not known of such a host
                  "virtguard_host_FIGURE_custom", "virtguard_node_FIGURE_custom"}  # none is declared
        self.assertEqual(set(listed) - absent, there)

    def test_dashboard(self):
        """Each panel asks for metrics that there are, of the hosts that were chosen, and lies on no other."""
        kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", self.ctl("metrics").stdout, re.M))
        there = {f"{name}_bucket" if kind == "histogram" else name for name, kind in kinds.items()}
        variables = {f"${variable['name']}" for variable in DASHBOARD["templating"]["list"]}
        self.assertTrue(DASHBOARD["title"] and DASHBOARD["schemaVersion"] >= 36)
        panels = DASHBOARD["panels"]
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
        taken = set()
        for panel in panels:
            self.assertIn(panel["type"], ("stat", "timeseries"))
            x, y, width, height = (panel["gridPos"][key] for key in "xywh")
            cells = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
            self.assertTrue(x + width <= 24 and not cells & taken, panel["title"])
            taken |= cells
            self.assertEqual(len({target["refId"] for target in panel["targets"]}), len(panel["targets"]))
        for expression in expressions():
            used = re.findall(r"\bvirtguard_\w+", expression)
            self.assertLessEqual(set(used), there)
            self.assertEqual(expression.count('{instance=~"$instance"'), len(used), expression)
            self.assertLessEqual(set(re.findall(r"\$\w+", expression)), variables | {"$__rate_interval"})

    def test_textfile(self):
        file = self.textfiles / "virtguard.prom"
        self.wait_for(file.exists, "the file is there")
        self.assertEqual(samples(file.read_text())["virtguard_decisions_total", ("verdict", "refuse")], 0)
        self.assertEqual([entry.name for entry in self.textfiles.iterdir()], ["virtguard.prom"])
        self.policy.write_text("")
        self.daemon.send_signal(signal.SIGHUP)
        self.wait_for(lambda: not file.exists(), "the file is gone")


if __name__ == "__main__":
    alone.main()
