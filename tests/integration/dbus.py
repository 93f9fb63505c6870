#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""org.virtguard1 on a bus of its own, by the tools of others (busctl, gdbus).

    dbus.py VIRTGUARDD VIRTGUARDCTL          (VIRTGUARD_TEST_BUS chooses the bus: dbus-daemon or dbus-broker)
"""
import json
import re
import struct
import subprocess
import time

import on_bus
from alone import ADMITTED, DAEMON, DEADLINE, PREPARE, REFUSED, RELEASE, SOURCE, STARTED, xml
from on_bus import MANAGER, NAME, NOBODY, RETURN, ROOT, BusTest, Raw, path_of


class Bus(BusTest):
    def setUp(self):
        super().setUp()
        node = self.folder / "node.xml"
        node.write_text(f"<node>{xml('web', 1, 2).replace('kvm', 'test')}</node>")
        self.libvirt_uri = f"test://{node}"

    # ------------------------------------------------------------ what is shown

    def test_all_properties_agree_with_what_ctl_shows(self):
        self.start()
        self.policy.write_text('[overcommit]\ncpu = "1.15"\n[scheduler]\naccept-any = true\n')
        self.method("Reload")
        self.hook(PREPARE, xml("pending", 2, 3))
        self.wait_for(lambda: path_of(2) in self.objects(), "the start is shown")
        status, objects = self.status(), self.objects()
        manager = self.properties()
        columns = {"Capacity": "capacity", "Reserved": "reserved", "Allocatable": "allocatable",
                   "EffectiveCapacity": "effective", "Allocated": "allocated", "Pending": "pending",
                   "Booked": "booked", "Foreign": "foreign", "Free": "free"}
        expected = {"Version": status["version"], "Mode": "enforce", "State": "ready", "Problems": [],
                    "Overcommit": {"cpu": "1.15", "memory": "1"}, "OverCapacity": [],
                    "AcceptedSchedulers": ["*", "default-scheduler"], "DecisionsAdmitted": 1, "DecisionsRefused": 0,
                    "DecisionsWouldRefuse": 0, "PolicyFiles": [f"{self.folder}/policy/virtguard.toml"],
                    **{name: status["host"][column] for name, column in columns.items()}}
        self.assertLess(abs(manager.pop("SnapshotTimestamp") / 1e6 - time.time()), 60)
        self.assertEqual(manager, expected)
        self.assertEqual(manager["EffectiveCapacity"]["cpu"], 18)  # of 16 PUs
        self.assertEqual(len(status["nodes"]), 2)
        for node in status["nodes"]:
            expected = {"Id": node["id"], "Cpus": node["cpus"], **{name: node[key] for name, key in columns.items()}}
            self.assertEqual(objects[f"{ROOT}/node/{node['id']}"]["org.virtguard1.Node"], expected)
        self.assertEqual([guest["state"] for guest in status["domains"]], ["running", "pending"])
        for number, guest in enumerate(status["domains"], 1):
            shown = objects[path_of(number)]["org.virtguard1.Domain"]
            self.assertLess(abs(shown.pop("Since") / 1e6 - time.time()), 60)
            pieces = [[resource, amount, "", False] for resource, amount in guest["demand"].items()]
            self.assertEqual(shown, {"Name": guest["name"], "Uuid": guest["uuid"], "Scheduler": guest["scheduler"],
                                     "State": guest["state"], "Demand": guest["demand"], "Pieces": pieces})
        self.assertEqual(self.method("ListDomains"),
                         [[[guest["name"], guest["uuid"], guest["scheduler"], guest["state"], guest["demand"],
                            path_of(number)] for number, guest in enumerate(status["domains"], 1)]])

    def test_doctor_asks_the_bus_whether_virtguardd_is_on_it(self):
        self.start()
        socket = self.folder / "host/run/dbus/system_bus_socket"
        socket.parent.mkdir(parents=True)
        socket.symlink_to(self.folder / "bus")
        by_default = {name: value for name, value in self.environment.items() if name != "DBUS_SYSTEM_BUS_ADDRESS"}

        def told(environment):
            done = self.ctl("doctor", "--json", "--root", self.folder / "host", "--libvirt-uri", self.libvirt_uri, env=environment)
            return [(each["ok"], each["text"]) for each in json.loads(done.stdout)["findings"] if each["subject"] == "bus"]

        chosen = f"that of DBUS_SYSTEM_BUS_ADDRESS, unix:path={self.folder}/bus"
        self.assertEqual(told(self.environment), [(True, f"virtguardd is on {chosen}")])
        self.assertEqual(told(by_default), [(True, "virtguardd is on the system bus")])
        self.daemon.kill()
        self.daemon.wait()
        self.assertEqual(told(self.environment), [(False, f"virtguardd is not on {chosen}")])
        self.assertEqual(told(by_default), [(False, "virtguardd is not on the system bus")])

    def test_what_the_documentation_shows_is_so(self):
        self.policy.write_text("[scheduler.accept.cortex]\n")
        self.start()
        (self.folder / "large.xml").write_text(xml("large", 2, 99))
        text = (SOURCE / "docs/dbus.md").read_text()
        transcripts = re.findall(r"^    \$ (busctl .*)\n((?:    (?!\$).*\n)+)", text, re.MULTILINE)
        self.assertGreater(len(transcripts), 5)
        for command, shown in transcripts:
            command = command.replace("large.xml", str(self.folder / "large.xml"))
            done = subprocess.run(["bash", "-c", command], env=self.environment, capture_output=True, text=True,
                                  timeout=DEADLINE, cwd=self.folder)
            answer = (done.stdout + done.stderr).replace(f"{self.folder}/policy", "/etc/virtguard")
            same = [re.sub(r"\b1[0-9]{15}\b", "TIME", lines).replace(" ", "")
                    for lines in (re.sub("^    ", "", shown, flags=re.MULTILINE), answer)]
            self.assertEqual(*same, f"{command}: {done.stdout}")
        shown = re.search(r"^    # busctl monitor .*\n((?:    .*\n)+)", text, re.MULTILINE)[1]
        heard = self.folder / "monitored"
        with open(heard, "wb") as file:
            self.run_for_test(["busctl", "--system", "monitor", NAME], stdout=file, stderr=subprocess.DEVNULL)


        def is_heard():
            self.assertEqual(self.hook(PREPARE, xml("large", 2, 99))[0], REFUSED)
            return shown.replace(" ", "") in heard.read_text().replace(" ", "")

        self.wait_for(is_heard, shown)

    def test_every_member_is_in_the_manual(self):
        self.start()
        manual = (SOURCE / "docs/man/org.virtguard1.5.scd").read_text()
        members = 0
        for path in (ROOT, f"{ROOT}/node/0", path_of(1)):
            ours = False
            for line in self.busctl("introspect", NAME, path).stdout.splitlines():
                name, kind = line.split()[:2]
                if kind == "interface":
                    ours = name.startswith(NAME)
                elif ours:
                    members += 1
                    self.assertRegex(manual, rf"\*{name[1:]}\*")
        self.assertEqual(members, 37 + 11 + 7)

    # ------------------------------------------------------------ what changes

    def test_starts_and_ends_are_signalled(self):
        self.start()
        heard = self.monitor()
        self.assertEqual(self.hook(PREPARE, xml("mail", 2, 4))[0], ADMITTED)
        self.assertEqual(self.hook(PREPARE, xml("big", 3, 99))[0], REFUSED)
        self.wait_for(lambda: re.search(r"InterfacesAdded \(objectpath '" + path_of(2) + "'.*'Name': <'mail'>", heard()),
                      "there")
        self.hook(STARTED, xml("mail", 2, 4))
        self.wait_for(lambda: re.search(path_of(2) + r": .*PropertiesChanged .*'State': <'running'>", heard()), "runs")
        self.hook(RELEASE, xml("mail", 2, 4))
        self.wait_for(lambda: re.search(r"InterfacesRemoved .*" + path_of(2), heard()), "gone")
        self.assertRegex(heard(), r"Manager.Admitted \('mail', '00000000-0000-4000-8000-000000000002', "
                                  r"'default-scheduler', ")
        self.assertRegex(heard(), r"Manager.Refused \('big', .*\('larger-than-host', 'memory', '', ")
        self.assertRegex(heard(), r"PropertiesChanged \('org.virtguard1.Manager', .*'DecisionsRefused': <uint64 1>")
        verdicts = [[decision[1], decision[4]] for decision in self.method("RecentDecisions", "u", "10")[0]]
        self.assertEqual(verdicts, [["big", "refuse"], ["mail", "admit"]])

    def test_a_reload_is_told_and_so_is_what_is_over_capacity(self):
        self.start()
        heard = self.monitor()
        self.policy.write_text('[overcommit]\ncpu = "0.1"\n')
        self.method("Reload")
        self.wait_for(lambda: "OverCapacityChanged (['cpu'],)" in heard(), "over capacity")
        self.assertEqual(self.property("OverCapacity"), ["cpu"])
        self.assertEqual(self.property("Free")["cpu"], -1)
        self.policy.write_text("[overcommit]\ncpu = 2\nmemry = 3\n")
        done = self.busctl("call", NAME, ROOT, MANAGER, "Reload")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.folder}/policy/virtguard.toml:3:1: overcommit.memry: ", done.stderr)
        self.wait_for(lambda: self.property("State") == "degraded", "degraded")
        self.assertEqual(len(self.property("Problems")), 1)
        self.policy.write_text("")
        self.method("Reload")
        self.wait_for(lambda: "OverCapacityChanged (@as [],)" in heard(), "no more over capacity")

    def test_a_domain_that_is_reserved_for_is_asked_what_it_demands_of_custom_resources(self):
        self.policy.write_text('[resource.licences]\ncapacity = 9\ndemand = "/domain/vcpu"\n')
        self.start()
        self.method("Reserve", "ssa{sx}a{sv}", "default-scheduler", "spot", "0", "1", "xml", "s", xml("new", 9, 2))
        listed = json.loads(self.ctl("reservation", "list", "--json").stdout)["reservations"]
        self.assertEqual(listed[0]["booked"]["licences"], 2)

    def test_resync_has_libvirt_asked(self):
        self.start()
        self.hook(PREPARE, xml("ghost", 2, 1))
        self.hook(STARTED, xml("ghost", 2, 1))
        self.wait_for(lambda: path_of(2) in self.objects(), "the guest is shown")
        self.method("Resync")
        self.wait_for(lambda: path_of(2) not in self.objects(), "libvirt does not run it")

    # ------------------------------------------------------------ who may do what

    def test_anyone_reads_and_only_who_may_changes(self):
        self.start()
        done = self.busctl("get-property", NAME, ROOT, MANAGER, "Mode", prefix=NOBODY)
        self.assertEqual((done.returncode, done.stdout), (0, 's "enforce"\n'), done.stderr)
        done = self.busctl("call", NAME, ROOT, MANAGER, "Check", "s", xml("new", 9, 1), prefix=NOBODY)
        self.assertTrue(done.stdout.startswith('sa(sssxxxss)a{sx} "admit" 0 '), done.stdout + done.stderr)
        for method, *arguments in (("Reload",), ("Resync",), ("SetOvercommit", "cpu", "2"), ("ResetOvercommit", "cpu"), ("SetMode", "off", "")):
            done = subprocess.run([*NOBODY, "gdbus", "call", "--system", "--dest", NAME, "--object-path", ROOT,
                                   "--method", f"{MANAGER}.{method}", *arguments], env=self.environment,
                                  capture_output=True, text=True, timeout=DEADLINE)
            self.assertEqual(done.returncode, 1)
            self.assertIn("org.freedesktop.DBus.Error.AccessDenied: polkit does not allow org.virtguard1.manage",
                          done.stderr)
        self.assertNotIn("policy: reloaded", self.log.read_text())

    def test_the_name_is_for_root_only(self):
        self.start_bus()
        done = self.busctl("call", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus",
                           "RequestName", "su", NAME, "0", prefix=NOBODY)
        self.assertNotEqual(done.returncode, 0)

    # ------------------------------------------------------------ without the bus

    def test_answers_go_on_while_the_bus_is_away_and_the_name_comes_back(self):
        self.daemon = self.start_daemon()
        self.wait_for(lambda: self.ctl("status").returncode == 0, "virtguardd answers")
        self.assertEqual(self.hook(PREPARE, xml("early", 2, 1))[0], ADMITTED)
        bus = self.start_bus()
        self.wait_for(lambda: self.property("DecisionsAdmitted") == 1, "on the bus that came later")
        for number in (3, 4):
            bus.kill()
            bus.wait(DEADLINE)
            self.assertEqual(self.hook(PREPARE, xml("between", number, 1))[0], ADMITTED)
            bus = self.start_bus()
            self.wait_for(lambda: path_of(number) in self.objects() if self.property("State") else False,
                          "on the bus that came back")
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(DEADLINE), 0)

    def test_a_name_that_another_has_is_taken_when_it_is_free(self):
        self.start()
        other = self.folder / "other"
        with open(self.log, "ab") as log:
            second = self.run_for_test([DAEMON, "--run-dir", other, "--state-dir", other, "--policy-dir", other,
                                        "--libvirt-uri", "test:///default", "--topology", "numa:1(memory=2GiB) core:1 pu:1"], stderr=log)
        self.wait_for(lambda: "bus: org.virtguard1: another has this name; trying again" in self.log.read_text(), "")
        self.daemon.terminate()
        self.wait_for(lambda: self.property("Capacity") is not None and self.property("Capacity")["cpu"] == 1,
                      "the second has the name")
        self.assertIsNone(second.poll())

    # ------------------------------------------------------------ clients that do not behave

    def slowest_of_starts(self, count):
        slowest = 0
        for number in range(100, 100 + count):
            domain = xml(f"guest-{number}", number, 64, "MiB")
            verdict, seconds = self.hook(PREPARE, domain)
            self.assertEqual(verdict, ADMITTED)
            slowest = max(slowest, seconds)
            self.hook(RELEASE, domain)
        return slowest

    def test_a_client_that_never_reads_costs_nothing(self):
        self.start()
        deaf = Raw(f"{self.folder}/bus")
        self.addCleanup(deaf.socket.close)
        deaf.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch",
                  "type='signal'")
        self.slowest_of_starts(200)
        before = self.memory()
        self.assertLess(self.slowest_of_starts(2000), 1)
        self.wait_for(lambda: self.property("DecisionsAdmitted") == 2200, "others are told")
        self.assertLess(self.memory() - before, 8 << 20)

    def test_hundreds_that_ask_at_once_are_all_answered_the_same(self):
        self.policy.write_text("[overcommit]\ncpu = 100\n")
        self.start()
        for number in range(2, 102):
            self.hook(PREPARE, xml(f"guest-{number}", number, 64, "MiB"))
        self.wait_for(lambda: len(self.objects()) == 101 + 2, "all starts are shown")
        clients = [Raw(f"{self.folder}/bus", reads=True) for _ in range(200)]
        for client in clients:
            self.addCleanup(client.socket.close)
            client.answer()  # to its Hello
        before = self.memory()
        for client in clients:
            client.call(NAME, ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        kinds, answers = zip(*(client.answer() for client in clients))
        self.assertEqual(set(kinds), {RETURN})
        self.assertGreater(answers[0].count(b"org.virtguard1.Domain"), 100)
        bodies = {answer[-struct.unpack_from("<I", answer, 4)[0]:] for answer in answers}
        self.assertEqual(len(bodies), 1)
        self.assertLess(self.memory() - before, 8 << 20)

    def test_a_client_that_asks_and_asks_delays_no_start(self):
        self.start()
        self.slowest_of_starts(50)
        before = self.memory()
        flood = Raw(f"{self.folder}/bus")
        flood.socket.settimeout(0.01)
        deadline = time.monotonic() + 3
        slowest = asked = 0
        while time.monotonic() < deadline:
            for _ in range(100):
                asked += flood.call(NAME, ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
            slowest = max(slowest, self.slowest_of_starts(1))
        self.assertGreater(asked, 100)
        self.assertLess(slowest, 1)
        self.assertLess(self.memory() - before, 32 << 20)
        flood.socket.close()
        self.wait_for(lambda: self.property("State") == "ready", "others are answered")


if __name__ == "__main__":
    on_bus.main()
