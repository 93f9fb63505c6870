# SPDX-License-Identifier: Apache-2.0
"""A private libvirtd with virtguard's hook, and virtguardd: for integration tests and the demo.

    import lab
    with lab.Lab() as host:          # inside namespace.enter()
        host.write_policy('mode = "enforce"')
        host.define(lab.domain_xml("web-1", memory_mib=64))
        result = host.virsh("start", "web-1")

Guests have no disk (or a boot sector) and run under TCG. Nothing here outlives the namespaces.
"""
import concurrent.futures
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
import uuid as uuids
import xml.sax.saxutils

import namespace

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("VIRTGUARD_BUILD", ROOT / "build")).resolve()
MIB = 1 << 20
MAP_HUGETLB = 0x40000  # linux/mman.h, with the kernel's default size

DAEMON = BUILD / "src/daemon/virtguardd"
HOOK = BUILD / "hooks/virtguard-hook"
CTL = BUILD / "src/ctl/virtguardctl"

# What a unit of systemd has; sanitizers' options pass.
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C",
               **{name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}}

HOOKS = pathlib.Path("/etc/libvirt/hooks/qemu.d")
STATUS = pathlib.Path("/run/libvirt/qemu")
POLICY = pathlib.Path("/etc/virtguard/virtguard.toml")
KEEP_NOTHING = pathlib.Path("/etc/virtguard/conf.d/keep-nothing.toml")
NODES = pathlib.Path("/sys/devices/system/node")
HUGETLBFS = pathlib.Path("/run/hugepages")

LIBVIRTD_CONF = """
auth_unix_rw = "none"
auth_unix_ro = "none"
log_outputs = "3:file:/var/log/libvirtd.log"
log_filters = "4:util.netdev 4:util.cgroup 4:util.gdbus"
"""

# Writes a line "NAME OPERATION GUEST=STATE ...". What hooks only tell is heard when they have ended, so that is
# waited for.
RECORDED = pathlib.Path("/run/hooks-recorded")
RECORD_HOOK = f"""states() {{ {CTL} status | awk '/^DOMAIN /{{on = 1; next}} on {{printf " %s=%s", $1, $2}}'; }}
for try in 1 2 3 4 5 6 7 8 9 10; do
    states=$(states)
    case "$2$states " in
    started*" $1=pending "* | release*" $1=pending "* | release*" $1=running "*) sleep 0.1 ;;
    *) break ;;
    esac
done
echo "$1 $2 $states" >>{RECORDED}
"""

# What a guest's start and end are in there, where virtguard keeps its place for a while.
STARTED = ["prepare pending", "start pending", "started running"]
ENDED = ["stopped running", "release returning"]

# A guest that switches itself off at once: PIIX4's PM1a control register, SLP_EN with the S5 type.
#   mov dx, 0x604; mov ax, 0x2000; out dx, ax; hlt
POWER_OFF = "ba0406b80020eff4"
# Waits for the power button first: enables it in PM1's enable register, writes a U to QEMU's -debugcon, and looks
# at PM1's status register until the button was pressed.
#   mov dx, 0x602; mov ax, 0x100; out dx, ax; mov al, 'U'; out 0xe9, al
#   mov dx, 0x600; 1: in ax, dx; test ah, 1; jz 1b; out dx, ax
WAIT_FOR_BUTTON = "ba0206b80001efb055e6e9ba0006edf6c40174faef"
# Tells that it has crashed (pvpanic).
#   mov dx, 0x505; mov al, 1; out dx, al; hlt
PANIC = "ba0505b001eef4"
# Gives its memory balloon, at BALLOON_ADDRESS, whatever size it is asked for, 18 times a second: finds the device's
# ports in BAR 0, and copies "num_pages" of its configuration to "actual".
#   mov eax, 0x80002810; mov dx, 0xcf8; out dx, eax; mov dl, 0xfc; in eax, dx; and al, 0xfc; mov bx, ax
#   1: lea dx, [bx+0x14]; in eax, dx; add dx, 4; out dx, eax; hlt; jmp 1b
FOLLOW_BALLOON = "66b810280080baf80c66efb2fc66ed24fc89c38d571466ed83c20466eff4ebf3"
BALLOON_ADDRESS = "<address type='pci' domain='0' bus='0' slot='5' function='0'/>"


def enter():
    """Returns inside the namespaces; programs call it before they make a Lab."""
    namespace.enter(keep=[str(ROOT), str(BUILD)])


