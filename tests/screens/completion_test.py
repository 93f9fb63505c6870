#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every command and option that virtguardctl --help names is completed, and nothing else is.

    completion_test.py VIRTGUARDCTL bash|zsh
"""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

CTL, SHELL = sys.argv[1:3]
SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "completions"
COMMON = {"--help", "--color", "--socket"}
DEADLINE = 20

# Completes what is in a file, and writes to another what is offered.
ZSHRC = """
fpath=({scripts} $fpath)
autoload -Uz compinit && compinit -u -D
compadd() {{
    if (( ! ${{@[(I)-[OAD]]}} )); then
        local -a offered
        builtin compadd -A offered "$@"
        print -rl -- $offered >>{folder}/offered
    fi
    builtin compadd "$@"
}}
complete-file() {{
    BUFFER=$(<{folder}/line) CURSOR=$#BUFFER
    zle complete-word
    print -r 'and no more' >>{folder}/offered
}}
zle -N complete-file
zle -C complete-word complete-word _main_complete
bindkey '^X' complete-file
print -r 'and no more' >{folder}/offered
"""


def help_of(*command):
    """(options, commands below it)"""
    text = subprocess.run([CTL, *command, "--help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", text, re.MULTILINE))
    below = text.partition("\nSubcommands:\n")[2]
    return options, re.findall(r"^  (\w+) ", below, re.MULTILINE)


def all_commands():
    """Each command's words, to the options that --help names."""
    found = {}
    for command in help_of()[1]:
        options, below = help_of(command)
        found[(command,)] = options
        for name in below:
            found[(command, name)] = help_of(command, name)[0]
    return found


class Bash:
    def completed(self, *words):
        """What is offered for the last of the words."""
        script = f'''source {SCRIPTS}/virtguardctl.bash; compopt() {{ :; }}
            COMP_WORDS=(virtguardctl "$@"); COMP_CWORD=$#; _virtguardctl; printf '%s\\n' "${{COMPREPLY[@]}}"'''
        done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    def close(self):
        pass


class Zsh:
    """One on a terminal: it completes nowhere else."""

    def __init__(self):
        self.keep = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.keep.name)
        self.line, self.offered = folder / "line", folder / "offered"
        (folder / ".zshrc").write_text(ZSHRC.format(scripts=SCRIPTS, folder=folder))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("zsh", ["zsh", "-d", "-i"], {**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb"})
        self.answer()

    def answer(self):
        deadline = time.monotonic() + DEADLINE
        shown = b""
        while not self.offered.exists() or not self.offered.read_text().endswith("and no more\n"):
            if time.monotonic() > deadline:
                raise TimeoutError(shown.decode())
            if select.select([self.terminal], [], [], 0.02)[0]:
                shown += os.read(self.terminal, 4096)
        return set(self.offered.read_text().removesuffix("and no more\n").split())

    def completed(self, *words):
        """What is offered for the last of the words."""
        self.line.write_text(" ".join(["virtguardctl", *words]))
        self.offered.write_text("")
        os.write(self.terminal, b"\x18")
        return self.answer()

    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)
        self.keep.cleanup()


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shell = {"bash": Bash, "zsh": Zsh}[SHELL]()
        cls.addClassCleanup(shell.close)
        cls.completed = staticmethod(shell.completed)

    def test_the_commands_are_offered(self):
        self.assertEqual(self.completed(""), set(help_of()[1]))
        self.assertEqual(self.completed("--color", "never", ""), set(help_of()[1]))
        self.assertEqual(self.completed("do"), {"domains", "doctor"})
        for command in ("policy", "overcommit", "reservation"):
            self.assertEqual(self.completed(command, ""), set(help_of(command)[1]))
        self.assertEqual(self.completed("overcommit", "set", ""), {"cpu", "memory", "ephemeral-storage"})

    def test_a_mode_that_is_set_takes_no_json(self):
        self.assertIn("--json", self.completed("mode", "--"))
        self.assertNotIn("--json", self.completed("mode", "maintenance", "--"))
        self.assertIn("--message", self.completed("mode", "maintenance", "--"))

    def test_each_command_is_offered_its_options(self):
        self.assertEqual(self.completed("--"), help_of()[0])
        for command, options in all_commands().items():
            with self.subTest(command=command):
                self.assertEqual(self.completed(*command, "--"), options | COMMON)

    def test_the_words_of_an_option_are_offered(self):
        self.assertEqual(self.completed("status", "--color", "a"), {"auto", "always"})
        never = ("--color", "=", "n") if SHELL == "bash" else ("--color=n",)  # as they come
        self.assertEqual(self.completed("status", *never), {"never"})
        self.assertEqual(self.completed("export", "--format", ""), {"machinepool", "hypervisor", "placement"})
        self.assertEqual(self.completed("mode", "m"), {"maintenance"})


if __name__ == "__main__":
    if shutil.which(SHELL) is None:
        print(f"SKIPPED: there is no {SHELL}")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
