#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What libvirt tells its hooks in the life of a guest, step by step, and what virtguard holds at each step."""
import concurrent.futures
import os
import pathlib
import signal
import unittest

import lab

ROOM_MIB = 80  # two guests, and half a place
POLICY = """
[hook]
unavailable = "deny"
timeout = "20s"
[claim]
return = "1min"  # as long as it takes to be seen on a busy machine
"""

host = None


def setUpModule():
    global host
    host = unittest.enterModuleContext(lab.Lab())
    host.record_hooks()


class SequenceCase(unittest.TestCase):
    def setUp(self):
        self.set_room(ROOM_MIB)
        self.assertEqual(host.ledger(), {})
        host.hooks_seen()

    def tearDown(self):
        for path in lab.HOOKS.glob("*-test"):
            path.unlink()
        host.destroy_all()
        self.assert_gone()

    def set_room(self, memory_mib, *, more=""):
        host.reload_policy(host.policy_with_room(memory_mib, more=POLICY + more))

    def define(self, name="guest", **asked):
        host.define(lab.domain_xml(name, memory_mib=32, **asked))
        self.addCleanup(host.virsh, "undefine", name, "--managed-save", "--snapshots-metadata")

    def virsh(self, *words):
        result = host.virsh(*words)
        self.assertEqual(result.status, 0, result)

    def start(self, name="guest", *options, **asked):
        self.define(name, **asked)
        self.virsh("start", name, *options)
        self.assertEqual(host.hooks_seen(), {name: lab.STARTED})

    def assert_hooks(self, *steps, name="guest"):
        self.assertEqual(host.hooks_seen(), {name: list(steps)})

    def assert_gone(self):
        """Nothing runs, and nothing is held but what is kept for a return, which ends here."""
        self.assertEqual(host.running(), set())
        host.end_kept_places()
        self.assertEqual(host.ledger(), {})

    def assert_runs(self, name="guest"):
        self.assertEqual(host.running(), {name})
        self.assertEqual(host.ledger(), {name: "running"})
        self.assertEqual(host.doctor(), "")


