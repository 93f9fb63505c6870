# SPDX-License-Identifier: Apache-2.0
"""A Debian system in a folder: no systemd runs there, and there is no network. For the inside of
namespace.enter(), with which all that runs in it ends."""
import hashlib
import os
import pathlib
import shutil
import stat
import subprocess

# Other packages' caches, what tells that something was installed, and users, which stay.
_CHANGES_ANYWAY = ("proc", "sys", "dev", "run", "tmp", "var/cache", "var/log", "var/lib/apt", "var/lib/dpkg",
                   "var/lib/systemd/catalog", "etc/passwd", "etc/passwd-", "etc/group", "etc/group-", "etc/shadow",
                   "etc/shadow-", "etc/gshadow", "etc/gshadow-", "etc/.pwd.lock", "etc/ld.so.cache")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}


class Chroot:
    def __init__(self, folder, system):
        """system: a folder with a Debian system, of which this is a copy. Both folders stay."""
        for name in ("root", "changed", "work"):
            os.mkdir(f"{folder}/{name}")
        self.root = pathlib.Path(folder, "root")
        self._mount("-t", "overlay", "-o", f"lowerdir={system},upperdir={folder}/changed,workdir={folder}/work",
                    "overlay", ".")
        self._mount("-t", "proc", "proc", "proc")
        self._mount("--rbind", "/sys", "sys")
        self._mount("--rbind", "/dev", "dev")
        for name in ("run", "tmp"):
            self._mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", name)
        (self.root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        (self.root / "usr/sbin/policy-rc.d").chmod(0o755)

    def _mount(self, *arguments):
        subprocess.run(["mount", *arguments[:-1], self.root / arguments[-1]], check=True)

    def path(self, name):
        return self.root / name.lstrip("/")

    def write(self, name, text):
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, *command, status=0, text=""):
        """What it says on both outputs; an error where it ends with another status."""
        done = subprocess.run(["chroot", self.root, *command], input=text, env=ENVIRONMENT, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != status:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def start(self, *command):
        """A program that goes on."""
        with open(self.path("/tmp/log"), "ab") as log:
            return subprocess.Popen(["chroot", self.root, *command], env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log)

    def apt(self, *arguments):
        return self.run("apt-get", "-y", "-q", "--no-install-recommends", *arguments)

    def install(self, deb):
        shutil.copy(deb, self.path("/tmp/package.deb"))
        return self.apt("install", "--reinstall", "--allow-downgrades", "/tmp/package.deb")

    def files(self):
        """Path to what is there, of all that a package may leave."""
        found = {}
        for folder, names, files in os.walk(self.root):
            here = pathlib.Path(folder)
            names[:] = [name for name in names if str((here / name).relative_to(self.root)) not in _CHANGES_ANYWAY]
            for name in names + files:
                path = here / name
                relative = str(path.relative_to(self.root))
                if relative not in _CHANGES_ANYWAY:
                    found[relative] = _what_is_at(path)
        return found


def _what_is_at(path):
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        return f"link to {os.readlink(path)}"
    if stat.S_ISREG(mode):
        return f"{mode:o} {hashlib.sha1(path.read_bytes()).hexdigest()}"
    return f"{mode:o}"
