#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The package in a chroot: installed, upgraded, removed, purged and installed again.

    lifecycle_test.py FOLDER-OF-THE-DEBS TARBALL
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lab"))
import namespace
import installed
from chroot import Chroot

HOOKS = "/etc/libvirt/hooks/qemu.d"
HOOK = f"{HOOKS}/50-virtguard"
PROGRAM = "/usr/sbin/virtguard-hook"
ROLLOUT = "/etc/virtguard/conf.d/00-rollout.toml"
DEBS = pathlib.Path(sys.argv[1]).resolve()
TARBALL = pathlib.Path(sys.argv[2]).resolve()
CAPABILITIES = "-all,+dac_read_search,+sys_ptrace"

LIBVIRTD_CONF = 'auth_unix_rw = "none"\nauth_unix_ro = "none"\n'


def domain(name, memory, unit):
    return (f"<domain type='qemu'><name>{name}</name><memory unit='{unit}'>{memory}</memory><vcpu>1</vcpu>"
            "<os><type arch='x86_64' machine='pc'>hvm</type></os><devices>"
            "<emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>"
            "<memballoon model='none'/></devices></domain>")


def built():
    return next(deb for deb in DEBS.glob("virtguard_*.deb"))


def as_version(version, folder):
    """The same package under another version: a path."""
    tree = f"{folder}/tree"
    subprocess.run(["dpkg-deb", "-R", built(), tree], check=True)
    control = pathlib.Path(tree, "DEBIAN/control")
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", control.read_text()))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, f"{folder}/{version}.deb"], check=True,
                   stdout=subprocess.DEVNULL)
    return f"{folder}/{version}.deb"


def wait_until(question, seconds=30):
    deadline = time.monotonic() + seconds
    while not question():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


class Starts:
    """Does over and over what libvirtd does for a start, and notes what would have failed one."""

    def __init__(self, chroot):
        self.chroot = chroot
        self.count = 0
        self.entries = set()
        self.failures = []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.go_on)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.thread.join()

    def go_on(self):
        while not self.ending.is_set():
            try:
                entries = sorted(os.listdir(self.chroot.path(HOOKS)))
            except FileNotFoundError:  # the package had it, and has been removed
                entries = []
            self.entries.update(entries)
            for entry in entries:
                self.run_hook(entry)
            self.count += 1

    def run_hook(self, entry):
        done = subprocess.run(["chroot", self.chroot.root, f"{HOOKS}/{entry}", "web", "prepare", "begin", "-"],
                              input=domain("web", 1, "MiB"), capture_output=True, text=True, check=False)
        # It may have been taken out after we looked for it; libvirtd looks and runs in one go.
        if done.returncode != 0 and self.chroot.path(f"{HOOKS}/{entry}").is_symlink():
            self.failures.append(done.stderr)