class Sequences(SequenceCase):
    def test_start_and_destroy(self):
        self.start("guest", "--paused")
        self.assert_runs()
        self.virsh("destroy", "guest")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()

    def test_create(self):
        path = pathlib.Path("/run/guest.xml")
        path.write_text(lab.domain_xml("guest", memory_mib=32))
        self.virsh("create", path, "--paused")
        self.assert_hooks(*lab.STARTED)
        self.assert_runs()
        self.virsh("destroy", "guest")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()

    def test_a_start_that_is_refused(self):
        host.define(lab.domain_xml("large", memory_mib=96))
        self.addCleanup(host.virsh, "undefine", "large")
        self.assertEqual(host.virsh("start", "large").status, 1)
        self.assert_hooks("prepare -", "stopped -", "release -", name="large")
        self.assert_gone()

    def test_a_start_that_another_hook_refuses(self):
        self.define()
        for order in (40, 60):
            for operation, steps in (("prepare", ["prepare pending", "stopped pending", "release -"]),
                                     ("start", lab.STARTED[:2] + ["stopped pending", "release -"]),
                                     ("started", lab.STARTED + lab.ENDED)):
                with self.subTest(operation, order=order):
                    host.write_hook(f"{order}-test", f'[ $2 != {operation} ]')
                    self.assertEqual(host.virsh("start", "guest", "--paused").status, 1)
                    self.assert_hooks(*steps)
                    self.assert_gone()
                    (lab.HOOKS / f"{order}-test").unlink()

    def test_a_start_that_fails(self):
        for name, asked, steps in (("without-its-disk", {"disk": "/nowhere.img"}, lab.STARTED[:1]),
                                   ("with-a-bad-option", {"arguments": ["-no-such-option"]}, lab.STARTED[:2])):
            with self.subTest(name):
                self.define(name, **asked)
                self.assertEqual(host.virsh("start", name).status, 1)
                self.assert_hooks(*steps, "stopped pending", "release -", name=name)
                self.assert_gone()

    def test_managed_save_and_start(self):
        self.start("guest", "--paused")
        self.virsh("managedsave", "guest")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()
        self.virsh("start", "guest")
        self.assert_hooks("restore -", *lab.STARTED)
        self.assert_runs()

    def test_save_and_restore(self):
        self.start("guest", "--paused")
        self.virsh("save", "guest", "/run/guest.save")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()
        self.virsh("restore", "/run/guest.save")
        self.assert_hooks("restore -", *lab.STARTED)
        self.assert_runs()

    def test_a_restore_that_is_refused_can_be_had_when_there_is_room(self):
        self.start("guest", "--paused")
        self.virsh("save", "guest", "/run/guest.save")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()
        self.start("large", "--paused")
        self.set_room(48)
        self.assertEqual(host.virsh("restore", "/run/guest.save").status, 1)
        self.assert_hooks("restore -", "prepare -", "stopped -", "release -")
        self.virsh("destroy", "large")
        self.assert_gone()
        self.virsh("restore", "/run/guest.save")
        self.assert_runs()

    def test_reset_reboot_and_shutdown(self):
        up = pathlib.Path("/run/up")
        self.start(disk=host.boot_disk(lab.WAIT_FOR_BUTTON + lab.POWER_OFF), arguments=["-debugcon", f"file:{up}"])
        qemu = host.qemu_pid("guest")
        for boots, again in ((2, "reset"), (3, "reboot")):
            lab.wait_until(lambda boots=boots: up.read_text() == "U" * (boots - 1), "its boot sector runs", 60)
            self.virsh(again, "guest")
            lab.wait_until(lambda boots=boots: up.read_text() == "U" * boots, f"it was started anew by {again}", 60)
        self.assertEqual(host.qemu_pid("guest"), qemu)
        self.assertEqual(host.hooks_seen(), {})
        self.assert_runs()
        self.virsh("shutdown", "guest")
        lab.wait_until(lambda: host.running() == set(), "it has shut down", 60)
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()

    def test_crash(self):
        self.start("guest", "--paused", disk=host.boot_disk(lab.PANIC), devices="<panic model='isa'/>",
                   more="<on_crash>destroy</on_crash>")
        self.virsh("resume", "guest")
        lab.wait_until(lambda: host.running() == set(), "it has crashed", 60)
        self.assertEqual(host.virsh("domstate", "guest", "--reason").out, "shut off (crashed)")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()

    def test_qemu_is_killed(self):
        self.start("guest", "--paused")
        os.kill(host.qemu_pid("guest"), signal.SIGKILL)
        lab.wait_until(lambda: host.running() == set(), "libvirt has seen it end")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()

    def test_autostart(self):
        """As at boot: two fit, virtguardd does not know libvirt, and libvirtd serves nobody before all have started."""
        names = ["auto-1", "auto-2", "auto-3"]
        for name in names:
            self.define(name)
            self.virsh("autostart", name)
        served = pathlib.Path("/run/served")
        host.write_hook("30-test", f"""[ $2 != prepare ] || timeout 1 virsh --connect qemu:///system version >>{served}
exit 0
""")
        host.stop_libvirtd()
        host.stop_daemon()
        host.start_daemon()
        (lab.STATUS / "autostarted").unlink()
        host.start_libvirtd()
        refused = (set(names) - host.running()).pop()
        self.assertEqual(host.hooks_seen(), {name: lab.STARTED for name in names if name != refused}
                         | {refused: ["prepare -", "stopped -", "release -"]})
        self.assertEqual(host.running(), set(names) - {refused})
        self.assertEqual(host.ledger(), dict.fromkeys(host.running(), "running"))
        self.assertEqual(served.read_text(), "")
        self.assertIn(f"Failed to autostart VM '{refused}': Hook script execution failed",
                      pathlib.Path("/var/log/libvirtd.log").read_text())


