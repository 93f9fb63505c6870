#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardctl policy: the files, what is in force, and the difference.

    policy_commands.py VIRTGUARDD VIRTGUARDCTL
"""
import json
import os
import signal

import alone


class Policy(alone.DaemonTest):
    def setUp(self):
        super().setUp()
        self.policy.write_text('mode = "observe"\n[overcommit]\ncpu = 3\n')

    def start(self):
        daemon = self.start_daemon()
        self.wait_for(lambda: self.show().returncode == 0, "virtguardd answers")
        return daemon

    def show(self, *arguments):
        return self.ctl("policy", "show", *arguments)

    def diff(self, *arguments):
        return self.ctl("policy", "diff", *arguments)

    def lines(self):
        return {line.split(" = ")[0]: line for line in self.show().stdout.splitlines()}

    def test_what_is_in_force_and_who_set_it(self):
        self.start()
        lines = self.lines()
        self.assertRegex(lines["mode"], f'^mode = "observe" +# {self.policy}:1$')
        self.assertRegex(lines["overcommit.cpu"], f"^overcommit.cpu = 3 +# {self.policy}:3$")
        self.assertRegex(lines["hook.timeout"], '^hook.timeout = "2s" +# default$')

    def test_what_nothing_sets_is_shown_with_its_default(self):
        self.policy.write_text('storage.paths = ["/"]\n[resource.licences]\ncapacity = 5\ndemand = "1"\n[reserve.node.0]\nmemory = "1GiB"\n')
        self.start()
        lines = self.lines()
        for key, value in (("overcommit.cpu", "1"), ("overcommit.memory", "1"), ("overcommit.ephemeral-storage", "1"),
                           ("overcommit.licences", "1"), ("reserve.memory", '"1Gi"')):
            self.assertRegex(lines[key], f"^{key} = {value} +# default$")
        rows = self.ctl("overcommit").stdout.splitlines()
        self.assertEqual([row.split()[0] for row in rows], ["RESOURCE", "cpu", "memory", "ephemeral-storage", "licences"])

    def test_what_is_shown_is_a_policy_that_changes_nothing(self):
        self.start()
        shown = self.folder / "shown.toml"
        shown.write_text(self.show().stdout)
        done = self.diff(shown)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_file_that_was_changed_differs_until_it_is_in_force(self):
        daemon = self.start()
        self.assertEqual(self.diff(self.policy.parent).returncode, 0)
        self.policy.write_text('[overcommit]\nmemory = 1.5\ncpu = 3\n')
        done = self.diff(self.policy.parent)
        self.assertEqual((done.returncode, done.stdout), (
            1, f'- mode = "observe"  # {self.policy}:1\n+ mode = "enforce"  # default\n'
               f"- overcommit.memory = 1  # default\n+ overcommit.memory = 1.5  # {self.policy}:2\n"))
        changes = json.loads(self.diff("--json", self.policy.parent).stdout)["changes"]
        self.assertEqual(changes[1], {
            "in_force": {"key": "overcommit.memory", "value": "1", "origin": "default"}, "in_files": {
            "key": "overcommit.memory", "value": "1.5", "origin": f"{self.policy}:2"}})
        daemon.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.diff(self.policy.parent).returncode == 0, "in force")

    def test_what_is_set_at_run_time_is_said_and_no_reload_would_change_it(self):
        self.start()
        for resource, ratio in (("cpu", "1.5"), ("memory", "2")):
            self.assertEqual(self.ctl("overcommit", "set", resource, ratio).returncode, 0)
        who = r"run time by root at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
        lines = self.lines()
        self.assertRegex(lines["overcommit.cpu"], rf"^overcommit.cpu = 1.5 +# {who}, in place of 3 \({self.policy}:3\)$")
        self.assertRegex(lines["overcommit.memory"], rf"^overcommit.memory = 2 +# {who}, in place of 1 \(default\)$")
        self.assertEqual(self.diff(self.policy.parent).returncode, 0)
        self.policy.write_text('mode = "observe"\n[overcommit]\ncpu = 4\n')
        self.assertEqual(self.diff(self.policy.parent).stdout, f"- overcommit.cpu = 3  # {self.policy}:3\n"
                                                              f"+ overcommit.cpu = 4  # {self.policy}:3\n")

    def test_a_bad_policy_is_in_nobodys_way_and_is_said(self):
        daemon = self.start()
        self.policy.write_text("mode = 7\n")
        daemon.send_signal(signal.SIGHUP)
        self.wait_for(lambda: self.show().stdout.startswith(f"# not in force: {self.policy}:1:8: mode: "), "said")
        self.assertIn('"observe"', self.lines()["mode"])
        self.assertEqual(len(json.loads(self.show("--json").stdout)["problems"]), 1)
        self.assertEqual(self.diff(self.policy.parent).returncode, 2)

    def test_a_file_that_cannot_be_read_is_no_bad_policy(self):
        done = self.ctl("policy", "check", self.folder / "absent")
        self.assertEqual((done.returncode, done.stderr), (
            2, f"virtguardctl: {self.folder}/absent: No such file or directory\n"))

    def test_a_fifo_and_a_device_below_the_folder_were_a_bad_policy_and_a_folder_without_any_a_good_one(self):
        def check(path, *more):
            done = self.ctl("policy", "check", *more, path)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            return done.stderr.replace(f"virtguardctl: {self.folder}/", "").splitlines()

        folder = self.folder / "more"
        (folder / "conf.d").mkdir(parents=True)
        fifo = folder / "conf.d/10.toml"
        os.mkfifo(fifo)
        (folder / "conf.d/20.toml").symlink_to("absent")
        (folder / "virtguard.toml").write_text("mode = 7\n")
        lines = check(folder)
        self.assertEqual(lines[:2], ["more/conf.d/10.toml: not a regular file",
                                     "more/conf.d/20.toml: No such file or directory"])
        self.assertTrue(lines[2].startswith("more/virtguard.toml:1:8: mode: "), lines)
        self.assertEqual(check(folder, "--json"), lines)
        self.assertEqual(check("/dev/zero"), ["virtguardctl: /dev/zero: longer than 1 MiB"])
        empty = self.folder / "empty"
        empty.mkdir()
        self.assertEqual(check(empty), [
            "empty: has neither virtguard.toml nor conf.d: expected a folder with one of them, or a file"])
        self.assertEqual(self.diff(empty).returncode, 3)  # nobody to ask
        (empty / "conf.d").mkdir()
        self.assertEqual(self.ctl("policy", "check", empty).returncode, 0)

    def test_check_asks_nobody(self):
        done = self.ctl("policy", "check", self.policy.parent)
        self.assertEqual((done.returncode, done.stdout),
                         (0, f"{self.policy.parent}: well written, and possible on this host\n"))
        self.policy.write_text('mode = 7\n[reserve.node.999]\nmemory = "1GiB"\n')
        done = self.ctl("policy", "check", self.policy)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith(f"virtguardctl: {self.policy}:1:8: mode: "), done.stderr)
        self.policy.write_text('[reserve.node.999]\nmemory = "1GiB"\n')
        self.assertEqual(self.ctl("policy", "check", self.policy).returncode, 1)

    def test_check_gives_a_document_what_it_says_without(self):
        def check(*path):
            done = self.ctl("policy", "check", "--json", *path)
            return done.returncode, json.loads(done.stdout or "null"), done.stderr

        def said():
            done = self.ctl("policy", "check", self.policy)
            return [line.removeprefix("virtguardctl: ") for line in done.stderr.splitlines()]

        self.assertEqual(check(self.policy.parent), (0, {"errors": []}, ""))
        for text, count in (("mode = 7\nmemry = 3\n", 2), ('[reserve.node.999]\nmemory = "1GiB"\n', 1)):
            self.policy.write_text(text)
            self.assertEqual(len(said()), count)
            self.assertEqual(check(self.policy), (1, {"errors": said()}, ""))
        absent = self.folder / "absent"
        self.assertEqual(check(absent), (2, None, f"virtguardctl: {absent}: No such file or directory\n"))


if __name__ == "__main__":
    alone.main()
