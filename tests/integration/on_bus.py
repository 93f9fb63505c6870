# SPDX-License-Identifier: Apache-2.0
"""virtguardd alone, on a bus of its own, asked by busctl.

VIRTGUARD_TEST_BUS chooses the bus: dbus-daemon, which it is unless said, or dbus-broker.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess

import alone
import seen
from alone import DEADLINE, SOURCE

NAME, ROOT, MANAGER = "org.virtguard1", "/org/virtguard1", "org.virtguard1.Manager"
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
BUS = os.environ.get("VIRTGUARD_TEST_BUS") or "dbus-daemon"
BUS_PROGRAMS = {"dbus-daemon": ["dbus-daemon"], "dbus-broker": ["dbus-broker-launch", "systemd-socket-activate"]}

# As a system's bus is: what is not allowed is denied.
BUS_CONF = """<busconfig>
<type>system</type><listen>unix:path={folder}/bus</listen><auth>EXTERNAL</auth>
<policy context="default">
  <allow user="*"/><deny own="*"/><deny send_type="method_call"/>
  <allow send_type="signal"/>
  <allow send_requested_reply="true" send_type="method_return"/>
  <allow send_requested_reply="true" send_type="error"/>
  <allow receive_type="method_call"/><allow receive_type="method_return"/>
  <allow receive_type="error"/><allow receive_type="signal"/>
  <allow send_destination="org.freedesktop.DBus"/>
