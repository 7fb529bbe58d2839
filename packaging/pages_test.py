"""Man pages and completions say what the programs say of themselves, and are taken by what reads them."""

import os
import pty
import select
import shutil
import subprocess
import tempfile
import time
import unittest

import debs
import pages

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = os.environ["SHOAL_PROGRAMS"]
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "SEE ALSO"]


def output(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def one_line(text):
    return " ".join(text.split())


class PagesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        debs.write_pages(TREE, PROGRAMS, "2026-01-02", cls.folder)
        cls.programs = {program["program"]: program for program, _ in debs.descriptions(TREE, PROGRAMS)}

    def page_of(self, program, command):
        name = program if command == program else f"{program}-{command.replace(' ', '-')}"
        return f"{self.folder}/man/{name}.{1 if program == 'shoal' else 8}"

    def test_every_command_has_a_page_with_all_sections_and_all_of_its_help(self):
        count = 0
        for name, program in self.programs.items():
            for command in program["commands"]:
                path = self.page_of(name, command["name"])
                text = output("man", "--local-file", path, env={"LC_ALL": "C.UTF-8", "MANWIDTH": "1000", "PATH": os.environ["PATH"]})
                self.assertEqual([line for line in text.split("\n") if line in SECTIONS], SECTIONS, path)
                shown = one_line(text)
                for said in [command["summary"], command["help"], command["examples"]]:
                    self.assertIn(one_line(said), shown, path)
                for option in command["options"]:
                    self.assertIn(one_line(f"--{option['name']} {option['value']} {option['text']}"), shown, path)
                count += 1
        # A page for the overview of `shoal`, too.
        self.assertEqual(len(os.listdir(f"{self.folder}/man")), count + 1)
        self.assertGreater(count, 20)

    def test_readers_of_man_pages_have_nothing_to_say(self):
        for name in sorted(os.listdir(f"{self.folder}/man")):
            path = f"{self.folder}/man/{name}"
            for command in (["man", "--warnings", "--local-file", "-Tutf8", path], ["mandoc", "-Tlint", "-W", "warning", path]):
                done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"], "MANPAGER": "cat"})
                said = done.stderr + (done.stdout if command[0] == "mandoc" else "")
                self.assertEqual((done.returncode, said), (0, ""), command)

    def test_characters_of_roff_are_shown_as_they_are(self):
        command = {"name": "odd", "summary": "odd", "help": ".dot\n'quote `code` ~ ^ \\e -x\n\n  kept   as it is\n",
                   "examples": "  odd -- 'x'\n", "positional": "", "options": []}
        program = {"program": "odd", "version": "1", "summary": "odd", "exit_codes": [], "commands": [command]}
        with tempfile.TemporaryDirectory() as folder:
            debs.write(f"{folder}/odd.1", pages.man_pages(program, 1, "2026-01-02", [("shoal", 1)])["odd.1"])
            text = output("man", "--local-file", f"{folder}/odd.1", env={"LC_ALL": "C.UTF-8", "PATH": os.environ["PATH"]})
        self.assertIn(".dot 'quote `code` ~ ^ \\e -x", text)
        self.assertIn("kept   as it is", text)

    def test_a_script_whose_help_cannot_be_read_is_refused(self):
        for text in ("Does it.\n\nExit codes: 0 done\n", "Does it.\n\n  --host HOST  which\n\nExamples:\n  x\n\nExit codes: 0 a; 1 b.\n"):
            with self.assertRaises(ValueError):
                pages.of_script("x", "1", text)

    def complete(self, *words):
        """What bash offers in place of the last of the words."""
        script = ('compopt() { :; }; . "$1"; program=$2; shift 2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  '"_${program//-/_}"; printf "%s\\n" "${COMPREPLY[@]}"')
        said = output("bash", "--norc", "-uc", script, "bash", f"{self.folder}/completions/bash/{words[0]}", words[0], *words)
        return said.split()

    def test_bash_offers_every_command_and_every_option(self):
        for name, program in self.programs.items():
            for command in program["commands"]:
                words = [] if command["name"] == name else command["name"].split(" ")
                for end in range(len(words)):
                    self.assertIn(words[end], self.complete(name, *words[:end], ""))
                offered = self.complete(name, *words, "--")
                self.assertEqual(sorted(offered), sorted(f"--{o['name']}" for o in command["options"] + [{"name": "help"}]))

    def test_bash_offers_values(self):
        engines = self.complete("shoal", "query", "--engine", "")
        self.assertEqual(engines[:2], ["chain", "simplepir"])
        self.assertEqual(self.complete("shoal", "query", "--engine", "=", "double"), ["doublepir"])
        self.assertEqual(self.complete("shoal", "query", "--format", "j"), ["json"])
        self.assertEqual(self.complete("shoal", "query", "--pad", ""), [])
        self.assertEqual(self.complete("shoal", "no-such-command", "x", ""), [])
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(f"{folder}/one")
            debs.write(f"{folder}/one.textproto", "")
            self.assertEqual(sorted(self.complete("shoal", "query", "--config", f"{folder}/o")),
                             [f"{folder}/one", f"{folder}/one.textproto"])
            self.assertEqual(self.complete("shoal", "table", "build", "--out", f"{folder}/o"), [f"{folder}/one"])

    def test_zsh_completes(self):
        """Types into a zsh and reads what it makes of it."""
        expected = {"shoal upd\t": "updates", "shoal query --over\t": "--over-rounds", "shoal table verif\t": "verify",
                    "shoal query --engine smallp\t": "smallpir", "shoald --max\t": "--max-hint-mib"}
        # None of them is there by itself.
        start = (f"PS1='> '; fpath=({self.folder}/completions/zsh $fpath); unsetopt beep; autoload -U compinit; "
                 "compinit -u -D; print rea''dy\n")
        for typed, wanted in expected.items():
            child, terminal = pty.fork()
            if child == 0:
                os.chdir(self.folder)
                os.execvpe("zsh", ["zsh", "-f", "-i"], {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": self.folder})
            shown, sent, end = "", 0, time.monotonic() + 120
            os.write(terminal, start.encode())
            while wanted not in shown and time.monotonic() < end:
                if select.select([terminal], [], [], 0.2)[0]:
                    shown += os.read(terminal, 4096).decode(errors="replace")
                if sent == 0 and "ready" in shown:
                    shown, sent = "", 1
                    os.write(terminal, typed.encode())
            os.close(terminal)
            os.waitpid(child, 0)
            self.assertIn(wanted, shown, typed)


if __name__ == "__main__":
    unittest.main()