class Lifecycle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.system = tempfile.mkdtemp()  # in a tmpfs that ends with us
        subprocess.run(["tar", "-x", "--numeric-owner", "-C", cls.system, "-f", TARBALL], check=True)

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.chroot = Chroot(self.folder, self.system)

    def start(self, *command):
        process = self.chroot.start(*command)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def start_daemon(self):
        """As the unit has it: as its own user, with two capabilities."""
        self.chroot.run("systemd-tmpfiles", "--create", "virtguard.conf")
        daemon = self.start("setpriv", "--reuid=virtguard", "--regid=virtguard", "--clear-groups", "--no-new-privs",
                   f"--inh-caps={CAPABILITIES}", f"--ambient-caps={CAPABILITIES}", f"--bounding-set={CAPABILITIES}",
                   "virtguardd")
        wait_until(lambda: subprocess.run(["chroot", self.chroot.root, "virtguardctl", "status"], check=False,
                                          capture_output=True).returncode == 0)
        return daemon

    def start_libvirtd(self):
        self.chroot.write("/etc/libvirt/libvirtd.conf", LIBVIRTD_CONF)
        self.chroot.write("/etc/libvirt/qemu.conf", namespace.QEMU_CONF)
        self.start("libvirtd")
        wait_until(lambda: self.chroot.path("/run/libvirt/libvirt-sock").exists())

    def define(self, name, memory, unit):
        self.chroot.write(f"/tmp/{name}.xml", domain(name, memory, unit))
        self.chroot.run("virsh", "define", f"/tmp/{name}.xml")

    def test_a_guest_that_does_not_fit_is_refused_as_soon_as_it_is_installed(self):
        self.start_libvirtd()
        self.chroot.install(built())
        os.kill(int(self.chroot.path("/run/libvirtd.pid").read_text()), 1)  # as systemd's reload does
        self.start_daemon()
        self.define("small", 64, "MiB")
        self.define("large", 64, "TiB")
        self.chroot.run("virsh", "start", "small")
        self.assertIn("virtguard: refused large: memory: needs 64.13 TiB",
                      self.chroot.run("virsh", "start", "large", status=1))
        self.assertRegex(self.chroot.run("virtguardctl", "domains"), r"(?m)^small +running ")
        self.chroot.run("virsh", "destroy", "small")
        self.chroot.apt("purge", "virtguard")
        self.chroot.run("virsh", "start", "small")
        self.chroot.run("virsh", "destroy", "small")

    def test_all_that_is_in_the_package_is_listed_with_its_mode_and_is_for_root_to_change(self):
        subprocess.run(["dpkg-deb", "-x", built(), self.folder + "/files"], check=True)
        files, wrong = installed.found(self.folder + "/files")
        self.assertEqual(wrong, [])
        self.assertEqual(files, installed.expected(by_package=True))

    def test_what_is_in_place_after_an_install(self):
        said = self.chroot.install(built())
        self.assertNotIn("virtguard: ", said.replace("refused", ""))
        self.assertEqual(os.readlink(self.chroot.path(HOOK)), PROGRAM)
        self.assertFalse(self.chroot.path(ROLLOUT).exists())
        self.assertEqual(self.chroot.path("/var/lib/virtguard/hook.conf").read_text(),
                         "timeout-ms=2000\nunavailable=allow\n")
        self.assertIn("/etc/virtguard/virtguard.toml", self.chroot.run(
            "dpkg-query", "-W", "-f", "${Conffiles}", "virtguard"))
        self.assertRegex(self.chroot.path("/etc/apparmor.d/usr.sbin.libvirtd").read_text(), r"(?m)^ */usr/sbin/\* PUx,$")
        for page in ("man1/virtguardctl.1", "man5/org.virtguard1.5", "man5/virtguard.toml.5", "man8/virtguard-hook.8",
                     "man8/virtguardd.8"):
            self.assertTrue(self.chroot.path(f"/usr/share/man/{page}.gz").exists(), page)
        for path, owner in (("/run/virtguard", "virtguard:virtguard 755"), ("/var/lib/virtguard", "virtguard:virtguard 755"),
                            ("/var/lib/virtguard/hook.conf", "virtguard:virtguard 644"), (HOOKS, "root:root 755"),
                            (HOOK, "root:root 777"), ("/etc/virtguard/conf.d", "root:root 755")):
            self.assertEqual(self.chroot.run("stat", "-c", "%U:%G %a", path), f"{owner}\n", path)

    def test_no_start_fails_while_it_is_upgraded_and_removed(self):
        self.chroot.install(built())
        self.chroot.write("/etc/virtguard/conf.d/50-site.toml", 'hook.unavailable = "deny"\n')
        self.start_daemon()
        with Starts(self.chroot) as starts:
            self.chroot.install(as_version("9.0-1", self.folder))
            self.assertEqual(self.chroot.run("dpkg-query", "-W", "-f", "${Version}", "virtguard"), "9.0-1")
            before = starts.count
            wait_until(lambda: starts.count > before)
            self.chroot.apt("remove", "virtguard")
        self.assertEqual(starts.failures, [])
        self.assertEqual(starts.entries, {"50-virtguard"})  # none of dpkg's own
        self.assertFalse(self.chroot.path(HOOK).is_symlink())

    def test_what_the_administrator_changed_stays_through_an_upgrade(self):
        self.chroot.install(built())
        with open(self.chroot.path("/etc/virtguard/virtguard.toml"), "a", encoding="ascii") as policy:
            policy.write("# mine\n")
        self.chroot.path(HOOK).unlink()
        self.chroot.path(HOOK).symlink_to("/dev/null")
        self.chroot.install(as_version("9.0-1", self.folder))
        self.assertTrue(self.chroot.path("/etc/virtguard/virtguard.toml").read_text().endswith("# mine\n"))
        self.assertEqual(os.readlink(self.chroot.path(HOOK)), "/dev/null")

    def test_a_purge_leaves_nothing(self):
        before = self.chroot.files()
        self.chroot.install(built())
        daemon = self.start_daemon()
        self.chroot.write("/etc/virtguard/conf.d/50-site.toml", "")
        daemon.terminate()  # as the unit's end
        daemon.wait()
        self.chroot.apt("remove", "virtguard")
        self.assertTrue(self.chroot.path("/etc/virtguard/conf.d/50-site.toml").exists())
        self.assertFalse(self.chroot.path("/run/virtguard").exists())
        self.chroot.install(built())
        self.assertEqual(os.readlink(self.chroot.path(HOOK)), PROGRAM)
        self.chroot.apt("purge", "virtguard")
        self.assertFalse(self.chroot.path("/run/virtguard").exists())
        self.assertEqual(self.chroot.files(), before)

    def test_guests_that_would_be_refused_have_it_begin_by_observing(self):
        self.start_libvirtd()
        self.define("large", 64, "TiB")
        self.define("small", 64, "MiB")
        self.chroot.run("virsh", "autostart", "large")
        said = self.chroot.install(built())
        figures = "start:large: refused large: memory: needs 64.13 TiB, more than the "
        self.assertIn("virtguard: nothing will be refused, only observed, as this was found:\n    " + figures, said)
        self.assertIn("    1 of 1 guests that run or start at boot would be refused\n", said)
        policy = self.chroot.path(ROLLOUT).read_text()
        self.assertIn("#   " + figures, policy)
        self.assertTrue(policy.endswith('\nmode = "observe"\n'))
        self.chroot.run("virtguardctl", "policy", "check", "/etc/virtguard")

    def test_guests_of_which_libvirt_does_not_tell_have_it_begin_by_observing(self):
        self.chroot.write("/etc/libvirt/qemu/autostart/web.xml", domain("web", 1, "GiB"))
        self.assertIn("virtguard: nothing will be refused", self.chroot.install(built()))
        self.assertTrue(self.chroot.path(ROLLOUT).read_text().endswith('\nmode = "observe"\n'))


if __name__ == "__main__":
    namespace.enter(keep=[str(DEBS), str(TARBALL.parent), str(pathlib.Path(__file__).resolve().parents[2])])
    unittest.main(argv=sys.argv[:1], verbosity=2)
