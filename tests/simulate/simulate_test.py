#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardctl simulate, end to end on files: simulate_test.py VIRTGUARDCTL"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from simulator import BARE, GIB, MIB, VFIO, Simulator, domain, scheduler, strict, uuid

PROGRAM = ""
TWO_NODES = "numa:2(memory=64GiB) core:4 pu:1"


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.simulator = Simulator(PROGRAM, folder.name)
        self.maxDiff = None

    def write(self, name, *arguments, **options):
        """A domain's file; its name."""
        return self.simulator.write(f"{name}.xml", domain(name, *arguments, **options))

    def simulate(self, topology, *events, **options):
        return self.simulator.document(topology, *events, **options)

    def verdicts(self, document):
        return [event["verdict"] for event in document["events"] if "verdict" in event]

    def refused(self, document, index=-1):
        """(code, resource, nodes, requested, free, effective) of each reason."""
        event = document["events"][index]
        self.assertEqual(event["verdict"], "refuse")
        return [(reason["code"], reason["resource"], reason["nodes"], reason["requested"], reason["free"],
                 reason["effective"]) for reason in event["reasons"]]

    def bad_input(self, expected, *arguments):
        status, out, err = self.simulator.run(*arguments)
        self.assertEqual((status, out), (2, ""), err)
        self.assertEqual(err, f"virtguardctl: {expected}\n")


class Recognised(Case):
    METADATA = {
        "nova": "<nova:instance xmlns:nova='http://openstack.org/xmlns/libvirt/nova/1.1'/>",
        "ovirt": "<ovirt-vm:vm xmlns:ovirt-vm='http://ovirt.org/vm/1.0'/>",
        "kubevirt": "<kubevirt xmlns='http://kubevirt.io'><uid/></kubevirt>",
        "libvirt-provider": "<libvirtprovider:metadata xmlns:libvirtprovider="
                            "'https://github.com/ironcore-dev/libvirt-provider'/>"}

    def test_the_files_that_are_shipped_know_their_own_guests_and_no_others(self):
        shipped = pathlib.Path(__file__).resolve().parents[2] / "conf/recognise"
        self.assertEqual(sorted(file.stem for file in shipped.iterdir()), sorted(self.METADATA))
        for name, metadata in self.METADATA.items():
            self.write(name, metadata=metadata)
        for name in self.METADATA:
            document = self.simulate(TWO_NODES, *(f"{other}.xml" for other in self.METADATA),
                                     policy=(shipped / f"{name}.toml").read_text(encoding="utf-8"))[1]
            self.assertEqual([event["scheduler"] for event in document["events"]],
                             [name if other == name else "default-scheduler" for other in self.METADATA])
            self.assertEqual(set(self.verdicts(document)), {"admit"})

    def test_virtguards_own_metadata_wins(self):
        self.write("web", metadata=self.METADATA["nova"] + scheduler("cortex"))
        document = self.simulate(TWO_NODES, "web.xml", policy=BARE + """
            [scheduler.recognise.nova]
            namespaces = { nova = "http://openstack.org/xmlns/libvirt/nova/1.1" }
            match = "boolean(/domain/metadata/nova:instance)"
            """)[1]
        self.assertEqual(document["events"][0]["scheduler"], "cortex")
        self.assertEqual(self.refused(document)[0][0], "foreign-scheduler")

    def test_a_bad_expression_is_told_with_its_place(self):
        self.write("web")
        (self.simulator.folder / "p.toml").write_text(
            '[scheduler.recognise.nova]\nmatch = "/domain/metadata/nova:instance"\n', encoding="utf-8")
        self.bad_input('p.toml:2:1: scheduler.recognise.nova.match: "/domain/metadata/nova:instance" has the prefix '
                       '"nova", which its namespaces do not declare', "--policy", "p.toml", "--topology", TWO_NODES,
                       "web.xml")


