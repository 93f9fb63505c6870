#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a whole start costs on a real libvirtd: 'virsh start' of a paused guest with no hook, with a no-op hook, and with ours.

    start.py HOOK-NOOP          (VIRTGUARD_STARTS chooses how many of each)

A start is timed from virsh's exec to its end, and a guest destroyed after it; the three take turns. Where there is no
hook, libvirtd has looked for hooks (SIGHUP) and found none, as without virtguard. What hooks take of a start is far less
than starts differ by, so it is also timed alone: the three times that libvirtd runs a hook until a guest runs, with XML
as libvirtd gives it.
"""
import os
import statistics
import subprocess
import sys
import time
import unittest

import lab
from figures import figure, ratio_of

STARTS = int(os.environ.get("VIRTGUARD_STARTS", "30"))
NOOP = os.path.abspath(sys.argv.pop())
IN_A_START = (("prepare", "begin"), ("start", "begin"), ("started", "begin"))
GUEST = "web-1"


def run_hook(program, operation, phase, domain):
    """The milliseconds of it."""
    began = time.monotonic()
    subprocess.run([program, GUEST, operation, phase, "-"], input=domain, env=lab.ENVIRONMENT, check=True)
    return 1000 * (time.monotonic() - began)


class Start(unittest.TestCase):
    def choose_hook(self, host, program):
        """libvirtd has only that hook, or none."""
        hook = lab.HOOKS / "50-virtguard"
        hook.unlink(missing_ok=True)
        if program:
            hook.symlink_to(program)
        os.kill(host.libvirtd_pid, 1)
        time.sleep(0.2)

    def start(self, host):
        began = time.monotonic()
        result = host.virsh("start", GUEST, "--paused")
        milliseconds = 1000 * (time.monotonic() - began)
        self.assertEqual(result.status, 0, result)
        domain = host.virsh("dumpxml", GUEST).out.encode()
        host.virsh("destroy", GUEST)
        return milliseconds, domain

    def test_start(self):
        hooks = {"no hook": None, "no-op hook": NOOP, "virtguard-hook": lab.HOOK}
        times = {name: [] for name in hooks}
        with lab.Lab() as host:
            host.reload_policy(host.policy_with_room(1024))
            host.define(lab.domain_xml(GUEST, memory_mib=64))
            for _ in range(STARTS):
                for name, program in hooks.items():
                    self.choose_hook(host, program)
                    milliseconds, domain = self.start(host)
                    times[name].append(milliseconds)
            how = f"'virsh start', {STARTS} of each in turn, medians"
            for name, each in times.items():
                figure(name, statistics.median(each), "ms", how)
                if name != "no hook":
                    figure(f"{name} / no hook", ratio_of(each, times["no hook"]), "x", how)
            self.measure_hooks(domain, statistics.median(times["no hook"]))

    def measure_hooks(self, domain, start):
        own = {NOOP: 0, lab.HOOK: 0}
        for operation, phase in IN_A_START:
            times = {program: [] for program in own}
            for _ in range(10 * STARTS):
                for program, each in times.items():
                    each.append(run_hook(program, operation, phase, domain))
            for program, each in times.items():
                own[program] += statistics.median(each)
        how = f"the three hooks of one start, each {10 * STARTS} times, medians added up"
        figure("no-op hook", own[NOOP], "ms", how)
        figure("virtguard-hook", own[lab.HOOK], "ms", how)
        figure("virtguard-hook, of a start without hook", 100 * own[lab.HOOK] / start, "%", how, "<= 0.5")
        figure("what it takes more than the no-op, of a start", 100 * (own[lab.HOOK] - own[NOOP]) / start, "%", how)


if __name__ == "__main__":
    sys.argv.append(NOOP)  # as the inside is to have it
    lab.enter()
    sys.argv.pop()
    lab.main()
