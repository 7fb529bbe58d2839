"""A study by scripts/aws, whose machine is a folder of this one.

moto and the recorder stand for the provider (provider.py), and a shell in a folder of its own for ssh and the machine. The
build stands there for nothing: scripts/setup links this tree's Python libraries, and bazel the programs that are there.
Everything else is real: scripts/aws, the bundle of the last commit and its clone, which scripts/study runs in, the study's
processes, its results, and how they come home. The commit is this tree as it is, with that other scripts/setup.

SHOAL_BIN has the programs, as bazel-bin/src.
"""

import csv
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

from cloud import provider as provider_module  # noqa: E402

BIN = os.path.abspath(os.environ["SHOAL_BIN"])
EXPERIMENT = """
name: "study"
crowd {{ zone: "eu-central-1a" instance_type: "c7a.xlarge" }}
study {{ {study} }}
paid_minutes: 10
traffic_gib: 2
prices {{ region: "eu-central-1" instance_type: "c7a.xlarge" usd_per_hour: 0.25 }}
operator_cidr: "11.22.33.44/32"
"""
# Runs the command, which is the last word, as the user of a machine would.
SSH = """#!/bin/bash
cd {machine}
exec env -i HOME={machine} PATH={bin}:/usr/bin:/bin:/usr/sbin:/sbin bash -c "${{@: -1}}"
"""
SETUP = """#!/bin/sh
echo "setup $*" >>"$HOME/asked"
ln -sfn {root}/.deps "$(dirname "$0")/../.deps"
"""
BAZEL = """#!/bin/sh
echo "bazel $*" >>"$HOME/asked"
ln -sfn {built} bazel-bin
"""
APT_GET = """#!/bin/sh
echo "apt-get $*" >>"$HOME/asked"
"""
# In place of `shoal`: says that the one answer was wrong.
WRONG = """#!/bin/bash
set -o pipefail
if [ "$1" = simulate ]; then
  {shoal} "$@" | sed 's/"answers_wrong":0/"answers_wrong":1/; s/"answers_correct":1/"answers_correct":0/'
else
  exec {shoal} "$@"
fi
"""
SUDO = """#!/bin/sh
exec "$@"
"""


class StudyTest(unittest.TestCase):
    def setUp(self):
        self.provider = provider_module.Provider()
        self.addCleanup(self.provider.close)
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.machine, self.out = self.path("machine"), self.path("out")
        os.mkdir(self.machine)
        for name, text in (("operator/ssh", SSH.format(machine=self.machine, bin=self.path("bin"))), ("bin/sudo", SUDO),
                           ("bin/apt-get", APT_GET), ("bin/bazel", BAZEL.format(built=os.path.dirname(BIN)))):
            self.program(name, text)
        self.commit = self.make_commit()

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def make_commit(self):
        """Makes a repository of what a study needs of this tree; returns the commit."""
        for name in ("scripts", "experiments"):
            shutil.copytree(os.path.join(ROOT, name), self.path(f"tree/{name}"), symlinks=True,
                            ignore=shutil.ignore_patterns("__pycache__", "results", "node_modules"))
        self.program("tree/scripts/setup", SETUP.format(root=ROOT))
        self.program("tree/.gitignore", ".deps\nbazel-bin\n__pycache__\n")

        def git(*words):
            return subprocess.run(["git", "-C", self.path("tree"), "-c", "user.name=x", "-c", "user.email=x@example.org", *words],
                                  stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

        git("init", "-q")
        git("add", "--all")
        git("commit", "-q", "--no-gpg-sign", "-m", "this tree")
        return git("rev-parse", "HEAD")

    def run_study(self, study):
        """Runs scripts/aws; returns its exit code and what it said."""
        with open(self.path("experiment"), "w", encoding="utf-8") as file:
            file.write(EXPERIMENT.format(study=study))
        done = subprocess.run(
            [sys.executable, "-B", os.path.join(HERE, "main.py"), "run", self.path("experiment"), "--budget-usd", "5",
             "--out", self.out, "--state", self.path("state")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            check=False,
            # GIT_DIR: the last commit is that of make_commit.
            env={**os.environ, **self.provider.environment, "GIT_DIR": self.path("tree/.git"),
                 "PATH": self.path("operator") + ":" + os.environ["PATH"]})
        self.assertEqual(self.provider.refused, [])
        self.assertEqual(self.provider.left(["eu-central-1"]), [])
        self.printed = done.stdout
        return done.returncode, done.stderr

    TINY = 'name: "table-size" arguments: "--tiny" arguments: "--only" arguments: "16 a row"'

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_a_study_runs_on_the_machine_and_its_results_come_home(self):
        code, said = self.run_study(self.TINY)
        self.assertEqual(code, 0, said)
        self.assertEqual(self.printed, self.out + "\n")
        asked = self.read(os.path.join(self.machine, "asked")).splitlines()
        # The programs of experiments/ are scripts/study's own affair.
        self.assertEqual(asked[:4], ["apt-get install -y -qq git", "setup ",
                                     "bazel build --config=opt //src/shoal:shoal //src/shoald:shoald", "setup --test"])
        with open(os.path.join(self.out, "points.csv"), encoding="utf-8", newline="") as file:
            [row] = list(csv.DictReader(file))
        self.assertEqual((row["records"], row["keys_per_row"], row["parties"], row["answers_checked"]),
                         ("100", "16", "2", "1"))
        self.assertGreater(float(row["online_s"]), 0)
        self.assertEqual(row["commit"], self.commit[:12])
        for name in ("table-size.png", "index.html"):
            with open(os.path.join(self.out, name), "rb") as home, open(
                    os.path.join(self.machine, "results", name), "rb") as there:
                self.assertEqual(home.read(), there.read())
        self.assertIn("study table-size: 1 points", self.read(os.path.join(self.out, "logs/crowd.log")))

    def test_a_study_that_fails_is_said_and_its_logs_come_home(self):
        code, said = self.run_study('name: "no-such-study"')
        self.assertEqual(code, 1, said)
        self.assertIn('study: exit code 2: study: there is no study "no-such-study"', said)
        self.assertIn('there is no study "no-such-study"', self.read(os.path.join(self.out, "logs/crowd.log")))

    def test_a_wrong_answer_of_a_study_is_said(self):
        self.program("wrong/src/shoal/shoal", WRONG.format(shoal=os.path.join(BIN, "shoal", "shoal")))
        os.symlink(os.path.join(BIN, "shoald"), self.path("wrong/src/shoald"))
        self.program("bin/bazel", BAZEL.format(built=self.path("wrong")))
        code, said = self.run_study(self.TINY)
        self.assertEqual(code, 3, said)
        self.assertIn("aws: WRONG ANSWERS: crowd: study: exit code 3", said)
        self.assertIn("WRONG ANSWERS", self.read(os.path.join(self.out, "logs/crowd.log")))

    def test_a_study_without_results_fails(self):
        code, said = self.run_study('name: "table-size" arguments: "--help"')
        self.assertEqual(code, 1, said)
        self.assertIn("the study left no results", said)


if __name__ == "__main__":
    unittest.main()
