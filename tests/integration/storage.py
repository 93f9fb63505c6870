#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Real images: what they may grow is what starts are refused for, and a file system that hangs holds up no others."""
import concurrent.futures
import ctypes
import fcntl
import json
import os
import pathlib
import select
import signal
import statistics
import struct
import subprocess
import threading
import time
import unittest

import lab

STORAGE = "ephemeral-storage"
IMAGES = pathlib.Path("/var/images")
HANGING = pathlib.Path("/var/hanging")
LOCK = pathlib.Path("/run/virtguard/lock")
SIZE_MIB = 64
PATIENCE = 0.5  # seconds that a start waits for its images
MIB = lab.MIB

host = None
libc = ctypes.CDLL(None, use_errno=True)


def setUpModule():
    global host
    for folder in (IMAGES, HANGING):
        folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "lab", IMAGES], check=True)
    host = unittest.enterModuleContext(lab.Lab(policy()))


def policy(more="", paths=(IMAGES,)):
    names = ", ".join(f'"{path}"' for path in paths)
    return ('[overcommit]\ncpu = 1000\n[memory]\noverhead = "none"\n[hook]\nunavailable = "deny"\n[claim]\nreturn = "0s"\n'
            f"[storage]\npaths = [{names}]\n{more}\n")


def image(name, size_mib, kind="qcow2", *options):
    path = IMAGES / name
    done = lab.command("qemu-img", "create", "-q", "-f", kind, *options, path, f"{size_mib}M")
    assert done.status == 0, done
    return path


def disk(path, kind="qcow2"):
    return (f"<disk type='file' device='disk'><driver name='qemu' type='{kind}'/><source file='{path}'/>"
            "<target dev='vda' bus='virtio'/></disk>")


def owed(path, kind="qcow2"):
    """What an image may still grow, by qemu-img and stat."""
    told = json.loads(lab.command("qemu-img", "info", "--force-share", "-f", kind, "--output=json", path).out)
    return max(told["virtual-size"] - path.stat().st_blocks * 512, 0)


def prepare(name, devices=""):
    """What libvirt does; the result and the seconds it took."""
    xml = lab.domain_xml(name, memory_mib=1, devices=devices)
    began = time.monotonic()
    result = lab.command(lab.HOOK, name, "prepare", "begin", "-", stdin=xml)
    return result, time.monotonic() - began


def give_places_back():
    """Also those of prepare(), of which libvirt knows nothing."""
    for guest in host.status()["domains"]:
        lab.command(lab.HOOK, guest["name"], "release", "end", "-",
                    stdin=lab.domain_xml(guest["name"], uuid=guest["uuid"]))
    lab.wait_until(lambda: host.ledger() == {}, "no place is held")


def is_locked(path):
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class HangingFileSystem:
    """A FUSE file system of which every question waits for an answer, until it ends. For good: so that not even being
    killed ends the wait, as of a disk that is gone."""

    def __init__(self, for_good=False):
        self._for_good = for_good
        self._ending = threading.Event()

    def __enter__(self):
        self._fuse = os.open("/dev/fuse", os.O_RDWR | os.O_NONBLOCK)
        options = f"fd={self._fuse},rootmode=40000,user_id=0,group_id=0".encode()
        if libc.mount(b"hanging", os.fsencode(HANGING), b"fuse.hanging", 0, options) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        self._reader = threading.Thread(target=self._read if self._for_good else lambda: None)
        self._reader.start()
        return self

    def _read(self):
        """Who asks can be killed until the question is read, and is not asked before the first (FUSE_INIT) is answered."""
        while not self._ending.is_set():
            if not select.select([self._fuse], [], [], 0.02)[0]:
                continue
            question = os.read(self._fuse, 1 << 18)
            _, opcode, unique = struct.unpack_from("IIQ", question)
            if opcode == 26:  # FUSE_INIT: version 7.31, and no more than must be
                answer = struct.pack("IIIIHHIIHH8I", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, *[0] * 8)
                os.write(self._fuse, struct.pack("IiQ", 16 + len(answer), 0, unique) + answer)

    def end(self):
        """Whoever waits gets an error."""
        self._ending.set()
        self._reader.join()
        if self._fuse is not None:
            os.close(self._fuse)
            self._fuse = None

    def __exit__(self, *_):
        self.end()
        lazily = 2  # MNT_DETACH
        libc.umount2(os.fsencode(HANGING), lazily)


