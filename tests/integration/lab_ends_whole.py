#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The lab runs real guests, and whatever ends it, nothing of it is left on the machine."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
import uuid

import lab
import namespace

UUID_VARIABLE, PAGES_VARIABLE = "LAB_TEST_UUID", "LAB_TEST_PAGES"
GUEST_PAGES = 16
# More than the machine has, so that the lab has to make some.
PAGES = lab.HugepagePool().read("free") + GUEST_PAGES + 8


def guest_program():
    """Inside: two guests, one on hugepages; says so and stays."""
    lab.enter()
    with lab.Lab(hugepages=int(os.environ[PAGES_VARIABLE]), daemon=False) as host:
        host.define(lab.domain_xml("plain", uuid=os.environ[UUID_VARIABLE]))
        host.define(lab.domain_xml("huge", memory_mib=GUEST_PAGES * 2, hugepages=True))
        for name in ("plain", "huge"):
            print(host.virsh("start", name), flush=True)
        print("free pages", host.pool.read("free"), flush=True)
        signal.pause()


def pools():
    return {str(path): path.read_text() for path in pathlib.Path("/sys").glob(namespace.POOLS)}


def processes_that_mention(text):
    """Whatever runs on the machine with that in its command line or its environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (path / "cmdline").read_bytes() + (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            pass  # it has ended
    return found


class LabEndsWhole(unittest.TestCase):
    def start_guests(self, mark, stdout):
        outside = subprocess.Popen([sys.executable, __file__, "guests"], stdout=stdout, text=True,
                                   env={**os.environ, UUID_VARIABLE: mark, PAGES_VARIABLE: str(PAGES)})
        self.addCleanup(outside.wait)
        self.addCleanup(outside.kill)  # a failure too leaves no lab, for which the next one would wait
        return outside

    def end_by(self, number, status):
        pools_before, mounts_before = pools(), pathlib.Path("/proc/self/mounts").read_text()
        mark = str(uuid.uuid4())
        outside = self.start_guests(mark, subprocess.PIPE)
        with outside.stdout:
            said = [outside.stdout.readline().strip() for _ in range(3)]
            self.assertIn("Domain 'plain' started", said[0])
            self.assertIn("Domain 'huge' started", said[1])
            self.assertEqual(said[2], f"free pages {PAGES - GUEST_PAGES}")
            self.assertNotEqual(pools(), pools_before)
            outside.send_signal(number)
            self.assertEqual(outside.wait(timeout=20), status)
        lab.wait_until(lambda: not processes_that_mention(mark), "all its processes are gone")
        lab.wait_until(lambda: pools() == pools_before, "hugepage pools are as before")
        self.assertEqual(pathlib.Path("/proc/self/mounts").read_text(), mounts_before)

    def test_ctrl_c(self):
        self.end_by(signal.SIGINT, 130)

    def test_sigterm(self):
        self.end_by(signal.SIGTERM, 143)

    def test_kill_9(self):
        self.end_by(signal.SIGKILL, -signal.SIGKILL)

    def test_any_moment(self):
        before = pools()
        for tenths in range(1, 12, 2):
            mark = str(uuid.uuid4())
            outside = self.start_guests(mark, subprocess.DEVNULL)
            time.sleep(tenths / 10)  # the moment is what is tested
            outside.terminate()
            self.assertIn(outside.wait(timeout=20), (143, -signal.SIGTERM))
            lab.wait_until(lambda text=mark: not processes_that_mention(text), "all its processes are gone")
            self.assertEqual(pools(), before)


if __name__ == "__main__":
    if sys.argv[1:] == ["guests"]:
        sys.exit(guest_program())
    if os.geteuid() != 0:
        print("skipped: needs root, for a private libvirtd in namespaces of its own")
        sys.exit(77)
    unittest.main(verbosity=2)
