#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardctl doctor, on the files of a host that is a folder.

    doctor_test.py VIRTGUARDCTL
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from documents import status
from fake_daemon import STATUS, FakeDaemon

CTL = sys.argv[1]
TICKS = os.sysconf("SC_CLK_TCK")
HOOK = "etc/libvirt/hooks/qemu.d/50-virtguard"
AN_HOUR = 3600


class Doctor(unittest.TestCase):
    """The host is well; each test breaks one thing."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("usr/sbin/virtguard-hook", "#!/bin/sh\n").chmod(0o755)
        self.write("usr/libexec/virtguard-hook", "#!/bin/sh\n").chmod(0o755)
        self.link("/usr/sbin/virtguard-hook")
        self.write("etc/virtguard/virtguard.toml", 'mode = "enforce"\n')
        self.write("sys/kernel/security/apparmor/profiles", "cupsd (complain)\nlibvirtd (enforce)\n")
        self.write("proc/mounts", "hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n")
        self.pool(2048, 512)
        self.libvirtd(started=int((self.root / HOOK).lstat().st_ctime) + AN_HOUR)
        self.document = {**status(), "state": "ready", "problems": [], "over_capacity": [], "reservations": []}
        self.daemon = FakeDaemon(self.root / "hook.sock", {STATUS: self.document})
        self.addCleanup(self.daemon.close)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def link(self, target):
        path = self.root / HOOK
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def pool(self, kib, pages):
        folder = f"sys/devices/system/node/node0/hugepages/hugepages-{kib}kB"
        host = f"sys/kernel/mm/hugepages/hugepages-{kib}kB"
        for name, value in (("nr_hugepages", pages), ("free_hugepages", pages), ("surplus_hugepages", 0)):
            self.write(f"{folder}/{name}", f"{value}\n")
            self.write(f"{host}/{name}", f"{value}\n")
        self.write(f"{host}/resv_hugepages", "0\n")

    def libvirtd(self, started):
        """started: seconds since the epoch."""
        self.write("proc/4711/comm", "libvirtd\n")
        self.write("proc/stat", f"cpu 1 2 3\nbtime {started - 100}\nprocesses 9\n")
        self.write("proc/4711/stat", "4711 (lib) virtd) S " + " ".join(["0"] * 18) + f" {100 * TICKS} 0 0\n")

    def nothing_was_decided(self):
        self.document["decisions"] = {"admitted": 0, "refused": 0, "would_refuse": 0}

    def run_doctor(self, *more, uri="test:///default", socket=None, **environment):
        return subprocess.run([CTL, "--socket", socket or self.root / "hook.sock", "doctor", "--root", self.root,
                               "--policy-dir", self.root / "etc/virtguard", "--libvirt-uri", uri, *more],
                              capture_output=True, text=True, check=False, env={"LC_ALL": "C", **environment})

    def problems(self, **arguments):
        done = self.run_doctor("--json", **arguments)
        document = json.loads(done.stdout)
        found = [each for each in document["findings"] if not each["ok"]]
        self.assertEqual((done.returncode, document["ok"]), (1, False) if found else (0, True), done.stderr)
        self.assertTrue(all(each["remedy"] for each in found), found)
        return [(each["subject"], each["text"], each["remedy"]) for each in found]

    def only_problem(self, subject, text, remedy, **arguments):
        self.assertEqual(self.problems(**arguments), [(subject, text, remedy)])

    def test_a_host_that_is_well(self):
        self.assertEqual(self.problems(), [])
        done = self.run_doctor()
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout, (
            "ok      hook: /etc/libvirt/hooks/qemu.d/50-virtguard is in place\n"
            "ok      AppArmor: lets libvirtd execute /usr/sbin/virtguard-hook\n"
            "ok      libvirtd: runs the hook: starts have been decided\n"
            "ok      virtguardd: 0.1.0 answers, ready\n"
            "ok      mode: enforce\n"
            "ok      bus: there is no system bus; virtguardd does without\n"
            f"ok      policy: the files of {self.root}/etc/virtguard are well written\n"
            "ok      libvirt: answers, and runs 1 guest\n"
            "ok      hugepages-2Mi: 1 GiB on node 0\n"))

    def test_a_problem_is_followed_by_what_to_do(self):
        (self.root / HOOK).unlink()
        self.assertTrue(self.run_doctor().stdout.startswith(
            "problem hook: libvirt has none of virtguard in /etc/libvirt/hooks/qemu.d: starts are not decided\n"
            "          > ln -s /usr/sbin/virtguard-hook /etc/libvirt/hooks/qemu.d/50-virtguard; "
            "systemctl reload libvirtd\n"))

    def test_a_hook_that_leads_nowhere(self):
        self.link("/usr/sbin/absent")
        self.only_problem("hook", "/etc/libvirt/hooks/qemu.d/50-virtguard leads to /usr/sbin/absent, which is not there",
                          "install virtguard-hook there, or make the link anew")

    def test_a_hook_that_cannot_be_executed(self):
        (self.root / "usr/sbin/virtguard-hook").chmod(0o644)
        self.only_problem("hook", "/etc/libvirt/hooks/qemu.d/50-virtguard cannot be executed, so libvirt passes over it",
                          "chmod 755 /usr/sbin/virtguard-hook")

    def test_a_hook_that_apparmor_does_not_let_libvirtd_execute(self):
        self.link("/usr/libexec/virtguard-hook")
        self.only_problem("AppArmor", "its profile of libvirtd does not let that execute /usr/libexec/virtguard-hook",
                          "install the hook as /usr/sbin/virtguard-hook, and link to that")
        self.write("sys/kernel/security/apparmor/profiles", "libvirtd (complain)\n")
        self.assertEqual(self.problems(), [])

    def test_a_hook_that_libvirtd_has_not_seen(self):
        self.nothing_was_decided()
        self.assertEqual(self.problems(), [])
        self.libvirtd(started=int((self.root / HOOK).lstat().st_ctime) - AN_HOUR)
        self.only_problem("libvirtd", "started before the hook was put in place, and nothing has been decided yet: "
                          "unless it was reloaded since, it does not run the hook",
                          "systemctl reload libvirtd (harmless; guests go on)")
        (self.root / "proc/4711/comm").write_text("cat\n")
        self.assertEqual(self.problems(), [])

    def test_a_libvirtd_that_ends_while_it_is_looked_at_made_doctor_abort(self):
        self.nothing_was_decided()
        (self.root / "proc/4711/stat").unlink()
        gone = "ok      libvirtd: does not run now; it looks for hooks when it starts\n"
        self.assertIn(gone, self.run_doctor().stdout)
        self.write("proc/4711/stat", "4711 (libvirtd")
        self.assertIn(gone, self.run_doctor().stdout)
        self.libvirtd(started=AN_HOUR)
        self.write("proc/stat", "cpu 1 2 3\nbtime ")
        self.assertIn(gone, self.run_doctor().stdout)
        self.assertEqual(self.problems(), [])

    def test_a_libvirtd_that_was_reloaded_for_the_hook_was_a_problem_until_the_first_start(self):
        self.nothing_was_decided()
        self.libvirtd(started=int((self.root / HOOK).lstat().st_ctime) - AN_HOUR)
        mark = self.write("run/virtguard/libvirt-reloaded", "")
        self.assertIn("ok      libvirtd: was reloaded after the hook was put in place\n", self.run_doctor().stdout)
        before = (self.root / HOOK).lstat().st_ctime - AN_HOUR
        os.utime(mark, (before, before))
        self.assertEqual([subject for subject, _, _ in self.problems()], ["libvirtd"])

    def test_no_daemon(self):
        found = self.problems(socket="/nowhere/hook.sock")
        self.assertEqual([subject for subject, _, _ in found], ["virtguardd"])
        self.assertIn("nobody listens", found[0][1])
        # It was "start", which does nothing for a daemon whose folder in /run was deleted.
        self.assertIn("systemctl restart virtguardd.socket virtguardd", found[0][2])

    def test_a_daemon_with_problems(self):
        self.document |= {"problems": ["libvirt: gone"], "over_capacity": ["memory"]}
        self.assertEqual([(subject, text) for subject, text, _ in self.problems()],
                         [("virtguardd", "libvirt: gone"), ("memory", "guests hold more than there is")])

    def test_what_virtguardd_says_of_what_was_looked_at_is_not_said_twice(self):
        self.write("etc/virtguard/virtguard.toml", "x = 2\n")
        (_, error, _), = self.problems()
        self.document |= {"state": "degraded", "problems": [f"policy: {error}", "libvirt: cannot connect; 3 guests are known",
                                                            "policy: /etc/virtguard/other.toml:1:1: y: unknown key"]}
        self.assertIn("ok      virtguardd: 0.1.0 answers\n", self.run_doctor().stdout)
        self.assertEqual([subject for subject, _, _ in self.problems(uri="test:///nowhere")], ["virtguardd", "policy", "libvirt"])
        self.assertEqual([subject for subject, _, _ in self.problems()], ["virtguardd", "virtguardd", "policy"])

    def test_another_bus_is_asked(self):
        self.only_problem("bus", "unix:path=/nowhere/bus: No such file or directory",
                          "set DBUS_SYSTEM_BUS_ADDRESS as it is for virtguardd, or not at all",
                          DBUS_SYSTEM_BUS_ADDRESS="unix:path=/nowhere/bus")

    def test_a_mode_that_refuses_nothing_is_said(self):
        self.document |= {"mode": "observe", "decisions": {"admitted": 9, "refused": 0, "would_refuse": 3}}
        self.assertIn("ok      mode: observe: no start is refused (3 would have been)\n", self.run_doctor().stdout)

    def start_bus(self):
        """The host's system bus, which nobody is on."""
        address = f"unix:path={self.root}/run/dbus/system_bus_socket"
        conf = self.write("run/dbus/bus.conf", f"<busconfig><listen>{address}</listen><policy context='default'>"
                          "<allow send_destination='*'/><allow receive_sender='*'/></policy></busconfig>")
        bus = subprocess.Popen(["dbus-daemon", "--nofork", "--print-address", f"--config-file={conf}"],
                               stdout=subprocess.PIPE)
        self.addCleanup(bus.wait)
        self.addCleanup(bus.kill)
        self.addCleanup(bus.stdout.close)
        self.assertIn(address, bus.stdout.readline().decode())

    def test_a_daemon_that_is_not_on_the_bus_was_well_where_only_its_name_was_allowed(self):
        self.start_bus()
        problem = ("bus", "virtguardd is not on the system bus")
        self.only_problem(*problem, "install org.virtguard1.conf in /usr/share/dbus-1/system.d; systemctl reload dbus")
        self.write("usr/share/dbus-1/system.d/org.virtguard1.conf", "")
        self.only_problem(*problem, "systemctl reload dbus; systemctl restart virtguardd; journalctl -u virtguardd")

    def test_a_bus_that_does_not_answer(self):
        self.write("run/dbus/system_bus_socket", "")
        (subject, text, _), = self.problems()
        self.assertEqual((subject, text), ("bus", f"unix:path={self.root}/run/dbus/system_bus_socket: Connection refused"))

    def test_a_bad_policy(self):
        path = self.write("etc/virtguard/virtguard.toml", "mode = 1\nx = 2\n")
        found = self.problems()
        self.assertEqual([subject for subject, _, _ in found], ["policy", "policy"])
        self.assertTrue(found[0][1].startswith(f"{path}:1:8: mode: "), found)

    def test_a_libvirt_that_does_not_answer(self):
        (subject, text, _), = self.problems(uri="test:///nowhere")
        self.assertEqual(subject, "libvirt")
        self.assertTrue(text.startswith("test:///nowhere: "), text)

    def test_pages_that_qemu_cannot_have(self):
        self.pool(1048576, 4)
        self.only_problem("hugepages-1Gi", "4 GiB on node 0, and no hugetlbfs of such pages is mounted: guests cannot "
                          "have them", "mkdir -p /dev/hugepages-1Gi; mount -t hugetlbfs -o pagesize=1G hugetlbfs "
                          "/dev/hugepages-1Gi; systemctl restart libvirtd")

    def test_pages_of_a_node_that_apparmor_keeps_from_guests(self):
        rules = "etc/apparmor.d/abstractions/libvirt-qemu"
        self.write(rules, "/sys/devices/system/node/ r,\n/sys/devices/system/node/node[0-9]*/meminfo r,\n")
        rule = "/sys/devices/system/node/node[0-9]*/cpumap r,"
        self.only_problem("AppArmor", "its rules for guests do not let QEMU read which CPUs a node has: guests with "
                          "hugepages of certain nodes cannot start",
                          f"echo '{rule}' >>/etc/apparmor.d/local/abstractions/libvirt-qemu")
        self.write("etc/apparmor.d/local/abstractions/libvirt-qemu", f"{rule}\n")
        self.assertEqual(self.problems(), [])
        (self.root / "etc/apparmor.d/local/abstractions/libvirt-qemu").unlink()
        self.pool(2048, 0)
        self.assertEqual(self.problems(), [])


