#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Twenty guests start at once where seven fit: exactly seven run. Ten times in a row."""
import unittest

import lab

GUESTS, PLACES, ROUNDS = 20, 7, 10
GUEST_MIB = 64
ROOM_MIB = PLACES * GUEST_MIB + GUEST_MIB // 2  # the rest is no place


class Race(unittest.TestCase):
    def test_twenty_starts_for_seven_places(self):
        names = [f"racer-{number}" for number in range(GUESTS)]
        with lab.Lab() as host:
            host.reload_policy(host.policy_with_room(ROOM_MIB))
            for name in names:
                host.define(lab.domain_xml(name, memory_mib=GUEST_MIB))
            for number in range(ROUNDS):
                with self.subTest(round=number):
                    self.one_round(host, names)

    def one_round(self, host, names):
        results = host.start_all(names, "--paused")
        started = {name for name, result in results.items() if result.status == 0}
        self.assertEqual(len(started), PLACES, results)
        for name in set(names) - started:
            self.assertRegex(results[name].err, f"virtguard: refused {name}: memory: needs {GUEST_MIB} MiB, "
                             f"{GUEST_MIB // 2} MiB free of {ROOM_MIB} MiB$")
        self.assertEqual(host.running(), started)
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        self.assertEqual(host.held("memory"), PLACES * GUEST_MIB * lab.MIB)
        self.assertEqual(host.held("memory", "pending"), 0)
        host.destroy_all()


if __name__ == "__main__":
    lab.main()
