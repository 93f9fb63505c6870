#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The real virtguard-hook, run as libvirt runs it, against a daemon that follows a script.

    tests/hook/hook_test.py HOOK [unittest's options]

The hook's paths are fixed when it is compiled: it runs as root inside libvirtd, where a way to point
it elsewhere would be a way past the guard. So the tests do not move the paths but the world: they run
in a mount namespace with a /run, /var/lib and /dev of their own. Exit status 77 where that cannot be.
"""
import contextlib
import ctypes
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SKIPPED = 77
HOOK = ""
SOCKET = pathlib.Path("/run/virtguard/hook.sock")
CONF = pathlib.Path("/var/lib/virtguard/hook.conf")
LOG = pathlib.Path("/dev/log")

NAME = "web 3"
XML = b"<domain type='kvm'>\n  <name>web 3</name>\n  <uuid>6f1c1ed5-40e5-4bb5-8f4e-5f0a3c0e9b11</uuid>\n</domain>\n"
REQUEST = struct.Struct("<4sHHQIII")
OPERATIONS = {1: "prepare", 2: "started", 3: "release", 4: "reconnect"}
ADMITTED, REFUSED, DONE, ERROR = 1, 2, 3, 4
MIB = 1 << 20

PREPARE = ("prepare", "begin", "-")
TOLD = (("started", "begin", "-"), ("release", "end", "-"), ("release", "end", "from snapshot"), ("reconnect", "begin", "-"))
NOTHING = (
    ("start", "begin", "-"), ("stopped", "end", "-"), ("migrate", "begin", "-"), ("restore", "begin", "-"),
    ("attach", "begin", "-"), ("prepare", "end", "-"), ("started", "end", "-"), ("release", "begin", "-"),
    ("reconnect", "end", "-"), ("teleport", "begin", "-"), ("PREPARE", "begin", "-"), ("prepare begin", "-", "-"),
    ("", "", ""), ("prepare\n", "begin", "-"), ("--help",), ("prepare",), (),
)
DENY = "timeout-ms=2000\nunavailable=deny\n"
SHORT = "timeout-ms=200\nunavailable={}\n"


def reply(verdict, body=b"", *, magic=b"VGRP", version=1, length=None):
    return struct.pack("<4sHHI", magic, version, verdict, len(body) if length is None else length) + body


class Daemon:
    """Listens, takes one request after the other, and plays the script for each."""

    def __init__(self, script, backlog=8, accepts=True):
        self.requests = []
        self.script = script
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(SOCKET))
        self.listener.listen(backlog)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.serve)
        if accepts:
            self.thread.start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            with connection, contextlib.suppress(ConnectionError):
                request = self.read(connection)
                if request is None and self.done.is_set():
                    return  # close()'s own, behind all that came before
                self.requests.append(request)
                self.script(self, connection)

    @staticmethod
    def read(connection):
        head = connection.recv(REQUEST.size, socket.MSG_WAITALL)
        if len(head) < REQUEST.size:
            return None
        magic, version, operation, exec_time, wait_ms, flags, length = REQUEST.unpack(head)
        assert (magic, version) == (b"VGRQ", 1), head
        body = connection.recv(length, socket.MSG_WAITALL) if length else b""
        return {"operation": OPERATIONS[operation], "exec_time": exec_time, "wait_ms": wait_ms, "flags": flags, "body": body}

    def close(self):
        self.done.set()
        if self.thread.ident:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(SOCKET))
            self.thread.join()
        self.listener.close()
        SOCKET.unlink()


def answers(*pieces):
    def script(_, connection):
        for piece in pieces:
            connection.sendall(piece)
    return script


def is_silent(daemon, connection):
    """Holds the connection open until the hook has gone."""
    connection.recv(1)


def answers_then_is_silent(piece):
    def script(daemon, connection):
        connection.sendall(piece)
        is_silent(daemon, connection)
    return script


def drips(daemon, connection):
    """A byte of a good answer now and then: each in time, all of them not."""
    for byte in reply(ADMITTED, b"x" * 100):
        connection.sendall(bytes([byte]))
        if daemon.done.wait(0.02):
            return


class Result:
    def __init__(self, process, output, error, seconds):
        self.status = process.returncode
        self.output = output
        self.error = error
        self.seconds = seconds


class HookCase(unittest.TestCase):
    def setUp(self):
        for path in (CONF, LOG):
            path.unlink(missing_ok=True)
        self.log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.log.bind(str(LOG))
        self.log.setblocking(False)
        self.addCleanup(self.log.close)

    def daemon(self, script, **options):
        daemon = Daemon(script, **options)
        self.addCleanup(daemon.close)
        return daemon

    def hook(self, arguments, stdin=XML, name=NAME, closed=(), environment=None):
        """Runs the hook; stdin is what is written there, or a file object. Checks what always holds."""
        argv = [HOOK, name, *arguments] if arguments else [HOOK]
        pipe = isinstance(stdin, bytes)
        begin = time.monotonic()
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE if pipe else stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
            env=environment or {}, preexec_fn=lambda: [os.close(fd) for fd in closed])
        # communicate() ends when stdout and stderr are closed: as libvirt, it would wait for a child that holds them.
        output, error = process.communicate(stdin if pipe else None, timeout=60)
        result = Result(process, output, error, time.monotonic() - begin)
        self.assertEqual(result.output, b"", "stdout must stay empty")
        with self.assertRaises(ChildProcessError, msg="a process was left behind"):
            os.waitpid(-1, os.WNOHANG)
        self.assertIn(result.status, (0, 1))
        if arguments[:2] != PREPARE[:2]:
            self.assertEqual((result.status, result.error), (0, b""))
        return result

    def journal(self):
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                lines.append(self.log.recv(4096).decode())
        return lines

    def assert_unavailable(self, why, **options):
        """Without an answer, hook.unavailable decides, and says why."""
        CONF.unlink(missing_ok=True)
        conf = options.pop("conf", "timeout-ms=2000\nunavailable={}\n")
        shown = options.pop("shown", NAME)
        results = []
        for decides, status in (("allow", 0), ("deny", 1)):
            with self.subTest(unavailable=decides):
                CONF.write_text(conf.format(decides))
                result = self.hook(PREPARE, **options)
                end = f'{shown}: virtguardd did not answer ({why}) and hook.unavailable is "{decides}"'
                allowed = [f"<27>virtguard-hook: virtguard: let start unchecked {end}"]
                self.assertEqual(result.status, status)
                self.assertEqual(result.error.decode(), f"virtguard: refused {end}" if status else "")
                self.assertEqual(self.journal(), [] if status else allowed)
                results.append(result)
        return results


class Asking(HookCase):
    def test_admitted(self):
        daemon = self.daemon(answers(reply(ADMITTED)))
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        result = self.hook(PREPARE)
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self.assertEqual((result.status, result.error, self.journal()), (0, b"", []))
        request, = daemon.requests
        self.assertTrue(before < request.pop("exec_time") < after)
        self.assertEqual(request, {"operation": "prepare", "wait_ms": 2000, "flags": 0, "body": XML})

    def test_the_configured_time_is_what_the_daemon_is_told(self):
        daemon = self.daemon(answers(reply(ADMITTED)))
        CONF.write_text("timeout-ms=12345\nunavailable=deny\n")
        self.assertEqual(self.hook(PREPARE).status, 0)
        self.assertEqual(daemon.requests[0]["wait_ms"], 12345)

    def test_refused_with_one_line_and_no_newline(self):
        line = b"virtguard: refused web 3: memory on node 1: needs 8 GiB, 3 GiB free of 64 GiB"
        self.daemon(answers(reply(REFUSED, line)))
        result = self.hook(PREPARE)
        self.assertEqual((result.status, result.error, self.journal()), (1, line, []))

    def test_refused_with_text_that_could_hurt(self):
        for text, shown in ((b"a\nb\x1b[2Jc\x00d\x7f\n", rb"a\x0ab\x1b[2Jc\x00d\x7f\x0a"), (b"x" * 2000, b"x" * 2000),
                            (b"\n" * 2000, rb"\x0a" * 500), ("zu groß".encode(), "zu groß".encode()),
                            (b"\xff\xc2\x85", rb"\xff\xc2\x85"), (b"", b"virtguard: refused web 3")):
            with self.subTest(text=text[:20]):
                daemon = Daemon(answers(reply(REFUSED, text)))
                result = self.hook(PREPARE)
                daemon.close()
                self.assertEqual((result.status, result.error), (1, shown))

    def test_refused_in_pieces(self):
        whole = reply(REFUSED, b"no")
        self.daemon(answers(*[whole[i:i + 1] for i in range(len(whole))]))
        result = self.hook(PREPARE)
        self.assertEqual((result.status, result.error), (1, b"no"))

    def test_large_xml_arrives_whole(self):
        daemon = self.daemon(answers(reply(ADMITTED)))
        CONF.write_text("timeout-ms=60000\nunavailable=deny\n")
        for size in (200_000, 4 * MIB):
            self.assertEqual(self.hook(PREPARE, stdin=b"x" * size).status, 0)
            self.assertEqual(len(daemon.requests.pop()["body"]), size)

    def test_more_arguments_or_fewer(self):
        for arguments in (("prepare", "begin"), ("prepare", "begin", "-", "more", "yet more"), ("prepare", "begin", "a b\nc")):
            with self.subTest(arguments=arguments):
                daemon = Daemon(answers(reply(REFUSED, b"no")))
                result = self.hook(arguments)
                daemon.close()
                self.assertEqual((result.status, result.error), (1, b"no"))


class Unanswered(HookCase):
    def test_no_daemon(self):
        self.assert_unavailable("nobody listens on its socket")

    def test_a_socket_that_nobody_listens_on(self):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(SOCKET))
        self.addCleanup(SOCKET.unlink)
        self.assert_unavailable("nobody listens on its socket")

    def test_answers_that_are_none(self):
        for name, script, why in (
                ("closes", answers(), "the connection was closed too early"),
                ("dies in the header", answers(reply(ADMITTED)[:5]), "the connection was closed too early"),
                ("dies in the line", answers(reply(REFUSED, b"virtguard: ref", length=50)), "the connection was closed too early"),
                ("another protocol", answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "what came is not of this protocol"),
                ("zeros", answers(bytes(4096)), "what came is not of this protocol"),
                ("another version", answers(reply(ADMITTED, version=2)), "the other end speaks another version of the protocol"),
                ("no such verdict", answers(reply(9)), "a header without meaning came"),
                ("a verdict of check", answers(reply(DONE, b"{}")), "a header without meaning came"),
                ("a line too long", answers(reply(REFUSED, b"x" * 2001)), "more was announced than is allowed"),
                ("4 GiB announced", answers(reply(REFUSED, length=0xffffffff)), "more was announced than is allowed"),
                ("surplus", answers(reply(REFUSED, b"no") + b"!"), "more came than was announced"),
                ("surplus without end", answers(reply(ADMITTED) + bytes(MIB)), "more came than was announced"),
                ("an error", answers(reply(ERROR, b"the domain\nis not understood")), r"the domain\x0ais not understood")):
            with self.subTest(name=name):
                daemon = Daemon(script)
                try:
                    self.assert_unavailable(why)
                finally:
                    daemon.close()

    def test_a_daemon_that_ends_before_it_answers_leaves_the_question_to_the_next_one(self):
        for name, first in (("at once", answers()), ("in the midst", answers(reply(REFUSED, b"no")[:9]))):
            with self.subTest(name=name):
                def script(own, connection, first=first):
                    (first if len(own.requests) == 1 else answers(reply(REFUSED, b"full")))(own, connection)

                daemon = Daemon(script)
                try:
                    result = self.hook(PREPARE)
                finally:
                    daemon.close()
                self.assertEqual((result.status, result.error), (1, b"full"))
                self.assertEqual(daemon.requests, [daemon.requests[0]] * 2)

    def test_a_question_that_a_daemon_always_dies_of_is_asked_twice(self):
        daemon = self.daemon(answers())
        results = self.assert_unavailable("the connection was closed too early")
        self.assertEqual(len(daemon.requests), 2 * len(results))

    def test_answers_that_do_not_come_in_time(self):
        for name, script in (("silent", is_silent), ("half a header", answers_then_is_silent(reply(ADMITTED)[:6])),
                             ("half a line", answers_then_is_silent(reply(REFUSED, b"no", length=9))), ("drips", drips)):
            with self.subTest(name=name):
                daemon = Daemon(script)
                try:
                    for result in self.assert_unavailable("the time was up", conf=SHORT):
                        self.assertGreaterEqual(result.seconds, 0.2)
                        self.assertLess(result.seconds, 1.8)
                finally:
                    daemon.close()

    def test_a_daemon_that_never_accepts(self):
        self.daemon(is_silent, backlog=0, accepts=False)
        for stdin in (XML, b"x" * 4 * MIB):  # waits for the answer; for room in the socket
            for result in self.assert_unavailable("the time was up", conf=SHORT, stdin=stdin):
                self.assertLess(result.seconds, 1.8)

    def test_the_default_time_is_two_seconds(self):
        self.daemon(is_silent)
        result = self.hook(PREPARE)
        self.assertEqual(result.status, 0)
        self.assertGreaterEqual(result.seconds, 2)
        self.assertLess(result.seconds, 6)

    def test_a_conf_that_is_none_allows(self):
        for text in ("", "unavailable=deny\n", "timeout-ms=2s\nunavailable=deny\n", "x" * MIB, DENY + "\n", "\0" * 40):
            with self.subTest(text=text[:40]):
                CONF.write_text(text)
                self.assertEqual(self.hook(PREPARE).status, 0)
                self.assertEqual(len(self.journal()), 1)

    def test_a_name_that_could_hurt(self):
        for name, shown in (("a b\nc", r"a b\x0ac"), ("-", "-"), ("", ""), ("n" * 100_000, "n" * 120 + "...")):
            with self.subTest(name=name[:20]):
                self.assert_unavailable("nobody listens on its socket", name=name, shown=shown)

    def test_a_journal_that_cannot_be_written(self):
        with self.subTest("full"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, contextlib.suppress(BlockingIOError):
                other.setblocking(False)
                while True:
                    other.sendto(b"full", str(LOG))
            result = self.hook(PREPARE)
            self.assertEqual((result.status, result.error), (0, b""))
            self.assertLess(result.seconds, 1.8)
        with self.subTest("absent"):
            LOG.unlink()
            self.assertEqual(self.hook(PREPARE).status, 0)


class Stdin(HookCase):
    def setUp(self):
        super().setUp()
        self.seen = self.daemon(answers(reply(REFUSED, b"asked"))).requests

    def tearDown(self):
        self.assertEqual(self.seen, [], "the daemon was asked")

    def endless(self):
        """A pipe that nobody closes."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, writer)
        self.addCleanup(os.close, reader)
        return reader, writer

    def test_empty(self):
        self.assert_unavailable("there is no domain XML on stdin", stdin=b"")

    def test_five_mebibytes(self):
        self.assert_unavailable("the domain XML is larger than 4 MiB", stdin=b"x" * 5 * MIB)
        self.assert_unavailable("the domain XML is larger than 4 MiB", stdin=b"x" * (4 * MIB + 1))

    def test_without_end(self):
        with open("/dev/zero", "rb") as zero:
            self.assert_unavailable("the domain XML is larger than 4 MiB", stdin=zero)

    def test_that_never_comes(self):
        reader, writer = self.endless()
        os.write(writer, b"<domain>")
        for result in self.assert_unavailable("the domain XML on stdin did not end in time", conf=SHORT, stdin=reader):
            self.assertGreaterEqual(result.seconds, 0.2)
            self.assertLess(result.seconds, 1.8)

    def test_that_drips(self):
        reader, writer = self.endless()
        done = threading.Event()

        def drip():
            while not done.wait(0.01):
                os.write(writer, b" ")
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            for result in self.assert_unavailable("the domain XML on stdin did not end in time", conf=SHORT, stdin=reader):
                self.assertLess(result.seconds, 1.8)
        finally:
            done.set()
            thread.join()

    def test_closed_or_unreadable(self):
        self.assert_unavailable("the domain XML on stdin cannot be read", closed=(0,))
        folder = os.open("/", os.O_RDONLY)
        self.addCleanup(os.close, folder)
        self.assert_unavailable("the domain XML on stdin cannot be read", stdin=folder)

    def test_of_what_is_told(self):
        for arguments in TOLD:
            reader, _ = self.endless()
            for stdin, closed in ((b"", ()), (XML, (0,)), (reader, ())):
                with self.subTest(arguments=arguments, stdin=stdin, closed=closed):
                    self.assertLess(self.hook(arguments, stdin=stdin, closed=closed).seconds, 1.8)


class Telling(HookCase):
    def test_told_and_not_waited_for(self):
        for arguments in TOLD:
            for name, script in (("reads", answers()), ("silent", is_silent), ("answers", answers(reply(DONE))),
                                 ("refuses", answers(reply(REFUSED, b"no"))), ("nonsense", answers(b"x" * MIB))):
                with self.subTest(arguments=arguments, name=name):
                    daemon = Daemon(script)
                    result = self.hook(arguments)
                    daemon.close()
                    self.assertLess(result.seconds, 1.8)
                    if not daemon.requests and result.seconds >= 0.1:
                        continue  # a machine this busy: given up, as it must be
                    request, = daemon.requests
                    request.pop("exec_time")
                    self.assertEqual(request, {"operation": arguments[0], "wait_ms": 100, "flags": 0, "body": XML})

    def test_exit_status_is_zero_whatever_is_configured(self):
        CONF.write_text(DENY)
        for arguments in TOLD:
            self.hook(arguments)
        self.assertEqual(self.journal(), [])

    def test_a_daemon_that_reads_later_gets_the_beginning_of_a_large_one(self):
        daemon = self.daemon(answers(), accepts=False)
        xml = XML + b"x" * 300_000
        result = self.hook(("release", "end", "-"), stdin=xml)
        self.assertLess(result.seconds, 1.8)
        if result.seconds >= 0.1:
            self.skipTest("this machine is too busy: the hook may have given up")
        connection, _ = daemon.listener.accept()
        with connection:
            request = daemon.read(connection)
        self.assertEqual((request["flags"], request["body"]), (1, xml[:65536]))

    def test_a_full_backlog_is_not_waited_out(self):
        self.daemon(answers(), backlog=0, accepts=False)
        for _ in range(3):
            self.assertLess(self.hook(("reconnect", "begin", "-")).seconds, 1.8)


class Nothing(HookCase):
    def test_all_else_is_nothing_before_any_input_or_output(self):
        daemon = self.daemon(answers(reply(REFUSED, b"asked")))
        CONF.write_text(DENY)
        for arguments in NOTHING:
            with self.subTest(arguments=arguments):
                reader, writer = os.pipe()
                os.write(writer, XML)
                result = self.hook(arguments, stdin=reader)
                self.assertEqual((result.status, result.error), (0, b""))
                self.assertEqual(os.read(reader, 4096), XML, "stdin was read")
                os.close(reader)
                os.close(writer)
        self.assertEqual((daemon.requests, self.journal()), ([], []))


class Surroundings(HookCase):
    def test_closed_descriptors(self):
        for closed in ((1,), (2,), (1, 2)):
            with self.subTest(closed=closed):
                daemon = Daemon(answers(reply(REFUSED, b"no")))
                result = self.hook(PREPARE, closed=closed)
                daemon.close()
                self.assertEqual((result.status, result.error), (1, b"" if 2 in closed else b"no"))
                self.assertEqual(daemon.requests[0]["body"], XML)
        CONF.write_text(DENY)
        self.assertEqual(self.hook(PREPARE, closed=(0, 1, 2)).status, 1)

    def test_an_environment_that_could_mislead(self):
        self.daemon(answers(reply(REFUSED, b"no")))
        result = self.hook(PREPARE, environment={"HOME": "/nowhere", "LC_ALL": "xx_XX", "TMPDIR": "/nowhere", "MALLOC_CHECK_": "3"})
        self.assertEqual((result.status, result.error), (1, b"no"))

    def test_stderr_that_nobody_empties(self):
        self.daemon(answers(reply(REFUSED, b"no")))
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
        process = subprocess.run([HOOK, NAME, *PREPARE], input=XML, stderr=writer, timeout=60, check=False)
        os.close(reader)
        os.close(writer)
        self.assertEqual(process.returncode, 1)

    def test_many_at_once(self):
        self.daemon(answers(reply(REFUSED, b"no")), backlog=1)
        CONF.write_text("timeout-ms=60000\nunavailable=allow\n")
        processes = [subprocess.Popen([HOOK, NAME, *PREPARE], stdin=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(64)]
        for process in processes:
            _, error = process.communicate(XML, timeout=60)
            self.assertEqual((process.returncode, error), (1, b"no"))

    def test_it_is_static(self):
        text = pathlib.Path(HOOK).read_bytes()
        if b"libasan" in text or b"libtsan" in text or b"libubsan" in text:
            self.skipTest("a sanitizer is linked dynamically")
        self.assertNotIn(b"/ld-linux", text)


def build_world():
    """In a mount namespace of our own: empty /run and /var/lib, and a /dev with little in it."""
    with tempfile.TemporaryDirectory() as folder:
        mount("-t", "tmpfs", "tmpfs", folder)
        for device in ("null", "zero", "urandom"):
            pathlib.Path(folder, device).touch()
            mount("--bind", f"/dev/{device}", f"{folder}/{device}")
        mount("--move", folder, "/dev")
    for folder in (SOCKET.parent, CONF.parent):
        mount("-t", "tmpfs", "tmpfs", str(folder.parent))
        folder.mkdir(mode=0o700)


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def main():
    global HOOK
    HOOK = os.path.abspath(sys.argv[1])
    if "VIRTGUARD_HOOK_TEST_INSIDE" not in os.environ:
        unshare = ["unshare", "--mount", "--propagation", "private"]
        if os.geteuid() != 0 or subprocess.run([*unshare, "true"], check=False).returncode != 0:
            print("SKIPPED: virtguard-hook is not tested: this takes root, for a mount namespace")
            sys.exit(SKIPPED)
        os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], {**os.environ, "VIRTGUARD_HOOK_TEST_INSIDE": "1"})
    build_world()
    # A process that the hook left behind becomes our child, so that it shows.
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])


if __name__ == "__main__":
    main()