class Images(unittest.TestCase):
    def tearDown(self):
        host.destroy_all()
        give_places_back()
        for path in IMAGES.iterdir():
            path.unlink()
        host.reload_policy(policy())

    def define(self, name, devices):
        host.define(lab.domain_xml(name, memory_mib=32, devices=devices))
        self.addCleanup(host.virsh, "undefine", name)

    def look_again(self):
        """A reload has all images read."""
        host.reload_policy(policy())

    def test_growth_that_is_owed_is_not_given_out_twice(self):
        first, second, small = image("first.qcow2", 40), image("second.qcow2", 40), image("small.qcow2", 8)
        for path in (first, second, small):
            self.define(path.stem, disk(path))
        self.assertEqual(host.virsh("start", "first", "--paused").status, 0)
        self.assertEqual(host.held(STORAGE, "allocated") + host.held(STORAGE, "pending"), owed(first))
        refused = host.virsh("start", "second", "--paused")
        self.assertEqual(refused.status, 1)
        self.assertRegex(refused.err, r"virtguard: refused second: ephemeral-storage: needs 39\.\d+ MiB, 23\.\d+ MiB free of "
                                      rf"{SIZE_MIB} MiB")
        self.assertEqual(host.virsh("start", "small", "--paused").status, 0)
        self.assertEqual(host.held(STORAGE, "capacity"), SIZE_MIB * MIB)
        host.virsh("destroy", "first")
        self.assertEqual(host.virsh("start", "second", "--paused").status, 0)

    def test_what_a_guest_has_written_is_used_and_no_longer_owed(self):
        path = image("raw.img", 40, "raw")
        self.define("writes", disk(path, "raw"))
        self.assertEqual(host.virsh("start", "writes", "--paused").status, 0)
        lab.wait_until(host.ledger_agrees, "it runs")
        self.look_again()
        lab.wait_until(lambda: host.held(STORAGE) == owed(path, "raw"), "its image is read")
        free = host.held(STORAGE, "free")
        with open(path, "r+b") as written:
            written.write(b"x" * (30 * MIB))
        # A start is refused only after all images were read again.
        result, _ = prepare("other", disk(image("other.img", 23, "raw"), "raw"))
        self.assertEqual(result.status, 0, result)
        result, _ = prepare("another", disk(image("another.img", 23, "raw"), "raw"))
        self.assertEqual(result.status, 1, result)
        self.assertEqual(host.held(STORAGE), owed(path, "raw"))
        self.assertEqual(owed(path, "raw"), 10 * MIB)
        self.assertAlmostEqual(host.held(STORAGE, "free") + host.held(STORAGE, "pending"), free, delta=MIB)

    def test_sizes_are_those_that_qemu_img_tells(self):
        for kind, name, *options in (("raw", "raw"), ("qcow", "qcow"), ("qcow2", "qcow2"), ("qed", "qed"), ("vmdk", "vmdk"),
                                     ("vdi", "vdi"), ("vpc", "vpc"), ("vpc", "vpc", "-o", "subformat=fixed"),
                                     ("qcow2", "old", "-o", "compat=0.10")):
            with self.subTest(kind, options=options):
                path = image(f"{name}.img", 24, kind, *options)
                done = lab.ctl("check", "--json", "-", stdin=lab.domain_xml("web", devices=disk(path, kind)))
                self.assertEqual(json.loads(done.out)["demand"].get(STORAGE, 0), owed(path, kind), done)

    def test_an_overlay_grows_and_what_is_behind_it_does_not(self):
        base = image("base.qcow2", 50)
        overlay = image("overlay.qcow2", 24, "qcow2", "-b", base, "-F", "qcow2")
        done = lab.ctl("check", "--json", "-", stdin=lab.domain_xml("web", devices=disk(overlay)))
        self.assertEqual(json.loads(done.out)["demand"][STORAGE], owed(overlay))

    def test_an_image_that_is_not_what_the_xml_says(self):
        path = IMAGES / "forged.qcow2"
        path.write_bytes(b"no image" * 100)
        host.reload_policy(policy('unknown = "refuse"'))
        result, _ = prepare("forged", disk(path))
        self.assertEqual((result.status, result.err), (1, f"virtguard: refused forged: how much {path} may grow is not "
                                                          "known: it is no qcow2 image"))
        host.reload_policy(policy())
        result, _ = prepare("forged", disk(path))
        self.assertEqual(result.status, 0, result)
        self.assertIn(f"forged: how much {path} may grow is not known: it is no qcow2 image", host.daemon_log())