class Reverts(SequenceCase):
    """A revert to a snapshot stops a running guest and starts it again: refusing that would turn it off."""
    revert = lab.ENDED + lab.STARTED

    def setUp(self):
        super().setUp()
        disk = pathlib.Path("/var/lab/disk.qcow2")
        result = lab.command("qemu-img", "create", "-q", "-f", "qcow2", disk, "1M")
        self.assertEqual(result.status, 0, result)
        self.start(disk=disk)
        self.virsh("snapshot-create-as", "guest", "before")
        self.assertEqual(host.hooks_seen(), {})

    def assert_comes_back(self):
        self.virsh("snapshot-revert", "guest", "before")
        self.assert_hooks(*self.revert)
        self.assert_runs()

    def test_running(self):
        self.assert_comes_back()

    def test_shut_off(self):
        self.virsh("destroy", "guest")
        self.assert_hooks(*lab.ENDED)
        self.assert_gone()
        self.virsh("snapshot-revert", "guest", "before")
        self.assert_hooks(*lab.STARTED)
        self.assert_runs()

    def test_while_there_is_less_than_it_holds(self):
        self.set_room(8)
        self.assert_comes_back()

    def test_while_its_scheduler_is_not_served_any_more(self):
        self.set_room(ROOM_MIB, more="[scheduler]\naccept-default = false\n")
        self.assert_comes_back()

    def test_while_virtguardd_is_killed_and_started_again(self):
        """Whether it comes back for 'release' or misses that."""
        answers = f"until {lab.CTL} status >/dev/null 2>&1; do sleep 0.02; done"
        self.set_room(8)
        for order, told in ((45, True), (60, False)):
            with self.subTest(told=told):
                passed = pathlib.Path("/run/release-passed")
                passed.unlink(missing_ok=True)
                host.write_hook("40-test", f"[ $2 != release ] || kill -9 {host.daemon_pid}\n")
                host.write_hook(f"{order}-test", f"[ $2 != release ] || {{ touch {passed}; {answers}; }}\n")
                with concurrent.futures.ThreadPoolExecutor(1) as thread:
                    reverted = thread.submit(self.virsh, "snapshot-revert", "guest", "before")
                    host.wait_for_daemon_end()
                    lab.wait_until(passed.exists, "libvirt is that far")
                    host.start_daemon()
                    reverted.result()
                self.assert_hooks("stopped running", "release " + ("returning" if told else "running"), *lab.STARTED)
                self.assert_runs()
                (lab.HOOKS / f"{order}-test").unlink()

    def test_while_another_start_waits_for_the_place(self):
        self.set_room(40)
        self.define("rival")
        ended = pathlib.Path("/run/rival-ended")
        host.write_hook("60-test", f"""[ "$1/$2" = guest/release ] || exit 0
(virsh --connect qemu:///system start rival --paused; touch {ended}) </dev/null >/run/rival 2>&1 &
until cat /proc/[0-9]*/comm 2>/dev/null | grep -qx 50-virtguard; do sleep 0.02; done
""")
        self.virsh("snapshot-revert", "guest", "before")
        lab.wait_until(ended.exists, "the other start has been answered")
        self.assertIn("virtguard: refused rival: memory: needs 32 MiB, 8 MiB free of 40 MiB",
                      pathlib.Path("/run/rival").read_text())
        self.assertEqual(host.hooks_seen(), {"guest": self.revert, "rival": ["prepare -", "stopped -", "release -"]})
        self.assert_runs()


class LibvirtdRestarts(SequenceCase):
    """With guests running, none of which is lost whatever virtguardd does: to libvirt a failing hook is the order to
    kill the guest."""
    names = ["run-1", "run-2", "run-3"]

    def setUp(self):
        super().setUp()
        self.set_room(96)
        for name in self.names:
            self.define(name)
        for result in host.start_all(self.names, "--paused").values():
            self.assertEqual(result.status, 0, result)
        host.hooks_seen()

    def check_restart(self, number=signal.SIGTERM):
        qemus = {name: host.qemu_pid(name) for name in self.names}
        host.stop_libvirtd(number)
        host.start_libvirtd()
        self.assertEqual(host.running(), set(self.names))
        self.assertEqual({name: host.qemu_pid(name) for name in self.names}, qemus)
        self.assertEqual(host.qemus(), set(self.names))

    def test_while_virtguardd_is_there(self):
        self.set_room(8)  # less than they hold
        self.check_restart()
        seen = {}
        lab.wait_until(lambda: seen.update(host.hooks_seen()) or len(seen) == len(self.names), "libvirt has told all")
        self.assertEqual(seen, {name: ["reconnect running"] for name in self.names})
        host.settle()

    def test_without_virtguardd(self):
        host.stop_daemon()
        try:
            self.check_restart()
        finally:
            host.start_daemon()
        host.settle()

    def test_while_virtguardd_hangs(self):
        (lab.HOOKS / "90-record").unlink()  # it asks virtguardd, too
        os.kill(host.daemon_pid, signal.SIGSTOP)
        try:
            self.check_restart()
        finally:
            os.kill(host.daemon_pid, signal.SIGCONT)
            host.record_hooks()
        host.settle()

    def test_while_the_socket_is_missing(self):
        socket = pathlib.Path("/run/virtguard/hook.sock")
        socket.rename("/run/hook.sock")
        try:
            self.check_restart(signal.SIGKILL)
        finally:
            pathlib.Path("/run/hook.sock").rename(socket)
        host.settle()


if __name__ == "__main__":
    lab.main()
