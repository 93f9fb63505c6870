#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Bad policies and bad XML: a clear error each, and nothing has changed."""
import pathlib
import unittest

import lab

TOPOLOGY = ("--topology", "numa:2(memory=8GiB) core:2 pu:1", "--pages", "0:2MiB=64")
GOOD_POLICY = "[overcommit]\ncpu = 3\n"
FOLDER = pathlib.Path("/var/bad-input")

# What is wrong, the file, and what the error must name.
BAD_POLICIES = [
    ("a broken file", "mode = \"enforce\n", ":1:"),
    ("an unknown key", "[memory]\ncuont = \"maximum\"\n", "memory.cuont"),
    ("an unknown table", "[memroy]\n", "memroy"),
    ("a wrong type", "mode = 3\n", "mode"),
    ("an impossible value", "mode = \"enforced\"\n", "mode"),
    ("a ratio of 0", "[overcommit]\ncpu = 0\n", "overcommit.cpu"),
    ("a ratio of -1", "[overcommit]\ncpu = -1\n", "overcommit.cpu"),
    ("a ratio of abc", "[overcommit]\nmemory = \"abc\"\n", "overcommit.memory"),
    ("a ratio of 1e9", "[overcommit]\ncpu = 1e9\n", "overcommit.cpu"),
    ("a ratio of 1e9 as text", "[overcommit]\ncpu = \"1e9\"\n", "overcommit.cpu"),
    ("a ratio of seven decimals", "[overcommit]\ncpu = 1.0000001\n", "overcommit.cpu"),
    ("a ratio of nan", "[overcommit]\ncpu = nan\n", "overcommit.cpu"),
    ("a ratio of hugepages", "[overcommit]\n\"hugepages-2Mi\" = 2\n", "hugepages-2Mi"),
    ("a ratio of what is unknown", "[overcommit]\nmemroy = 2\n", "memroy"),
    ("a reserve larger than the host", "[reserve]\nmemory = \"1000TiB\"\n", "reserve.memory"),
    ("a reserve larger than its node", "[reserve.node.0]\nmemory = \"100TiB\"\n", "reserve.node.0.memory"),
    ("a reserve of CPUs that are not there", "[reserve]\ncpus = \"4000\"\n", "reserve.cpus"),
    ("a reserve on a node that is not there", "[reserve.node.77]\nmemory = \"1GiB\"\n", "reserve.node.77"),
    ("bytes that are no text", "mode = \"\xff\"\n", ":1:"),
]

ENTITIES = ('<!DOCTYPE domain [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
            '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>')
GUEST = lab.domain_xml("guest", uuid="11111111-2222-3333-4444-555555555555")


def with_memory(text):
    return GUEST.replace("<memory unit='MiB'>64<", f"<memory unit='b'>{text}<")


# What is wrong, the document, and whether it is no domain at all (2) or an impossible one (1).
BAD_XML = [
    ("nothing", "", 2),
    ("no XML", "hello", 2),
    ("broken XML", GUEST[:-20], 2),
    ("another document", "<network/>", 2),
    ("entities", ENTITIES + GUEST.replace("guest", "&c;"), 2),
    ("an external entity", '<!DOCTYPE domain [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
     + GUEST.replace("guest", "&e;"), 2),
    ("depth", GUEST.replace("<features>", "<a>" * 100000 + "</a>" * 100000 + "<features>"), 2),
    ("100 MB", GUEST.replace("<features>", "<description>" + "x" * 100_000_000 + "</description><features>"), 2),
    ("2^32 vCPUs", GUEST.replace("<vcpu>1<", "<vcpu>4294967296<"), 1),
    ("vCPUs below 0", GUEST.replace("<vcpu>1<", "<vcpu>-1<"), 1),
    ("2^64-1 bytes", with_memory(2**64 - 1), 1),
    ("2^64 bytes", with_memory(2**64), 1),
    ("2^63 bytes", with_memory(2**63), 1),
    ("memory below 0", with_memory(-1), 1),
]

