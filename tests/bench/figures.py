# SPDX-License-Identifier: Apache-2.0
"""What benchmarks have measured, as one table.

A benchmark prints a line for each figure, in C++ as here:

    figure|WHAT|VALUE|UNIT|GOAL|METHOD        GOAL is "", "<= NUMBER" or ">= NUMBER"

    figures.py LOG                  the table of all such lines, for ./dev bench
"""
import itertools
import statistics
import sys


def figure(what, value, unit, how, goal=""):
    print(f"figure|{what}|{value:.4g}|{unit}|{goal}|{how}", flush=True)


def ratio_of(ours, base):
    """Of medians."""
    return statistics.median(ours) / statistics.median(base)


def quantile(values, part):
    return sorted(values)[int(part * (len(values) - 1))]


def is_met(value, goal):
    sign, limit = goal.split()
    return float(value) <= float(limit) if sign == "<=" else float(value) >= float(limit)


def table(lines):
    """Rows of text: a line for each figure, and under it how it was measured where that is another than before."""
    rows = [line.rstrip("\n").split("|")[1:] for line in lines if line.startswith("figure|")]
    width = max((len(row[0]) for row in rows), default=0)
    for how, group in itertools.groupby(rows, key=lambda row: row[4]):
        yield f"\n{how}:"
        for what, value, unit, goal, _ in group:
            verdict = f"goal {goal}: {'met' if is_met(value, goal) else 'MISSED'}" if goal else ""
            yield f"    {what:{width}} {value:>9} {unit:9} {verdict}".rstrip()


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
        print(*table(log), sep="\n")