</policy>
<include>{source}/conf/org.virtguard1.conf</include>
{more}
</busconfig>
"""


def path_of(number):
    return f"{ROOT}/domain/00000000_0000_4000_8000_{number:012x}"


RETURN, ERROR = 2, 3  # types of messages


class Raw:
    """A client that does no more than it is told: it need not read, and unless it is to has little room for what it gets."""

    flags = 0  # of its calls

    def __init__(self, path, user=0, reads=False):
        self.socket = socket.socket(socket.AF_UNIX)
        if not reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        os.seteuid(user)  # the kernel tells the bus who a client was when it came
        try:
            self.socket.connect(path)
        finally:
            os.seteuid(0)
        self.socket.settimeout(DEADLINE)
        self.socket.sendall(b"\0AUTH EXTERNAL " + str(user).encode().hex().encode() + b"\r\n")
        self.socket.recv(100)
        self.socket.sendall(b"BEGIN\r\n")
        self.serial = 0
        self.call("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "Hello")

    def call(self, destination, path, interface, member, *texts):
        """Sends a call with these arguments. False: the bus takes no more for now."""
        body = b""
        for text in texts:
            body += b"\0" * (-len(body) % 4) + struct.pack("<I", len(text)) + text.encode() + b"\0"
        return self.call_with(destination, path, interface, member, b"s" * len(texts), body)

    def call_with(self, destination, path, interface, member, signature, body):
        self.serial += 1
        fields = b""
        for code, kind, value in ((1, b"o", path), (2, b"s", interface), (3, b"s", member), (6, b"s", destination)):
            fields += b"\0" * (-len(fields) % 8)
            fields += bytes((code, 1)) + kind + b"\0" + struct.pack("<I", len(value)) + value.encode() + b"\0"
        if signature:
            fields += b"\0" * (-len(fields) % 8) + bytes((8, 1)) + b"g\0" + bytes((len(signature),)) + signature + b"\0"
        message = struct.pack("<cBBBIII", b"l", 1, self.flags, 1, len(body), self.serial, len(fields)) + fields
        message += b"\0" * (-len(message) % 8) + body
        try:
            self.socket.sendall(message)
        except (BlockingIOError, TimeoutError):
            return False
        return True

    def read(self):
        """The next message to it: its type and its bytes."""
        start = self.receive(16)
        _, kind, _, _, body, _, fields = struct.unpack("<cBBBIII", start)
        return kind, start + self.receive(fields + -fields % 8 + body)

    def receive(self, count):
        data = b""
        while len(data) < count:  # a socket with a time-out knows no MSG_WAITALL
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("the bus has ended the connection")
            data += part
        return data

    def answer(self):
        """The next that is an answer."""
        while (message := self.read())[0] not in (RETURN, ERROR):
            pass
        return message

    def drain(self):
        """Reads what is there."""
        self.socket.setblocking(False)
        try:
            while self.socket.recv(1 << 20):
                pass
        except BlockingIOError:
            self.socket.settimeout(DEADLINE)


class BusTest(alone.DaemonTest):
    more_conf = '<limit name="max_connections_per_user">1000</limit>'

    def setUp(self):
        super().setUp()
        self.folder.chmod(0o755)  # for who is not root
        (self.folder / "bus.conf").write_text(BUS_CONF.format(folder=self.folder, source=SOURCE, more=self.more_conf))
        self.environment |= {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.folder}/bus", "LC_ALL": "C.UTF-8"}

    def start_bus(self):
        command = ["dbus-daemon", "--nofork"]
        if BUS == "dbus-broker":  # it gets its socket from whoever starts it
            command = ["systemd-socket-activate", f"--listen={self.folder}/bus", "--setenv=DBUS_SYSTEM_BUS_ADDRESS",
                       "dbus-broker-launch", "--scope=system"]
        address = self.folder / "bus"
        address.unlink(missing_ok=True)
        bus = self.run_for_test([*command, f"--config-file={self.folder}/bus.conf"], stderr=subprocess.DEVNULL)
        self.wait_for(address.exists, f"{BUS} listens")
        address.chmod(0o666)
        return bus

    def start(self):
        """Bus and daemon, which knows of what libvirt runs."""
        self.bus = self.start_bus()
        self.daemon = self.start_daemon()
        self.wait_for(lambda: self.property("State") == "ready", "virtguardd is on the bus")

    def busctl(self, *arguments, prefix=()):
        return subprocess.run([*prefix, "busctl", "--system", "--timeout=20", *arguments], env=self.environment,
                              capture_output=True, text=True, timeout=2 * DEADLINE)

    def ask(self, *arguments):
        """What busctl --json says of a call."""
        done = self.busctl("--json=short", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["data"] if done.stdout else None

    def method(self, name, *arguments):
        return self.ask("call", NAME, ROOT, MANAGER, name, *arguments)

    def property(self, name):
        done = self.busctl("--json=short", "get-property", NAME, ROOT, MANAGER, name)
        return json.loads(done.stdout)["data"] if done.returncode == 0 else None

    def properties(self):
        """Those of the manager."""
        found = self.ask("call", NAME, ROOT, "org.freedesktop.DBus.Properties", "GetAll", "s", MANAGER)[0]
        return {name: value["data"] for name, value in found.items()}

    def objects(self):
        """{path: {interface: {property: value}}}"""
        found = self.ask("call", NAME, ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")[0]
        return {path: {interface: {name: value["data"] for name, value in properties.items()}
                       for interface, properties in interfaces.items()} for path, interfaces in found.items()}

    def monitor(self):
        """What gdbus, which is not built on our library, hears: a function that returns all of it so far."""
        heard = self.folder / "heard"
        with open(heard, "wb") as file:
            self.run_for_test(["gdbus", "monitor", "--system", "--dest", NAME], stdout=file)
        self.wait_for(lambda: "is owned by" in heard.read_text(), "gdbus has found the name")
        return heard.read_text

    def connections(self, pid):
        """Unique names of what a process has on the bus."""
        return [line.split()[0] for line in self.busctl("list", "--unique", "--no-legend").stdout.splitlines()
                if line.split()[1] == str(pid)]

    def forge(self, destination, path, signal, *arguments):
        """A signal that nobody sends to one connection: it arrives there, whoever is listened to."""
        done = subprocess.run([*NOBODY, "gdbus", "emit", "--system", "--dest", destination, "--object-path", path,
                               "--signal", signal, *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=DEADLINE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def memory(self):
        """Resident bytes of virtguardd."""
        with open(f"/proc/{self.daemon.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+([0-9]+) kB", file.read())[1]) << 10


def make_way_for_broker():
    """dbus-broker-launch logs to the journal, or not at all runs; and dbus-broker has to be in /usr/bin."""
    alone.in_private_mounts()
    journal = seen.listen_as_journal()
    there = pathlib.Path(shutil.which("dbus-broker-launch")).parent
    if there != pathlib.Path("/usr/bin") and subprocess.run(
            ["mount", "-t", "overlay", "-o", f"lowerdir={there}:/usr/bin", "broker", "/usr/bin"], check=False).returncode:
        alone.skip("dbus-broker is not in /usr/bin, and this kernel has no overlayfs to put it there")
    return journal


def main():
    tools = (*BUS_PROGRAMS[BUS], "busctl", "gdbus", "setpriv")
    is_broker = BUS == "dbus-broker" and os.geteuid() == 0 and all(map(shutil.which, tools))
    with make_way_for_broker() if is_broker else contextlib.nullcontext():
        alone.main(tools)
