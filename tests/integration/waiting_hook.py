#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""While another hook makes libvirt wait, and libvirt us, virtguard still answers: never through libvirt."""
import concurrent.futures
import os
import pathlib
import subprocess
import time
import unittest

import lab

ASKS, AT_ONCE = 100, 8
GUEST_MIB = 64
ADMITTED = 40
TRACER = pathlib.Path(__file__).with_name("libvirt_calls_gdb.py")
WAITS, DONE = pathlib.Path("/run/slow-waits"), pathlib.Path("/run/slow-done")

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())
    room = (ADMITTED + 2) * GUEST_MIB  # two real guests run besides
    # deny: an exit status of 0 is then an answer of the daemon, and nothing else
    host.reload_policy(host.policy_with_room(room, more='[hook]\nunavailable = "deny"'))
    host.write_hook("60-slow", f'[ "$1/$2" = slow/prepare ] || exit 0\ntouch {WAITS}; sleep 5; touch {DONE}\n')
    for name in ("slow", "quick"):
        host.define(lab.domain_xml(name, memory_mib=GUEST_MIB))


class Trace:
    """Which threads of a process call libvirt, as gdb sees it."""

    def __init__(self, *target):
        self.path = pathlib.Path("/run/libvirt-calls")
        self.path.unlink(missing_ok=True)
        self.gdb = subprocess.Popen(["gdb", "-batch", "-nx", "-x", TRACER, *target], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL, env={**lab.ENVIRONMENT, "LIBVIRT_CALLS": self.path})
        lab.wait_until(lambda: self.path.exists() and "ready\n" in self.path.read_text(), "gdb traces", 60)

    def calls(self):
        """Pairs of thread id and function."""
        lines = self.path.read_text().split("ready\n", 1)[1].splitlines()
        return [(int(thread), function) for thread, function in map(str.split, lines)]

    def stop(self):
        self.gdb.terminate()
        self.gdb.wait(timeout=30)


def wake_ups(pid):
    """How often a process' first thread was woken."""
    for line in pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise LookupError(f"no voluntary_ctxt_switches of {pid}")


def call_hook(name, xml, operation, sub_operation):
    """What libvirt does; the result and the seconds it took."""
    began = time.monotonic()
    result = lab.command(lab.HOOK, name, operation, sub_operation, "-", stdin=xml)
    return result, time.monotonic() - began


class WaitingHook(unittest.TestCase):
    def setUp(self):
        for path in (WAITS, DONE):
            path.unlink(missing_ok=True)
        lab.wait_until(lambda: host.ledger() == {}, "the ledger is empty")

    def tearDown(self):
        host.destroy_all()

    def ask_while_libvirt_waits(self):
        """A hundred starts are answered while the hook of 'slow' sleeps; the slowest answer in seconds."""
        guests = {f"ask-{number}": lab.domain_xml(f"ask-{number}", memory_mib=GUEST_MIB) for number in range(ASKS)}
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            slow = threads.submit(host.virsh, "start", "slow", "--paused")
            lab.wait_until(WAITS.exists, "the other hook sleeps")
            # Its events make virtguardd look at what runs, which libvirt does not answer now.
            result = host.virsh("start", "quick", "--paused")
            self.assertEqual(result.status, 0, result)
            woken = wake_ups(host.daemon_pid)
            answers = dict(zip(guests, threads.map(lambda guest: call_hook(*guest, "prepare", "begin"),
                                                   guests.items())))
            woken = wake_ups(host.daemon_pid) - woken
            self.assertFalse(DONE.exists(), "the answers came after the other hook had ended")
            self.assertGreater(woken, ASKS / AT_ONCE, "it was not the first thread that answered")
            self.assertEqual(slow.result().status, 0, slow.result())
        self.check_answers({name: result for name, (result, _) in answers.items()})
        for name, xml in guests.items():
            result, _ = call_hook(name, xml, "release", "end")
            self.assertEqual(result.status, 0, result)
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        return max(seconds for _, seconds in answers.values())

    def check_answers(self, results):
        refused = {name: result for name, result in results.items() if result.status != 0}
        self.assertEqual(len(refused), ASKS - ADMITTED)
        for name, result in refused.items():
            self.assertRegex(result.err, f"^virtguard: refused {name}: memory: needs {GUEST_MIB} MiB, 0 B free of")
        for result in results.values():
            self.assertEqual(result.out, "")

    def test_a_hundred_starts_are_answered_meanwhile(self):
        slowest = self.ask_while_libvirt_waits()
        print(f"the slowest of {ASKS} answers, {AT_ONCE} at once, took {slowest * 1000:.0f} ms")
        self.assertLess(slowest, 1)

    def test_the_thread_that_answers_never_calls_libvirt(self):
        trace = Trace("-p", str(host.daemon_pid))
        try:
            self.ask_while_libvirt_waits()
        finally:
            trace.stop()
        callers = {thread for thread, _ in trace.calls()}
        self.assertNotIn(host.daemon_pid, callers, trace.calls())
        self.assertEqual(len(callers), 1, "one thread, of its own, calls libvirt")
        self.assertIn("virConnectListAllDomains", {function for _, function in trace.calls()})
        os.kill(host.daemon_pid, 0)

    def test_the_trace_sees_a_first_thread_that_calls_libvirt(self):
        trace = Trace("--args", "virsh", "--connect", "test:///default", "list")
        trace.gdb.wait(timeout=60)
        threads = [thread for thread, function in trace.calls() if function == "virConnectListAllDomains"]
        opened = [thread for thread, function in trace.calls() if function == "virInitialize"]
        self.assertEqual(len(threads), 1)
        self.assertEqual(threads, opened)


if __name__ == "__main__":
    lab.main()