class Resources(Case):
    SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "conf/resource"

    def devices(self, *devices):
        return f"<devices>{''.join(devices)}</devices>"

    def pci(self, bus, slot="0x00", function="0x0", tag="hostdev"):
        kind = "mode='subsystem' type='pci'" if tag == "hostdev" else "type='hostdev'"
        return (f"<{tag} {kind}><source><address type='pci' domain='0x0000' bus='{bus}' slot='{slot}' "
                f"function='{function}'/></source></{tag}>")

    def shipped(self, name):
        """The file as it is installed, reading capacities from files of ours."""
        policy = (self.SHIPPED / f"{name}.toml").read_text(encoding="utf-8")
        for path in re.findall(r'"(/sys/[^"]*)"', policy):
            own = self.simulator.folder / path.replace("/", "_")
            own.write_text("4\n", encoding="utf-8")
            policy = policy.replace(path, str(own))
        return BARE + policy

    def demand(self, name, inside="", **options):
        """What a domain asks for by a shipped file, without what every domain does."""
        self.write("guest", inside=inside, **options)
        document = self.simulate(TWO_NODES, "guest.xml", policy=self.shipped(name))[1]
        return {resource: amount for resource, amount in document["events"][0]["demand"].items()
                if resource not in ("cpu", "memory")}

    def test_each_shipped_file_counts_what_it_says(self):
        disks = ("<disk type='file' device='disk'><target dev='vda'/><iotune><total_iops_sec>500</total_iops_sec>"
                 "</iotune></disk>", "<disk type='file' device='disk'><target dev='vdb'/><iotune><read_iops_sec>100"
                 "</read_iops_sec><write_iops_sec>50</write_iops_sec></iotune></disk>",
                 "<disk type='file' device='disk'><target dev='vdc'/></disk>")
        mdev = ("<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source>"
                "<address uuid='c2177883-f1bb-47f0-914d-32a22e3a8804'/></source></hostdev>")
        epc = "<memory model='sgx-epc'><target><size unit='KiB'>{}</size><node>0</node></target></memory>"
        licence = "<l:use xmlns:l='https://example.org/xmlns/licence/1' name='{}' count='{}'/>"
        expected = {
            "gpu": ({"inside": self.devices(self.pci("0x3b"), self.pci("0xaf"), self.pci("0x5e"),
                                            self.pci("0x3b", function="0x1"))}, {"example.org/gpu": 2}),
            "iops": ({"inside": self.devices(*disks)}, {"example.org/iops": 650}),
            "licence": ({"metadata": licence.format("acme", 2) + licence.format("other", 8) +
                         licence.format("acme", 1)}, {"licence/acme": 3}),
            "sgx": ({"inside": self.devices(epc.format(1), epc.format(2)), "memory": GIB},
                    {"intel.com/sgx-epc": 3072}),
            "sriov": ({"inside": self.devices(self.pci("0x3b", "0x02"), self.pci("0x3b", "0x02", "0x1", "interface"),
                                              self.pci("0x3b"), self.pci("0x3b", function="0x1"),
                                              self.pci("0x3b", function="0x2"), self.pci("0x3b", function="0x7"),
                                              self.pci("0xaf", "0x02"))},
                      {"example.org/sriov-ens1f0": 4, "example.org/sriov-ens2f0": 1}),
            "vgpu": ({"inside": self.devices(mdev, self.pci("0x3b"))}, {"example.org/vgpu": 1})}
        self.assertEqual(sorted(file.stem for file in self.SHIPPED.iterdir()), sorted(expected))
        for name, (options, amounts) in expected.items():
            with self.subTest(name=name):
                self.assertEqual(self.demand(name, **options), amounts)
                self.assertEqual(self.demand(name), {})

    POLICY = BARE + """
        [resource.licences]
        capacity = 4
        unit = "seats"
        demand = "/domain/vcpu"
        [resource."example.org/gpu"]
        capacity.node = { 0 = 2, 1 = 1 }
        demand = "count(/domain/devices/hostdev)"
        """

    def test_what_is_host_wide_is_on_no_node_and_what_is_per_node_on_each(self):
        self.write("web", vcpus=3)
        document = self.simulate(TWO_NODES, "web.xml", policy=self.POLICY)[1]
        self.assertEqual(document["events"][0]["demand"], {"cpu": 3, "memory": GIB, "licences": 3})
        self.assertEqual([piece["nodes"] for piece in document["events"][0]["pieces"]], [[], [], []])
        self.assertEqual(document["host"]["free"]["licences"], 1)
        self.assertEqual([node["free"]["example.org/gpu"] for node in document["nodes"]], [2, 1])
        self.assertFalse(any("licences" in node["free"] for node in document["nodes"]))

    def test_what_does_not_fit_is_refused_in_its_unit(self):
        self.write("web", vcpus=3)
        self.write("mail", vcpus=2)
        document = self.simulate(TWO_NODES, "web.xml", "mail.xml", policy=self.POLICY)[1]
        self.assertEqual(self.refused(document), [("insufficient-capacity", "licences", [], 2, 1, 4)])
        self.assertEqual(document["events"][1]["reasons"][0]["text"], "licences: needs 2 seats, 1 free of 4")

    def test_ratios_and_reservations_name_it(self):
        self.write("web", vcpus=3)
        self.write("gpus", inside=VFIO, numatune=strict(1))
        document = self.simulate(
            TWO_NODES, "ratio:licences=2", "web.xml", "reserve:r:licences=4,example.org/gpu@1=1", "gpus.xml",
            policy=self.POLICY)[1]
        self.assertEqual(document["host"]["effective"]["licences"], 8)
        self.assertEqual(document["host"]["booked"]["licences"], 4)
        self.assertEqual(self.refused(document), [
            ("insufficient-node-capacity", "example.org/gpu", [1], 1, 0, 1)])
        (self.simulator.folder / "p.toml").write_text(self.POLICY, encoding="utf-8")
        for event, what in (("ratio:licence=2", '"licence" is not a resource; did you mean "licences"?'),
                            ("reserve:r:example.org/gpus=1",
                             '"example.org/gpus" is not a resource; did you mean "example.org/gpu"?'),
                            ("reserve:r:licences@0=1", "node 0 has no licences")):
            self.bad_input(f'event "{event}": {what}', "--policy", "p.toml", "--topology", TWO_NODES, event)

    def test_a_demand_without_an_answer_is_said_and_refuses_only_where_no_answer_does(self):
        element = "<x:n xmlns:x='urn:x' v='{}'/>"
        for values, what in ((("-1",), "gives -1: expected 0 to 4503599627370496"),
                             (("many",), "gives no number; sum() of no nodes is 0, number() is not"),
                             (("9007199254740992",), "gives 9"),
                             (("1", "2"), "gives 2 nodes: expected one at most; sum() adds them up")):
            for unavailable, verdict in (("allow", "admit"), ("deny", "refuse")):
                with self.subTest(values=values, unavailable=unavailable):
                    self.write("web", metadata="".join(element.format(value) for value in values))
                    document = self.simulate(TWO_NODES, "web.xml", policy=BARE + f"""
                        hook.unavailable = "{unavailable}"
                        [resource.x]
                        capacity = 4
                        namespaces.x = "urn:x"
                        demand = "/domain/metadata/x:n/@v"
                        """)[1]
                    event = document["events"][0]
                    self.assertEqual(event["verdict"], verdict)
                    self.assertEqual([(reason["code"], reason["resource"]) for reason in event["reasons"]],
                                     [("not-ready", "x")])
                    self.assertTrue(event["reasons"][0]["text"].startswith(f"resource.x.demand {what}"),
                                    event["reasons"][0]["text"])

    def test_a_part_of_a_thing_is_a_thing(self):
        self.write("web")
        document = self.simulate(TWO_NODES, "web.xml",
                                 policy=BARE + '[resource.x]\ncapacity = 4\ndemand = "3 div 2"\n')[1]
        self.assertEqual(document["events"][0]["demand"]["x"], 2)

    def test_a_capacity_that_cannot_be_read_is_bad_input(self):
        self.write("web")
        (self.simulator.folder / "p.toml").write_text(
            '[resource.x]\ncapacity.file = "/nonexistent"\ndemand = "1"\n', encoding="utf-8")
        self.bad_input("resource.x.capacity.file: /nonexistent: No such file or directory",
                       "--policy", "p.toml", "--topology", TWO_NODES, "web.xml")


