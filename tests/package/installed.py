# SPDX-License-Identifier: Apache-2.0
"""Modes and owners of all that is installed, as installed.txt has them."""
import pathlib
import stat

_TABLE = pathlib.Path(__file__).with_name("installed.txt")


def expected(by_package):
    """Mode by name; the package has more than the build's install."""
    lines = [line.split() for line in _TABLE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    return {name: int(mode, 8) for mode, name, *only in lines if by_package or not only}


def found(root):
    """The same below a folder that it was installed into; and what is no file or folder of root's, or a folder of another mode."""
    files, wrong = {}, []
    for path in pathlib.Path(root).rglob("*"):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        is_folder = stat.S_ISDIR(status.st_mode)
        if (status.st_uid, status.st_gid) != (0, 0) or not (stat.S_ISREG(status.st_mode) or is_folder) or (
                is_folder and mode != 0o755):
            wrong.append(f"{path}: {stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}")
        if not is_folder:
            files[_name(str(path.relative_to(root)))] = mode
    return files, wrong


def _name(path):
    """Without the prefix, which the build's install and the package, and Debian 12 and 13, have at different places."""
    for prefix in ("usr/local/", "usr/"):
        path = path.removeprefix(prefix)
    return path.removesuffix(".gz") if path.startswith("share/man/") else path
