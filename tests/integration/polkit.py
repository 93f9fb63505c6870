#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Who may change anything, as polkit's own daemon says: nobody but root and whom its rules allow.

    polkit.py VIRTGUARDD VIRTGUARDCTL

polkitd reads its rules, its actions and the users' groups where they always are, so the test has a mount
namespace in which they are its own.
"""
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
import threading

import alone
import on_bus
from alone import DEADLINE, SOURCE, xml
from on_bus import ERROR, MANAGER, NAME, NOBODY, RETURN, ROOT, BusTest, Raw

POLKITD = "/usr/lib/polkit-1/polkitd"
USERS = {"operator": 61001, "guest": 61002}
# The one that the documentation shows; "operator" is one of the group.
RULE = textwrap.dedent(re.search(r"^ +polkit\.addRule.*?^ +\}\);\n", (SOURCE / "docs/dbus.md").read_text(encoding="utf-8"),
                                 re.MULTILINE | re.DOTALL)[0])
READERS = {"Check": ["s", xml("new", 9, 1)], "Explain": ["s", "web"], "ListDomains": [], "RecentDecisions": ["u", "5"],
           "ListReservations": []}
PLACES = 64  # for calls of one user that wait for polkit
FURTHER = 16
NO_REPLY_EXPECTED = 1  # a flag of D-Bus
DENIED = "org.freedesktop.DBus.Error.AccessDenied: polkit does not allow org.virtguard1.manage"


def as_user(name):
    return ["setpriv", "--reuid", str(USERS[name]), "--regid", str(USERS[name]), "--init-groups"]


def large_reservation(size):
    """Arguments of Reserve: an option of so many bytes."""
    texts = struct.pack("<I", 1) + b"o\0\0\0" + struct.pack("<I", 1) + b"n\0\0\0" + bytes(8)  # no resources
    option = struct.pack("<I", 3) + b"xml\0" + b"\x01s\0\0" + struct.pack("<I", size) + b"x" * size + b"\0"
    return texts + struct.pack("<I", len(option)) + bytes(-(len(texts) + 4) % 8) + option


def arguments_of(signature):
    """Some, as gdbus has them."""
    values = {"a{": "{}", "a": "[]", "b": "true", "s": "x"}
    return [values.get(kind, "1") for kind in re.findall(r"(a\{|a|\w)(?:(?<=\{)..\}|(?<=a).)?", signature)]


class Polkit(BusTest):
    more_conf = BusTest.more_conf + "<include>/usr/share/dbus-1/system.d/org.freedesktop.PolicyKit1.conf</include>"

    def setUp(self):
        super().setUp()
        node = self.folder / "node.xml"
        node.write_text(f"<node>{xml('web', 1, 2).replace('kvm', 'test')}</node>")
        self.libvirt_uri = f"test://{node}"
        self.rule = self.folder / "rules/10-virtguard.rules"
        for folder in ("rules", "actions", "none"):
            (self.folder / folder).mkdir()
        self.rule.write_text(RULE)
        shutil.copy(SOURCE / "conf/org.virtguard1.policy", self.folder / "actions")
        users = "".join(f"{name}:x:{number}:{number}::/:/bin/sh\n" for name, number in USERS.items())
        groups = "".join(f"{name}:x:{number}:\n" for name, number in USERS.items()) + "hypervisors:x:61100:operator\n"
        for name, more in (("passwd", users), ("group", groups)):
            text = pathlib.Path("/etc", name).read_text(encoding="utf-8")
            (self.folder / name).write_text(text.rstrip("\n") + "\n" + more)
            self.cover(f"/etc/{name}", self.folder / name)
        self.cover("/etc/polkit-1/rules.d", self.folder / "rules")
        self.cover("/usr/share/polkit-1/rules.d", self.folder / "none")
        self.cover("/usr/share/polkit-1/actions", self.folder / "actions")
        self.start()
        self.start_polkit()

    def cover(self, path, by):
        subprocess.run(["mount", "--bind", by, path], check=True)
        self.addCleanup(subprocess.run, ["umount", path], check=True)

    def start_polkit(self):
        self.polkit = self.run_for_test([POLKITD, "--no-debug"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for(lambda: "org.freedesktop.PolicyKit1" in self.busctl("list", "--acquired").stdout, "polkitd is there")

    def call(self, who, method, *arguments):
        """What gdbus says: "" for an answer, the error's name and text for one."""
        done = subprocess.run([*who, "gdbus", "call", "--system", "--dest", NAME, "--object-path", ROOT,
                               "--method", f"{MANAGER}.{method}", *arguments], env=self.environment,
                              capture_output=True, text=True, timeout=DEADLINE)
        return done.stderr.strip().removeprefix("Error: GDBus.Error:") if done.returncode else ""

    def changing_methods(self):
        """{name: arguments}, as they are there: one that is added is checked, too."""
        lines = [line.split()[:3] for line in self.busctl("introspect", NAME, ROOT, MANAGER).stdout.splitlines()]
        methods = {name[1:]: signature for name, kind, signature in lines if kind == "method"}
        self.assertLessEqual(set(READERS) | {"Reload", "Resync"}, set(methods))
        return {name: arguments_of(signature.strip("-")) for name, signature in methods.items() if name not in READERS}

    # ------------------------------------------------------------

    def test_everybody_reads_what_root_reads(self):
        for who in (NOBODY, as_user("guest")):
            for interface, method, *arguments in (
                    ("org.freedesktop.DBus.ObjectManager", "GetManagedObjects"),
                    ("org.freedesktop.DBus.Properties", "GetAll", "s", MANAGER),
                    *((MANAGER, name, *arguments) for name, arguments in READERS.items())):
                call = ("--json=short", "call", NAME, ROOT, interface, method, *arguments)
                answers = [self.busctl(*call, prefix=prefix) for prefix in ((), who)]
                self.assertEqual(answers[0].returncode, 0, answers[0].stderr)
                self.assertEqual(answers[1].stdout, answers[0].stdout, answers[1].stderr)

    def test_whom_no_rule_allows_changes_nothing_and_learns_nothing(self):
        self.policy.write_text("mode = 7\n")
        longer = "x" * 600  # than any word may be
        for who in (NOBODY, as_user("guest")):
            for method, arguments in self.changing_methods().items():
                for some in (arguments, [longer if each == "x" else each for each in arguments]):
                    self.assertEqual(self.call(who, method, *some), DENIED, method)
        self.assertEqual((self.property("State"), self.property("Problems")), ("ready", []))
        self.assertNotIn("policy", self.log.read_text())

    def test_whom_a_rule_allows_changes_as_root_does_until_it_is_taken_back(self):
        self.policy.write_text('mode = "observe"\n')
        self.assertEqual(self.call(as_user("operator"), "Reload"), "")
        self.assertEqual(self.property("Mode"), "observe")
        self.assertEqual(self.call(as_user("operator"), "Resync"), "")
        self.policy.write_text("mode = 7\n")
        self.assertIn(f"org.virtguard1.Error.BadPolicy: {self.policy}:1:8: mode: ", self.call(as_user("operator"), "Reload"))
        for method, arguments in self.changing_methods().items():
            self.assertNotIn("AccessDenied", self.call(as_user("operator"), method, *arguments), method)
        self.rule.unlink()
        self.wait_for(lambda: self.call(as_user("operator"), "Resync") == DENIED, "polkitd has read its rules anew")

    def test_without_polkitd_there_is_root(self):
        self.polkit.kill()
        self.polkit.wait(DEADLINE)
        self.assertEqual(self.call(as_user("operator"), "Resync"), DENIED)
        self.assertEqual(self.call([], "Resync"), "")
        self.start_polkit()
        self.assertEqual(self.call(as_user("operator"), "Resync"), "")

    def test_thousands_that_are_refused_leave_nothing_behind(self):
        client = Raw(f"{self.folder}/bus", USERS["guest"])
        self.addCleanup(client.socket.close)
        client.answer()  # to its Hello

        def refuse(count):
            for _ in range(count):
                for _ in range(20):
                    client.call(NAME, ROOT, MANAGER, "Resync")
                for _ in range(20):
                    kind, message = client.answer()
                    self.assertEqual((kind, b"AccessDenied" in message), (ERROR, True), message)
        refuse(10)
        before = self.memory()
        refuse(100)
        self.assertLess(self.memory() - before, 1 << 20)

    def flood(self, arguments):
        """Four clients of one user, with more calls of Reserve than may wait for polkit. Root goes on."""
        clients = [Raw(f"{self.folder}/bus", USERS["guest"]) for _ in range(4)]
        for client in clients:
            self.addCleanup(client.socket.close)
            client.answer()  # to its Hello
        for turn in range((PLACES + FURTHER) // len(clients)):
            for client in clients:
                self.assertTrue(client.call_with(NAME, ROOT, MANAGER, "Reserve", b"ssa{sx}a{sv}", arguments))
            if turn % 4 == 0:
                self.assertEqual(self.call([], "Resync"), "")
        refused = 0
        for client in clients:
            client.call(NAME, ROOT, "org.freedesktop.DBus.Peer", "Ping")
            while (answer := client.answer())[0] != RETURN:
                self.assertIn(b"LimitsExceeded\0", answer[1])
                self.assertIn(b"too many calls wait for polkit", answer[1])
                refused += 1
        self.assertEqual(refused, FURTHER)
        return clients

    def test_a_user_who_floods_fills_no_memory_and_stops_nobody(self):
        self.polkit.send_signal(signal.SIGSTOP)
        for size, most in ((256 << 10, 32 << 20), (8 << 20, 48 << 20)):
            before = self.memory()
            clients = self.flood(large_reservation(size))
            grown = self.memory() - before
            print(f"{PLACES + FURTHER} calls of {size >> 10} KiB: {grown >> 10} KiB more", flush=True)
            self.assertLess(grown, most)
            self.assertIn("LimitsExceeded", self.call(as_user("guest"), "Resync"))
            for client in clients:
                client.socket.close()
            self.assertEqual(self.call([], "Resync"), "")

    def test_a_flood_of_calls_that_want_no_answer_stops_nobody(self):
        client = Raw(f"{self.folder}/bus", USERS["guest"])
        self.addCleanup(client.socket.close)
        client.flags = NO_REPLY_EXPECTED
        is_over = threading.Event()
        # dbus-broker keeps all that comes for virtguardd in one queue, where root's calls stand behind the flood.
        most = 20_000 if on_bus.BUS == "dbus-broker" else sys.maxsize

        def flood():
            while not is_over.is_set() and client.serial < most:
                client.call(NAME, ROOT, MANAGER, "Resync")
        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            for _ in range(10):
                self.assertEqual(self.call([], "Resync"), "")
                self.assertEqual(self.property("State"), "ready")
        finally:
            is_over.set()
            flooding.join()
        self.assertGreater(client.serial, 5_000)

    def test_anybody_could_end_the_call_of_another_that_waited_for_polkit(self):
        self.polkit.send_signal(signal.SIGSTOP)
        operator = Raw(f"{self.folder}/bus", USERS["operator"], reads=True)
        self.addCleanup(operator.socket.close)
        name = re.search(rb":1\.\d+", operator.answer()[1])[0].decode()  # to its Hello
        operator.call(NAME, ROOT, MANAGER, "Resync")
        for ours in self.connections(self.daemon.pid):
            self.forge(ours, "/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", f"'{name}'", f"'{name}'", "''")
        self.assertEqual(self.call([], "Resync"), "")  # virtguardd has heard them
        self.polkit.send_signal(signal.SIGCONT)
        self.assertEqual(operator.answer()[0], RETURN)

    def test_who_leaves_the_bus_leaves_his_places(self):
        self.polkit.send_signal(signal.SIGSTOP)
        for client in self.flood(large_reservation(1)):
            client.socket.close()
        self.flood(large_reservation(1))
        self.polkit.send_signal(signal.SIGCONT)
        self.wait_for(lambda: self.call(as_user("operator"), "Resync") == "", "polkit answers again")


if __name__ == "__main__":
    if not pathlib.Path(POLKITD).exists():
        alone.skip("there is no polkitd")
    alone.in_private_mounts()
    on_bus.main()
