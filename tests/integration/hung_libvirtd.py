#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""While libvirtd hangs, starts are answered as ever, and the state says how old the truth is."""
import concurrent.futures
import os
import signal
import statistics
import time
import unittest

import lab

ASKS, AT_ONCE = 1000, 8
GUEST_MIB = 64
ADMITTED = 30  # besides the one that runs
HANGS = 60  # seconds, at least

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())
    # deny: an exit status of 0 is then an answer of the daemon, and nothing else
    host.reload_policy(host.policy_with_room((ADMITTED + 1) * GUEST_MIB + GUEST_MIB // 2,
                                             more='[hook]\nunavailable = "deny"'))


def prepare(name):
    """What libvirt does; the result and the seconds it took."""
    xml = lab.domain_xml(name, memory_mib=GUEST_MIB)
    began = time.monotonic()
    result = lab.command(lab.HOOK, name, "prepare", "begin", "-", stdin=xml)
    return result, time.monotonic() - began


class HungLibvirtd(unittest.TestCase):
    def test_a_thousand_starts_are_answered_and_the_state_is_degraded_meanwhile(self):
        host.define(lab.domain_xml("runs", memory_mib=GUEST_MIB))
        self.assertEqual(host.virsh("start", "runs", "--paused").status, 0)
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        self.assertEqual(host.status()["state"], "ready")
        os.kill(host.libvirtd_pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as threads:
                answers = list(threads.map(prepare, [f"ask-{number}" for number in range(ASKS)]))
            lab.wait_until(lambda: host.status()["state"] == "degraded", "the state is degraded", HANGS)
            problem, = host.status()["problems"]
            self.assertRegex(problem, r"^libvirt: .*; what is known of it is \d+ s old$")
            time.sleep(max(0, began + HANGS - time.monotonic()))
        finally:
            os.kill(host.libvirtd_pid, signal.SIGCONT)
        statuses = [result.status for result, _ in answers]
        self.assertEqual((statuses.count(0), statuses.count(1)), (ADMITTED, ASKS - ADMITTED))
        lab.wait_until(lambda: host.status()["state"] == "ready", "the state is ready again", 90)
        seconds = sorted(seconds for _, seconds in answers)
        print(f"of {ASKS} answers, {AT_ONCE} at once: median {statistics.median(seconds) * 1000:.1f} ms, "
              f"99 of 100 {seconds[ASKS * 99 // 100] * 1000:.1f} ms, slowest {seconds[-1] * 1000:.1f} ms")
        self.assertLess(seconds[-1], 1)


if __name__ == "__main__":
    lab.main()
