#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Users who may do nothing and try all: files, the hook's socket, the bus. And secrets in XML, which nobody is shown.

    hostile_users.py VIRTGUARDD VIRTGUARDCTL
"""
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
import time
import xml.etree.ElementTree

import alone
import on_bus
import polkit
import seen
from alone import ADMITTED, DEADLINE, PREPARE, RELEASE, STARTED, xml as domain_xml
from on_bus import MANAGER, NAME, NOBODY, ROOT, BusTest, Raw, path_of

NOBODYS_ID = 65534
RECONNECT, CHECK = 4, 5
PEER, INTROSPECTABLE, PROPERTIES, OBJECTS = ("org.freedesktop.DBus." + name for name in (
    "Peer", "Introspectable", "Properties", "ObjectManager"))
# What anybody may call; all else is refused.
READING = {(MANAGER, name) for name in polkit.READERS} | {
    (PEER, "Ping"), (PEER, "GetMachineId"), (INTROSPECTABLE, "Introspect"), (PROPERTIES, "Get"), (PROPERTIES, "GetAll"),
    (OBJECTS, "GetManagedObjects")}
# A secret wherever there may be one in a guest's XML, and where there should be none.
PLACES = """<description>{}</description><metadata><x:user-data xmlns:x='https://x.test'>{}</x:user-data></metadata>
<sysinfo type='smbios'><oemStrings><entry>{}</entry></oemStrings></sysinfo>
<launchSecurity type='sev'><dhCert>{}</dhCert><session>{}</session></launchSecurity>
<devices><graphics type='vnc' port='-1' passwd='{}' passwdValidTo='2030-01-01T00:00:00'/><graphics type='spice' passwd='{}'/>
<disk type='network'><driver type='raw'/><source protocol='https' name='a' query='token={}'>
<cookies><cookie name='c'>{}</cookie></cookies></source><target dev='vda'/></disk>
<disk type='file'><source file='/images/web.qcow2'/><target dev='vdb'/><serial>{}</serial></disk></devices>
<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<qemu:arg value='secret,id=s0,data={}'/><qemu:env name='TOKEN' value='{}'/></qemu:commandline>"""
SECRETS = [f"s3cr3t-{number:02}" for number in range(PLACES.count("{}"))]


def with_secrets(name, number, size):
    return domain_xml(name, number, size, more=PLACES.format(*SECRETS))


class HostileUsers(BusTest):
    def setUp(self):
        super().setUp()
        os.umask(0)  # what may be read or written is no matter of who starts it
        self.addCleanup(os.umask, 0o022)
        node = self.folder / "node.xml"
        own = f"<description>{SECRETS[0]}</description><devices><graphics type='vnc' passwd='{SECRETS[1]}'/></devices>"
        node.write_text(f"<node>{domain_xml('web', 1, 2, more=own).replace('kvm', 'test')}</node>")
        self.libvirt_uri = f"test://{node}"
        self.metrics = self.folder / "metrics"
        self.metrics.mkdir(0o755)
        self.write_policy("")
        self.start()

    def write_policy(self, text):
        self.policy.write_text(f'metrics.textfile-folder = "{self.metrics}"\nstorage.paths = ["{self.folder}"]\n{text}\n'
                               '[resource.screens]\ncapacity = 9\ndemand = "count(//graphics[@passwd])"\n'
                               '[rule.screens]\nmatch = "//graphics/@passwd = \'x\'"\naction = "refuse"\n')
        self.policy.chmod(0o644)

    def leave_files(self):
        """Has virtguardd write all files that it ever writes, and set aside what it can."""
        self.hook(PREPARE, domain_xml("new", 2, 1))
        self.assertEqual(self.ctl("overcommit", "set", "cpu", "2").returncode, 0)
        self.assertEqual(self.ctl("reservation", "add", "default-scheduler", "spot", "memory=1Gi").returncode, 0)
        self.restart()
        damaged = self.run_folder / "guests" / "00000000-0000-4000-8000-000000000003"
        damaged.write_text("")
        damaged.chmod(0o600)
        self.restart()
        self.method("Reload")
        self.wait_for((self.metrics / "virtguard.prom").exists, "metrics are written")
        self.wait_for((self.folder / "state/last-good-policy").exists, "the good policy is kept")

    def restart(self):
        self.daemon.kill()
        self.daemon.wait(DEADLINE)
        self.daemon = self.start_daemon()
        self.wait_for(lambda: self.property("State") == "ready", "virtguardd is on the bus")

    def nobody(self, *arguments):
        """nobody.py, as nobody: what worked, and what ends it."""
        program = pathlib.Path(__file__).with_name("nobody.py").read_text(encoding="utf-8")
        process = self.run_for_test([*NOBODY, sys.executable, "-I", "-c", program, *arguments], stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.stdout.close)
        return json.loads(process.stdout.readline())

    def ours(self):
        """All that virtguardd made, its folders included, but for what it is writing, which gets another name at any moment."""
        return [path for folder in (self.run_folder, self.folder / "state", self.metrics)
                for path in (folder, *sorted(folder.rglob("*"))) if not (path.name.startswith(".") and path.suffix == ".new")]

    # ------------------------------------------------------------ files

    def test_nobody_but_root_changes_a_file_and_all_read_what_is_public(self):
        self.leave_files()
        public = {"run", "state", "state/hook.conf", "metrics", "metrics/virtguard.prom"}
        paths = self.ours()
        names = {str(path.relative_to(self.folder)) for path in paths}
        self.assertLessEqual(public | {"run/hook.sock", "run/lock", "run/guests", "state/run-time", "state/last-good-policy"}, names)
        self.assertTrue(any(name.endswith(".damaged") for name in names), names)
        worked = self.nobody(*paths)
        self.assertEqual({str(pathlib.Path(path).relative_to(self.folder)) for path in worked.pop("read")}, public)
        worked.pop("lock")  # what can be read; the next test has what comes of it
        self.assertEqual(worked, {})
        for path in paths:
            found = path.lstat()
            self.assertEqual((found.st_uid, found.st_gid, found.st_mode & 0o7022), (0, 0, 0), path)
            self.assertFalse(stat.S_ISLNK(found.st_mode), path)

    def test_what_nobody_holds_locked_holds_up_nothing(self):
        self.leave_files()
        held = self.nobody(*self.ours(), self.policy, self.policy.parent)["lock"]
        self.assertIn(str(self.run_folder), held)
        self.restart()
        self.write_policy('hook.timeout = "9s"')
        self.method("Reload")
        self.wait_for(lambda: "timeout-ms=9000" in (self.folder / "state/hook.conf").read_text(), "hook.conf is written")
        self.assertEqual(self.hook(PREPARE, domain_xml("next", 4, 1))[0], ADMITTED)

    def test_nobody_reads_and_stops_no_process(self):
        self.hook(PREPARE, with_secrets("new", 2, 1))
        process = f"/proc/{self.daemon.pid}"
        readable = self.nobody(*(f"{process}/{name}" for name in os.listdir(process)))["read"]
        self.assertFalse({pathlib.Path(path).name for path in readable} &
                         {"environ", "mem", "maps", "smaps", "numa_maps", "fd", "map_files", "auxv", "cwd", "root", "stack"})
        kill = "import os, sys; os.kill(int(sys.argv[1]), int(sys.argv[2]))"
        for number in (signal.SIGHUP, signal.SIGKILL):
            done = subprocess.run([*NOBODY, sys.executable, "-I", "-c", kill, str(self.daemon.pid), str(int(number))],
                                  stderr=subprocess.PIPE, text=True, check=False)
            self.assertIn("PermissionError", done.stderr)
        self.assertIsNone(self.daemon.poll())

    # ------------------------------------------------------------ the hook's socket

    def connect_as_nobody(self):
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.settimeout(DEADLINE)
        os.seteuid(NOBODYS_ID)  # the kernel tells virtguardd who a client was when it came
        try:
            client.connect(str(self.socket))
        finally:
            os.seteuid(0)
        return client

    def test_nobody_reaches_the_hooks_socket(self):
        with self.assertRaises(PermissionError):
            self.connect_as_nobody()

    def test_nobody_is_not_heard_even_where_the_socket_lets_him_in(self):
        """As somebody may have it by a unit of his own; then all that nobody can fill is the queue before it."""
        self.socket.chmod(0o666)
        for _ in range(2000):  # more than are served at once
            client = self.connect_as_nobody()
            with self.assertRaises(OSError):  # at the latest when the answer is to be read
                client.sendall(b"VGRQ")
                if client.recv(1) == b"":
                    raise ConnectionResetError
        self.assertEqual(self.hook(PREPARE, domain_xml("new", 2, 1))[0], ADMITTED)
        self.assertLess(len(os.listdir(f"/proc/{self.daemon.pid}/fd")), 100)

    # ------------------------------------------------------------ the bus

    def described(self, path=ROOT):
        """All interfaces of the objects at and below a path, as they say themselves: (path, element)."""
        text = self.ask("call", NAME, path, INTROSPECTABLE, "Introspect")[0]
        node = xml.etree.ElementTree.fromstring(text)
        for interface in node.findall("interface"):
            yield path, interface
        for child in node.findall("node"):
            yield from self.described(f"{path.rstrip('/')}/{child.get('name')}")

    def call_as_nobody(self, path, method, *arguments):
        """What the answer is: "" or the error."""
        done = subprocess.run([*NOBODY, "gdbus", "call", "--system", "--dest", NAME, "--object-path", path, "--method",
                               method, *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=DEADLINE, check=False)
        return done.stderr.strip() if done.returncode else ""

    def state(self):
        """All there is to change."""
        status = self.status()
        status.pop("snapshot_us")
        return status, seen.in_files(self.run_folder, self.folder / "state"), self.log.read_text()

    def test_nobody_changes_anything_by_any_method_or_property_of_any_object(self):
        self.hook(PREPARE, domain_xml("new", 2, 1))
        self.wait_for(lambda: path_of(2) in self.objects(), "the guest is shown")
        before = self.state()
        done = set()
        for path, interface in self.described():
            name = interface.get("name")
            for method in interface.findall("method"):
                if (name, method.get("name")) in READING:
                    continue
                signature = "".join(each.get("type") for each in method.findall("arg") if each.get("direction") != "out")
                arguments = ([MANAGER, "Mode", "<'off'>"] if name == PROPERTIES else polkit.arguments_of(signature))
                self.assertRegex(self.call_as_nobody(path, f"{name}.{method.get('name')}", *arguments),
                                 "AccessDenied|PropertyReadOnly|UnknownProperty|UnknownInterface", (path, name, method.get("name")))
                done.add(method.get("name"))
            for member in interface.findall("property"):
                self.assertEqual(member.get("access"), "read", (path, name, member.get("name")))
                self.assertIn("PropertyReadOnly", self.call_as_nobody(path, f"{PROPERTIES}.Set", name, member.get("name"), "<'x'>"))
        self.assertLessEqual({"Reload", "Resync", "Reserve", "SetMode", "SetOvercommit", "Set"}, done)
        self.assertEqual(self.state(), before)  # and not a line of the log is his

    def test_nobody_learns_of_a_file_that_he_cannot_see(self):
        hidden = self.folder / "hidden"
        hidden.mkdir(0o700)
        there, absent = hidden / "there.raw", hidden / "gone.raw"
        with open(there, "wb") as file:
            file.truncate(5 << 40)
        answers = [self.busctl("call", NAME, ROOT, MANAGER, "Check", "s", domain_xml("new", 9, 1, more=(
            f"<devices><disk type='file'><source file='{path}'/><target dev='vda'/></disk></devices>")), prefix=NOBODY)
            for path in (there, absent)]
        self.assertEqual([answer.returncode for answer in answers], [0, 0], answers[0].stderr)
        self.assertEqual(answers[0].stdout, answers[1].stdout.replace("gone", "there"))

    def test_a_crowd_of_nobodys_delays_no_start(self):
        """Each asks one thing over and over, and reads no answer."""
        large = domain_xml("large", 9, 1, more=f"<description>{'x' * (256 << 10)}</description>" + "<a/>" * 10_000)
        calls = [(OBJECTS, "GetManagedObjects"), (PROPERTIES, "GetAll", MANAGER), (PROPERTIES, "Get", MANAGER, "Free"),
                 (PROPERTIES, "Set"), (INTROSPECTABLE, "Introspect"), (PEER, "Ping"), (MANAGER, "Check", large),
                 (MANAGER, "Check", "<"), (MANAGER, "Explain", "web"), (MANAGER, "ListDomains"), (MANAGER, "RecentDecisions"),
                 (MANAGER, "ListReservations"), (MANAGER, "Reload"), (MANAGER, "Reserve"), (MANAGER, "NoSuchMethod")]
        crowd = [(Raw(f"{self.folder}/bus", NOBODYS_ID), call) for call in calls]
        for client, _ in crowd:
            self.addCleanup(client.socket.close)
            client.socket.settimeout(0.002)
        before, lines = self.memory(), len(self.log.read_text().splitlines())
        slowest, asked, deadline = 0, 0, time.monotonic() + 5
        number = 100
        while time.monotonic() < deadline:
            for client, call in crowd:
                try:
                    asked += client.call(NAME, ROOT, *call)
                except OSError:  # the bus has had enough of him
                    pass
            number += 1
            guest = domain_xml(f"guest-{number}", number, 64, "MiB")
            verdict, seconds = self.hook(PREPARE, guest)
            self.assertEqual(verdict, ADMITTED)
            slowest = max(slowest, seconds)
            self.hook(RELEASE, guest)
        print(f"{asked} calls; the slowest of {number - 100} starts took {slowest * 1000:.0f} ms", flush=True)
        self.assertGreater(asked, 100)
        self.assertLess(slowest, 1)
        self.assertLess(self.memory() - before, 96 << 20)
        self.assertLess(len(self.log.read_text().splitlines()) - lines, 2 * (number - 100) + 10)

    def test_forged_signals_of_the_bus_and_of_polkit_change_nothing(self):
        before = self.state()
        for ours in self.connections(self.daemon.pid):
            self.forge(ours, "/org/freedesktop/DBus", "org.freedesktop.DBus.NameLost", f"'{NAME}'")
            self.forge(ours, "/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", f"'{NAME}'", f"'{ours}'", "''")
            self.forge(ours, "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority.Changed")
            # The bus ends who sends this one.
            subprocess.run([*NOBODY, "gdbus", "emit", "--system", "--dest", ours, "--object-path", "/org/freedesktop/DBus/Local",
                            "--signal", "org.freedesktop.DBus.Local.Disconnected"], env=self.environment, check=False,
                           stderr=subprocess.DEVNULL, timeout=DEADLINE)
        self.assertEqual(self.property("State"), "ready")
        self.assertEqual(self.state(), before)

    # ------------------------------------------------------------ secrets

    def test_no_secret_of_a_guest_is_kept_logged_or_shown(self):
        self.environment["JOURNAL_STREAM"] = seen.stream_of(self.log)
        self.restart()
        heard = self.monitor()
        shown = {}
        guest, refused = with_secrets("new", 2, 1), with_secrets("big", 3, 99)
        for operation, each in ((PREPARE, guest), (PREPARE, refused), (STARTED, guest), (RECONNECT, guest), (CHECK, guest),
                                (PREPARE, "<domain>" + guest)):
            self.hook(operation, each)
        shown["journal"] = seen.drain(JOURNAL)
        self.assertEqual(self.ctl("reservation", "add", "default-scheduler", "spot", "--xml", "-", input=guest).returncode, 0)
        self.write_policy('[scheduler]\naccept-any = true\n')
        self.method("Reload")
        for command in seen.COMMANDS + [("explain", "new"), ("explain", "web", "--libvirt-uri", self.libvirt_uri), ("explain", "web", "--json")]:
            done = self.ctl(*command)
            shown[command] = (done.stdout + done.stderr).encode()
        for name, xml_text in (("guest.xml", guest), ("refused.xml", refused), ("broken.xml", guest[:-9])):
            (self.folder / name).write_text(xml_text)
            done = self.ctl("check", self.folder / name, "--json")
            shown["check", name] = (done.stdout + done.stderr).encode()
        for method, arguments in polkit.READERS.items():
            shown[method] = json.dumps(self.method(method, *arguments)).encode()
        for number, xml_text in enumerate((guest, refused)):
            shown["Check", number] = json.dumps(self.method("Check", "s", xml_text)).encode()
        shown["objects"] = json.dumps(self.objects()).encode()
        shown["signals"] = heard().encode()
        self.restart()
        self.hook(RELEASE, guest)
        shown["journal later"] = seen.drain(JOURNAL)
        shown["log"] = self.log.read_bytes()
        shown |= seen.in_files(self.run_folder, self.folder / "state", self.metrics)
        for what in (("recent",), ("domains", "--json"), "RecentDecisions", ("Check", 1), "objects", "signals", "journal"):
            self.assertRegex(shown[what], b"new|big|99", what)  # there they are told of
        self.assertEqual([(what, secret) for what, text in shown.items() for secret in SECRETS if secret.encode() in text], [])


if __name__ == "__main__":
    alone.in_private_mounts()
    JOURNAL = seen.listen_as_journal() if os.geteuid() == 0 else None
    on_bus.main()
