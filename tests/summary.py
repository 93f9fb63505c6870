#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ends a test run: what failed, what was skipped and why, and one line of figures.

    tests/summary.py TESTLOG.json     (meson's, a JSON document per line)

A skipped test gives its reason on a line that starts with "skipped: ", in whatever case.
"""
import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}


def reasons(test):
    lines = (test.get("stdout", "") + "\n" + test.get("stderr", "")).splitlines()
    return [line[len("skipped: "):] for line in lines if line.lower().startswith("skipped: ")]


def main():
    with open(sys.argv[1], encoding="utf-8") as log:
        tests = [json.loads(line) for line in log]
    skipped = [test for test in tests if test["result"] == "SKIP"]
    passed = [test for test in tests if test["result"] in PASSED]
    failed = [test for test in tests if test not in skipped and test not in passed]
    print()
    for test in failed:
        print(f"FAILED   {test['name']} ({test['result'].lower()})")
    for test in tests:
        for reason in reasons(test) or (["no reason given"] if test in skipped else []):
            print(f"SKIPPED  {test['name']}: {reason}")
    print(f"\n{len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
