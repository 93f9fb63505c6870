#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardctl watch, of a virtguardd and a bus that come, go and come back.

    watch.py VIRTGUARDD VIRTGUARDCTL          (VIRTGUARD_TEST_BUS chooses the bus: dbus-daemon or dbus-broker)
"""
import json
import re
import shutil
import subprocess
import time

import on_bus
from alone import ADMITTED, CTL, DEADLINE, PREPARE, REFUSED, xml
from on_bus import MANAGER, NAME, NOBODY, ROOT, BusTest

TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}  "


class Watch(BusTest):
    def watch(self, *options, prefix=()):
        """A watch: a function that returns the lines it has printed so far, without their times."""
        seen = self.folder / "seen"
        program = shutil.copy(CTL, self.folder / "virtguardctl")  # where anybody may execute it
        with open(seen, "wb") as file:
            self.watcher = self.run_for_test([*prefix, program, "watch", *options], stdout=file)
        return lambda: [re.sub(f"^{TIME}", "", line) for line in seen.read_text().splitlines()]

    def wait_for_line(self, lines, line):
        self.wait_for(lambda: line in lines(), f"{line!r} is seen")

    def ended(self, *options):
        return subprocess.run([CTL, "watch", *options], env=self.environment, capture_output=True, text=True,
                              timeout=DEADLINE, check=False)

    def test_starts_and_changes_are_told_a_line_each(self):
        self.start()
        lines = self.watch(prefix=NOBODY)
        self.wait_for_line(lines, "virtguardd 0.1.0 is ready: mode enforce, overcommit cpu 1, memory 1")
        self.assertEqual(self.hook(PREPARE, xml("web", 2, 4))[0], ADMITTED)
        self.assertEqual(self.hook(PREPARE, xml("big", 3, 99))[0], REFUSED)
        self.wait_for_line(lines, "refused big: memory: needs 99.28 GiB, more than the 31.5 GiB that one guest can have")
        self.ctl("overcommit", "set", "cpu", "0.1")
        self.wait_for_line(lines, "cpu is over capacity")
        self.ctl("overcommit", "set", "cpu", "1.5")
        self.wait_for_line(lines, "cpu is no longer over capacity")
        self.ctl("mode", "observe")
        self.wait_for_line(lines, "mode observe, was enforce")
        self.assertEqual(self.hook(PREPARE, xml("big", 3, 99))[0], ADMITTED)
        self.ctl("mode", "maintenance")
        self.policy.write_text("memry = 3\n")
        self.assertEqual(self.busctl("call", on_bus.NAME, on_bus.ROOT, on_bus.MANAGER, "Reload").returncode, 1)
        self.wait_for_line(lines, "state degraded, was ready")
        problem = self.property("Problems")[0]
        self.wait_for_line(lines, f"problem: {problem}")
        self.policy.write_text("")
        self.method("Reload")
        self.wait_for_line(lines, f"solved: {problem}")
        large = "memory: needs 99.28 GiB, more than the 31.5 GiB that one guest can have"
        told = [line for line in lines() if not line.startswith(("problem", "solved", "state"))]
        self.assertEqual(told, [
            "virtguardd 0.1.0 is ready: mode enforce, overcommit cpu 1, memory 1",
            "admitted web", f"refused big: {large}",
            "overcommit cpu 0.1, memory 1, was cpu 1, memory 1", "cpu is over capacity",
            "overcommit cpu 1.5, memory 1, was cpu 0.1, memory 1", "cpu is no longer over capacity",
            "mode observe, was enforce", "memory is over capacity", f"would refuse big: {large}", "mode maintenance, was observe"])

    def test_a_daemon_that_is_killed_and_started_again_is_waited_for(self):
        self.bus = self.start_bus()
        lines = self.watch()
        gone = "virtguardd is not on the bus; waiting for it"
        self.wait_for_line(lines, gone)
        for _ in range(2):
            daemon = self.start_daemon()
            self.wait_for(lambda: "virtguardd 0.1.0 is ready" in lines()[-1] or "state ready" in lines()[-1], "it is there")
            self.assertEqual(self.hook(PREPARE, xml("web", 2, 4))[0], ADMITTED)
            self.wait_for(lambda: lines()[-1] == "admitted web", "the start is told")
            daemon.kill()
            daemon.wait()
            self.wait_for(lambda: lines()[-1] == gone, "it is missed")
        self.assertEqual(lines().count(gone), 3)
        self.assertEqual(lines().count("admitted web"), 2)

    def test_a_bus_that_ends_and_comes_back_is_waited_for(self):
        self.start()
        lines = self.watch()
        self.wait_for(lines, "it is there")
        self.bus.kill()
        self.bus.wait()
        self.wait_for(lambda: re.fullmatch(f"bus: unix:path={self.folder}/bus: .*; waiting for it", lines()[-1]),
                      "the bus is missed")
        before = len(lines())
        self.start_bus()
        self.wait_for(lambda: "virtguardd 0.1.0 is ready" in lines()[-1], "both are back")
        self.assertLessEqual(len(lines()) - before, 3, lines())
        self.assertEqual(self.hook(PREPARE, xml("big", 3, 99))[0], REFUSED)
        self.wait_for(lambda: lines()[-1].startswith("refused big: "), "the start is told")

    def test_who_does_not_wait_is_told_and_gets_3(self):
        done = self.ended("--no-wait")
        self.assertEqual((done.returncode, done.stdout), (3, ""))
        self.assertEqual(done.stderr, f"virtguardctl: bus: unix:path={self.folder}/bus: No such file or directory\n")
        self.bus = self.start_bus()
        done = self.ended("--no-wait", "--json")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "", "virtguardctl: virtguardd is not on the bus\n"))
        daemon = self.start_daemon()
        self.wait_for(lambda: self.property("State") == "ready", "virtguardd is on the bus")
        lines = self.watch("--no-wait")
        self.wait_for(lines, "it is there")
        daemon.kill()
        self.assertEqual(self.watcher.wait(DEADLINE), 3)

    def test_it_does_not_have_the_bus_start_virtguardd(self):
        services = self.folder / "services"
        services.mkdir()
        (services / f"{on_bus.NAME}.service").write_text(
            f"[D-BUS Service]\nName={on_bus.NAME}\nExec=/bin/touch {self.folder}/started\nUser=root\n")
        conf = self.folder / "bus.conf"
        conf.write_text(conf.read_text().replace("<listen>", f"<servicedir>{services}</servicedir><listen>"))
        self.start_bus()
        self.assertEqual(self.ended("--no-wait").returncode, 3)
        self.assertFalse((self.folder / "started").exists())

    def test_json_lines_are_objects_with_the_names_of_the_documentation(self):
        self.start()
        lines = self.watch("--json")
        self.wait_for(lines, "it is there")
        self.hook(PREPARE, xml("big", 3, 99))
        self.wait_for(lambda: len(lines()) == 2, "the start is told")
        self.daemon.kill()
        self.wait_for(lambda: len(lines()) == 3, "it is missed")
        host, start, absent = map(json.loads, lines())
        for event in (host, start, absent):
            self.assertLess(abs(event.pop("time_us") / 1e6 - time.time()), 60)
        self.assertEqual(host, {"event": "host", "version": "0.1.0", "state": "ready", "problems": [], "mode": "enforce",
                                "overcommit": {"cpu": "1", "memory": "1"}, "over_capacity": []})
        self.assertEqual([reason["code"] for reason in start.pop("reasons")], ["larger-than-host"])
        self.assertEqual(start, {"event": "start", "domain": "big", "uuid": "00000000-0000-4000-8000-000000000003",
                                 "scheduler": "default-scheduler", "verdict": "refuse"})
        self.assertEqual(absent, {"event": "absent", "why": "virtguardd is not on the bus"})

    def test_a_hostile_name_reaches_no_terminal_as_it_is(self):
        self.start()
        lines = self.watch()
        self.wait_for(lines, "it is there")
        name = "a&#9;b\u009b31m&#10;c\u202e"
        self.hook(PREPARE, xml(name, 2, 4))
        self.wait_for(lambda: len(lines()) > 1, "the start is told")
        self.assertRegex(lines()[1], r"^admitted [ -~]+$")
        self.assertEqual(len(lines()), 2)

    def test_what_others_sent_to_it_was_taken_for_virtguardds(self):
        self.start()
        lines = self.watch()
        self.wait_for(lines, "it is there")
        [watcher] = self.connections(self.watcher.pid)
        refused = f"{MANAGER}.Refused", "'forged'", "''", "'x'", "@a(sssxxxss) []"
        for signal, *arguments in (
                (f"{MANAGER}.Admitted", *refused[1:]), refused, (f"{MANAGER}.Refused", "'no such arguments'"),
                ("org.freedesktop.DBus.Properties.PropertiesChanged", f"'{MANAGER}'", "{'Mode': <'off'>}", "@as []")):
            self.forge(watcher, ROOT, signal, *arguments)
        self.forge(watcher, "/org/freedesktop/DBus", "org.freedesktop.DBus.NameOwnerChanged", f"'{NAME}'", "':1.1'", "''")
        self.hook(PREPARE, xml("web", 2, 4))
        self.wait_for_line(lines, "admitted web")
        self.assertEqual(lines(), ["virtguardd 0.1.0 is ready: mode enforce, overcommit cpu 1, memory 1", "admitted web"])

    def test_output_that_cannot_be_written_ends_it(self):
        self.start()
        with open("/dev/full", "wb") as full:
            done = subprocess.run([CTL, "watch"], env=self.environment, stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=DEADLINE, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, "virtguardctl: standard output: No space left on device\n"))


if __name__ == "__main__":
    on_bus.main()
