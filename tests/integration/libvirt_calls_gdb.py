# SPDX-License-Identifier: Apache-2.0
"""For gdb: writes a line "THREAD FUNCTION" for each call of libvirt's public API.

    LIBVIRT_CALLS=FILE gdb -batch -x libvirt_calls_gdb.py -p PID
    LIBVIRT_CALLS=FILE gdb -batch -x libvirt_calls_gdb.py --args PROGRAM ...

A line "ready" says that all breakpoints are set. What libvirt calls of itself is left out: only the
first frame outside the library counts, and a breakpoint of a call from inside has libvirt above it.
"""
import os
import subprocess

import gdb

OUT = open(os.environ["LIBVIRT_CALLS"], "w", buffering=1, encoding="utf-8")
LIBRARY = "libvirt.so.0"


class Call(gdb.Breakpoint):
    def stop(self):
        caller = gdb.newest_frame().older()
        if caller is None or LIBRARY not in (gdb.solib_name(caller.pc()) or ""):
            _, thread, _ = gdb.selected_thread().ptid
            OUT.write(f"{thread} {self.location}\n")
        return False


def public_functions():
    path = next(part.filename for part in gdb.objfiles() if LIBRARY in part.filename)
    symbols = subprocess.run(["nm", "-D", "--defined-only", os.path.realpath(path)],
                             capture_output=True, text=True, check=True).stdout
    for line in symbols.splitlines():
        _, kind, name = line.split()
        name, _, version = name.partition("@@")
        if kind == "T" and version.startswith("LIBVIRT_") and "PRIVATE" not in version:
            yield name


gdb.execute("set pagination off")
gdb.execute("set debuginfod enabled off")
gdb.execute("set breakpoint always-inserted on")
if gdb.selected_inferior().pid == 0:
    gdb.execute(f"catch load {LIBRARY}")
    gdb.execute("run")
for function in public_functions():
    Call(function)
OUT.write("ready\n")
gdb.execute("continue")
