#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What `meson install` installs, whatever the umask of who does it: installed_test.py BUILD"""
import os
import subprocess
import sys
import tempfile
import unittest

import installed

BUILD = ""


class Installed(unittest.TestCase):
    maxDiff = None

    def test_all_that_is_installed_is_listed_with_its_mode_and_is_for_root_to_change(self):
        for umask in (0o000, 0o077):
            with self.subTest(umask=f"{umask:03o}"), tempfile.TemporaryDirectory() as root:
                subprocess.run(["meson", "install", "--no-rebuild", "--quiet", "-C", BUILD, "--destdir", root], check=True,
                               umask=umask, stdout=subprocess.DEVNULL)
                files, wrong = installed.found(root)
                self.assertEqual(wrong, [])
                self.assertEqual(files, installed.expected(by_package=False))

    def test_the_table_lets_nobody_but_root_change_anything(self):
        for name, mode in installed.expected(by_package=True).items():
            self.assertEqual(mode, 0o755 if name.startswith(("bin/", "sbin/")) else 0o644, name)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("SKIPPED: what is installed is to be root's, and this is not root")
        sys.exit(77)
    BUILD = sys.argv.pop(1)
    unittest.main()
