#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""While another hook makes libvirt wait, and libvirt us, virtguard still answers: never through libvirt."""
import concurrent.futures
import os
import pathlib
import select
import signal
import subprocess
import time
import unittest

import lab

ASKS, AT_ONCE = 100, 8
GUEST_MIB = 64
ADMITTED = 40
TRACER = pathlib.Path(__file__).with_name("libvirt_calls_gdb.py")
SLOW_UUID = "5105105a-0000-4000-8000-000000000001"
WAITS, GO = pathlib.Path("/run/slow-waits"), pathlib.Path("/run/slow-go")

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())
    # Besides the admitted, for 'slow' and half a place: that of 'quick', too small for another guest.
    room = (ADMITTED + 1) * GUEST_MIB + GUEST_MIB // 2
    # deny: an exit status of 0 is then an answer of the daemon, and nothing else
    host.reload_policy(host.policy_with_room(room, more='[hook]\nunavailable = "deny"'))
    # Five seconds, or as long as this test needs on a busy machine.
    host.write_hook("60-slow", f"""[ "$1/$2" = slow/prepare ] || exit 0
touch {WAITS}; sleep 5
while [ ! -e {GO} ]; do sleep 0.1; done
""")
    host.define(lab.domain_xml("slow", memory_mib=GUEST_MIB, uuid=SLOW_UUID))
    host.define(lab.domain_xml("quick", memory_mib=GUEST_MIB // 2))


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
        self.gdb.kill()
        self.gdb.wait(timeout=30)


def wake_ups(pid):
    """How often a process' first thread was woken."""
    for line in pathlib.Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise LookupError(f"no voluntary_ctxt_switches of {pid}")


class Lookup:
    """Asks libvirtd for a domain, always on one connection: libvirtd closes a connection on its main thread, which
    waits for the list of domains where that is locked, and then sends no event to anybody."""

    def __init__(self):
        self.virsh = subprocess.Popen(["virsh", "--quiet", "--connect", "qemu:///system"], env=lab.ENVIRONMENT,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.asked = 0

    def waits(self, seconds=2):
        """Whether libvirtd now answers nobody who asks for a domain."""
        self.asked += 1
        self.virsh.stdin.write(f"domid quick; echo answer-{self.asked}\n".encode())
        self.virsh.stdin.flush()
        said, deadline = b"", time.monotonic() + seconds
        while f"\nanswer-{self.asked}\n".encode() not in said:
            if not select.select([self.virsh.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                return True
            said += os.read(self.virsh.stdout.fileno(), 4096) or self.fail()
        return False

    def fail(self):
        raise RuntimeError(f"virsh ended with {self.virsh.wait()}")

    def stop(self):
        self.virsh.communicate(timeout=60)


def call_hook(name, xml, operation, sub_operation):
    """What libvirt does; the result and the seconds it took."""
    began = time.monotonic()
    result = lab.command(lab.HOOK, name, operation, sub_operation, "-", stdin=xml)
    return result, time.monotonic() - began


class WaitingHook(unittest.TestCase):
    def setUp(self):
        for path in (WAITS, GO):
            path.unlink(missing_ok=True)
        lab.wait_until(lambda: host.ledger() == {}, "the ledger is empty")

    def tearDown(self):
        GO.touch()
        host.destroy_all()

    def ask_while_libvirt_waits(self, is_stuck=lambda: True):
        """A hundred starts are answered while the hook of 'slow' sleeps; the slowest answer in seconds."""
        guests = {f"ask-{number}": lab.domain_xml(f"ask-{number}", memory_mib=GUEST_MIB) for number in range(ASKS)}
        result = host.virsh("start", "quick", "--paused")
        self.assertEqual(result.status, 0, result)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
            slow = threads.submit(host.virsh, "start", "slow", "--paused")
            lookup = Lookup()
            try:
                stuck, woken, answers = self.ask_all(guests, threads, lookup, is_stuck)
            finally:
                GO.touch()
                lookup.stop()
            self.assertEqual(slow.result().status, 0, slow.result())
        for name, xml in guests.items():
            result, _ = call_hook(name, xml, "release", "end")
            self.assertEqual(result.status, 0, result)
        self.assertTrue(stuck, "virtguardd's question to libvirt was answered meanwhile")
        self.assertGreater(woken, ASKS / AT_ONCE, "it was not the first thread that answered")
        self.check_answers({name: result for name, (result, _) in answers.items()})
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        return max(seconds for _, seconds in answers.values())

    def ask_all(self, guests, threads, lookup, is_stuck):
        """Whether virtguardd's virt thread was held up, how often its first was woken, and the answers."""
        lab.wait_until(WAITS.exists, "the other hook sleeps")
        # Waits for 'slow' with libvirtd's list of domains locked: any look at any domain now waits too,
        # also the one that virtguardd takes when 'quick' ends.
        threads.submit(host.define, lab.domain_xml("slow", memory_mib=GUEST_MIB, uuid=SLOW_UUID))
        lab.wait_until(lookup.waits, "libvirtd does not look up domains")
        os.kill(host.qemu_pid("quick"), signal.SIGKILL)
        lab.wait_until(lambda: "quick" not in host.ledger(), "virtguardd was told that 'quick' has ended")
        lab.wait_until(is_stuck, "virtguardd waits for libvirt")
        woken = wake_ups(host.daemon_pid)
        answers = dict(zip(guests, threads.map(lambda guest: call_hook(*guest, "prepare", "begin"),
                                               guests.items())))
        return is_stuck(), wake_ups(host.daemon_pid) - woken, answers

    def check_answers(self, results):
        refused = {name: result for name, result in results.items() if result.status != 0}
        self.assertEqual(len(refused), ASKS - ADMITTED)
        for name, result in refused.items():
            self.assertRegex(result.err, f"^virtguard: refused {name}: memory: needs {GUEST_MIB} MiB, "
                             f"{GUEST_MIB // 2} MiB free of")
        for result in results.values():
            self.assertEqual(result.out, "")

    def test_a_hundred_starts_are_answered_meanwhile(self):
        slowest = self.ask_while_libvirt_waits()
        print(f"the slowest of {ASKS} answers, {AT_ONCE} at once, took {slowest * 1000:.0f} ms")
        self.assertLess(slowest, 1)

    def test_the_thread_that_answers_never_calls_libvirt(self):
        daemon = host.daemon_pid
        trace = Trace("-p", str(daemon))
        # All that virtguardd asks libvirtd about domains: one of them waits, and which one is chance.
        questions = ("virConnectListAllDomains", "virDomainLookupByUUID", "virDomainGetXMLDesc", "virDomainIsActive")
        try:
            self.ask_while_libvirt_waits(is_stuck=lambda: trace.calls()[-1][1] in questions)
        finally:
            trace.stop()  # the daemon dies of breakpoints that nobody handles any more
            host.stop_daemon(signal.SIGKILL)
            host.start_daemon()
        callers = {thread for thread, _ in trace.calls()}
        self.assertNotIn(daemon, callers, trace.calls())
        self.assertEqual(len(callers), 1, "one thread, of its own, calls libvirt")

    def test_the_trace_sees_a_first_thread_that_calls_libvirt(self):
        trace = Trace("--args", "virsh", "--connect", "test:///default", "list")
        trace.gdb.wait(timeout=60)
        threads = [thread for thread, function in trace.calls() if function == "virConnectListAllDomains"]
        opened = [thread for thread, function in trace.calls() if function == "virInitialize"]
        self.assertEqual(len(threads), 1)
        self.assertEqual(threads, opened)


if __name__ == "__main__":
    lab.main()
