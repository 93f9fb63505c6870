#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what we read from a collection of real hosts' hwloc files with its index.

    tests/check_topologies.py TOPOLOGY_DUMP [FOLDER]

FOLDER holds INDEX.tsv and the files it names; by default ../shared/data/topologies beside the project.
0: all agree; 1: a line per file and field that does not; 77: SKIPPED, the data is not here.
"""
import csv
import pathlib
import re
import subprocess
import sys

DEFAULT_FOLDER = pathlib.Path(__file__).resolve().parents[2] / "shared/data/topologies"
NODE = re.compile(r"(?P<id>\d+):(?P<mib>\d+)MiB/(?P<pus>\d+)pu(?P<labels>(/[^\[]+)?)\[(?P<pages>[^\]]*)\]$")


def expected(row):
    """The index' row as {field: value}."""
    fields = {"pus": int(row["pus"]), "complete": int(row["pus_complete"])}
    base_pages = set()
    for text in row["nodes(os:MiB/pus/subtype[pages])"].split(" ; "):
        node = NODE.match(text.strip())
        if not node:
            raise ValueError(f"{row['file']}: cannot read the index: {text!r}")
        pages = dict(page.split("*") for page in node["pages"].split())
        sizes = {int(size.rstrip("K")) * 1024: int(count) for size, count in pages.items()}
        if sizes:
            base_pages.add(min(sizes))
            del sizes[min(sizes)]
        kinds = [label for label in node["labels"].split("/") if label and not label.startswith("dax")]
        fields[f"node {node['id']}"] = {"kind": "".join(kinds), "pus": int(node["pus"]), "MiB": int(node["mib"]),
                                        "pages": sizes}
    fields["base page"] = base_pages.pop() if len(base_pages) == 1 else 4096
    return fields


def count(ids):
    ranges = [item.split("-") for item in ids.split(",") if item]
    return sum(int(r[-1]) - int(r[0]) + 1 for r in ranges)


def found(lines):
    """What topology-dump printed of one file, likewise."""
    head, *rest = [line.split("\t") for line in lines]
    nodes = [line for line in rest if line[0] == "node"]
    online, offline, _allowed, _cores, base_page, _default = map(int, head[1:])
    fields = {"pus": online, "complete": online + offline, "base page": base_page}
    for _, node, kind, pus, memory, pages in nodes:
        sizes = dict(map(int, page.split("*")) for page in pages.split())
        fields[f"node {node}"] = {"kind": kind, "pus": count(pus), "MiB": int(memory) >> 20, "pages": sizes}
    return fields


def differences(row, lines):
    """[(field, expected, found)]"""
    refused = row["hwloc2.9.0_import"] != "ok"
    if lines[0].startswith("error\t"):
        version = f"hwloc XML of version {row['xml_version']} cannot be read: export it as version 2"
        wanted = version if refused else "a topology"
        return [] if refused and lines[0].endswith(": " + version) else [("error", wanted, lines[0])]
    if refused:
        return [("error", "a refusal", "a topology")]
    wanted, got = expected(row), found(lines)
    keys = sorted(wanted.keys() | got.keys())
    return [(key, wanted.get(key), got.get(key)) for key in keys if wanted.get(key) != got.get(key)]


def main(dump, folder=DEFAULT_FOLDER):
    index = pathlib.Path(folder) / "INDEX.tsv"
    if not index.exists():
        print(f"SKIPPED: there is no {index}: no real topology was compared")
        return 77
    failures = 0
    with index.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        run = subprocess.run([dump, str(index.parent / row["file"])], capture_output=True, text=True, check=False)
        if run.returncode != 0 or run.stderr or not run.stdout:
            print(f"{row['file']}: exit status {run.returncode}, stderr {run.stderr!r}")
            failures += 1
            continue
        for field, wanted, got in differences(row, run.stdout.splitlines()):
            print(f"{row['file']}: {field}: expected {wanted}, found {got}")
            failures += 1
    print(f"{len(rows)} topologies compared, {failures} differences")
    return 1 if failures or not rows else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
