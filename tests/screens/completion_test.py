#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every command and option that virtguardctl --help names is completed, and nothing else is.

    completion_test.py VIRTGUARDCTL
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

CTL = sys.argv[1]
SCRIPTS = pathlib.Path(__file__).parents[2] / "completions"
BASH = SCRIPTS / "virtguardctl.bash"
ZSH = SCRIPTS / "_virtguardctl"
COMMON = {"--help", "--color", "--socket"}


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


def completed(*words):
    """What bash offers for the last of the words."""
    script = f'''source {BASH}; compopt() {{ :; }}
        COMP_WORDS=(virtguardctl "$@"); COMP_CWORD=$#; _virtguardctl; printf '%s\\n' "${{COMPREPLY[@]}}"'''
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


class Completion(unittest.TestCase):
    def test_bash_offers_the_commands(self):
        self.assertEqual(completed(""), set(help_of()[1]))
        self.assertEqual(completed("--color", "never", ""), set(help_of()[1]))
        self.assertEqual(completed("do"), {"domains", "doctor"})
        self.assertEqual(completed("policy", ""), set(help_of("policy")[1]))

    def test_bash_offers_each_command_its_options(self):
        self.assertEqual(completed("--"), help_of()[0])
        for command, options in all_commands().items():
            with self.subTest(command=command):
                self.assertEqual(completed(*command, "--"), options | COMMON)

    def test_bash_offers_the_words_of_an_option(self):
        self.assertEqual(completed("status", "--color", "a"), {"auto", "always"})
        self.assertEqual(completed("status", "--color", "=", "n"), {"never"})
        self.assertEqual(completed("export", "--format", ""), {"machinepool", "hypervisor", "placement"})

    def test_zsh_names_each_command_and_option(self):
        text = ZSH.read_text(encoding="utf-8")
        for command, options in all_commands().items():
            self.assertRegex(text, rf"'{command[-1]}:")
            for option in options | help_of()[0]:
                self.assertRegex(text, rf"[{{,'\"*)]{option}[}}=\[]", (command, option))
        if shutil.which("zsh"):
            subprocess.run(["zsh", "-n", ZSH], check=True)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