class Rules(Case):
    POLICY = BARE + """
        [rule.maintenance]
        priority = 10
        match = "not(contains(/domain/name, 'infra-'))"
        action = "refuse"
        message = "host is in maintenance"
        """

    def test_the_rule_of_the_manual_refuses_all_but_infrastructure(self):
        self.write("web")
        self.write("infra-dns")
        document = self.simulate(TWO_NODES, "web.xml", "infra-dns.xml", policy=self.POLICY)[1]
        self.assertEqual(self.verdicts(document), ["refuse", "admit"])
        self.assertEqual(document["events"][0]["reasons"], [{
            "code": "policy-rule", "resource": "", "nodes": [], "requested": 0, "free": 0, "effective": 0,
            "mode": "enforce", "text": "host is in maintenance (rule maintenance)"}])

    def test_what_is_exempt_is_admitted_and_counted(self):
        self.write("web", 200 * GIB)
        document = self.simulate(TWO_NODES, "web.xml", policy=BARE + """
            [rule.all]
            action = "exempt"
            """)[1]
        self.assertEqual(self.verdicts(document), ["admit"])
        self.assertEqual(document["host"]["free"]["memory"], -72 * GIB)


class Document(Case):
    def test_an_admitted_start_field_by_field(self):
        self.write("web", GIB, 2, number=7, numatune=strict("1"))
        policy = BARE.replace('"none"', '{ base = "16MiB", per-vcpu = "1MiB", per-gib = "2MiB", video = false }')
        status, document = self.simulate(TWO_NODES, "start:web.xml", policy=policy)
        self.assertEqual(status, 0)
        self.assertEqual(list(document), ["events", "host", "nodes"])
        event = document["events"][0]
        self.assertEqual(list(event), ["event", "domain", "uuid", "verdict", "mode", "scheduler", "demand",
                                       "overhead", "pieces", "reasons"])
        memory = GIB + 20 * MIB
        self.assertEqual(event, {
            "event": "start:web.xml", "domain": "web", "uuid": uuid(7), "verdict": "admit", "mode": "enforce",
            "scheduler": "default-scheduler", "demand": {"cpu": 2, "memory": memory}, "overhead": 20 * MIB,
            "pieces": [{"resource": "cpu", "amount": 2, "nodes": [], "whole": False},
                       {"resource": "memory", "amount": memory, "nodes": [1], "whole": False}],
            "reasons": []})
        self.assertEqual([(node["id"], node["cpus"]) for node in document["nodes"]], [(0, "0-3"), (1, "4-7")])
        self.assertEqual(list(document["host"]), ["capacity", "reserved", "allocatable", "effective", "allocated",
                                                  "pending", "booked", "foreign", "free"])
        self.assertEqual(list(document["nodes"][0]), ["id", "cpus"] + list(document["host"]))
        self.assertEqual(document["host"]["allocated"], {"cpu": 2, "memory": memory})
        self.assertEqual(document["nodes"][1]["free"], {"cpu": 4, "memory": 64 * GIB - memory})

    def test_a_refused_start_field_by_field(self):
        self.write("big", 65 * GIB, 1, numatune=strict("1"))
        status, document = self.simulate(TWO_NODES, "big.xml", policy=BARE)
        self.assertEqual(status, 1)
        event = document["events"][0]
        self.assertEqual((event["event"], event["uuid"], event["verdict"]), ("big.xml", "", "refuse"))
        self.assertEqual(list(event["reasons"][0]), ["code", "resource", "nodes", "requested", "free", "effective",
                                                     "mode", "text"])
        self.assertEqual(event["reasons"], [{
            "code": "larger-than-host", "resource": "memory", "nodes": [1], "requested": 65 * GIB, "free": 64 * GIB,
            "effective": 64 * GIB, "mode": "enforce",
            "text": "memory on node 1: needs 65 GiB, more than the 64 GiB that one guest can have"}])
        self.assertEqual(document["host"]["allocated"], {"cpu": 0, "memory": 0})

    def test_what_is_no_start_has_no_verdict(self):
        self.write("a", number=1)
        events = ["running:a.xml", "ratio:cpu=2", "reserve:r:memory=1GiB", "stop:a", "stop:nobody"]
        status, document = self.simulate(TWO_NODES, *events, policy=BARE)
        self.assertEqual(status, 0)
        self.assertEqual([event["event"] for event in document["events"]], events)
        self.assertEqual(list(document["events"][0]),
                         ["event", "domain", "uuid", "mode", "scheduler", "demand", "overhead", "pieces"])
        for event in document["events"][1:]:
            self.assertEqual(list(event), ["event"])
        self.assertEqual(document["host"]["allocated"], {"cpu": 0, "memory": 0})
        self.assertEqual(document["host"]["booked"], {"cpu": 0, "memory": GIB})
        self.assertEqual(document["host"]["effective"]["cpu"], 16)

    def test_an_impossible_domain_is_a_refusal(self):
        self.simulator.write("none.xml", "<domain><name>none</name><memory>0</memory></domain>")
        status, document = self.simulate(TWO_NODES, "none.xml")
        self.assertEqual(status, 1)
        self.assertEqual(self.refused(document), [("invalid-domain", "", [], 0, 0, 0)])
        self.assertEqual(document["events"][0]["demand"], {})
        self.assertEqual(document["events"][0]["domain"], "none")

    def test_hostile_names_stay_inside_their_strings(self):
        name = 'a"b\\c\n\x1b[31mü.xml'
        self.simulator.write(name, domain("&quot;}&#13;ü&lt;"))
        status, document = self.simulate(TWO_NODES, name)
        self.assertEqual((status, document["events"][0]["event"]), (0, name))
        self.assertEqual(document["events"][0]["domain"], '"}\rü<')
        self.assertEqual(self.simulator.run("--topology", TWO_NODES, name)[:2], (
            0, 'a"b\\c\\x0a\\x1b[31mü.xml: admitted "}\\x0dü< (cpu 1, memory 1.08 GiB)\n'))


