#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Boots a machine and runs the tests of virtguard's package in it: run.py FOLDER [TESTS...]

FOLDER is what './dev vm' has built: disk.img, root/, and virtguard.deb. TESTS are names out of ORDER; the first
one installs the package, and always runs.
"""
import importlib
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

import machine
import suite

AUTOPKGTESTS = pathlib.Path(__file__).resolve().parents[2] / "packaging/debian/tests"

ORDER = ["install", "nodes", "live", "storage", "restarts", "unavailable", "bus", "kept", "boot", "upgrade"]
LIMIT_SECONDS = int(100 * 60 * machine.PATIENCE)


class Progress(unittest.TextTestResult):
    """A line for each test that begins, with the minutes that have passed, and one for how it ended."""
    began = time.monotonic()

    def startTest(self, test):
        self._test_began = time.monotonic()
        minutes, seconds = divmod(int(self._test_began - self.began), 60)
        self.stream.write(f"{minutes:3}:{seconds:02} ")
        super().startTest(test)

    def getDescription(self, test):
        if not isinstance(test, unittest.TestCase):  # what a whole class needs
            return str(test)
        return f"{test.__module__}: {test._testMethodName.removeprefix('test_').replace('_', ' ')}"

    def stopTest(self, test):
        self.stream.writeln(f"       ({time.monotonic() - self._test_began:.0f} s)")
        self.stream.flush()
        super().stopTest(test)


class AsWritten(unittest.TestLoader):
    """Tests in the order of their file."""

    def getTestCaseNames(self, testCaseClass):
        return [name for name in vars(testCaseClass) if name.startswith("test_")]


def newer_package(package, target):
    """The same package with a higher version."""
    tree = target.parent / "newer"
    shutil.rmtree(tree, ignore_errors=True)
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN/control"
    lines = [f"{line}+newer" if line.startswith("Version: ") else line for line in control.read_text().splitlines()]
    control.write_text("\n".join(lines) + "\n")
    subprocess.run(["dpkg-deb", "--build", tree, target], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(tree)


def make_payload(folder):
    """The machine's second disk: the package, a newer one, its autopkgtests, and an image for guests."""
    payload = folder / "payload"
    shutil.rmtree(payload, ignore_errors=True)
    payload.mkdir()
    shutil.copy(folder / "virtguard.deb", payload)
    newer_package(folder / "virtguard.deb", payload / "newer.deb")
    shutil.copytree(AUTOPKGTESTS, payload / "tests")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", payload / "image.qcow2", "256M"], check=True)
    subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-d", payload, folder / "payload.img", "64M"], check=True)


def keep_logs(host, folder):
    """What happened in the machine, for whoever looks for the reason."""
    for name, command in (("journal.log", "journalctl -b all -o short-precise"),
                          ("qemu.log", "tail -n 50 /var/log/libvirt/qemu/*.log")):
        try:
            (folder / name).write_text(host.run(command).out + "\n")
        except (OSError, RuntimeError) as error:
            print(f"{name}: {error}")
    print(f"logs of the machine: {folder}/console.log, journal.log, qemu.log")


def out_of_time(*_):
    raise TimeoutError(f"the machine's time is over: {LIMIT_SECONDS // 60} minutes")


def run_tests(names):
    loader = AsWritten()
    tests = [loader.loadTestsFromModule(importlib.import_module(f"{name}_test")) for name in names]
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Progress, failfast=True)
    return runner.run(unittest.TestSuite(tests))


def main():
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    if unknown := set(names) - set(ORDER):
        sys.exit(f"vm: no tests '{' '.join(sorted(unknown))}', there are: {' '.join(ORDER)}")
    names = [name for name in ORDER if name == "install" or name in names or not names]
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(LIMIT_SECONDS)
    make_payload(folder)
    print(f"==> booting {folder.name}, with {machine.NODES} NUMA nodes and without KVM: about a minute", flush=True)
    try:
        with machine.Machine(folder) as suite.host:
            result = run_tests(names)
            if not result.wasSuccessful():
                keep_logs(suite.host, folder)
    finally:
        signal.alarm(0)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
