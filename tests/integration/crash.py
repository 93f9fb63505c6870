#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""virtguardd, libvirtd and QEMU are killed at each step of a start, and hooks orphaned: afterwards the
ledger is what libvirt runs, and at no time ran more than fits. No start is let in unchecked ("deny")."""
import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import unittest

import lab
import peer

ROOM_MIB = 80  # 'other' runs, another one fits, and half a place is left
OTHER, GUEST, RIVAL = "other-32", "guest-32", "rival-32"
NO_ROOM = f"virtguard: refused {RIVAL}: memory: needs 32 MiB, 16 MiB free of {ROOM_MIB} MiB"
GUEST_UUID = "c4a5c4a5-0000-4000-8000-000000000001"
KEPT = pathlib.Path("/run/virtguard/guests") / GUEST_UUID  # what the next virtguardd will know of it
WAITS, GO = pathlib.Path("/run/hook-waits"), pathlib.Path("/run/hook-go")

POLICY = """
[hook]
unavailable = "deny"
timeout = "20s"
[claim]
lease = "1s"
return = "100ms"
"""

host = watch = forced_end = None


def setUpModule():
    global host, watch, forced_end
    host = unittest.enterModuleContext(lab.Lab())
    other = unittest.enterModuleContext(peer.Peer())
    for each in (host, other):
        each.reload_policy(each.policy_with_room(ROOM_MIB, more=POLICY))
        for name, uuid in ((OTHER, None), (GUEST, GUEST_UUID), (RIVAL, None)):
            each.define(lab.domain_xml(name, memory_mib=32, uuid=uuid))
    watch = unittest.enterModuleContext(lab.Watch(host))
    background = unittest.enterModuleContext(concurrent.futures.ThreadPoolExecutor(1))
    forced_end = background.submit(force_to_end, other)


def at(operation, command):
    """A hook script that runs a command when GUEST comes to an operation."""
    return f'[ "$1/$2" = {GUEST}/{operation} ] || exit 0\n{command}\n'


class CrashCase(unittest.TestCase):
    def setUp(self):
        if OTHER not in host.running():
            self.assertEqual(host.virsh("start", OTHER, "--paused").status, 0)
        host.settle()

    def tearDown(self):
        self.clean()

    @contextlib.contextmanager
    def step(self, when, **more):
        """One of the cases of a test, which begins and ends as a test does."""
        with self.subTest(when, **more):
            try:
                yield
            finally:
                self.clean()

    def clean(self):
        for path in (*lab.HOOKS.glob("*-test"), WAITS, GO):
            path.unlink(missing_ok=True)
        for name in (GUEST, RIVAL):
            host.virsh("destroy", name)
        lab.wait_until(lambda: host.running() <= {OTHER}, "the guests have ended")
        host.settle()
        self.assertLessEqual(watch.most_mib, ROOM_MIB, f"more ran than fits: {watch.when}")

    def start(self, name=GUEST):
        return host.virsh("start", name, "--paused")

    def assert_no_trace(self):
        """The guest does not run, and its place can be had."""
        host.settle()
        self.assertEqual(host.running(), {OTHER})
        result = self.start(RIVAL)
        self.assertEqual(result.status, 0, result)

    def assert_counted(self):
        """The guest runs, and nobody else gets its place."""
        self.assertIn(GUEST, host.ledger())
        result = self.start(RIVAL)
        self.assertEqual(result.status, 1, result)
        self.assertIn(NO_ROOM, result.err)
        host.settle()
        self.assertEqual(host.running(), {OTHER, GUEST})


def kill_in_hook(order, operation):
    """A script before ours (40) or after it (60) kills virtguardd."""
    def arm():
        host.write_hook(f"{order}-test", at(operation, f"kill -9 {host.daemon_pid}"))
    return arm


def kill_in_function(function):
    """gdb kills virtguardd when it enters a function."""
    def arm():
        ready = pathlib.Path("/run/gdb-ready")
        ready.unlink(missing_ok=True)
        script = pathlib.Path("/run/kill.gdb")
        script.write_text(f"set debuginfod enabled off\nbreak {function}\nshell touch {ready}\ncontinue\nkill\n")
        with open("/var/log/gdb.log", "wb") as log:  # -readnever: symbols are enough
            gdb = subprocess.Popen(["gdb", "-batch", "-nx", "-readnever", "-p", str(host.daemon_pid), "-x", script],
                                   stdout=log, stderr=log, env=lab.ENVIRONMENT)
        lab.wait_until(ready.exists, f"gdb waits for {function}", 60)
        return gdb
    return arm


# Steps of a start: when virtguardd is killed, whether it has kept the guest by then, and whether libvirt is let
# start it when virtguardd is back only afterwards, and when it is back for the next message.
STARTS = [
    ("before it is asked", kill_in_hook(40, "prepare"), False, False, True),
    ("when it has decided", kill_in_function("virtguard::daemon::StartAnswerer::keep_and_answer"), False, False, False),
    ("while it writes the claim", kill_in_function("-qualified rename"), False, False, False),
    ("when the claim is written", kill_in_function("virtguard::daemon::StartAnswerer::note"), True, False, False),
    ("when it has answered", kill_in_hook(60, "prepare"), True, True, True),
    ("before it is told 'started'", kill_in_hook(40, "started"), True, True, True),
    ("when it is told 'started'", kill_in_function("virtguard::daemon::Service::told"), True, True, True),
    ("when it was told 'started'", kill_in_hook(60, "started"), True, True, True),
]
STOPS = [
    ("before it is told 'release'", kill_in_hook(40, "release")),
    ("when it is told 'release'", kill_in_function("virtguard::daemon::Service::told")),
    ("when it was told 'release'", kill_in_hook(60, "release")),
]


class VirtguarddIsKilled(CrashCase):
    def while_killed(self, arm, action, at_once):
        """The result of an action in which virtguardd is killed; it comes back at once or only afterwards."""
        if at_once:  # what comes next in libvirt waits for it
            host.write_hook("45-test", f"until {lab.CTL} status >/dev/null 2>&1; do sleep 0.02; done\n")
        killer = arm()
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            acting = thread.submit(action)
            self.assertEqual(host.wait_for_daemon_end(), -signal.SIGKILL)
            if killer:
                killer.wait(timeout=60)
            kept = KEPT.exists()
            if not at_once:
                acting.result()
            host.start_daemon()
            return acting.result(), kept

    def check_start(self, arm, at_once, kept, admitted):
        result, was_kept = self.while_killed(arm, self.start, at_once)
        self.assertEqual(was_kept, kept)
        self.assertEqual(result.status, 0 if admitted else 1, result)
        if admitted:
            self.assert_counted()
        else:
            self.assertIn(f"virtguard: refused {GUEST}: virtguardd did not answer", result.err)
            self.assert_no_trace()

    def test_in_a_start(self):
        for when, arm, kept, *admitted in STARTS:
            for at_once in (False, True):
                with self.step(when, back_at_once=at_once):
                    self.check_start(arm, at_once, kept, admitted[at_once])

    def test_in_a_stop(self):
        for when, arm in STOPS:
            with self.step(when):
                self.assertEqual(self.start().status, 0)
                host.settle()
                result, _ = self.while_killed(arm, lambda: host.virsh("destroy", GUEST), at_once=False)
                self.assertEqual(result.status, 0, result)
                self.assert_no_trace()


class LibvirtdIsKilled(CrashCase):
    def test_in_a_start(self):
        for operation in ("prepare", "start", "started"):
            with self.step(operation):
                host.write_hook("60-test", at(operation, f"kill -9 {host.libvirtd_pid}"))
                self.assertEqual(self.start().status, 1)
                self.assertEqual(host.wait_for_libvirtd_end(), -signal.SIGKILL)
                self.assertIn(GUEST, host.ledger())
                host.start_libvirtd()
                if operation == "started":
                    self.assert_counted()
                else:
                    self.assert_no_trace()

    def test_in_a_start_whose_qemu_is_there_and_not_yet_ready(self):
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            started = thread.submit(self.start)
            lab.wait_until(lambda: GUEST in host.qemus(), "its QEMU is there")
            qemu = host.qemu_pid(GUEST)
            os.kill(qemu, signal.SIGSTOP)
            host.stop_libvirtd(signal.SIGKILL)
            os.kill(qemu, signal.SIGCONT)
            self.assertEqual(started.result().status, 1)
        host.start_libvirtd()
        if self.is_killed_by_libvirt():
            self.assert_no_trace()
        else:
            self.assert_counted()
            host.kill_all()

    @staticmethod
    def is_killed_by_libvirt(seconds=10):
        """libvirt may instead go on with it, depending on how far the start was: see kill_all()."""
        with contextlib.suppress(TimeoutError):
            return lab.wait_until(lambda: host.running() == {OTHER}, "libvirt has killed it", seconds)
        return False

    def test_with_guests_of_which_one_ends_meanwhile(self):
        self.assertEqual(self.start().status, 0)
        host.settle()
        host.stop_libvirtd(signal.SIGKILL)
        os.kill(host.qemu_pid(GUEST), signal.SIGKILL)
        self.assertEqual(host.ledger(), {OTHER: "running", GUEST: "running"})
        host.start_libvirtd()
        self.assert_no_trace()

    def test_while_our_hook_waits_which_then_claims_a_place_for_nobody(self):
        os.kill(host.daemon_pid, signal.SIGSTOP)
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                started = thread.submit(self.start)
                # It has read the XML, all of it, before it connects.
                lab.wait_until(lambda: any(map(lab.has_socket, lab.processes_called("50-virtguard"))), "the hook asks")
                host.stop_libvirtd(signal.SIGKILL)
                self.assertEqual(started.result().status, 1)
        finally:
            os.kill(host.daemon_pid, signal.SIGCONT)
        lab.wait_until(lambda: host.ledger().get(GUEST) == "pending", "the orphan has got its answer")
        host.start_libvirtd()
        self.assert_no_trace()


class LibvirtdEndsWhileAHookWaits(CrashCase):
    def start_and_end(self, until):
        """SIGTERM while another hook waits, for GO or for ever; returns when libvirtd has ended."""
        host.write_hook("60-test", at("prepare", f"touch {WAITS}; until [ -e {GO} ]; do sleep 0.05; done"))
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            started = thread.submit(self.start)
            lab.wait_until(WAITS.exists, "the hook waits")
            os.kill(host.libvirtd_pid, signal.SIGTERM)
            self.assertEqual(started.result().status, 1)
            until()
            host.wait_for_libvirtd_end()

    def test_and_the_hook_ends_in_time(self):
        self.start_and_end(GO.touch)
        host.start_libvirtd()
        self.assert_counted()


def force_to_end(other):
    """On the other host, since libvirtd waits half a minute for a hook that does not end: what it ended with,
    the ledger then and, when there is a libvirtd again, how two starts end."""
    waits = peer.FOLDER / "hook-waits"
    other.write_hook("60-test", at("prepare", f"touch {waits}; sleep 60"))
    with subprocess.Popen(["virsh", "--connect", peer.URI, "start", GUEST, "--paused"], env=lab.ENVIRONMENT,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        lab.wait_until(waits.exists, "the hook waits")
        os.kill(other.libvirtd_pid(), signal.SIGTERM)
        status = other.wait_for_libvirtd_end()
    ledger = other.ledger()
    other.start_libvirtd()
    other.settle()
    return status, ledger, [other.virsh("start", name, "--paused").status for name in (OTHER, RIVAL)]


class WhenLibvirtdIsForcedToEnd(unittest.TestCase):
    def test_while_a_hook_waits_that_never_ends(self):
        self.assertEqual(forced_end.result(), (1, {GUEST: "pending"}, [0, 0]))


class QemuIsKilled(CrashCase):
    def test_before_it_is_ready(self):
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            started = thread.submit(self.start)
            lab.wait_until(lambda: GUEST in host.qemus(), "its QEMU is there")
            os.kill(host.qemu_pid(GUEST), signal.SIGKILL)
            self.assertEqual(started.result().status, 1)
        self.assert_no_trace()

    def test_when_it_has_started(self):
        for order in (40, 60):
            with self.step(order):
                host.write_hook(f"{order}-test", at("started", f"kill -9 $(cat {lab.STATUS}/{GUEST}.pid)"))
                self.start()
                lab.wait_until(lambda: host.running() == {OTHER}, "libvirt has seen it end")
                self.assert_no_trace()

    def test_while_virtguardd_is_away(self):
        self.assertEqual(self.start().status, 0)
        host.stop_daemon(signal.SIGKILL)
        os.kill(host.qemu_pid(GUEST), signal.SIGKILL)
        lab.wait_until(lambda: host.running() == {OTHER}, "libvirt has seen it end")
        host.start_daemon()
        self.assert_no_trace()


if __name__ == "__main__":
    lab.main()