class Arguments(Case):
    def test_events_that_look_like_something_else(self):
        self.write("a")
        for name in ("-x", "--json", "status", "start", "stop", "[a,b]", "x:y", "0:2Mi=1"):
            with self.subTest(name=name):
                self.simulator.write(name, domain("odd"))
                status, document = self.simulate(TWO_NODES, "a.xml", name)
                self.assertEqual((status, document["events"][1]["domain"]), (0, "odd"))

    def test_events_before_and_behind_the_mark(self):
        self.write("a")
        self.simulator.write("-b", domain("b"))
        status, out, err = self.simulator.run("--topology", TWO_NODES, "a.xml", "--json", "--", "-b")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual([event["domain"] for event in json.loads(out)["events"]], ["a", "b"])

    def test_pages_one_by_one_or_together(self):
        self.write("a", 3 * MIB, backing="<hugepages/>")
        for pages in (["--pages", "0:2Mi=4", "1:2Mi=8"], ["--pages", "0:2Mi=4", "--pages", "1:2Mi=8"],
                      ["--pages=0:2Mi=4", "1:2Mi=8"]):
            with self.subTest(pages=pages):
                status, out, err = self.simulator.run("--topology", TWO_NODES, "--json", *pages, "a.xml")
                self.assertEqual((status, err), (0, ""))
                document = json.loads(out)
                self.assertEqual(document["host"]["capacity"]["hugepages-2Mi"], 24 * MIB)
                self.assertEqual(document["host"]["allocated"]["hugepages-2Mi"], 4 * MIB)
                self.assertEqual(document["nodes"][1]["capacity"]["memory"], 64 * GIB - 16 * MIB)

    def test_lines_for_people(self):
        self.write("a", GIB, 4)
        self.write("b", GIB, 9)
        self.simulator.write("p.toml", BARE)
        status, out, err = self.simulator.run("--topology", TWO_NODES, "--policy", "p.toml", "running:a.xml", "b.xml",
                                              "ratio:cpu=1.5", "stop:a", "stop:a")
        self.assertEqual((status, err), (1, ""))
        self.assertEqual(out.splitlines(), [
            "running:a.xml: a runs (cpu 4, memory 1 GiB)",
            "b.xml: refused b: cpu: needs 9 vCPUs, more than the 8 vCPUs that one guest can have",
            "ratio:cpu=1.5: done", "stop:a: done", "stop:a: nothing of that name runs"])

    def test_an_output_that_cannot_be_written_is_an_error(self):
        self.write("a")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "simulate", "--topology", TWO_NODES, "a.xml"], stdout=full, check=False,
                                  cwd=self.simulator.folder, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "virtguardctl: standard output: No space left on device\n"))

    def test_an_error_output_that_cannot_be_written_aborts_nothing(self):
        self.write("a")
        for redirection, output_is_lost in (("2>/dev/full", False), ("2>&-", False),
                                            (">/dev/full 2>/dev/full", True), (">&- 2>&-", True)):
            for expected, arguments in ((2 if output_is_lost else 0, ("simulate", "--topology", TWO_NODES, "a.xml")),
                                        (2, ("simulate", "--topology", TWO_NODES, "absent.xml")),
                                        (2, ("simulate", "--bogus")), (2, ("check", "absent.xml")),
                                        (3, ("--socket", "absent.sock", "status"))):
                with self.subTest(redirection=redirection, arguments=arguments):
                    done = subprocess.run(["sh", "-c", f'exec "$0" "$@" {redirection}', PROGRAM, *arguments],
                                          cwd=self.simulator.folder, stdout=subprocess.DEVNULL, check=False)
                    self.assertEqual(done.returncode, expected)