class Guests(unittest.TestCase):
    """doctor --guests, on this machine: small fits any, and large none."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        domains = "".join(f"<domain type='test'><name>{name}</name><memory unit='{unit}'>1</memory>"
                          "<os><type>hvm</type></os></domain>" for name, unit in (("small", "MiB"), ("large", "PiB")))
        (self.folder / "node.xml").write_text(f"<node>{domains}</node>", encoding="utf-8")
        self.policy('memory.overhead = "none"')

    def policy(self, text):
        (self.folder / "virtguard.toml").write_text(text, encoding="utf-8")

    def run_doctor(self, *more):
        return subprocess.run([CTL, "doctor", "--guests", "--policy-dir", self.folder,
                               "--libvirt-uri", f"test://{self.folder}/node.xml", *more],
                              capture_output=True, text=True, check=False, env={"LC_ALL": "C"})

    def test_a_guest_that_would_be_refused_is_shown_with_the_figures(self):
        done = self.run_doctor()
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        large, end = done.stdout.splitlines()
        self.assertRegex(large, r"^start:large: refused large: memory: needs 1 PiB, more than the \S+ GiB that one guest can have$")
        self.assertEqual(end, "1 of 2 guests that run or start at boot would be refused")
        document = json.loads(self.run_doctor("--json").stdout)
        self.assertEqual([(each["event"], each["verdict"]) for each in document["events"]],
                         [("start:large", "refuse"), ("start:small", "admit")])

    def test_a_policy_that_observes_refuses_none(self):
        self.policy('mode = "observe"')
        done = self.run_doctor()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("start:large: admitted large", done.stdout)
        self.assertIn("no guest that runs or starts at boot would be refused (2 looked at)\n", done.stdout)

    def test_a_bad_policy_and_a_libvirt_that_is_not_there(self):
        self.policy("mode = 1")
        self.assertEqual(self.run_doctor().returncode, 2)
        self.policy("")
        (self.folder / "node.xml").unlink()
        self.assertEqual(self.run_doctor().returncode, 3)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: virtguardd's socket is root's, and this is not root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
