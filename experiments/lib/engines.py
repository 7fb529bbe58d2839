"""Programs that measure single-server engines: they print name, tab, value, and compare every record."""

import os
import subprocess

from lib import chain

# Bytes times bytes of the public matrix a second and core, on a core with AVX2 alone; for estimates.
MULTIPLY_ADDS_A_SECOND = 20e9
# Bytes of a table that one core answers from in a second; as above.
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