def wait_until(question, what, seconds=20):
    """Asks until the answer is true, and returns it; an error that says what did not come."""
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds} s still not: {what}")
        time.sleep(0.02)
    return answer


def domain_xml(name, memory_mib=64, vcpus=1, *, hugepages=False, scheduler=None, nodeset=None,
               uuid=None, disk=None, arguments=(), metadata="", more="", devices=""):
    """A small TCG guest. arguments are handed to QEMU as they are; metadata, more and devices are more XML."""
    def text(value):
        return xml.sax.saxutils.escape(str(value))

    if scheduler is not None:
        metadata += ('<virtguard:admission xmlns:virtguard="https://virtguard.org/xmlns/admission/1">'
                     f"<virtguard:scheduler>{text(scheduler)}</virtguard:scheduler></virtguard:admission>")
    parts = [f"<name>{text(name)}</name>", f"<uuid>{uuid or uuids.uuid4()}</uuid>",
             f"<metadata>{metadata}</metadata>" if metadata else "",
             f"<memory unit='MiB'>{memory_mib}</memory>",
             "<memoryBacking><hugepages/></memoryBacking>" if hugepages else "",
             f"<vcpu>{vcpus}</vcpu>",
             f"<numatune><memory mode='strict' nodeset='{nodeset}'/></numatune>" if nodeset else "",
             "<os><type arch='x86_64' machine='pc'>hvm</type></os>",
             "<features><acpi/></features>", more,
             "<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>",
             f"<disk type='file'><driver type='{'qcow2' if str(disk).endswith('.qcow2') else 'raw'}'/>"
             f"<source file='{disk}'/><target dev='hda'/></disk>" if disk else "",
             devices, "<controller type='usb' model='none'/><memballoon model='none'/></devices>",
             "<qemu:commandline>" + "".join(f"<qemu:arg value='{text(a)}'/>" for a in arguments)
             + "</qemu:commandline>" if arguments else ""]
    return ("<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>"
            + "".join(parts) + "</domain>")


class Result:
    """How a command ended: status, and its output without the spaces around it."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out.strip(), err.strip()

    def __repr__(self):
        return f"status {self.status}, stdout {self.out!r}, stderr {self.err!r}"


def command(*words, stdin="", seconds=60):
    done = subprocess.run([str(word) for word in words], input=stdin, capture_output=True, text=True,
                          timeout=seconds, env=ENVIRONMENT, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def ctl(*words, stdin=""):
    return command(CTL, *words, stdin=stdin)


def is_alive(pid_file):
    """Whether the process of a pid file runs. A zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{int(pid_file.read_text())}/stat").read_text()
    except (OSError, ValueError):  # it is being written, or both are gone
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def processes_called(name):
    """Pids of the processes of that name, of which the kernel knows 15 characters."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name[:15]:
                found.append(int(path.parent.name))
        except OSError:
            pass  # it has ended
    return found


def has_socket(pid):
    """Whether a process has a socket open."""
    try:
        return any(os.readlink(path).startswith("socket:") for path in pathlib.Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it has ended
        return False


def take_hugepages(pages):
    """Maps and touches hugepages as some other program would; close() gives them back."""
    taken = mmap.mmap(-1, pages * 2 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_HUGETLB)
    for page in range(pages):
        taken[page * 2 * MIB] = 1
    return taken


def add_account(database, line):
    """Adds a user or group to the lab's copy of /etc, unless there is one of that name."""
    path = pathlib.Path("/etc", database)
    names = {entry.split(":")[0] for entry in path.read_text().splitlines()}
    if line.split(":")[0] not in names:
        path.write_text(path.read_text() + line)


def print_logs():
    for folder in (pathlib.Path("/var/log"), pathlib.Path("/run/peer/log")):
        for path in (folder / name for name in ("virtguardd.log", "libvirtd.log", "libvirtd.out")):
            if path.exists():
                lines = path.read_text(errors="replace").splitlines()[-40:]
                print(f"--- the end of {path}", *lines, sep="\n", flush=True)


