#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps ARCHITECTURE.md's arrows: which folder may include what. Also: an SPDX line in each source.

    tests/layering.py [ROOT]      0: all kept; 1: a line per violation
    tests/layering.py --self-test breaks each rule in a small tree of its own
"""
import pathlib
import re
import sys
import tempfile

ADAPTERS = {"host", "domxml", "policy", "wire", "loop", "virt", "json", "state", "bus", "metrics", "image"}
PROGRAMS = {"daemon", "ctl"}
EVERYTHING = ADAPTERS | PROGRAMS | {"core", "base"}

# A folder of src/ (and hooks/) may include files of these folders, besides its own.
MAY_INCLUDE = {
    "base": set(),
    "core": {"base"},
    **{adapter: {"base", "core"} for adapter in ADAPTERS},
    **{program: EVERYTHING - PROGRAMS for program in PROGRAMS},
    "hooks": {"wire", "base"},
}

# A foreign header may be included in these folders only; one that is not here, nowhere.
FOREIGN = {
    r"fmt/": set(MAY_INCLUDE),
    r"libvirt/": {"virt"},
    r"hwloc": {"host"},
    r"libxml/": {"domxml"},
    r"toml\+\+/": {"policy"},
    r"systemd/sd-bus": {"bus"},
    r"systemd/sd-(event|daemon)\.h": {"loop"},
    r"CLI/": PROGRAMS,
    r"nlohmann/": {"json"},
    r"zlib\.h": {"state"},
    r"libsmartcols/": {"ctl"},
}
# The C library and Linux, without which no folder below core can be.
SYSTEM = re.compile(r"(sys|linux|arpa|netinet)/|[a-z0-9_]+(\.h)?$")
# What core must not even ask for (it has no I/O, clock, log, thread, environment, random number).
NOT_IN_CORE = re.compile(r"(sys/|linux/|unistd\.h|fcntl\.h|time\.h|stdio\.h|stdlib\.h|iostream|fstream|cstdio|"
                         r"cstdlib|ctime|thread|mutex|atomic|future|random|filesystem|base/(log|file)\.hpp)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def forbidden(folder, bracket, header):
    """Why this folder may not include that header; None when it may."""
    if folder == "core" and NOT_IN_CORE.match(header):
        return "core asks nobody"
    if bracket == '"':
        target = header.split("/")[0] if "/" in header else folder
        allowed = MAY_INCLUDE[folder] | {folder}
        return None if target in allowed else f"may include only {', '.join(sorted(allowed))}"
    for pattern, folders in FOREIGN.items():
        if re.match(pattern, header):
            return None if folder in folders else f"belongs to {', '.join(sorted(folders))}"
    return None if SYSTEM.match(header) else "no folder has this library"


def violations(root):
    sources = [*root.glob("src/*/**/*.[ch]pp"), *root.glob("hooks/**/*.[ch]pp")]
    for path in sorted(sources):
        name = path.relative_to(root)
        folder = name.parts[1] if name.parts[0] == "src" else "hooks"
        if folder not in MAY_INCLUDE:
            yield f"{name}: no layer has a folder '{folder}'"
            continue
        for match in INCLUDE.finditer(path.read_text(encoding="utf-8")):
            why = forbidden(folder, *match.groups())
            if why:
                line = match.string.count("\n", 0, match.start(2)) + 1
                yield f"{name}:{line}: {folder} includes {match.group(2)}: {why}"
    licensed = [p for p in root.rglob("*") if p.suffix in (".cpp", ".hpp", ".py", ".sh") or p.name == "meson.build"]
    for path in sorted(licensed):
        name = path.relative_to(root)
        if name.parts[0] != "build" and "SPDX-License-Identifier: Apache-2.0" not in path.read_text()[:200]:
            yield f"{name}: no SPDX line"


def self_test():
    spdx = "// SPDX-License-Identifier: Apache-2.0\n"
    good = {"src/base/a.hpp": "#include <fmt/format.h>\n#include <sys/stat.h>",
            "src/core/a.cpp": '#include "base/a.hpp"\n#include <vector>',
            "src/virt/a.cpp": '#include <libvirt/libvirt.h>\n#include "core/a.hpp"',
            "src/daemon/a.cpp": '#include "virt/a.hpp"\n#include <CLI/CLI.hpp>',
            "hooks/main.cpp": '#include "wire/client.hpp"\n#include "ops.hpp"'}
    bad = {"src/base/b.cpp": '#include "core/a.hpp"',
           "src/core/b.cpp": "#include <fstream>",
           "src/core/c.cpp": '#include "base/log.hpp"',
           "src/core/d.cpp": '#include "host/a.hpp"',
           "src/host/b.cpp": '#include "domxml/a.hpp"',
           "src/host/c.cpp": "#include <libvirt/libvirt.h>",
           "src/loop/b.hpp": "#include <systemd/sd-bus.h>",
           "src/virt/b.cpp": '#include "daemon/a.hpp"',
           "src/virt/c.cpp": "#include <boost/asio.hpp>",
           "src/ctl/b.cpp": '#include "daemon/a.hpp"',
           "src/other/b.cpp": "",
           "hooks/b.cpp": '#  include "core/a.hpp"'}
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**good, **bad}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(spdx + text)
        (root / "src/base/unlicensed.hpp").write_text("#pragma once\n")
        found = sorted(line.split(":")[0] for line in violations(root))
    expected = sorted([*bad, "src/base/unlicensed.hpp"])
    if found != expected:
        print(f"expected a violation in each of {expected}\nfound them in {found}")
    return found != expected


def main():
    if sys.argv[1:] == ["--self-test"]:
        return int(self_test())
    root = pathlib.Path(sys.argv[1] if sys.argv[1:] else __file__).resolve()
    found = list(violations(root if sys.argv[1:] else root.parent.parent))
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
