"""Programs that measure single-server engines: they print name, tab, value, and compare every record."""

import os
import subprocess

from lib import chain

# Multiplications of a table byte by a byte of the public matrix, per second and core, on a core
# without AVX-512. For estimates.
MULTIPLY_ADDS_A_SECOND = 20e9
# Bytes of a table that one such core answers from in a second. For estimates.
ANSWERED_A_SECOND = 8e9


def run(bench, folder, name, *words):
    """What a program of a study prints, as a dictionary of text."""
    command = [os.path.join(bench.programs.directory, os.pardir, "experiments", folder, name), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 3:
        raise chain.WrongAnswers(done.stderr.strip())
    if done.returncode != 0:
        raise chain.Failed(f"{name} {' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr.strip()}")
    return dict(line.split("\t") for line in done.stdout.splitlines())


def setup_seconds(table_bytes, cores):
    return table_bytes * 1024 / MULTIPLY_ADDS_A_SECOND / cores