class HugepagePool:
    """The 2 MiB pool of the first NUMA node that has memory. The guardian puts it back."""

    def __init__(self):
        pools = sorted(NODES.glob("*/hugepages/hugepages-2048kB"))
        self.folder = pools[0] if pools else None

    def read(self, counter):
        return int((self.folder / f"{counter}_hugepages").read_text()) if self.folder else 0

    def add_free(self, pages):
        """Grows the pool until that many pages are free in it."""
        if self.folder is None:
            raise RuntimeError("this kernel has no 2 MiB hugepages")
        wanted = self.read("nr") + pages - self.read("free")
        (self.folder / "nr_hugepages").write_text(str(wanted))
        if self.read("free") < pages:
            raise RuntimeError(f"the kernel gave {self.read('free')} of {pages} hugepages: memory is too fragmented")


class Lab:
    """libvirtd and virtguardd; with daemon=False the hook and the daemon are left out."""

    def __init__(self, policy="", hugepages=0, daemon=True):
        self.pool = HugepagePool()
        self._policy, self._hugepages, self._with_daemon = policy, hugepages, daemon
        self._libvirtd = self._daemon = None
        self._recorded = 0  # characters of RECORDED that were read
        self._folder = pathlib.Path("/var/lab")  # XML of guests, disks
        self._folder.mkdir(exist_ok=True)

    def __enter__(self):
        self._write_etc()
        if self._hugepages:
            HUGETLBFS.mkdir()
            subprocess.run(["mount", "-t", "hugetlbfs", "-o", "pagesize=2M", "lab", HUGETLBFS], check=True)
            self.pool.add_free(self._hugepages)
            with open("/etc/libvirt/qemu.conf", "a", encoding="utf-8") as conf:
                conf.write(f'hugetlbfs_mount = "{HUGETLBFS}"\n')
        if self._with_daemon:
            os.symlink(HOOK, HOOKS / "50-virtguard")
            self.write_policy(self._policy)
            self.start_daemon()
        self.start_libvirtd()
        return self

    def __exit__(self, *_):
        for process in (self._daemon, self._libvirtd):
            if process and process.poll() is None:
                process.terminate()
                process.wait(timeout=60)

    @staticmethod
    def _write_etc():
        for path in ("/etc/libvirt", "/etc/virtguard"):
            shutil.rmtree(path, ignore_errors=True)
        for path in ("/etc/libvirt/hooks/qemu.d", "/etc/virtguard", "/var/lib/virtguard"):
            os.makedirs(path, exist_ok=True)
        host_uuid = uuids.uuid5(uuids.NAMESPACE_DNS, socket.gethostname())
        pathlib.Path("/etc/libvirt/libvirtd.conf").write_text(f'{LIBVIRTD_CONF}host_uuid = "{host_uuid}"\n')
        pathlib.Path("/etc/libvirt/qemu.conf").write_text(namespace.QEMU_CONF)
        pathlib.Path("/etc/hosts").write_text("127.0.0.1 localhost lab\n")
        # libvirtd looks for its defaults even where qemu.conf says root, and libvirt-daemon-system,
        # which makes them, is not needed for anything else.
        for database, line in (("passwd", "libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin\n"),
                               ("group", "libvirt-qemu:x:64055:\n"), ("group", "kvm:x:64054:\n")):
            add_account(database, line)

    # --- processes

    def start_libvirtd(self):
        # A copy, since an AppArmor profile of this machine's own libvirtd goes by the path, and would
        # forbid it to run a hook that is not installed. It is made once: a child of a killed one may still be
        # about to become something else.
        program = pathlib.Path("/run/libvirtd")
        if not program.exists():
            shutil.copy("/usr/sbin/libvirtd", program)
        with open("/var/log/libvirtd.out", "ab") as log:
            self._libvirtd = subprocess.Popen([program], stdout=log, stderr=log, env=ENVIRONMENT)
        wait_until(self._libvirtd_answers, "libvirtd answers", 60)

    def _libvirtd_answers(self):
        if self._libvirtd.poll() is not None:
            print_logs()
            raise RuntimeError(f"libvirtd ended with {self._libvirtd.returncode}")
        return self.virsh("version").status == 0

    def stop_libvirtd(self, number=signal.SIGTERM):
        self._libvirtd.send_signal(number)
        self.wait_for_libvirtd_end()

    def wait_for_libvirtd_end(self):
        return self._libvirtd.wait(timeout=60)

    @property
    def libvirtd_pid(self):
        return self._libvirtd.pid

    @property
    def daemon_pid(self):
        return self._daemon.pid

    def start_daemon(self, *options):
        self._keep_room()
        with open("/var/log/virtguardd.log", "ab") as log:
            self._daemon = subprocess.Popen([DAEMON, *options], stdout=log, stderr=log,
                                            env=ENVIRONMENT)
        wait_until(self._daemon_answers, "virtguardd answers")

    def _daemon_answers(self):
        if self._daemon.poll() is not None:
            print_logs()
            raise RuntimeError(f"virtguardd ended with {self._daemon.returncode}")
        return ctl("status", "--json").status == 0

    def stop_daemon(self, number=signal.SIGTERM):
        self._daemon.send_signal(number)
        return self.wait_for_daemon_end()

    def abandon_daemon(self, number):
        """As stop_daemon(), of one that may not be able to end; its process."""
        self._daemon.send_signal(number)
        return self._daemon

    def wait_for_daemon_end(self):
        return self._daemon.wait(timeout=60)

    def write_policy(self, text):
        POLICY.write_text(text)

    def write_hook(self, name, script):
        """Puts a shell script into qemu.d; libvirtd must have known some hook when it started."""
        path = HOOKS / name
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)

    @staticmethod
    def remove_hook(name):
        (HOOKS / name).unlink(missing_ok=True)

    def record_hooks(self):
        """From now on hooks_seen() tells what libvirt told its hooks, and what virtguardd then held."""
        self.write_hook("90-record", RECORD_HOOK)

    def hooks_seen(self):
        """What came since it was last asked: "OPERATION STATE" in lists by guest; "-" where nothing is held."""
        text = RECORDED.read_text()[self._recorded:] if RECORDED.exists() else ""
        self._recorded += len(text)
        seen = {}
        for line in text.splitlines():
            name, operation, states = line.split(" ", 2)
            states = dict(state.split("=") for state in states.split())
            seen.setdefault(name, []).append(f"{operation} {states.get(name, '-')}")
        return seen

    def reload_policy(self, text):
        """Puts a policy in the place of the old one; returns when the daemon has read it."""
        self.write_policy(text)
        self._reload()

    def _reload(self):
        before = self.daemon_log()
        self.signal_reload()
        wait_until(lambda: "policy" in self.daemon_log()[len(before):], "virtguardd read its policy again")

    def end_kept_places(self):
        """What is kept for guests that may return is kept no longer, as by a policy that keeps nothing."""
        KEEP_NOTHING.parent.mkdir(exist_ok=True)
        KEEP_NOTHING.write_text('[claim]\nreturn = "0s"\n')
        self._reload()
        wait_until(lambda: "returning" not in self.ledger().values(), "no place is kept")
        KEEP_NOTHING.unlink()
        self._reload()

    def signal_reload(self):
        self._daemon.send_signal(signal.SIGHUP)

    @staticmethod
    def daemon_log():
        return pathlib.Path("/var/log/virtguardd.log").read_text()

    # --- guests

    @staticmethod
    def virsh(*words, seconds=120):
        return command("virsh", "--connect", "qemu:///system", *words, seconds=seconds)

    def define(self, xml_text):
        path = self._folder / f"{uuids.uuid4()}.xml"
        path.write_text(xml_text)
        done = self.virsh("define", path)
        assert done.status == 0, done

    def boot_disk(self, code=POWER_OFF):
        """The path of a disk whose boot sector is that code, in hexadecimal."""
        path = self._folder / f"{code}.img"
        path.write_bytes((bytes.fromhex(code).ljust(510, b"\0") + b"\x55\xaa").ljust(MIB, b"\0"))
        return path

    def start_all(self, names, *options):
        """Starts guests at once; results by name."""
        with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
            results = threads.map(lambda name: self.virsh("start", name, *options), names)
            return dict(zip(names, results))

    def running(self):
        """Names of the guests that libvirt runs."""
        return set(self.virsh("list", "--name").out.split())

    def destroy_all(self):
        names = self.running()
        if names:
            with concurrent.futures.ThreadPoolExecutor(len(names)) as threads:
                list(threads.map(lambda name: self.virsh("destroy", name), names))

    def kill_all(self):
        """Also what destroy cannot end: libvirt 9.0, killed in a start, may go on with a guest whose job never ends,
        whatever becomes of its QEMU. Without the guest's status file the next libvirtd does not know it."""
        self.stop_libvirtd(signal.SIGKILL)
        for name in self.qemus():
            os.kill(self.qemu_pid(name), signal.SIGKILL)
        for path in STATUS.glob("*.xml"):
            path.unlink()
        self.start_libvirtd()

    @staticmethod
    def qemu_pid(name):
        return int((STATUS / f"{name}.pid").read_text())

    @staticmethod
    def qemus():
        """Names of the guests whose QEMU lives. Waits for nobody, unlike libvirt's list."""
        return {path.stem for path in STATUS.glob("*.pid") if path.stem != "driver" and is_alive(path)}

    @staticmethod
    def qemu_log(name):
        """QEMU's command lines and what it wrote; nothing where it was never started."""
        path = pathlib.Path(f"/var/log/libvirt/qemu/{name}.log")
        return path.read_text() if path.exists() else ""

    # --- what virtguard says

    @staticmethod
    def status():
        done = ctl("status", "--json")
        assert done.status == 0, done
        return json.loads(done.out)

    def held(self, resource, column="allocated"):
        return self.status()["host"][column].get(resource, 0)

    def ledger(self):
        """State by name of all that virtguard holds something for."""
        return {guest["name"]: guest["state"] for guest in self.status()["domains"]}

    def ledger_agrees(self):
        """Whether virtguard counts the guests that libvirt runs, and no others."""
        return self.ledger() == dict.fromkeys(self.running(), "running")

    @staticmethod
    def doctor():
        """What virtguardd, libvirt and the kernel do not agree on, a line each."""
        done = ctl("doctor", "--ledger")
        assert done.status in (0, 1), done
        return done.out if done.status else ""

    def settle(self, seconds=30):
        """Waits until the ledger agrees, also where a claim has to end by its lease: that runs between
        looks, which come each minute, or whenever virtguardd has connected to libvirt."""
        def agrees():
            try:
                return wait_until(self.ledger_agrees, "", 1.5)
            except TimeoutError:
                return self._look_again()
        wait_until(agrees, "the ledger is what libvirt runs", seconds)

    def _look_again(self):
        """Has libvirtd close the connection of virtguardd, which then connects and looks again."""
        for line in command("virt-admin", "srv-clients-list", "libvirtd").out.splitlines()[2:]:
            client = line.split()[0]
            if f"unix_process_id: {self.daemon_pid}" in command("virt-admin", "client-info", "libvirtd", client).out:
                command("virt-admin", "client-disconnect", "libvirtd", client)

    def policy_with_room(self, memory_mib, *, more=""):
        """A policy that leaves that much ordinary memory on this machine, and CPUs without end."""
        reserve_kib = self.held("memory", "capacity") // 1024 - memory_mib * 1024
        return f"""
[overcommit]
cpu = 1000
[memory]
overhead = "none"
[reserve]
memory = "{reserve_kib}KiB" # all but {memory_mib} MiB
{more}
"""

    @staticmethod
    def _keep_room():
        """Some virtual machines get more memory as they run: what a new daemon finds is reserved, too."""
        kib = sum(int(path.read_text().split("MemTotal:")[1].split()[0]) for path in NODES.glob("*/meminfo"))
        for pool in NODES.glob("*/hugepages/hugepages-*kB"):
            kib -= int((pool / "nr_hugepages").read_text()) * int(pool.name.split("-")[1][:-2])
        POLICY.write_text(re.sub(r'memory = "\d+KiB" # all but (\d+) MiB',
                                 lambda found: f'memory = "{kib - int(found[1]) * 1024}KiB" # all but {found[1]} MiB',
                                 POLICY.read_text()))


class Watch:
    """Sees how much memory guests ever held at once. They are called NAME-MIB, and what counts are their
    QEMUs: a place is given back only when its QEMU has ended. (libvirt's list is taken guest by guest, and
    waits for hooks meanwhile: it may show a guest together with the one that has got its place.)"""

    def __init__(self, host):
        self.most_mib, self.when = 0, ""
        self._host, self._ends = host, threading.Event()
        self._threads = concurrent.futures.ThreadPoolExecutor(1)

    def __enter__(self):
        self._watching = self._threads.submit(self._run)
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._watching.result()

    def _run(self):
        while not self._ends.wait(0.02):
            names = self._host.qemus()
            held = sum(int(name.rpartition("-")[2]) for name in names)
            if held > self.most_mib:
                self.most_mib, self.when = held, f"{sorted(names)}"


def main():
    """What an integration test's file ends with."""
    enter()
    for program in (DAEMON, HOOK, CTL):
        if not program.exists():
            sys.exit(f"{program} is not built")
    result = unittest.main(verbosity=2, exit=False).result
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    if not result.wasSuccessful():
        print_logs()
    sys.exit(not result.wasSuccessful())