class BadInput(Case):
    def event(self, event, expected):
        self.write("good")
        self.bad_input(f'event "{event}": {expected}', "--topology", TWO_NODES, "--json", "good.xml", "--", event)

    def test_files(self):
        self.simulator.write("text.xml", "hello")
        self.simulator.write("other.xml", "<network/>")
        self.simulator.write("empty.xml", "")
        self.simulator.write("none.xml", "<domain><name>none</name><memory>0</memory></domain>")
        self.simulator.write("large.xml", "<domain>" + " " * (4 << 20) + "</domain>")
        for event, expected in (
                ("start:absent.xml", "absent.xml: No such file or directory"),
                ("absent.xml", "absent.xml: No such file or directory"),
                ("", "expected a domain XML file"),
                ("start:", "expected a domain XML file"),
                ("running:", "expected a domain XML file"),
                ("begin:a.xml", "begin:a.xml: No such file or directory, and the event is none of start:, running:, "
                                "stop:, ratio:, reserve:"),
                ("start:/", "/: Is a directory"),
                ("text.xml", "text.xml: line 1: not XML: Start tag expected, '<' not found"),
                ("empty.xml", "empty.xml: line 1: not XML: Document is empty"),
                ("other.xml", "other.xml: root element is <network>: expected <domain>"),
                ("running:none.xml", "none.xml: line 1: <memory>: no memory: expected some here or in guest cells"),
                ("large.xml", "large.xml: longer than 4 MiB"),
        ):
            with self.subTest(event=event):
                self.event(event, expected)

    def test_ratios(self):
        ratio = "is not a ratio: expected a decimal above 0 and at most 1000 with at most 6 decimals, such as 1.5"
        for value in ("", "0", "-1", "abc", "1e9", "1.0000001", "1000.1", "0x2", "nan", " 2"):
            with self.subTest(value=value):
                self.event(f"ratio:cpu={value}", f'"{value}" {ratio}')
        self.event("ratio:cpu", "expected ratio:RESOURCE=VALUE")
        self.event("ratio:cpus=2", '"cpus" is not a resource; did you mean "cpu"?')
        self.event("ratio:hugepages-2Mi=1.5", "hugepages-2Mi takes no ratio other than 1")

    def test_reservations(self):
        form = "expected reserve:NAME:RESOURCE[@NODE]=VALUE[,...][:NAME-or-UUID]"
        size = 'is not a size: expected a number of bytes such as "512MiB", "4Gi" or "4GB", below 8 EiB'
        for event, expected in (
                ("reserve:", form), ("reserve:r", form), ("reserve:r:", form), ("reserve::cpu=1", form),
                ("reserve:r:cpu=1:", form),
                ("reserve:r:cpu=1,", '"": expected RESOURCE[@NODE]=VALUE'),
                ("reserve:r:,cpu=1", '"": expected RESOURCE[@NODE]=VALUE'),
                ("reserve:r:cpu", '"cpu": expected RESOURCE[@NODE]=VALUE'),
                ("reserve:r:memory=-1", f'memory: "-1" {size}'),
                ("reserve:r:memory=99999999999999999999", f'memory: "99999999999999999999" {size}'),
                ("reserve:r:memory=4097Ti", 'memory: "4097Ti" is too large: expected at most 4Pi'),
                ("reserve:r:memory@x=1Gi", '"x" is not a node: expected a number'),
                ("reserve:r:memory@-1=1Gi", '"-1" is not a node: expected a number'),
                ("reserve:r:gpu=1", '"gpu" is not a resource; did you mean "cpu"?'),
                ("reserve:r:memory@7=1Gi", "this host has no node 7"),
                ("reserve:r:cpu@99999=1", '"99999" is not a node: expected a number'),
                ("reserve:r:hugepages-1Gi=1Gi", "this host has no hugepages-1Gi"),
        ):
            with self.subTest(event=event):
                self.event(event, expected)

    def test_one_and_a_half_vcpus_were_two_and_a_gibibyte_of_vcpus_was_taken(self):
        for value in ("", "-1", "1.5", "1.0", "1e3", "2k", "1Gi", "1B", " 1", "9223372036854775808"):
            with self.subTest(value=value):
                self.event(f"reserve:r:cpu@1={value}",
                           f'cpu@1: "{value}" is not a count: expected a whole number such as 48')
        self.simulator.write("p.toml", '[resource.gpu]\ncapacity = 4\ndemand = "0"\n')
        self.bad_input('event "reserve:r:gpu=0.5": gpu: "0.5" is not a count: expected a whole number such as 48',
                       "--topology", TWO_NODES, "--policy", "p.toml", "reserve:r:gpu=0.5")

    def test_a_reservation_that_lies_nowhere_is_told_with_its_event(self):
        self.bad_input('event "reserve:r:hugepages-2Mi@1=2Mi": node 1 has no hugepages-2Mi', "--topology",
                       TWO_NODES, "--pages", "0:2Mi=4", "reserve:r:hugepages-2Mi@1=2Mi")
        self.simulator.write("p.toml", '[reserve]\ncpus = "4-7"\n')
        self.bad_input('event "reserve:r:cpu@1=1": node 1 has no cpu that shared vCPUs may use', "--topology",
                       TWO_NODES, "--policy", "p.toml", "reserve:r:cpu@1=1")
        self.bad_input('event "reserve:x:memory@9=1Gi": this host has no node 9', "--topology", TWO_NODES,
                       "reserve:x:memory@9=1Gi")

    def test_stop_needs_a_name(self):
        self.event("stop:", "expected stop:NAME-or-UUID")

    def test_stop_needs_a_name_that_one_guest_has(self):
        for number in (1, 2):
            self.simulator.write(f"twin{number}.xml", domain("twin", GIB, number=number))
        self.bad_input('event "stop:twin": 2 guests of that name run: expected a UUID', "--topology", TWO_NODES,
                       "twin1.xml", "twin2.xml", "stop:twin")
        status, document = self.simulate(TWO_NODES, "twin1.xml", "twin2.xml", f"stop:{uuid(1)}", "stop:twin",
                                         policy=BARE)
        self.assertEqual((status, document["host"]["allocated"]["memory"]), (0, 0))

    def test_pages_policy_and_topology(self):
        self.write("a")
        self.bad_input('--pages: "x": not a setting of pages: expected NODE:SIZE=COUNT such as "0:2Mi=512"',
                       "--topology", TWO_NODES, "--pages", "x", "a.xml")
        self.bad_input("--pages 9:2Mi=1: node 9: not there; the topology's nodes are 0-1",
                       "--topology", TWO_NODES, "--pages", "9:2Mi=1", "a.xml")
        self.bad_input("absent.toml: No such file or directory", "--topology", TWO_NODES,
                       "--policy", "absent.toml", "a.xml")
        self.simulator.write("bad.toml", "[overcommit]\ncpu = 0\nhugepages-2Mi = 2\n")
        status, out, err = self.simulator.run("--topology", TWO_NODES, "--policy", "bad.toml", "a.xml")
        self.assertEqual((status, out), (2, ""))
        lines = err.splitlines()
        self.assertEqual([line.split(": ")[:2] for line in lines],
                         [["virtguardctl", "bad.toml:2:7"], ["virtguardctl", "bad.toml:3:17"]], err)
        status, out, err = self.simulator.run("--topology", "no such thing", "a.xml")
        self.assertEqual((status, out), (2, ""))
        self.assertTrue(err.startswith("virtguardctl: --topology: "), err)

    def test_a_usage_error_says_whose_it_is_what_there_is_and_whose_help_to_read(self):
        commands = ("expected status, nodes, domains, export, recent, watch, metrics, check, explain, policy, overcommit, "
                    "mode, reservation, doctor or simulate")
        for arguments, error, command in (
                ((), commands, ""),
                (("statsu",), '"statsu" is not a command; did you mean "status"?', ""),
                (("--socket", "x", "--color", "never", "explayn", "d"),
                 '"explayn" is not a command; did you mean "explain"?', ""),
                (("status", "more"), "The following argument was not expected: more", " status"),
                (("--color", "foo", "status"), '--color: "foo": expected always, auto or never', " status"),
                (("simulate",), "--topology is required", " simulate"),
                (("simulate", "--topology", TWO_NODES, "--bogus"),
                 "The following argument was not expected: --bogus", " simulate"),
                (("policy",), "expected check, show or diff", " policy"),
                (("policy", "foo"), '"foo" is not a command of policy: expected check, show or diff', " policy"),
                (("export", "--format", "foo"), '--format: "foo": expected hypervisor, machinepool or placement', " export"),
                (("overcommit", "set", "cpu"), "RATIO is required", " overcommit set"),
                (("mode", "--message", ""), "--message requires MODE", " mode"),
        ):
            with self.subTest(arguments=arguments):
                self.usage_error(arguments, error, command)

    def usage_error(self, arguments, error, command):
        done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertEqual(done.stderr, f"virtguardctl: {error}; see virtguardctl{command} --help\n")

    def test_an_empty_word_was_taken_for_none_which_reserved_for_all_guests_and_showed_in_place_of_setting(self):
        reservation = ("reservation", "add", "cortex", "spot", "memory=1Gi")
        for arguments, word, command in (
                ((*reservation, "--match", ""), "--match", " reservation add"),
                ((*reservation, "--match=", "--force"), "--match", " reservation add"),
                ((*reservation, "--uuid", ""), "--uuid", " reservation add"),
                ((*reservation, "--xml", ""), "--xml", " reservation add"),
                ((*reservation, "--expires", ""), "--expires", " reservation add"),
                ((*reservation, ""), "AMOUNT", " reservation add"),
                (("mode", ""), "MODE", " mode"),
                (("overcommit", "reset", ""), "RESOURCE", " overcommit reset"),
                (("policy", "check", ""), "PATH", " policy check"),
                (("export", "--format", "placement", "--name", ""), "--name", " export"),
                (("simulate", "--topology", TWO_NODES, "--policy", ""), "--policy", " simulate"),
                (("--socket=", "status"), "--socket", " status"),
        ):
            with self.subTest(arguments=arguments):
                self.usage_error(arguments, f"{word}: empty: expected a value", command)


