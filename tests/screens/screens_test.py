#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What virtguardctl shows of fixed documents: on terminals of 80 and 140 columns, and where there is none.

    screens_test.py VIRTGUARDCTL            compares with golden/
    screens_test.py VIRTGUARDCTL --renew    writes golden/ anew; look at each
"""
import fcntl
import os
import pathlib
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

from fake_daemon import CHECK, POLICY, RECENT, STATUS, FakeDaemon, domain
from documents import history, outcome, policy, status

GOLDEN = pathlib.Path(__file__).with_name("golden")
RENEW = "--renew" in sys.argv
CTL = sys.argv[1]


COMMANDS = {"status": ("status",), "nodes": ("nodes",), "domains": ("domains",), "recent": ("recent",),
            "overcommit": ("overcommit",), "reservation": ("reservation",),
            "explain": ("explain", "--libvirt-uri", "test:///default", "test")}


def on_terminal(arguments, columns, **environment):
    """What a program prints on a terminal of so many columns."""
    master, slave = pty.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[1] &= ~termios.OPOST  # a line break stays one byte
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    program = subprocess.Popen([CTL, *arguments], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                               env={"TERM": "xterm", "LC_ALL": "C.UTF-8", "TZ": "UTC", **environment})
    os.close(slave)
    text = b""
    while True:
        try:
            got = os.read(master, 65536)
        except OSError:  # EIO: the other end is closed
            break
        if not got:
            break
        text += got
    os.close(master)
    program.wait()
    return text.decode()


class Screens(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.socket = f"{folder.name}/hook.sock"
        self.daemon = FakeDaemon(self.socket, {STATUS: status(), CHECK: outcome(), RECENT: history(), POLICY: policy()})
        self.addCleanup(self.daemon.close)

    def arguments(self, command, *more):
        return ["--socket", self.socket, *COMMANDS[command], *more]

    def piped(self, command, *more, **environment):
        return subprocess.run([CTL, *self.arguments(command, *more)], capture_output=True, text=True, check=False,
                              env={"TERM": "xterm", "LC_ALL": "C.UTF-8", "TZ": "UTC", **environment}).stdout

    def compare(self, name, text):
        file = GOLDEN / name
        if RENEW:
            file.write_text(text, encoding="utf-8")
        self.assertEqual(text, file.read_text(encoding="utf-8"), name)

    def test_what_is_shown_is_as_it_was_approved(self):
        for command in COMMANDS:
            for columns in (80, 140):
                with self.subTest(command=command, columns=columns):
                    self.compare(f"{command}-{columns}", on_terminal(self.arguments(command), columns))
            with self.subTest(command=command, columns=None):
                self.compare(f"{command}-plain", self.piped(command))

    def test_no_line_is_wider_than_its_terminal_but_for_sentences(self):
        for columns in (80, 100, 140, 200):
            for command in ("nodes", "domains"):
                for line in on_terminal(self.arguments(command, "--color=never"), columns).splitlines():
                    self.assertLessEqual(len(line), columns, line)

    def test_sentences_in_a_table_are_broken_between_words(self):
        for columns in (100, 120, 140):
            lines = on_terminal(self.arguments("recent", "--color=never"), columns).splitlines()
            self.assertLessEqual(max(map(len, lines)), columns)
            reasons = " ".join(line[lines[0].index("REASONS"):].rstrip() for line in lines)
            self.assertIn("memory: needs 60.19 GiB, 12 GiB left of the quota of 100 GiB of scheduler.accept.cortex", reasons)

    def test_colours_are_for_terminals_unless_they_are_asked_for(self):
        escape = "\x1b["
        self.assertIn(escape, on_terminal(self.arguments("status"), 80))
        self.assertIn(escape, on_terminal(self.arguments("status"), 80, NO_COLOR=""))
        self.assertNotIn(escape, on_terminal(self.arguments("status"), 80, NO_COLOR="1"))
        self.assertNotIn(escape, on_terminal(self.arguments("status"), 80, TERM="dumb"))
        self.assertNotIn(escape, on_terminal(self.arguments("status", "--color=never"), 80))
        self.assertIn(escape, on_terminal(self.arguments("status", "--color=always"), 80, NO_COLOR="1"))
        self.assertNotIn(escape, self.piped("status"))
        self.assertNotIn(escape, self.piped("status", "--color=auto"))
        self.assertIn(escape, self.piped("status", "--color=always"))

    def test_without_a_terminal_all_is_plain_text_and_nothing_is_left_out(self):
        plain = self.piped("status")
        self.assertTrue(plain.isascii())
        for word in ("WHERE", "BOOKED", "node 1", "build-runner-of-the-night", "over by 4 GiB"):
            self.assertIn(word, plain)

    def test_a_terminal_without_unicode_gets_bars_of_letters(self):
        text = on_terminal(self.arguments("status"), 80, LC_ALL="C")
        self.assertTrue(text.isascii())
        self.assertIn("#", text)

    def test_a_terminal_lists_as_many_guests_as_one_looks_through(self):
        crowd = status()
        crowd["domains"] = [domain(f"web-{i:03}", i, cpu=1) for i in range(100)]
        self.daemon.documents[STATUS] = crowd
        text = on_terminal(self.arguments("status", "--color=never"), 80)
        self.assertIn("web-019", text)
        self.assertNotIn("web-020", text)
        self.assertIn("and 80 more: virtguardctl domains\n", text)
        self.assertIn("web-099", self.piped("status"))
        self.assertIn("web-099", on_terminal(self.arguments("domains"), 80))

    def test_who_waits_is_told_so_on_a_terminal_and_sees_nothing_of_it_afterwards(self):
        self.daemon.delay = 1.5
        text = on_terminal(self.arguments("status", "--color=never"), 80)
        waiting = "\r\x1b[Kvirtguardctl: waiting for virtguardd (1 s)\r\x1b[K"
        self.assertTrue(text.startswith(waiting), text)
        self.assertEqual(text.count("\x1b"), 2)
        done = subprocess.run([CTL, *self.arguments("status")], capture_output=True, text=True, check=True)
        self.assertEqual(done.stderr, "")

    def test_no_guests_are_none_on_a_terminal_and_no_line_elsewhere(self):
        self.daemon.documents[STATUS] = {**status(), "domains": []}
        self.assertEqual(on_terminal(self.arguments("domains"), 80), "no guests\n")
        self.assertEqual(self.piped("domains"), "")
        self.assertIn("domains: none\n", self.piped("status"))

    def test_no_reservations_are_none_on_a_terminal_and_no_line_elsewhere(self):
        self.daemon.documents[STATUS] = {**status(), "reservations": []}
        self.assertEqual(on_terminal(self.arguments("reservation"), 80), "no reservations\n")
        self.assertEqual(self.piped("reservation"), "")

    def test_on_a_narrow_terminal_nothing_of_a_reservation_is_left_out_and_no_word_is_broken(self):
        for columns in (80, 100, 140):
            text = on_terminal(self.arguments("reservation", "--color=never"), columns)
            self.assertLessEqual(max(map(len, text.splitlines())), columns)
            for word in ("cortex-staging", "spot-a", "memory@0", "hugepages-2Mi", "nothing", "(past)", "/domain/title"):
                self.assertIn(word, text)

    def test_a_long_name_leaves_room_for_the_reasons(self):
        starts = history()
        starts["starts"][0]["domain"] = "instance-" + "0123456789abcdef" * 6
        self.daemon.documents[RECENT] = starts
        lines = on_terminal(self.arguments("recent", "--color=never"), 80).splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertGreaterEqual(80 - lines[0].index("REASONS"), 20)

    def test_names_are_shown_as_they_are_written_and_take_the_room_they_take(self):
        self.daemon.documents[STATUS] = {**status(), "domains": [
            domain("büro", 1, cpu=1), domain("日本", 2, cpu=2), domain("a\u202eb\udc80".encode(errors="surrogatepass").decode(errors="replace"), 3, cpu=3)]}
        lines = on_terminal(self.arguments("domains", "--color=never"), 80).splitlines()
        self.assertEqual(lines[1].split(), ["a\\xe2\\x80\\xaeb\ufffd\ufffd\ufffd", "running", "default-scheduler", "3"])
        self.assertEqual(lines[2].index("running"), lines[0].index("STATE"))
        self.assertEqual(lines[3].index("running"), lines[0].index("STATE") - 2)  # each of its letters is two columns wide
        self.assertIn("日本", self.piped("domains"))

    def test_json_is_for_what_is_shown(self):
        for words in (("mode", "--json", "enforce"), ("overcommit", "--json", "set", "cpu", "2"),
                      ("overcommit", "--json", "reset"), ("reservation", "--json", "cancel", "a", "b")):
            done = subprocess.run([CTL, "--socket", self.socket, *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
            self.assertEqual(done.stderr, "virtguardctl: --json is for what is shown; nothing was changed\n")

    def test_a_name_too_long_for_the_terminal_is_broken_and_not_cut(self):
        crowd = {**status(), "domains": [domain("a" * 100, 1, cpu=1)]}
        self.daemon.documents[STATUS] = crowd
        text = on_terminal(self.arguments("domains", "--color=never"), 80)
        self.assertEqual(text.count("a"), 100, text)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: virtguardd's socket is root's, and this is not root")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
