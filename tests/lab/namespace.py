# SPDX-License-Identifier: Apache-2.0
"""A place to run a private libvirtd in, which ends whole and leaves the machine as it was.

The program that calls enter() is run again, as the only program of fresh mount, pid, network, host
name and IPC namespaces. Four processes see to it that nothing outlives it:

    guardian   of its own session; when all others are gone it puts the hugepage pools back
    outside    what the user started; on a signal it kills init
    init       pid 1 of the namespaces: reaps, and ends with the program; the kernel then kills
               whatever else is in there. It also dies with 'outside' (--pdeathsig, --kill-child)
    program    returns from enter()

Inside, /etc is a copy, /run, /tmp and /var are empty, and the folders in 'keep' are where they were.
"""
import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time

POOLS = "devices/system/node/node*/hugepages/hugepages-*/nr_hugepages"
# For a libvirtd that runs its guests as root, with nothing that a namespace does not have.
QEMU_CONF = """
security_driver = "none"
cgroup_controllers = []
user = "root"
group = "root"
namespaces = []
stdio_handler = "file"
"""
_INSIDE = "VIRTGUARD_LAB_INSIDE"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def enter(keep, not_root_status=77):
    """Returns inside; outside it ends the process with the status that the inside ended with."""
    if _INSIDE in os.environ:
        _fork_from_init()
        make_private(keep)
        return
    if os.geteuid() != 0:
        print("skipped: needs root, for a private libvirtd in namespaces of its own")
        sys.exit(not_root_status)
    sys.exit(_outside())


def _outside():
    def stop(number, _frame):
        raise SystemExit(128 + number)

    for number in _SIGNALS:
        signal.signal(number, stop)
    lock = _lock_machine()
    alive = _start_guardian(lock)
    namespaces = ["--mount", "--propagation", "private", "--pid", "--mount-proc", "--net", "--uts", "--ipc"]
    inside = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "--fork", "--kill-child=KILL",
         sys.executable, *sys.argv],
        env={**os.environ, _INSIDE: "1"}, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return inside.wait()
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        _end_init(inside)
        os.close(lock)
        os.close(alive.pipe)
        os.waitpid(alive.guardian, 0)


def _end_init(unshare):
    """Tells init to end, until it did: before its handler is there, pid 1 does not hear signals."""
    while unshare.poll() is None:
        try:
            init = pathlib.Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
            os.kill(int(init[0]) if init else unshare.pid, signal.SIGTERM)
        except OSError:
            pass  # it has just ended
        try:
            unshare.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            pass


def _lock_machine():
    """One lab at a time: hugepage pools are the machine's. A folder is locked, to leave no file."""
    lock = os.open("/sys/kernel/mm", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for another lab on this machine to end", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


class _Alive:
    def __init__(self, guardian, pipe):
        self.guardian = guardian
        self.pipe = pipe


def _start_guardian(lock):
    """Forks the guardian, which holds the lock too and waits for the end of the pipe's writer."""
    found = {path: path.read_text() for path in pathlib.Path("/sys").glob(POOLS)}
    read_end, write_end = os.pipe()
    guardian = os.fork()
    if guardian:
        os.close(read_end)
        return _Alive(guardian, write_end)
    try:
        os.setsid()
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        os.close(write_end)
        os.read(read_end, 1)
        _restore_pools(found)
    finally:
        os._exit(0)


def _restore_pools(found):
    for path, value in found.items():
        if path.read_text() != value:
            path.write_text(value)
    # Pages in the hands of a QEMU that is being killed are surplus until it is gone.
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and any(
            int((path.parent / "surplus_hugepages").read_text()) for path in found):
        time.sleep(0.05)


def _fork_from_init():
    program = os.fork()
    if program == 0:
        return
    for number in _SIGNALS:
        signal.signal(number, lambda number, _frame: os._exit(128 + number))
    while True:
        pid, status = os.wait()
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def make_private(keep, host_name="lab"):
    """For the inside of new mount and host name namespaces: what enter() promises of folders."""
    kept = [(path, os.open(path, os.O_PATH | os.O_DIRECTORY)) for path in keep]
    for path in ("/run", "/tmp"):
        _mount("-t", "tmpfs", "-o", "mode=1777", "lab", path)
    subprocess.run(["cp", "-a", "/etc", "/run/etc"], check=True)
    _mount("--bind", "/run/etc", "/etc")
    _mount("-t", "tmpfs", "lab", "/var")
    for path in ("lib", "log", "cache", "tmp"):
        os.mkdir(f"/var/{path}")
    os.symlink("/run", "/var/run")
    for path, folder in kept:
        if not os.path.exists(path):  # it was below one of the folders that are hidden now
            os.makedirs(path)
            _mount("--no-canonicalize", "--rbind", f"/proc/self/fd/{folder}", path, keep=folder)
        os.close(folder)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["hostname", host_name], check=True)


def _mount(*arguments, keep=None):
    subprocess.run(["mount", *arguments], check=True, pass_fds=() if keep is None else (keep,))
