#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""promtool, of Prometheus itself, reads the metrics and what the dashboard asks of them.

    promtool.py VIRTGUARDD VIRTGUARDCTL
"""
import json
import subprocess

import alone
import metrics
from alone import DEADLINE, PREPARE
from simulator import GIB, domain


class Promtool(metrics.MetricsTest):
    def test_it_finds_nothing_to_say_of_metrics_and_dashboard(self):
        self.hook(PREPARE, domain("too-large", 100 * GIB, 1, 1))
        found = subprocess.run(["promtool", "check", "metrics"], input=self.ctl("metrics").stdout, capture_output=True,
                               text=True, timeout=DEADLINE)
        self.assertEqual((found.returncode, found.stdout + found.stderr), (0, ""))
        rules = [{"record": f"panel_{number}", "expr": expression.replace("$__rate_interval", "5m")}
                 for number, expression in enumerate(metrics.expressions())]
        (self.folder / "rules.json").write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
        found = subprocess.run(["promtool", "check", "rules", self.folder / "rules.json"], capture_output=True,
                               timeout=DEADLINE)
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)


if __name__ == "__main__":
    alone.main(["promtool"])
