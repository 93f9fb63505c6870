#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What ./dev refuses: dev_test.py BUILD"""
import json
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ""


def suites_of(kind):
    """Those that meson knows: kind is "tests" or "benchmarks"."""
    tests = json.loads(pathlib.Path(BUILD, "meson-info", f"intro-{kind}.json").read_text(encoding="utf-8"))
    return {suite.split(":")[-1] for test in tests for suite in test["suite"]}


class Suites(unittest.TestCase):
    def test_an_unknown_suite_showed_the_summary_of_the_run_before(self):
        for command, kind in (("test", "tests"), ("bench", "benchmarks")):
            for suite in ("unti", "unit simulate", "hook decide", ""):
                with self.subTest(command=command, suite=suite):
                    done = subprocess.run([ROOT / "dev", command, suite], capture_output=True, text=True, check=False)
                    self.assertEqual((done.returncode, done.stdout), (2, ""))
                    told, known = done.stderr.split(", there are: ")
                    self.assertEqual(told, f"dev: {command}: no suite '{suite}'")
                    self.assertEqual(set(known.split()), suites_of(kind))


if __name__ == "__main__":
    BUILD = sys.argv.pop(1)
    unittest.main()
