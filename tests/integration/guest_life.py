#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Real guests of a real libvirtd: what fits runs, what does not is refused, what ends gives its place back."""
import os
import re
import signal
import unittest

import lab

ROOM_MIB = 256
POOL_PAGES = 48  # 96 MiB

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab(hugepages=POOL_PAGES))
    host.reload_policy(host.policy_with_room(ROOM_MIB))


class GuestLife(unittest.TestCase):
    def setUp(self):
        self.assertEqual(host.running(), set())
        lab.wait_until(lambda: host.ledger() == {}, "the ledger is empty")

    def tearDown(self):
        host.destroy_all()

    def start(self, name, **asked):
        """Defines a guest and starts it; the result of virsh."""
        options = asked.pop("options", ())
        host.define(lab.domain_xml(name, **asked))
        self.addCleanup(host.virsh, "undefine", name)
        return host.virsh("start", name, *options)

    def assert_refused(self, result, name, reason):
        self.assertEqual(result.status, 1, result)
        found = re.fullmatch(
            f"error: Failed to start domain '{name}'\n"
            r"error: Hook script execution failed: internal error: Child process \(.*"
            f"/50-virtguard {name} prepare begin -\\) unexpected exit status 1: virtguard: refused {name}: (.*)",
            result.err)
        self.assertIsNotNone(found, result)
        self.assertEqual(found[1], reason)

    def assert_place_is_free_again(self):
        """The guest that used all memory is gone: another one gets all of it, at the first try."""
        lab.wait_until(lambda: host.running() == set(), "libvirt has seen the guest end")
        result = self.start("next", memory_mib=ROOM_MIB)
        self.assertEqual(result.status, 0, result)
        lab.wait_until(lambda: host.ledger() == {"next": "running"}, "only the new guest is counted")
        self.assertEqual(host.held("memory"), ROOM_MIB * lab.MIB)

    def test_what_fits_runs_and_is_counted(self):
        result = self.start("web-1", memory_mib=64)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(host.running(), {"web-1"})
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        self.assertEqual(host.held("memory"), 64 * lab.MIB)
        self.assertEqual(host.held("cpu"), 1)
        self.assertEqual(host.held("memory", "free"), (ROOM_MIB - 64) * lab.MIB)
        self.assertEqual(host.held("memory", "pending"), 0)

    def test_what_does_not_fit_is_refused_and_leaves_no_trace(self):
        self.assertEqual(self.start("web-1", memory_mib=192).status, 0)
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        before = host.status()["host"]
        result = self.start("web-2", memory_mib=128)
        self.assert_refused(result, "web-2", f"memory: needs 128 MiB, 64 MiB free of {ROOM_MIB} MiB")
        self.assertEqual(host.virsh("domstate", "web-2", "--reason").out, "shut off (failed)")
        self.assertEqual(host.running(), {"web-1"})
        self.assertEqual(host.status()["host"], before)
        self.assertEqual(host.ledger(), {"web-1": "running"})
        explained = lab.ctl("explain", "web-2")
        self.assertEqual(explained.status, 1)
        self.assertIn(f"memory: needs 128 MiB, 64 MiB free of {ROOM_MIB} MiB", explained.out)
        self.assertRegex(explained.out, "would fit +1 +64 MiB")
        self.assertEqual(lab.ctl("explain", "web-1").status, 0, "what it holds itself is free for it")

    def test_hugepages_are_refused_by_us_and_not_by_qemu(self):
        result = self.start("huge-1", memory_mib=64, hugepages=True)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(host.pool.read("free"), POOL_PAGES - 32)
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        self.assertEqual(host.held("hugepages-2Mi"), 64 * lab.MIB)
        result = self.start("huge-2", memory_mib=64, hugepages=True)
        total = host.held("hugepages-2Mi", "effective") // lab.MIB
        self.assert_refused(result, "huge-2", f"hugepages-2Mi: needs 64 MiB, 32 MiB free of {total} MiB")
        self.assertNotIn("qemu-system", host.qemu_log("huge-2"), "QEMU was started")
        result = self.start("huge-3", memory_mib=32, hugepages=True)
        self.assertEqual(result.status, 0, result)
        self.assertEqual(host.pool.read("free"), POOL_PAGES - 48)

    def test_pages_that_another_program_took_are_not_given_again(self):
        taken = lab.take_hugepages(40)
        try:
            result = self.start("huge-1", memory_mib=32, hugepages=True)
            self.assertEqual(result.status, 1, result)
            self.assertIn("virtguard: refused huge-1: hugepages-2Mi: needs 32 MiB, 16 MiB free of", result.err)
        finally:
            taken.close()
        result = host.virsh("start", "huge-1")
        self.assertEqual(result.status, 0, result)

    def test_a_foreign_scheduler_is_refused(self):
        result = self.start("pod-1", scheduler="cortex")
        self.assertEqual(result.status, 1, result)
        self.assertRegex(result.err, "virtguard: refused pod-1: .*cortex")

    def test_all_reasons_are_given_at_once(self):
        result = self.start("pod-1", memory_mib=1024, scheduler="cortex")
        self.assertRegex(result.err, "virtguard: refused pod-1: .*cortex.*; memory: needs 1 GiB, ")

    def test_destroyed(self):
        self.assertEqual(self.start("whole", memory_mib=ROOM_MIB).status, 0)
        self.assertEqual(host.virsh("destroy", "whole").status, 0)
        self.assert_place_is_free_again()

    def test_the_guest_switches_itself_off(self):
        result = self.start("whole", memory_mib=ROOM_MIB, disk=host.boot_disk())
        self.assertEqual(result.status, 0, result)
        self.assert_place_is_free_again()
        self.assertEqual(host.virsh("domstate", "whole", "--reason").out, "shut off (shutdown)")

    def test_qemu_is_told_to_quit(self):
        self.assertEqual(self.start("whole", memory_mib=ROOM_MIB).status, 0)
        host.virsh("qemu-monitor-command", "whole", '{"execute":"quit"}')
        self.assert_place_is_free_again()

    def test_qemu_is_killed(self):
        self.assertEqual(self.start("whole", memory_mib=ROOM_MIB).status, 0)
        os.kill(host.qemu_pid("whole"), signal.SIGKILL)
        self.assert_place_is_free_again()

    def test_qemu_does_not_start(self):
        result = self.start("whole", memory_mib=ROOM_MIB, arguments=["-no-such-option"])
        self.assertEqual(result.status, 1, result)
        self.assertIn("invalid option", result.err)
        self.assert_place_is_free_again()

    def test_restarted_at_once(self):
        self.assertEqual(self.start("whole", memory_mib=ROOM_MIB).status, 0)
        for _ in range(5):
            self.assertEqual(host.virsh("destroy", "whole").status, 0)
            result = host.virsh("start", "whole", "--paused")
            self.assertEqual(result.status, 0, result)
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")

    def test_the_daemon_is_killed_while_guests_run(self):
        self.assertEqual(self.start("web-1", memory_mib=192).status, 0)
        host.stop_daemon(signal.SIGKILL)
        host.start_daemon()
        lab.wait_until(host.ledger_agrees, "the ledger is what libvirt runs")
        result = self.start("web-2", memory_mib=128)
        self.assert_refused(result, "web-2", f"memory: needs 128 MiB, 64 MiB free of {ROOM_MIB} MiB")

    def test_without_the_daemon_starts_are_allowed(self):
        host.stop_daemon()
        try:
            result = self.start("web-1", memory_mib=64)
            self.assertEqual(result.status, 0, result)
        finally:
            host.start_daemon()
        lab.wait_until(host.ledger_agrees, "the daemon has found the guest that started without it")

    def test_libvirtd_is_killed_and_comes_back(self):
        self.assertEqual(self.start("web-1", memory_mib=64).status, 0)
        host.stop_libvirtd(signal.SIGKILL)
        self.assertEqual(host.ledger(), {"web-1": "running"})
        host.start_libvirtd()
        self.assertEqual(host.running(), {"web-1"})
        self.assertEqual(host.virsh("destroy", "web-1").status, 0)
        lab.wait_until(lambda: host.ledger() == {}, "the ledger is empty")


if __name__ == "__main__":
    lab.main()
