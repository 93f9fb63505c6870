#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each key of the policy: what it changes, what it is when no file sets it, and what is said of a wrong value.

    policy_keys_test.py VIRTGUARDCTL MANUAL-PAGE SAMPLE-FILE

What a key changes is looked at on files, with and without it; keys that the simulation has no use for name the test
that sees them at work. Keys are those of virtguard.toml(5), which another test holds against the code.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

from simulator import GIB, MIB, VFIO, Simulator, domain, scheduler

PROGRAM = MANUAL = SAMPLE = ""
HOST = "numa:2(memory=4GiB) core:4 pu:2"  # PUs 0 to 15
PAGES = "1:2Mi=512"                       # of node 1, which has 3 GiB beside them


def pinned(cpu, vcpus=1, more=""):
    """Each vCPU on that PU."""
    pins = "".join(f"<vcpupin vcpu='{vcpu}' cpuset='{cpu}'/>" for vcpu in range(vcpus))
    return f"<cputune>{pins}</cputune>{more}"


GUESTS = {
    "plain": domain("plain", GIB),
    "large": domain("large", 9 * GIB),
    "many": domain("many", MIB, vcpus=17),
    "ballooned": domain("ballooned", 2 * GIB, backing="</memoryBacking><currentMemory unit='b'>1073741824"
                                                      "</currentMemory><memoryBacking>"),
    "hotplug": domain("hotplug", MIB, vcpus="4").replace("<vcpu>4", "<vcpu current='2'>4"),
    "virtio-mem": domain("virtio-mem", GIB, inside=(
        "<devices><memory model='virtio-mem'><target><size unit='GiB'>2</size><node>0</node><block unit='MiB'>2</block>"
        "<requested unit='GiB'>1</requested></target></memory></devices>"
        "<cpu><numa><cell id='0' cpus='0' memory='1' unit='GiB'/></numa></cpu>")),
    "file": domain("file", GIB, backing="<source type='file'/>"),
    "iothreads": domain("iothreads", GIB, inside="<iothreads>2</iothreads>"),
    "video": domain("video", GIB, inside="<devices><video><model type='vga' vram='16384'/></video></devices>"),
    "vfio": domain("vfio", GIB, inside=VFIO),
    "sev": domain("sev", GIB, inside="<launchSecurity type='sev'><policy>3</policy></launchSecurity>"),
    "tpm": domain("tpm", GIB, inside="<devices><tpm><backend type='emulator'/></tpm></devices>"),
    "pinned": domain("pinned", MIB, inside=pinned(2)),
    "pinned-twice": domain("pinned-twice", MIB, vcpus=2, inside=pinned(2, 2)),
    "other-pin": domain("other-pin", MIB, inside=pinned(2)),
    "pages": domain("pages", GIB, backing="<hugepages><page size='2' unit='MiB'/></hugepages>"),
    "cortex": domain("cortex", GIB, metadata=scheduler("cortex-7")),
    "mine": domain("mine", GIB, metadata="<m:machine xmlns:m='https://example.org/m'/>"),
}


def demand(resource="memory"):
    """What the last event's domain is counted with."""
    return lambda document: document["events"][-1]["demand"].get(resource, 0)


def figure(column, resource, node=None):
    return lambda document: (document["host"] if node is None else document["nodes"][node])[column].get(resource, 0)


def verdicts(document):
    return " ".join(event["verdict"] for event in document["events"])


def codes(document):
    return [reason["code"] for reason in document["events"][-1]["reasons"]]


def modes(document):
    return [reason["mode"] for reason in document["events"][-1]["reasons"]]


def text_of_reason(document):
    return document["events"][-1]["reasons"][0]["text"]


def owner(document):
    return document["events"][-1]["scheduler"]


OVERHEAD = (64 + 8 + 2) * MIB  # of a guest with a vCPU and a GiB
DEFAULT = ""                   # a policy that sets nothing
BARE = 'memory.overhead = "none"\nreserve.memory = "0"\n'
MINE = '[scheduler.recognise.m]\nnamespaces.m = "https://example.org/m"\n'
RESOURCE = ('[resource.r]\ncapacity = 4\nnamespaces.m = "https://example.org/m"\n'
            'demand = "count(/domain/metadata/m:machine)"\n')