host = None


def setUpModule():
    global host
    FOLDER.mkdir()
    host = unittest.enterModuleContext(lab.Lab(policy=GOOD_POLICY))


def one_line(text):
    return text.isprintable() and text != ""


class BadInput(unittest.TestCase):
    def setUp(self):
        self.before = self.picture()

    def tearDown(self):
        self.assertEqual(self.picture(), self.before)

    @staticmethod
    def picture():
        status = host.status()
        return {key: status[key] for key in ("mode", "overcommit", "host", "nodes", "domains")}

    def write(self, name, text):
        path = FOLDER / name
        path.write_bytes(text.encode("latin-1"))
        return path

    def test_bad_policies_on_files(self):
        guest = self.write("guest.xml", GUEST)
        for what, text, named in BAD_POLICIES:
            with self.subTest(what):
                path = self.write("bad.toml", text)
                result = lab.ctl("simulate", *TOPOLOGY, "--policy", path, guest)
                self.assertEqual((result.status, result.out), (2, ""), result)
                self.assertIn(named, result.err)
                self.assertIn("bad.toml", result.err)
                for line in result.err.splitlines():
                    self.assertTrue(one_line(line), line)

    def test_a_missing_policy_file(self):
        result = lab.ctl("simulate", *TOPOLOGY, "--policy", "/nowhere.toml", self.write("guest.xml", GUEST))
        self.assertEqual((result.status, result.out), (2, ""), result)
        self.assertIn("/nowhere.toml", result.err)

    def test_all_errors_of_a_policy_at_once(self):
        path = self.write("bad.toml", "mode = 3\n[overcommit]\ncpu = 0\nmemory = -1\n")
        result = lab.ctl("simulate", *TOPOLOGY, "--policy", path, self.write("guest.xml", GUEST))
        for named in ("bad.toml:1:", "bad.toml:3:", "bad.toml:4:"):
            self.assertIn(named, result.err)

    def test_a_bad_policy_on_reload_keeps_the_old_one(self):
        for what, text, named in BAD_POLICIES:
            with self.subTest(what):
                before = len(host.daemon_log())
                lab.POLICY.write_bytes(text.encode("latin-1"))
                host.signal_reload()
                lab.wait_until(lambda start=before, name=named: name in host.daemon_log()[start:],
                               f"the journal names {named}")
                self.assertEqual(host.status()["overcommit"]["cpu"], "3")
        host.reload_policy(GOOD_POLICY)
        lab.wait_until(lambda: host.status()["problems"] == [], "no problem is left")

    def test_bad_xml_on_files(self):
        for what, text, status in BAD_XML:
            with self.subTest(what):
                result = lab.ctl("simulate", *TOPOLOGY, self.write("bad.xml", text))
                self.assertEqual(result.status, status, result)
                self.assert_says_what(result, status)

    def test_bad_xml_asked_of_the_daemon(self):
        for what, text, status in BAD_XML:
            with self.subTest(what):
                result = lab.ctl("check", self.write("bad.xml", text))
                self.assertEqual(result.status, status, result)
                self.assert_says_what(result, status)

    def assert_says_what(self, result, status):
        said = result.err if status == 2 else result.out
        self.assertTrue(said)
        self.assertLess(len(said), 2000)
        if status == 1:
            self.assertIn("invalid", said)

    def test_bad_xml_from_the_hook(self):
        for what, text, status in BAD_XML:
            with self.subTest(what):
                result = lab.command(lab.HOOK, "guest", "prepare", "begin", "-", stdin=text)
                # What we cannot read is let in (hook.unavailable is allow), what is impossible is not.
                self.assertEqual((result.status, result.out), (0 if status == 2 else 1, ""), result)
                self.assertTrue(result.err == "" or one_line(result.err), result)


if __name__ == "__main__":
    lab.main()
