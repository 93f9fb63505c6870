#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What is set while virtguardd runs: over D-Bus and by virtguardctl, kept over kills.

    run_time.py VIRTGUARDD VIRTGUARDCTL
"""
import itertools
import os
import threading

import on_bus
from alone import ADMITTED, DEADLINE, PREPARE, REFUSED, RELEASE, xml

WHO = r"run time by root at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"


class RunTime(on_bus.BusTest):
    def setUp(self):
        super().setUp()
        self.policy.write_text("[overcommit]\ncpu = 3\n")
        self.start()

    def rows(self):
        """Of overcommit get, by resource."""
        done = self.ctl("overcommit")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return {line.split()[0]: line.rstrip() for line in done.stdout.splitlines()[1:]}

    def set_ratio(self, resource, ratio):
        done = self.ctl("overcommit", "set", resource, ratio)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def shows(self, **ratios):
        """What the bus shows is worked out a moment later."""
        self.wait_for(lambda: self.property("Overcommit") == ratios, ratios)

    def kill(self):
        self.daemon.kill()
        self.daemon.wait(DEADLINE)
        self.daemon = self.start_daemon()
        self.wait_for(lambda: self.property("State") in ("ready", "degraded"), "there again")

    def test_a_ratio_is_shown_with_who_set_it_and_what_the_file_says(self):
        rows = self.rows()
        self.assertRegex(rows["cpu"], rf"^cpu +3 +{self.policy}:2$")
        self.assertRegex(rows["memory"], r"^memory +1 +default$")
        self.set_ratio("cpu", "1.50")
        self.assertRegex(self.rows()["cpu"], rf"^cpu +1.5 +{WHO} +3 \({self.policy}:2\)$")
        self.shows(cpu="1.5", memory="1")
        self.assertEqual(self.property("EffectiveCapacity")["cpu"], 24)
        self.assertIn("run time: overcommit.cpu = 1.5, by root", self.log.read_text())

    def test_a_ratio_outlives_kills_and_reloads_until_it_is_reset(self):
        self.method("SetOvercommit", "ss", "cpu", "2")
        self.set_ratio("memory", "1.25")
        self.kill()
        self.shows(cpu="2", memory="1.25")
        self.policy.write_text("[overcommit]\ncpu = 4\n")
        self.method("Reload")
        self.shows(cpu="2", memory="1.25")
        self.assertRegex(self.rows()["cpu"], rf" 4 \({self.policy}:2\)$")
        self.method("ResetOvercommit", "s", "cpu")
        self.shows(cpu="4", memory="1.25")
        self.assertEqual(self.ctl("overcommit", "reset").returncode, 0)
        self.kill()
        self.shows(cpu="4", memory="1")

    def test_below_use_no_guest_is_touched_and_it_is_said(self):
        heard = self.monitor()
        self.assertEqual(self.hook(PREPARE, xml("mail", 2, 1))[0], ADMITTED)
        before = self.status()["domains"]
        self.method("SetOvercommit", "ss", "cpu", "0.1")
        self.wait_for(lambda: "OverCapacityChanged (['cpu'],)" in heard(), "over capacity")
        self.assertEqual(self.status()["domains"], before)
        self.assertEqual(self.hook(PREPARE, xml("new", 3, 1))[0], REFUSED)
        self.method("ResetOvercommit", "s", "")
        self.wait_for(lambda: "OverCapacityChanged (@as [],)" in heard(), "no more over capacity")

    def test_what_is_impossible_changes_nothing(self):
        for words, told in ((("set", "memroy", "2"), 'memory'), (("set", "cpu", "0"), "cpu: "),
                            (("set", "hugepages-2Mi", "2"), "hugepages take no ratio"), (("reset", "x"), '"x"')):
            done = self.ctl("overcommit", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(told, done.stderr)
        self.shows(cpu="3", memory="1")

    def storm(self):
        """Starts of 2 CPUs, four at a time: what they were answered, and what ends it, which returns how many were asked."""
        answers, is_over = [], threading.Event()
        asked = itertools.count()

        def ask(first):
            for number in itertools.count(first, 4):
                if is_over.is_set():
                    return
                next(asked)
                answers.append(self.hook(PREPARE, xml(f"storm-{number}", number, 1, "MiB"), DEADLINE * 1000)[0])

        def end():
            is_over.set()
            for thread in threads:
                thread.join()
            return next(asked)

        threads = [threading.Thread(target=ask, args=(100 + i,)) for i in range(4)]
        self.addCleanup(end)
        for thread in threads:
            thread.start()
        return answers, end

    def test_reloads_in_a_storm_of_starts_drop_no_decision(self):
        answers, end = self.storm()
        rules = itertools.cycle((("", True), ('[rule.all]\naction = "refuse"\n', True), ("[rule.all]\n", False), ("nonsense", False),
                                 ('[rule.all]\nmatch = "//vcpu > 5"\naction = "exempt"\n', True)))
        for text, is_good in itertools.islice(rules, 25):
            before = len(answers)
            self.policy.write_text("[overcommit]\ncpu = 1000\n" + text)
            done = self.busctl("call", on_bus.NAME, on_bus.ROOT, on_bus.MANAGER, "Reload")
            self.assertEqual(done.returncode == 0, is_good, done.stderr)
            self.wait_for(lambda before=before: len(answers) > before + 20, "the storm goes on")
        asked = end()
        self.assertEqual(len(answers), asked)
        self.assertEqual(set(answers), {ADMITTED, REFUSED})
        for domain in self.status()["domains"]:  # and each that was let in is known
            self.assertIn(domain["state"], ("pending", "running"))
        self.assertEqual(len(self.status()["domains"]), answers.count(ADMITTED) + 1)

    def test_in_a_storm_of_starts_no_more_is_admitted_than_the_ratio_of_the_moment_allows(self):
        """Of 16 CPUs, by starts of 2."""
        self.set_ratio("cpu", "0.5")
        asked, end = self.storm()

        def held():
            host = self.status()["host"]
            return host["allocated"]["cpu"] + host["pending"]["cpu"]

        def answered_more():
            before = len(asked)
            self.wait_for(lambda: len(asked) > before + 40, "the storm goes on")

        for ratio, most in (("0.5", 8), ("1", 16), ("1.5", 24), ("2", 32), ("1", 32), ("0.1", 32), ("2.5", 40)):
            self.set_ratio("cpu", ratio)
            self.assertLessEqual(held(), most)
            answered_more()
            self.assertEqual(held(), most)  # what was there before a ratio was lowered stays
        end()
        self.assertEqual(asked.count(ADMITTED), 19)  # and libvirt's test driver runs a guest of 2

    def mode(self, *words):
        done = self.ctl("mode", *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_maintenance_refuses_new_starts_and_no_others_until_it_is_over(self):
        self.assertEqual(self.mode().splitlines(), ["enforce", "set by: default"])
        of_libvirt = xml("test", 0, 1).replace("00000000-0000-4000-8000-000000000000", "6695eb01-f6a4-8304-79aa-97f2502e193f")
        self.mode("maintenance", "--message", "new kernel at noon")
        self.kill()
        self.assertRegex(self.mode(), rf"^maintenance: new kernel at noon\sset by: {WHO}\sin files: enforce \(default\)\s$")
        self.assertEqual(self.property("Mode"), "maintenance")
        self.assertIn("mode maintenance\nmaintenance: new kernel at noon\n", self.ctl("status").stdout)
        self.assertEqual(self.hook(PREPARE, xml("new", 3, 1))[0], REFUSED)
        self.hook(RELEASE, of_libvirt)
        self.assertEqual(self.hook(PREPARE, of_libvirt)[0], ADMITTED)
        recent = self.method("RecentDecisions", "u", "9")[0]
        self.assertEqual([[start[1], start[4], [reason[0] for reason in start[5]]] for start in recent],
                         [["test", "admit", []], ["new", "refuse", ["policy-rule"]]])
        self.method("SetMode", "ss", "reset", "")
        self.wait_for(lambda: self.property("Mode") == "enforce", "over")
        self.assertEqual(self.hook(PREPARE, xml("new", 3, 1))[0], ADMITTED)

    def test_a_mode_is_set_whatever_the_files_say_then_and_later(self):
        self.mode("observe")
        self.policy.write_text('mode = "off"\n')
        self.method("Reload")
        self.assertRegex(self.mode(), rf"^observe\sset by: {WHO}\sin files: off \({self.policy}:1\)\s$")
        self.mode("reset")
        self.assertEqual(self.mode(), f"off\nset by: {self.policy}:1\n")
        for words in (["on"], ["off", "--message", "why"], ["maintenance", "--message", "two\nlines"]):
            self.assertEqual(self.ctl("mode", *words).returncode, 2)

    def test_a_damaged_file_is_set_aside_and_said(self):
        self.set_ratio("cpu", "2")
        file = self.folder / "state/run-time"
        file.write_bytes(file.read_bytes()[:-1])
        self.kill()
        self.shows(cpu="3", memory="1")
        self.assertEqual(self.property("State"), "degraded")
        self.assertIn("what was set at run time is lost", self.property("Problems")[0])
        self.assertTrue(file.with_name("run-time.damaged").exists())

    def test_what_is_no_regular_file_holds_no_start_up_and_is_set_aside(self):
        guest = self.run_folder / "guests" / "00000000-0000-4000-8000-000000000003"
        self.assertEqual(self.hook(PREPARE, xml("new", 3, 1))[0], ADMITTED)
        for file in (self.folder / "state/run-time", guest):
            file.unlink(missing_ok=True)
            os.mkfifo(file)
        self.kill()
        for file in (self.folder / "state/run-time", guest):
            self.assertIn(f"{file}: not a regular file", self.log.read_text())
            self.assertTrue(file.with_name(file.name + ".damaged").is_fifo())
        self.set_ratio("cpu", "2")
        self.kill()
        self.shows(cpu="2", memory="1")


if __name__ == "__main__":
    on_bus.main()
