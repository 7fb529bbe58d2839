"""What every program prints is text that a terminal shows and does not obey, whatever came from outside.

The programs say themselves which commands and options they have (--describe): each option of each command gets a hostile value, and
each file and folder a hostile name and content. Then a real chain serves a table whose name, keys and values are hostile,
and what comes out as TSV and as JSON is read back. terminal_test.sh starts it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import unicodedata
import unittest

PORT = sys.argv.pop(1)
BIN = os.path.abspath("src")
CHAIN = os.path.abspath("scripts/local-chain")
FOLDER = os.environ["TEST_TMPDIR"]
PROGRAMS = {name: f"{BIN}/{path}" for name, path in {
    "shoal": "shoal/shoal", "shoald": "shoald/shoald", "shoal-door": "door/shoal-door",
    "shoald-machines": "shoald/machines/shoald-machines"}.items()}
# A sequence of C0, one of C1 in UTF-8 and one as a byte, right to left, nothing, a mark, a tag, a line, and no UTF-8.
HOSTILE = "x\x1b[2J\x07".encode() + "\u009b31m\u202e\u2066\u200b\ufeff\U000e0061".encode() + b"\x9b32m\rprog: clean\xff"
IGNORABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]")


def problem(said):
    """What a terminal would obey, or nobody would see, in the bytes that a program has written; None if nothing."""
    try:
        text = said.decode()
    except UnicodeDecodeError as error:
        return f"no UTF-8: {said[max(0, error.start - 40):error.end + 10]!r}"
    for i, c in enumerate(text):
        if c not in "\n\t" and (unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") or IGNORABLE.match(c)):
            return ascii(text[max(0, i - 40):i + 10])
    return None


def unescaped(field):
    """Bytes of a field of TSV, by the rule of the documents."""
    return re.sub(rb"\\(?:x([0-9a-f]{2})|([\\tnr]))", lambda found: bytes.fromhex(found[1].decode()) if found[1] else
                  {b"\\": b"\\", b"t": b"\t", b"n": b"\n", b"r": b"\r"}[found[2]], field)


class TerminalTest(unittest.TestCase):
    def setUp(self):
        self.folder = f"{FOLDER}/{self.id().rpartition('.')[2]}"
        os.mkdir(self.folder)
        self.environment = {"PATH": f"{BIN}/shoal:{BIN}/shoald:/usr/bin:/bin", "HOME": self.folder, "SHOAL_BIN": BIN,
                            "XDG_CONFIG_HOME": f"{self.folder}/config", "XDG_STATE_HOME": f"{self.folder}/state", "LC_ALL": "C.UTF-8"}

    def run_in(self, folder, *command, code=None, **options):
        """(standard output, standard error) of a command in a folder; fails if a terminal would obey either."""
        done = subprocess.run(command, cwd=folder, env=self.environment, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120, **options)
        for what in (done.stdout, done.stderr):
            self.assertIsNone(problem(what), command)
            # That of HOSTILE, where its carriage return is a line feed.
            self.assertNotIn(b"\nprog: clean", b"\n" + what, command)
        if code is not None:
            self.assertEqual(done.returncode, code, (command, done.stderr))
        return done.stdout, done.stderr

    def test_the_check_finds_what_it_is_for(self):
        self.assertIsNone(problem("Grüße 漢字 עברית 😀\n\ta\\x1b".encode()))
        for bad in (b"\x1b", b"\xc2\x9b", b"\x9b", "\u202e".encode(), "\u200b".encode(), b"\r", b"\xff", "\U000e0061".encode(), b"\x00"):
            self.assertIsNotNone(problem(b"a" + bad), bad)
        self.assertIsNotNone(problem(HOSTILE))

    def test_every_option_of_every_program(self):
        name = HOSTILE.replace(b"\r", b"\n")  # both are good names of files
        for kind in ("file", "folder"):
            os.mkdir(f"{self.folder}/{kind}")
        with open(os.path.join(os.fsencode(f"{self.folder}/file"), name), "wb") as file:
            file.write(HOSTILE + b"\n" + HOSTILE)
        os.mkdir(os.path.join(os.fsencode(f"{self.folder}/folder"), name))
        for inner in (b"manifest.textproto", b"roster.textproto", b"party.textproto", b"package-lock.json", HOSTILE):
            with open(os.path.join(os.fsencode(f"{self.folder}/folder"), name, inner), "wb") as file:
                file.write(HOSTILE)
        count = 0
        for program, path in PROGRAMS.items():
            described = json.loads(subprocess.run([path, "--describe"], check=True, stdout=subprocess.PIPE).stdout)
            for command in described["commands"]:
                words = [] if command["name"] == program else command["name"].split(" ")
                values = [option for option in command["options"] if option["value"]]
                required = [option for option in values if option["required"]]
                for option in values + [{"name": "no-such-" + HOSTILE.decode("utf-8", "surrogateescape"), "value": "TEXT"}]:
                    arguments = []
                    for each in required + [option] * (option not in required):
                        arguments += [b"--" + os.fsencode(each["name"]), name]
                    for kind in ("file", "folder"):
                        self.run_in(f"{self.folder}/{kind}", path, *words, *arguments)
                        count += 1
                if command["positional"]:
                    self.run_in(f"{self.folder}/file", path, *words, name)
            self.run_in(self.folder, path, HOSTILE)
        self.assertGreater(count, 200)

    def test_hostile_tables_and_what_is_asked_of_them(self):
        keys = [b"key-" + bytes([65 + i]) + HOSTILE for i in range(3)] + ["\u0645\u06cc\u200c\u062e".encode(), b"a\\b", b"plain"]
        values = {key: b"value of \\ " + HOSTILE + key for key in keys}

        def escaped(raw):
            return raw.replace(b"\\", b"\\\\").replace(b"\t", b"\\t").replace(b"\n", b"\\n").replace(b"\r", b"\\r").replace(b"\0", b"\\x00")

        with open(f"{self.folder}/records.tsv", "wb") as file:
            for key, value in values.items():
                file.write(escaped(key) + b"\t" + escaped(value) + b"\n")
        with open(f"{self.folder}/twice.tsv", "wb") as file:
            file.write(2 * (escaped(keys[0]) + b"\tx\n"))
        _, said = self.run_in(self.folder, PROGRAMS["shoal"], "table", "build", "--tsv", "twice.tsv", "--name", "n", "--deployment", "d", "--out", "t", code=1)
        self.assertIn(b"there twice", said)
        chain = f"{self.folder}/chain"
        self.run_in(self.folder, CHAIN, "create", chain, "--parties", "3", "--port", PORT, "--protect", "lookup", "--rounds",
                    "open_ahead: 1 onions_window_s: 2 queries_window_s: 2", "--", "--tsv", f"{self.folder}/records.tsv", "--name", "squares",
                    "--row-bytes", "512", code=0)
        self.run_in(self.folder, CHAIN, "start", chain, code=0)
        self.addCleanup(subprocess.run, [CHAIN, "stop", chain], env=self.environment, check=False, stdout=subprocess.DEVNULL)
        client = ["--config", f"{chain}/client.textproto"]
        with open(f"{self.folder}/asked", "wb") as file:
            file.write(b"".join(b"".join(b"\\x%02x" % byte for byte in key) + b"\n" for key in keys))
        asks = [*client, "--file", f"{self.folder}/asked", "--escapes"]
        out, _ = self.run_in(self.folder, PROGRAMS["shoal"], "query", *asks, code=0)
        lines = [line.split(b"\t") for line in out.splitlines()]
        self.assertEqual([(unescaped(line[0]), line[1], unescaped(line[2])) for line in lines],
                         [(key, b"found", values[key]) for key in keys])
        out, _ = self.run_in(self.folder, PROGRAMS["shoal"], "query", *asks, "--format", "json", "--engine", "hintless", code=None)
        out, _ = self.run_in(self.folder, PROGRAMS["shoal"], "query", *asks, "--format", "json", code=0)

        def member(line, name):
            return bytes.fromhex(line[name + "_hex"]) if name + "_hex" in line else line[name].encode()

        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([(member(line, "key"), member(line, "value")) for line in lines], [(key, values[key]) for key in keys])
        # Keys of text come as text, however unseen.
        self.assertEqual(lines[3]["key"], keys[3].decode())
        for command in (["status"], ["status", "--parties"], ["status", "--format", "json"], ["query", "plain", "--dry-run"]):
            self.run_in(self.folder, PROGRAMS["shoal"], *command, *client)
        table = next(name for name in os.listdir(chain) if name.startswith("table") or name == "party-1")
        place = f"{chain}/{table}/table" if table == "party-1" else f"{chain}/{table}"
        for key in keys[:4]:
            self.run_in(self.folder, PROGRAMS["shoal"], "table", "inspect", "--table", place, "--key",
                        b"".join(b"\\x%02x" % byte for byte in key))
        for log in os.listdir(chain):
            if log.endswith(".log"):
                with open(f"{chain}/{log}", "rb") as file:
                    self.assertIsNone(problem(file.read()), log)

    def test_a_file_that_ends_a_chain_says_why_in_text(self):
        """What parties read, of hostile content and at a hostile path."""
        place = os.path.join(os.fsencode(self.folder), HOSTILE)
        os.mkdir(place)
        for content in (HOSTILE, b'party: 1 keys_directory: "' + HOSTILE + b'"', b'party: 1\nkeys_directory: "k"\nroster_file: "r\\033[2J"'):
            with open(os.path.join(place, HOSTILE), "wb") as file:
                file.write(content)
            for program in ("shoald", "shoald-machines", "shoal-door"):
                for more in ([], ["--check"], ["--log-format", "json"]):
                    _, said = self.run_in(self.folder, PROGRAMS[program], "--config", os.path.join(place, HOSTILE), *more)
                    self.assertNotEqual(said, b"")


if __name__ == "__main__":
    unittest.main()