class Examples(Case):
    """What DESIGN works out."""

    def test_two_nodes_of_11_cpus_at_1_5_hold_33_together(self):
        topology = "numa:2(memory=64GiB) core:11 pu:1"
        for name, cpuset in (("left", "0-10"), ("right", "11-21")):
            self.write(name, GIB, 11, cpuset=cpuset)
            self.write(f"{name}5", GIB, 5, cpuset=cpuset)
            self.write(f"{name}1", GIB, 1, cpuset=cpuset)
        self.write("last")
        self.write("over")
        status, document = self.simulate(topology, "left.xml", "left5.xml", "right.xml", "right5.xml", "left1.xml",
                                         "right1.xml", "last.xml", "over.xml", policy=BARE + "overcommit = { cpu = 1.5 }")
        self.assertEqual(status, 1)
        self.assertEqual(self.verdicts(document), ["admit"] * 4 + ["refuse", "refuse", "admit", "refuse"])
        self.assertEqual(document["host"]["effective"]["cpu"], 33)
        self.assertEqual([node["effective"]["cpu"] for node in document["nodes"]], [16, 16])
        self.assertEqual(self.refused(document, 4), [("insufficient-node-capacity", "cpu", [0], 1, 0, 16)])
        self.assertEqual(self.refused(document), [("insufficient-capacity", "cpu", [], 1, 0, 33)])

    def test_100_cpus_at_1_15_are_115(self):
        self.write("a", GIB, 100)
        self.write("b", GIB, 15)
        self.write("c", GIB, 1)
        status, document = self.simulate("numa:1(memory=64GiB) core:100 pu:1", "a.xml", "b.xml", "c.xml",
                                         policy=BARE + 'overcommit = { cpu = "1.15" }')
        self.assertEqual((status, self.verdicts(document)), (1, ["admit", "admit", "refuse"]))
        self.assertEqual(document["host"]["effective"]["cpu"], 115)

    def test_vfio_memory_takes_no_ratio(self):
        self.write("vfio", 240 * GIB, inside=VFIO)
        self.write("fits", 24 * GIB)
        self.write("more", MIB)
        status, document = self.simulate("numa:1(memory=256GiB) core:8 pu:1", "vfio.xml", "fits.xml", "more.xml",
                                         policy=BARE + "overcommit = { memory = 1.5 }")
        self.assertEqual((status, self.verdicts(document)), (1, ["admit", "admit", "refuse"]))
        self.assertTrue(document["events"][0]["pieces"][1]["whole"])
        self.assertEqual(document["host"]["effective"]["memory"], 264 * GIB)
        self.assertEqual(self.refused(document), [("insufficient-capacity", "memory", [], MIB, 0, 264 * GIB)])

    def test_memory_below_ratio_1(self):
        self.write("vfio", 32 * GIB, inside=VFIO)
        self.write("rest", 32 * GIB)
        self.write("more", MIB)
        status, document = self.simulate(TWO_NODES, "vfio.xml", "rest.xml", "more.xml",
                                         policy=BARE + "overcommit = { memory = 0.5 }")
        self.assertEqual((status, self.verdicts(document)), (1, ["admit", "admit", "refuse"]))
        self.assertEqual(document["host"]["effective"]["memory"], 64 * GIB)

    def test_hugepages_round_up_and_take_no_ratio(self):
        huge = "<hugepages><page size='1' unit='GiB'/></hugepages>"
        self.write("a", GIB + MIB, backing=huge)
        self.write("b", GIB, backing=huge, numatune=strict("0"))
        self.write("c", GIB, backing="<hugepages><page size='2' unit='MiB'/></hugepages>")
        status, document = self.simulate(TWO_NODES, "a.xml", "b.xml", "b.xml", "c.xml", pages=["0:1Gi=1", "1:1Gi=2"],
                                         policy=BARE + "overcommit = { memory = 3 }")
        self.assertEqual(status, 1)
        # b bound to node 0 pushes a, which is bound to none, to node 1; again, it replaces itself.
        self.assertEqual(self.verdicts(document), ["admit", "admit", "admit", "refuse"])
        self.assertEqual(document["host"]["allocated"]["hugepages-1Gi"], 3 * GIB)
        self.assertEqual(document["host"]["allocated"]["memory"], 0)
        self.assertEqual(self.refused(document), [("no-such-page-size", "hugepages-2Mi", [], GIB, 0, 0)])

    def test_a_strict_node(self):
        self.write("floating", 40 * GIB)
        self.write("one", 60 * GIB, numatune=strict("1"))
        self.write("again", 5 * GIB, number=1, numatune=strict("1"))
        self.write("zero", 28 * GIB, numatune=strict("0"))
        self.write("absent", GIB, numatune=strict("5"))
        status, document = self.simulate(TWO_NODES, "floating.xml", "one.xml", "again.xml", "zero.xml", "absent.xml",
                                         policy=BARE)
        self.assertEqual((status, self.verdicts(document)), (1, ["admit", "admit", "refuse", "admit", "refuse"]))
        self.assertEqual(self.refused(document, 2),
                         [("insufficient-node-capacity", "memory", [1], 5 * GIB, 4 * GIB, 64 * GIB)])
        self.assertEqual(self.refused(document), [("no-such-node", "memory", [5], GIB, 0, 0)])
        self.assertEqual(document["host"]["free"]["memory"], 0)

    def test_a_foreign_scheduler(self):
        self.write("theirs", metadata=scheduler("cortex"))
        self.write("both", 1024 * GIB, metadata=scheduler("nova"))
        status, document = self.simulate(TWO_NODES, "theirs.xml", "both.xml", policy=BARE)
        self.assertEqual(status, 1)
        event = document["events"][0]
        self.assertEqual((event["scheduler"], event["reasons"][0]["resource"]), ("cortex", ""))
        self.assertEqual(event["reasons"][0]["text"],
                         'it belongs to scheduler "cortex", and this host serves default-scheduler')
        self.assertEqual([reason[0] for reason in self.refused(document)], ["foreign-scheduler", "larger-than-host"])
        accept = BARE + '[scheduler.accept.cortex]\nmatch = "cor*"\n'
        status, document = self.simulate(TWO_NODES, "theirs.xml", policy=accept)
        self.assertEqual(status, 0)

    def test_a_misspelt_scheduler_is_told(self):
        self.write("web", metadata=scheduler("cortex").replace("scheduler>", "schedular>"))
        note = "<schedular> in its metadata is not known and ignored: expected <virtguard:scheduler> in " \
               "<virtguard:admission>"
        status, document = self.simulate(TWO_NODES, "web.xml", "running:web.xml", policy=BARE)
        self.assertEqual(status, 0)
        self.assertEqual([(event["scheduler"], event["notes"]) for event in document["events"]],
                         [("default-scheduler", [note])] * 2)
        self.assertEqual(self.simulator.run("--topology", TWO_NODES, "--policy", "policy.toml", "web.xml"),
                         (0, f"web.xml: admitted web (cpu 1, memory 1 GiB)\n  note: {note}\n", ""))

    def test_observe_admits_and_counts(self):
        self.write("a", 200 * GIB)
        status, document = self.simulate(TWO_NODES, "a.xml", policy='mode = "observe"\n' + BARE)
        self.assertEqual(status, 0)
        event = document["events"][0]
        self.assertEqual((event["verdict"], event["mode"], event["reasons"][0]["mode"]),
                         ("admit", "observe", "observe"))
        self.assertEqual(document["host"]["free"]["memory"], -72 * GIB)
        status, document = self.simulate(TWO_NODES, "a.xml", policy=BARE + 'resource-mode = { memory = "off" }\n')
        self.assertEqual((status, document["events"][0]["reasons"]), (0, []))

    def test_a_reservation_is_taken_by_its_guest_alone(self):
        self.write("mine", 20 * GIB, 2, number=10)
        self.write("other", 20 * GIB, 2)
        reserve = f"reserve:r:memory=120GiB,cpu@0=2:{uuid(10).upper()}"
        status, document = self.simulate(TWO_NODES, reserve, "other.xml", "mine.xml", policy=BARE)
        self.assertEqual((status, self.verdicts(document)), (1, ["refuse", "admit"]))
        self.assertEqual(self.refused(document, 1), [("insufficient-capacity", "memory", [], 20 * GIB, 8 * GIB, 128 * GIB)])
        self.assertEqual(document["host"]["booked"], {"cpu": 0, "memory": 100 * GIB})
        self.assertEqual(document["host"]["allocated"], {"cpu": 2, "memory": 20 * GIB})
        # It is forced, is free again with its guest, and is replaced under its name.
        status, document = self.simulate(TWO_NODES, "mine.xml", reserve, "stop:mine", "reserve:r:memory=200GiB",
                                         policy=BARE)
        self.assertEqual(status, 0)
        self.assertEqual(document["host"]["free"], {"cpu": 8, "memory": -72 * GIB})

    def test_an_identity_that_runs_is_replaced_unless_refused(self):
        self.write("small", 10 * GIB, number=3)
        self.write("large", 125 * GIB, number=3)
        self.write("larger", 129 * GIB, number=3)
        status, document = self.simulate(TWO_NODES, "small.xml", "large.xml", "larger.xml", policy=BARE)
        self.assertEqual((status, self.verdicts(document)), (1, ["admit", "admit", "refuse"]))
        self.assertEqual(document["host"]["allocated"]["memory"], 125 * GIB)
        self.simulator.write("noname.xml", domain("small", 2 * GIB))
        status, document = self.simulate(TWO_NODES, "noname.xml", "noname.xml", "small.xml", f"stop:{uuid(3)}",
                                         policy=BARE)
        self.assertEqual(document["host"]["allocated"]["memory"], 2 * GIB)

    def test_a_ratio_lowered_below_use_touches_nobody(self):
        self.write("a", 10 * GIB, 8)
        self.write("b", 10 * GIB, 4)
        self.write("memory", 10 * GIB, 1)
        self.simulator.write("nocpu.xml", domain("nocpu", 10 * GIB, 1))
        status, document = self.simulate(TWO_NODES, "ratio:cpu=2", "a.xml", "b.xml", "ratio:cpu=1", "memory.xml",
                                         policy=BARE)
        self.assertEqual((status, self.verdicts(document)), (1, ["admit", "admit", "refuse"]))
        self.assertEqual(document["host"]["free"]["cpu"], -4)
        self.assertEqual(self.refused(document), [("insufficient-capacity", "cpu", [], 1, -4, 8)])
        # Over in memory: one that needs memory is refused for it, one bound to the node with room is not.
        self.write("zero", 60 * GIB, numatune=strict("0"))
        self.write("one", 20 * GIB, numatune=strict("1"))
        status, document = self.simulate(TWO_NODES, "zero.xml", "ratio:memory=0.5", "one.xml", "b.xml", policy=BARE)
        self.assertEqual(self.verdicts(document), ["admit", "admit", "admit"])
        self.assertEqual(document["nodes"][0]["free"]["memory"], -28 * GIB)
        self.assertEqual(document["host"]["free"]["memory"], -26 * GIB)
        self.assertEqual(status, 0)

    def test_a_start_that_needs_nothing_that_is_short(self):
        self.write("a", 120 * GIB, 1)
        self.write("b", GIB, 4, backing="<hugepages/>")
        status, document = self.simulate(TWO_NODES, "a.xml", "ratio:memory=0.5", "b.xml", pages=["0:2Mi=1024"],
                                         policy=BARE)
        self.assertEqual((status, self.verdicts(document)), (0, ["admit", "admit"]))
        self.assertLess(document["host"]["free"]["memory"], 0)


class Size(Case):
    def test_thousands_of_events_in_a_moment(self):
        count = 2000
        names = [self.write(f"g{i}", GIB, 1 + i % 4, number=i, numatune=strict(str(i % 8))) for i in range(count)]
        status, document = self.simulate("numa:8(memory=1TiB) core:64 pu:2", *names, *("running:" + n for n in names),
                                         *(f"stop:g{i}" for i in range(1000)), policy=BARE + "overcommit = { cpu = 20 }")
        self.assertEqual((status, len(document["events"])), (0, 5000))
        self.assertEqual(document["host"]["allocated"]["memory"], 1000 * GIB)


if __name__ == "__main__":
    PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
