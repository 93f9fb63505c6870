# SPDX-License-Identifier: Apache-2.0
"""A Debian machine of four NUMA nodes, under QEMU without KVM. Nothing of it is on a network.

    with machine.Machine(folder) as host:      # folder: what './dev vm' has built
        host.run("virsh start web-1")

Commands go through QEMU's guest agent, whose answers need neither a network nor a login. VIRTGUARD_VM_PATIENCE=4 has all
limits four times as long, for where others use the processors, too.
"""
import base64
import json
import os
import pathlib
import shlex
import socket
import subprocess
import time

NODES = 4
CPUS = 2  # of nodes 0 and 1; the others have memory only, as CXL has
NODE_MIB = 1024
POOL_PAGES = 64  # of 2 MiB, on each node from the start
# By how much all limits are longer than where nothing else runs.
PATIENCE = float(os.environ.get("VIRTGUARD_VM_PATIENCE", "1"))
BOOT_SECONDS = 400  # it takes 60 where nothing else runs

KERNEL_COMMAND_LINE = ("root=/dev/vda rw console=ttyS0 security=apparmor apparmor=1 mitigations=off "
                       "hugepagesz=2M hugepages=" + ",".join(f"{node}:{POOL_PAGES}" for node in range(NODES)))


class Result:
    """How a command ended: status, and its output without the spaces around it."""

    def __init__(self, command, status, out, err):
        self.command, self.status, self.out, self.err = command, status, out.strip(), err.strip()

    def __repr__(self):
        return f"$ {self.command}\n{self.out}\n{self.err}\nstatus {self.status}"


class Agent:
    """One connection to the guest agent, which answers one question at a time."""

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._received = b""

    def close(self):
        self._socket.close()

    def synchronise(self, seconds):
        """Asks until the agent answers this question and not an older one; TimeoutError where none does."""
        number = time.monotonic_ns() % (1 << 31)
        self._send({"execute": "guest-sync", "arguments": {"id": number}})
        deadline = time.monotonic() + seconds * PATIENCE
        while self._answer(deadline).get("return") != number:
            pass

    def ask(self, question, **arguments):
        self._send({"execute": question, "arguments": arguments})
        answer = self._answer(time.monotonic() + 60 * PATIENCE)
        if "error" in answer:
            raise RuntimeError(f"{question}: {answer['error']['desc']}")
        return answer["return"]

    def _send(self, document):
        self._socket.settimeout(60)
        self._socket.sendall(json.dumps(document).encode() + b"\n")

    def _answer(self, deadline):
        while b"\n" not in self._received:
            self._socket.settimeout(max(0.01, deadline - time.monotonic()))
            part = self._socket.recv(1 << 16)
            if not part:
                raise ConnectionError("the machine has ended")
            self._received += part
        line, self._received = self._received.split(b"\n", 1)
        return json.loads(line)


class Machine:
    def __init__(self, folder, cpus=CPUS):
        self._folder, self._cpus = pathlib.Path(folder), cpus
        self._qemu = self._agent = None

    def __enter__(self):
        for name in ("run.qcow2", "agent.sock", "console.log"):
            (self._folder / name).unlink(missing_ok=True)
        subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", "disk.img", "-F", "raw", "run.qcow2"],
                       cwd=self._folder, check=True)
        # Its end is ours, also when this program is killed.
        self._qemu = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "nice", "-n", "5", *self._command_line()],
                                      cwd=self._folder)
        self.wait_for_boot()
        return self

    def __exit__(self, *_):
        if self._agent:
            self._agent.close()
        if self._qemu:
            self._qemu.kill()
            self._qemu.wait()

    def _command_line(self):
        words = ["qemu-system-x86_64", "-name", "virtguard-vm", "-accel", "tcg,thread=multi", "-cpu", "max",
                 "-m", str(NODES * NODE_MIB), "-smp", f"{self._cpus},sockets={self._cpus}"]
        for node in range(NODES):
            cpus = f",cpus={node}" if node < self._cpus else ""
            words += ["-object", f"memory-backend-ram,id=m{node},size={NODE_MIB}M",
                      "-numa", f"node,nodeid={node},memdev=m{node}{cpus}"]
        return words + ["-kernel", "root/vmlinuz", "-initrd", "root/initrd.img", "-append", KERNEL_COMMAND_LINE,
                        "-drive", "file=run.qcow2,if=virtio,cache=unsafe",
                        "-drive", "file=payload.img,if=virtio,format=raw,readonly=on",
                        "-nic", "none", "-display", "none", "-monitor", "none", "-serial", "file:console.log",
                        "-device", "virtio-serial", "-chardev", "socket,id=agent,path=agent.sock,server=on,wait=off",
                        "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]

    # --- the machine's life

    def attach(self):
        """For work on tests: uses a machine that another program has started."""
        self._connect(60)
        return self

    def _connect(self, seconds):
        if self._agent:
            self._agent.close()
        self._agent = Agent(os.path.relpath(self._folder / "agent.sock"))
        self._agent.synchronise(seconds)

    def _has_booted(self, old_boot):
        """Whether an agent answers that is not the one of the old boot, which goes on answering for a while."""
        if self._qemu and self._qemu.poll() is not None:
            raise RuntimeError(f"QEMU ended with {self._qemu.returncode}")
        try:
            self._connect(5)
            return self.boot_id() != old_boot
        except (OSError, RuntimeError):
            return False

    def wait_for_boot(self, old_boot=None):
        """Returns when systemd has nothing more to start."""
        wait_until(lambda: self._has_booted(old_boot), "the machine boots", BOOT_SECONDS)
        self.run("systemctl is-system-running --wait", seconds=BOOT_SECONDS)

    def boot_id(self):
        return self.run("cat /proc/sys/kernel/random/boot_id").out

    def reboot(self):
        boot = self.boot_id()
        self.start("systemctl reboot")
        self.wait_for_boot(boot)

    # --- commands

    def start(self, command, stdin=""):
        """Starts a shell command as root; finish() waits for it. The agent has no PATH of its own."""
        return command, self._agent.ask(
            "guest-exec", path="/bin/sh", arg=["-c", command],
            env=["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"],
            **{"capture-output": True, "input-data": base64.b64encode(stdin.encode()).decode()})["pid"]

    def finish(self, started, seconds=240):
        command, pid = started
        deadline = time.monotonic() + seconds * PATIENCE
        pause = 0.02
        while not (status := self._agent.ask("guest-exec-status", pid=pid))["exited"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"after {seconds} s still not ended: {command}")
            time.sleep(pause)
            pause = min(2, pause * 1.3)
        out, err = (base64.b64decode(status.get(key, "")).decode(errors="replace") for key in ("out-data", "err-data"))
        return Result(command, status.get("exitcode", -status.get("signal", 0)), out, err)

    def run(self, command, stdin="", seconds=240):
        return self.finish(self.start(command, stdin), seconds)

    def do(self, command, stdin="", seconds=240):
        """What has to succeed: its output."""
        result = self.run(command, stdin, seconds)
        if result.status != 0:
            raise AssertionError(f"this should have succeeded: {result}")
        return result.out

    def write(self, path, text, mode="644"):
        quoted = shlex.quote(path)
        self.do(f"mkdir -p $(dirname {quoted}) && cat >{quoted} && chmod {mode} {quoted}", stdin=text)


def wait_until(question, what, seconds=60):
    """Asks until the answer is true, and returns it; an error that says what did not come."""
    deadline = time.monotonic() + seconds * PATIENCE
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds} s still not: {what}")
        time.sleep(0.2)
    return answer
