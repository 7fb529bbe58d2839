"""Programs that measure single-server engines: they print name, tab, value, and compare every record."""

import os
import subprocess

from lib import chain, runner

# Multiplications of a table byte by a byte of the public matrix, per second and core, on a core
# without AVX-512. For estimates.
MULTIPLY_ADDS_A_SECOND = 20e9
# Bytes of a table that one such core answers from in a second. For estimates.
ANSWERED_A_SECOND = 8e9


def run(bench, folder, name, *words):
    """What a program of a study prints, as a dictionary of text."""
    return run_of_src(bench, os.path.join(os.pardir, "experiments", folder, name), *words)


def run_of_src(bench, name, *words):
    """What a program below src prints."""
    command = [os.path.join(bench.programs.directory, name), *map(str, words)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 3:
        raise chain.WrongAnswers(done.stderr.strip())
    if done.returncode != 0:
        raise chain.Failed(f"{name} {' '.join(map(str, words))}: exit code {done.returncode}: {done.stderr.strip()}")
    return dict(line.split("\t") for line in done.stdout.splitlines())


def setup_seconds(table_bytes, cores):
    return table_bytes * 1024 / MULTIPLY_ADDS_A_SECOND / cores


class SetsStudy(runner.Study):
    """Engines with hints, which experiments/piano/sets measures in one process, on one thread."""

    point_columns = ("table", "engine", "rows", "record_bytes", "choice", "queries", "resident_bytes", "part",
                     "repetition")
    measured_columns = ("servers", "chunks", "hints", "client_bytes", "prepare_bytes", "query_bytes", "answer_bytes",
                        "prepare_client_cpu_s", "prepare_server_cpu_s", "ask_cpu_s", "answer_cpu_s", "recover_cpu_s",
                        "answers_checked")

    @staticmethod
    def point(table, engine, rows, record_bytes, choice, queries, resident_bytes=0, part=1):
        return {"table": table, "engine": engine, "rows": rows, "record_bytes": record_bytes, "choice": choice,
                "queries": queries, "resident_bytes": resident_bytes, "part": part, "repetition": 1}

    def run(self, point, bench):
        return run(bench, "piano", "sets", *(point[column] for column in self.point_columns[1:-1]))

    def cost(self, point, bench):
        del bench
        resident = point["resident_bytes"] or point["rows"] * point["record_bytes"]
        # A hint's part of a chunk takes a nanosecond; there are about ten hints for every chunk's row.
        return runner.Cost(seconds=1 + 2e-9 * resident + 12e-9 * point["rows"] * 10 / point["part"],
                           memory_bytes=1.1 * resident + 2**29)

    def describe(self, point):
        resident = ", rows a function of their number" if point["resident_bytes"] else ""
        return f"{point['engine']}, {runner.grouped(point['rows'])} rows of {point['record_bytes']} bytes{resident}"

    def describe_result(self, row):
        return (f"prepared in {prepare_s(row):.1f} s, {1e3 * query_s(row):.2f} ms a query, "
                f"{row['answers_checked']} records right")


def prepare_s(row):
    """Processor seconds of a preparation, client and server."""
    return float(row["prepare_client_cpu_s"]) + float(row["prepare_server_cpu_s"])


def query_s(row):
    """Processor seconds of a query: the client, and all servers."""
    return (float(row["ask_cpu_s"]) + float(row["recover_cpu_s"])
            + float(row["servers"]) * float(row["answer_cpu_s"]))


def bytes_a_query(row):
    return float(row["query_bytes"]) + float(row["answer_bytes"])
