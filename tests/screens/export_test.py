#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardctl export: the documents, and that a scheduler that reads them works out what is free.

    export_test.py VIRTGUARDCTL     (VIRTGUARD_SEED chooses the random hosts)
"""
import decimal
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

from fake_daemon import GIB, STATUS, FakeDaemon, figures

CTL = sys.argv[1]
MIB = 1 << 20
SUFFIXES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}


def amount(quantity):
    """A quantity of Kubernetes as an integer."""
    factor = SUFFIXES.get(quantity[-2:], 1)
    return int(quantity[:-2] if factor > 1 else quantity) * factor


def status(host, nodes=(), overcommit=None):
    return {"version": "1", "state": "ready", "problems": [], "mode": "enforce",
            "decisions": {"admitted": 0, "refused": 0, "would_refuse": 0}, "overcommit": overcommit or {},
            "over_capacity": [], "host": host, "nodes": list(nodes), "domains": []}


class Export(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = f"{folder.name}/hook.sock"
        self.daemon = FakeDaemon(self.socket, {})
        self.addCleanup(self.daemon.close)

    def export(self, kind, document, *more):
        self.daemon.documents[STATUS] = document
        done = subprocess.run([CTL, "--socket", self.socket, "export", "--format", kind, *more],
                              capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def test_storage_is_in_gib_and_what_is_used_of_it_is_not_for_guests(self):
        host = figures(ephemeral_storage=(100 * GIB, 0, 1, 40 * GIB, 10 * GIB, 0, 0, 40 * GIB))
        self.assertEqual(self.export("placement", status(host))["inventories"],
                         {"DISK_GB": {"total": 100, "reserved": 40, "allocation_ratio": 1, "min_unit": 1, "max_unit": 60,
                                      "step_size": 1}})

    def test_the_documents_of_a_small_host(self):
        host = figures(cpu=(16, 2, 3, 0, 30, 2, 0, 0), memory=(65 * GIB, GIB, 1.25, 24 * GIB, 30 * GIB, 0, GIB, 2 * GIB),
                       hugepages_1Gi=(8 * GIB, GIB, 1, 0, 4 * GIB, 4 * GIB, 0, 0))
        document = status(host, [{"id": 3, "cpus": "0-15", **host}],
                          {"cpu": "3", "memory": "1.25", "hugepages-1Gi": "1"})
        self.assertEqual(self.export("machinepool", document, "--name", "node-7"), {
            "apiVersion": "compute.ironcore.dev/v1alpha1", "kind": "MachinePool", "metadata": {"name": "node-7"},
            "status": {"capacity": {"cpu": "16", "memory": "65Gi", "hugepages-1Gi": "8Gi"},
                       "allocatable": {"cpu": "42", "memory": "72Gi", "hugepages-1Gi": "7Gi"}}})
        cell = {"capacity": {"cpu": "16", "memory": "65Gi", "hugepages-1Gi": "8Gi"},
                "effectiveCapacity": {"cpu": "42", "memory": "74Gi", "hugepages-1Gi": "7Gi"},
                "allocation": {"cpu": "32", "memory": "33Gi", "hugepages-1Gi": "8Gi"}}
        self.assertEqual(self.export("hypervisor", document, "--name", "node-7"), {
            "apiVersion": "kvm.cloud.sap/v1", "kind": "Hypervisor", "metadata": {"name": "node-7"},
            "spec": {"overcommit": {"cpu": 3, "memory": 1.25, "hugepages-1Gi": 1}},
            "status": {**cell, "cells": [{"cellID": 3, **cell}]}})
        self.assertEqual(self.export("placement", document), {"inventories": {
            "VCPU": {"total": 16, "reserved": 2, "allocation_ratio": 3, "min_unit": 1, "max_unit": 14, "step_size": 1},
            # 72 GiB for guests at 1.25 are 57.6 GiB.
            "MEMORY_MB": {"total": 66560, "reserved": 66560 - 58982, "allocation_ratio": 1.25, "min_unit": 1,
                          "max_unit": 65536, "step_size": 1},
            "CUSTOM_HUGEPAGES_1GI": {"total": 8192, "reserved": 1024, "allocation_ratio": 1, "min_unit": 1024,
                                     "max_unit": 7168, "step_size": 1024}}})

    def test_the_name_is_that_of_the_host_unless_given(self):
        name = self.export("machinepool", status(figures(cpu=(1, 0, 1, 0, 0, 0, 0, 0))))["metadata"]["name"]
        self.assertEqual(name, os.uname().nodename)

    def test_what_the_policy_declares_is_a_number_under_its_name(self):
        host = figures(cpu=(4, 0, 1, 0, 0, 0, 0, 0), **{"example.org/gpu.a-b": (4, 0, 1.5, 0, 2, 0, 0, 0)})
        document = status(host, overcommit={"cpu": "1", "example.org/gpu.a-b": "1.5"})
        self.assertEqual(self.export("machinepool", document)["status"], {
            "capacity": {"cpu": "4", "example.org/gpu.a-b": "4"}, "allocatable": {"cpu": "4", "example.org/gpu.a-b": "6"}})
        self.assertEqual(self.export("hypervisor", document)["spec"]["overcommit"]["example.org/gpu.a-b"], 1.5)
        self.assertEqual(self.export("placement", document)["inventories"]["CUSTOM_EXAMPLE_ORG_GPU_A_B"], {
            "total": 4, "reserved": 0, "allocation_ratio": 1.5, "min_unit": 1, "max_unit": 4, "step_size": 1})

    def test_what_the_policy_declares_under_names_that_are_alike_has_classes_of_its_own(self):
        host = figures(cpu=(4, 0, 1, 0, 0, 0, 0, 0), **{"gpu-a": (4, 0, 1, 0, 0, 0, 0, 0), "gpu.a": (5, 0, 1, 0, 0, 0, 0, 0)})
        inventories = self.export("placement", status(host))["inventories"]
        self.assertEqual({name: inventory["total"] for name, inventory in inventories.items()},
                         {"VCPU": 4, "CUSTOM_GPU_A": 4, "CUSTOM_GPU_A_2": 5})

    def test_what_a_host_has_none_of_has_no_inventory(self):
        host = figures(cpu=(4, 0, 1, 0, 0, 0, 0, 0), hugepages_2Mi=(0, 0, 1, 0, 0, 0, 0, 0))
        self.assertEqual(list(self.export("placement", status(host))["inventories"]), ["VCPU"])

    def test_a_format_that_is_none_is_bad_usage(self):
        done = subprocess.run([CTL, "export", "--format", "xml"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr,
                         'virtguardctl: --format: "xml": expected hypervisor, machinepool or placement; '
                         'see virtguardctl export --help\n')

    def random_status(self, rng):
        def row(unit, ratio):
            capacity = rng.randrange(1, 1 << rng.randrange(1, 14)) * unit
            reserved = min(rng.randrange(0, capacity // unit + 1) // 4 * unit, capacity)
            whole = min(rng.randrange(0, capacity // unit + 1) // 3 * unit, capacity - reserved)
            return (capacity, reserved, decimal.Decimal(ratio), whole if decimal.Decimal(ratio) > 1 else 0,
                    *(rng.randrange(0, capacity // unit + 1) // 2 * unit for _ in range(4)))
        ratios = {"cpu": rng.choice(["0.5", "1", "1.15", "3", "999.999999"]), "memory": rng.choice(["0.9", "1", "1.25"]),
                  "hugepages-2Mi": "1", "hugepages-1Gi": "1"}
        units = {"cpu": 1, "memory": 4096, "hugepages-2Mi": 2 * MIB, "hugepages-1Gi": GIB}
        return status(figures(**{name: row(unit, ratios[name]) for name, unit in units.items()}), overcommit=ratios)

    def test_a_scheduler_works_out_what_is_free(self):
        rng = random.Random(int(os.environ.get("VIRTGUARD_SEED", "1")))
        for _ in range(50):
            document = self.random_status(rng)
            host = document["host"]
            with self.subTest(document=json.dumps(document)):
                shown = self.export("hypervisor", document)["status"]
                pool = self.export("machinepool", document)["status"]
                inventories = self.export("placement", document)["inventories"]
                for name in host["capacity"]:
                    self.assertEqual(amount(shown["effectiveCapacity"][name]) - amount(shown["allocation"][name]),
                                     host["free"][name])
                    self.assertEqual(amount(pool["capacity"][name]), host["capacity"][name])
                    guests = max(0, max(0, host["effective"][name]) - host["foreign"][name])
                    self.assertEqual(amount(pool["allocatable"][name]), guests)
                    self.check_inventory(inventories, document, name, guests)

    def check_inventory(self, inventories, document, name, guests):
        unit = 1 if name == "cpu" else MIB
        kind = {"cpu": "VCPU", "memory": "MEMORY_MB"}.get(name, "CUSTOM_" + name.upper().replace("-", "_"))
        if document["host"]["capacity"][name] < unit:
            self.assertNotIn(kind, inventories)
            return
        found = inventories[kind]
        self.assertLessEqual(0, found["reserved"])
        self.assertLessEqual(found["reserved"], found["total"])
        ratio = decimal.Decimal(document["overcommit"][name])
        self.assertEqual(decimal.Decimal(str(found["allocation_ratio"])), ratio)
        # Never more than guests can have, and less by no more than a unit at its ratio and what rounding costs.
        given = (found["total"] - found["reserved"]) * ratio
        self.assertLessEqual(given, decimal.Decimal(guests) / unit)
        self.assertLess(decimal.Decimal(guests) / unit - given, 2 * ratio)
        self.assertEqual(found["max_unit"] % found["step_size"], 0)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: virtguardd's socket is root's, and this is not root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