NONE_OF_IT = RESOURCE.replace("capacity = 4", "capacity = 0")
RULE = '[rule.r]\naction = "refuse"\n'

# key: [(guests that start, what is looked at, policy without it, what is seen, policy with it, what is seen), ...]
EFFECTS = {
    "mode": [("large", modes, DEFAULT, ["enforce"], 'mode = "observe"', ["observe"]),
             ("large", verdicts, DEFAULT, "refuse", 'mode = "off"', "admit")],
    "overcommit.<resource>": [
        ("many", verdicts, BARE, "refuse", BARE + "overcommit.cpu = 2", "refuse"),  # never against itself
        ("plain", figure("effective", "cpu"), BARE, 16, BARE + "overcommit.cpu = 1.5", 24),
        ("plain", figure("effective", "memory"), BARE, 7 * GIB, BARE + 'overcommit.memory = "0.5"', 7 * GIB // 2)],
    "resource-mode.<resource>": [("large", modes, DEFAULT, ["enforce"], 'resource-mode.memory = "observe"', ["observe"]),
                                 ("large", modes, DEFAULT, ["enforce"], 'resource-mode.cpu = "observe"', ["enforce"])],
    "memory.count": [("ballooned", demand(), BARE, 2 * GIB, BARE + 'memory.count = "current"', GIB)],
    "memory.virtio-mem": [("virtio-mem", demand(), BARE, 3 * GIB, BARE + 'memory.virtio-mem = "requested"', 2 * GIB)],
    "memory.file": [("file", demand(), BARE, GIB, BARE + 'memory.file = "storage"', 0)],
    "memory.foreign": "tests/integration/residency.py",
    "memory.nodes": [("plain", figure("allocated", "memory", 1), DEFAULT, 0, 'memory.nodes = "1"', GIB + OVERHEAD)],
    "memory.overhead": [("plain", demand(), DEFAULT, GIB + OVERHEAD, 'memory.overhead = "none"', GIB)],
    "memory.overhead.base": [("plain", demand(), DEFAULT, GIB + OVERHEAD,
                              'memory.overhead.base = "1GiB"', 2 * GIB + OVERHEAD - 64 * MIB)],
    "memory.overhead.per-vcpu": [("plain", demand(), DEFAULT, GIB + OVERHEAD,
                                  'memory.overhead.per-vcpu = "9MiB"', GIB + OVERHEAD + MIB)],
    "memory.overhead.per-iothread": [("iothreads", demand(), DEFAULT, GIB + OVERHEAD + 16 * MIB,
                                      'memory.overhead.per-iothread = "0"', GIB + OVERHEAD)],
    "memory.overhead.per-gib": [("plain", demand(), DEFAULT, GIB + OVERHEAD,
                                 'memory.overhead.per-gib = "4MiB"', GIB + OVERHEAD + 2 * MIB)],
    "memory.overhead.video": [("video", demand(), DEFAULT, GIB + OVERHEAD + 16 * MIB,
                               "memory.overhead.video = false", GIB + OVERHEAD)],
    "memory.overhead.per-vfio": [("vfio", demand(), DEFAULT, GIB + OVERHEAD,
                                  'memory.overhead.per-vfio = "3MiB"', GIB + OVERHEAD + 3 * MIB)],
    "memory.overhead.sev": [("sev", demand(), DEFAULT, GIB + OVERHEAD,
                             'memory.overhead.sev = "5MiB"', GIB + OVERHEAD + 5 * MIB)],
    "memory.overhead.tpm": [("tpm", demand(), DEFAULT, GIB + OVERHEAD,
                             'memory.overhead.tpm = "7MiB"', GIB + OVERHEAD + 7 * MIB)],
    "cpu.count": [("plain", figure("capacity", "cpu"), DEFAULT, 16, 'cpu.count = "cores"', 8)],
    "cpu.pinning": [("pinned other-pin", verdicts, DEFAULT, "admit refuse",
                     'cpu.pinning = "shared"\novercommit.cpu = 2', "admit admit")],
    "cpu.vcpus": [("hotplug", demand("cpu"), DEFAULT, 2, 'cpu.vcpus = "maximum"', 4)],
    "cpu.dedicated": [("pinned", verdicts, DEFAULT, "admit", 'cpu.dedicated = "8-15"', "refuse")],
    "cpu.shared": [("pinned", verdicts, DEFAULT, "admit", 'cpu.shared = "0-3"', "refuse")],
    "hook.timeout": "tests/hook/hook_test.py",
    "hook.unavailable": "tests/hook/hook_test.py",
    "claim.lease": "tests/integration/crash.py",
    "claim.return": "tests/integration/sequences.py",
    "reserve.cpus": [("plain", figure("reserved", "cpu"), DEFAULT, 0, 'reserve.cpus = "0-1"', 2)],
    "reserve.memory": [("plain", figure("reserved", "memory"), DEFAULT, 512 * MIB, 'reserve.memory = "1GiB"', GIB)],
    "reserve.node.<node>.memory": [("plain", figure("reserved", "memory", 1), DEFAULT, 512 * MIB * 3 // 7,
                                    'reserve.node.1.memory = "1GiB"', GIB)],
    "reserve.node.<node>.hugepages.<page-size>": [("pages", figure("reserved", "hugepages-2Mi", 1), DEFAULT, 0,
                                                   'reserve.node.1.hugepages."2Mi" = "4MiB"', 4 * MIB)],
    "storage.paths": "tests/integration/storage.py",
    "storage.unknown": "tests/integration/storage.py",
    "scheduler.default": [("plain", owner, DEFAULT, "default-scheduler", 'scheduler.default = "nobody"', "nobody")],
    "scheduler.accept-default": [("plain", codes, DEFAULT, [], "scheduler.accept-default = false",
                                  ["foreign-scheduler"])],
    "scheduler.accept-any": [("cortex", codes, DEFAULT, ["foreign-scheduler"], "scheduler.accept-any = true", [])],
    "scheduler.accept.<scheduler>.match": [("cortex", codes, "[scheduler.accept.cortex]", ["foreign-scheduler"],
                                            'scheduler.accept.cortex.match = "cortex-*"', [])],
    "scheduler.accept.<scheduler>.mode": [
        ("cortex large", verdicts, 'scheduler.accept.cortex-7 = {}\nreserve.memory = "6.5GiB"', "refuse refuse",
         'scheduler.accept.cortex-7.mode = "observe"\nreserve.memory = "6.5GiB"', "admit refuse")],
    "scheduler.accept.<scheduler>.quota.<resource>": [
        ("cortex", codes, "[scheduler.accept.cortex-7]", [], 'scheduler.accept.cortex-7.quota.memory = "512MiB"',
         ["scheduler-quota"]),
        ("cortex", codes, "[scheduler.accept.cortex-7]", [], 'scheduler.accept.cortex-7.quota.memory = "10%"',
         ["scheduler-quota"])],
    "scheduler.recognise.<scheduler>.match": [("mine", owner, DEFAULT, "default-scheduler",
                                               MINE + 'match = "/domain/metadata/m:machine"', "m")],
    "scheduler.recognise.<scheduler>.namespaces.<prefix>": [
        ("mine", owner, MINE.replace("org/m", "org/x") + 'match = "/domain/metadata/m:machine"', "default-scheduler",
         MINE + 'match = "/domain/metadata/m:machine"', "m")],
    "rule.<rule>.action": [("plain", codes, DEFAULT, [], RULE, ["policy-rule"]),
                           ("large", verdicts, DEFAULT, "refuse", '[rule.r]\naction = "exempt"', "admit"),
                           ("large", modes, DEFAULT, ["enforce"], '[rule.r]\naction = "observe"', ["observe"])],
    "rule.<rule>.match": [("plain", codes, RULE, ["policy-rule"], RULE + "match = \"/domain/name = 'other'\"", [])],
    "rule.<rule>.namespaces.<prefix>": [
        ("mine", codes, RULE + 'match = "//m:machine"\nnamespaces.m = "https://example.org/x"', [],
         RULE + 'match = "//m:machine"\nnamespaces.m = "https://example.org/m"', ["policy-rule"])],
    "rule.<rule>.priority": [("plain", codes, RULE + '[rule.s]\naction = "exempt"', ["policy-rule"],
                              RULE + '[rule.s]\naction = "exempt"\npriority = -1', [])],
    "rule.<rule>.message": [("plain", text_of_reason, RULE, "rule r refuses it", RULE + 'message = "not today"',
                             "not today (rule r)")],
    "resource.<custom>.capacity": [("plain", figure("capacity", "r"), DEFAULT, 0, RESOURCE, 4)],
    "resource.<custom>.capacity.file": "tests/integration/custom_resources.py",
    "resource.<custom>.capacity.node.<node>": [("plain", figure("capacity", "r", 1), RESOURCE, 0, RESOURCE.replace(
        "capacity = 4", "capacity.node.1 = 3"), 3)],
    "resource.<custom>.capacity.node.<node>.file": "tests/unit/host/capacity_test.cpp",
    "resource.<custom>.demand": [("mine", demand("r"), RESOURCE.replace("count", "2 * count"), 2, RESOURCE, 1)],
    "resource.<custom>.namespaces.<prefix>": [
        ("mine", demand("r"), RESOURCE.replace("org/m", "org/x"), 0, RESOURCE, 1)],
    "resource.<custom>.unit": [("mine", text_of_reason, NONE_OF_IT, "r: needs 1, host has none",
                                NONE_OF_IT + 'unit = "seats"', "r: needs 1 seats, host has none")],
    "metrics.textfile-folder": "tests/integration/metrics.py",
}

NAMES = {"<resource>": "memory", "<node>": "0", "<page-size>": "2Mi", "<scheduler>": "s", "<rule>": "r", "<custom>": "r",
         "<prefix>": "p"}
# Of which a table is a value, or text of any kind: what they do not take.
ODD_VALUES = {"memory.overhead": '"some"'}


class PolicyKeys(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.simulator = Simulator(PROGRAM, folder.name)
        for name, xml in GUESTS.items():
            self.simulator.write(f"{name}.xml", xml)
        self.maxDiff = None

    def test_each_key_has_its_effect_and_only_with_it(self):
        for key, effects in EFFECTS.items():
            if isinstance(effects, str):
                self.assertTrue((pathlib.Path(__file__).resolve().parents[2] / effects).is_file(), effects)
                continue
            for guests, look, without, seen_without, policy, seen in effects:
                with self.subTest(key=key, policy=policy):
                    for text, expected in ((without, seen_without), (policy, seen)):
                        document = self.simulator.document(HOST, *(f"{name}.xml" for name in guests.split()),
                                                           policy=text, pages=[PAGES])[1]
                        self.assertEqual(look(document), expected, text)

    def test_of_each_key_a_wrong_value_is_told_with_its_place_and_what_was_expected(self):
        for key in EFFECTS:
            with self.subTest(key=key):
                path = key
                for placeholder, name in NAMES.items():
                    path = path.replace(placeholder, name)
                folder = pathlib.Path(self.simulator.folder)
                self.simulator.write("virtguard.toml", f"\n{path} = {ODD_VALUES.get(key, '[1]')}\n")
                done = subprocess.run([PROGRAM, "policy", "check", folder], capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, rf"(?m)virtguard\.toml:2:\d+: {re.escape(path)}: .+: expected .+$")

    def test_the_manual_page_has_these_keys(self):
        text = pathlib.Path(MANUAL).read_text(encoding="utf-8").split("# KEYS")[1].split("# EXAMPLES")[0]
        self.assertEqual(list(EFFECTS), re.findall(r"(?m)^\*([a-z][a-z.<>-]*)\* \(", text))

    def test_a_default_is_what_the_manual_page_says(self):
        """Words and figures; where the page has prose, the effects above are the test. What the sample has is held
        against the code by another test."""
        sample = re.sub(r"(?m)^#(?! )", "", pathlib.Path(SAMPLE).read_text(encoding="utf-8"))
        text = pathlib.Path(MANUAL).read_text(encoding="utf-8")
        told = re.findall(r"(?m)^\*([a-z][a-z.-]*)\* \((?:[^,()\n]+, )?default \*([^*\n]+)\*\)", text)
        self.assertGreater(len(told), 20)
        for key, default in told:
            with self.subTest(key=key):
                value = tomllib.loads(sample)
                for part in key.split("."):
                    value = value[part]
                self.assertEqual(str(value).lower().replace("'", ""), default.replace('"', "").lower())


if __name__ == "__main__":
    PROGRAM, MANUAL, SAMPLE = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    unittest.main(argv=sys.argv[:1])