class Hanging(unittest.TestCase):
    def tearDown(self):
        host.reload_policy(policy())
        give_places_back()

    def test_a_file_system_that_hangs_holds_up_only_what_is_on_it(self):
        asks, at_once = 200, 4
        path = image("there.qcow2", 1, "qcow2", "-o", "preallocation=full")  # owes nothing, however many have it

        def ask_others(kind):
            """Starts with images elsewhere, and without any: the slowest of them, in seconds."""
            devices = [disk(path), ""]
            with concurrent.futures.ThreadPoolExecutor(at_once) as threads:
                answers = list(threads.map(lambda i: prepare(f"other-{i}", devices[i % 2]), range(asks)))
            self.assertEqual({result.status for result, _ in answers}, {0})
            seconds = sorted(seconds for _, seconds in answers)
            print(f"{kind}: of {asks} answers, {at_once} at once: median {statistics.median(seconds) * 1000:.1f} ms, "
                  f"slowest {seconds[-1] * 1000:.1f} ms")
            return seconds[-1]

        host.reload_policy(policy(paths=(IMAGES, HANGING)))
        ask_others("before")
        with HangingFileSystem() as hanging, concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(prepare, "waits", disk(HANGING / "a.qcow2"))
            self.assertLess(ask_others("meanwhile"), PATIENCE)
            result, seconds = waiting.result()
            self.assertEqual(result.status, 0, result)
            self.assertGreaterEqual(seconds, PATIENCE)
            self.assertIn(f"waits: how much {HANGING}/a.qcow2 may grow is not known: it could not be read in time",
                          host.daemon_log())
            # Policies are read, and take effect.
            host.reload_policy(policy('unknown = "refuse"', paths=(IMAGES, HANGING)))
            result, _ = prepare("refused", disk(HANGING / "a.qcow2"))
            self.assertEqual((result.status, result.err),
                             (1, f"virtguard: refused refused: how much {HANGING}/a.qcow2 may grow is not known: it could "
                                 "not be read in time"))
            self.assertLess(ask_others("after it"), PATIENCE)
            lab.wait_until(lambda: host.status()["problems"] == [f"storage: {HANGING}: no answer"], "the state says so")
            began = time.monotonic()
            host.stop_daemon()
            host.start_daemon()
            self.assertLess(time.monotonic() - began, 5)
            # One that starts then knows nothing of it, and answers all the same.
            self.assertLess(ask_others("started then"), PATIENCE + 0.2)
            hanging.end()
            lab.wait_until(lambda: host.status()["problems"] != [f"storage: {HANGING}: no answer"], "it was let go")

    def test_a_link_to_a_file_system_that_hangs_holds_up_no_other_image_beside_it(self):
        link = IMAGES / "link.qcow2"
        link.symlink_to(HANGING / "a.qcow2")
        self.addCleanup(link.unlink)
        path = image("beside.qcow2", 1)
        self.addCleanup(path.unlink)
        with HangingFileSystem():
            result, _ = prepare("linked", disk(link))
            self.assertEqual(result.status, 0, result)
            self.assertIn(f"linked: how much {link} may grow is not known: it could not be read in time", host.daemon_log())
            for number in range(3):
                result, seconds = prepare(f"beside-{number}", disk(path))
                self.assertEqual(result.status, 0, result)
                self.assertLess(seconds, PATIENCE)
            self.assertNotIn(f"how much {path} may grow is not known", host.daemon_log())

    def test_doctor_does_not_vouch_for_guests_whose_storage_hangs(self):
        host.reload_policy(policy(paths=(HANGING,)))
        with HangingFileSystem():
            done = lab.ctl("doctor", "--guests")
        self.assertEqual(done.status, 1, done)  # for which the package begins by observing
        self.assertIn("storage: has not answered for 10 s: who would be refused for want of it is not known", done.err)

    def test_a_daemon_that_storage_does_not_let_end_makes_room_for_the_next(self):
        for number in signal.SIGTERM, signal.SIGKILL:
            host.reload_policy(policy(paths=(IMAGES, HANGING)))
            with self.subTest(number.name), HangingFileSystem(for_good=True) as hanging:
                prepare("waits", disk(HANGING / "a.qcow2"))
                old = host.abandon_daemon(number)
                lab.wait_until(lambda: not is_locked(LOCK), "the run folder is free")
                self.assertIsNone(old.poll())  # it is still there
                host.start_daemon()
                self.assertEqual(prepare("other")[0].status, 0)
                hanging.end()
                old.wait(timeout=60)


if __name__ == "__main__":
    lab.main()
