"""Results as CSV: one line for every point, on disk as soon as the point is finished.

Every study writes the same columns, so that studies can read each other's results, and another engine can join a
comparison with a file of these columns. A column that does not apply stays empty. Times are wall-clock seconds unless a name
says cpu; sizes are bytes.
"""

import csv
import io
import os

from lib import machine

# What a point is.
POINT = (
    "engine",           # "shoal": the chain of this repository; simplepir, doublepir
    "layout",           # of the table: dense (integer keys) or hashed
    "records",
    "value_bytes",
    "keys_per_row",     # 0: as many as the planner chooses
    "queries",          # in the round, of all clients together
    "devices",          # that sent them
    "parties",
    "epsilon", "delta", "phi",
    "repetition",       # 1, 2, ..
)
# What was measured.
MEASURED = (
    "rows", "row_bytes",
    "answer_bytes",
    "mechanism",
    "noise_per_row",     # mean, of each party but the last
    "noise_queries",     # of all parties, in this round
    "noise_s",           # making them ahead of time: the slowest party
    "offline_s",         # the frontend holds the onions .. all parties are done; noise made before
    "online_s",          # the frontend holds the queries .. it holds the answers
    "noise_cpu_s", "offline_cpu_s", "online_cpu_s",  # of all parties, in their stages
    # Of all parties' processes, from the first client on: the stages, TLS, the system, and the frontend's work for
    # clients. The noise is made before and does not count.
    "parties_cpu_s",
    "link_bytes",        # between parties, online and offline, both directions
    "client_sent_bytes", "client_received_bytes",
    "answers_checked",   # every one: signed by all parties, and equal to the table's row
    "peak_memory_bytes", # of the party that had most
    "crowd_memory_bytes",
    # Of one query, from sending it to having its answer. In the chain, that includes waiting for the batch.
    "latency_p50_s", "latency_p99_s",
    "other_load_cores",  # cores that other work on the machine kept busy meanwhile
)
# What only a single-server engine has; for the chain these stay empty.
ENGINE = (
    "setup_s",           # the hint made, once a version of the table
    "hint_bytes",        # every client's, once a version
    "query_bytes",       # one
    "queries_per_pass",  # over the table, on average
    "client_cpu_s",      # of the whole crowd: queries made; answers recovered and checked
)
ENVIRONMENT = machine.FIELDS + ("date",)


class StaleResults(Exception):
    """The file holds results of another commit or machine, or of another form."""


def text(value):
    """A value as it stands in the CSV. The same number always gives the same text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def number(row, column):
    """The number in a column, None where it is empty or missing."""
    value = row.get(column) or ""
    return float(value) if value else None


def read(path):
    """All lines of a results file as dictionaries of text."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Results:
    """The results of one study in one file. A line that a crash cut short is dropped."""

    def __init__(self, path, point_columns, measured_columns, facts):
        """`facts`: of this machine (machine.facts). Raises StaleResults."""
        self.path = path
        self.point_columns = tuple(point_columns)
        self.columns = self.point_columns + tuple(measured_columns) + ENVIRONMENT
        self._facts = facts
        self.rows = []
        self._begun = False  # whether the file has its first line
        if os.path.exists(path):
            self._load()

    def _load(self):
        with open(self.path, "rb+") as file:
            content = file.read()
            whole = content.rfind(b"\n") + 1
            file.truncate(whole)
        lines = list(csv.reader(io.StringIO(content[:whole].decode(), newline="")))
        if not lines:
            return
        self._begun = True
        if tuple(lines[0]) != self.columns:
            raise StaleResults(f"{self.path} has other columns")
        self.rows = [dict(zip(self.columns, line)) for line in lines[1:]]
        for row in self.rows:
            for field in machine.FIELDS:
                if row[field] != self._facts[field]:
                    raise StaleResults(
                        f"{self.path} has results of {field} {row[field]!r}, this is {self._facts[field]!r}")

    def _append(self, fields):
        lines = io.StringIO(newline="")
        writer = csv.writer(lines, lineterminator="\n")
        if not self._begun:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            writer.writerow(self.columns)
        writer.writerow(fields)
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            file.write(lines.getvalue())
            file.flush()
            os.fsync(file.fileno())
        self._begun = True

    def has(self, point):
        """Whether there is a finished line for this point (a dictionary of the point's columns)."""
        wanted = [text(point.get(column)) for column in self.point_columns]
        return any([row[column] for column in self.point_columns] == wanted for row in self.rows)

    def add(self, point, measured, date):
        """Keeps what was measured at a point; returns the line as a dictionary."""
        values = {**point, **measured, **self._facts, "date": date}
        wrong = (set(values) - set(self.columns)) | (set(point) & set(measured))
        if wrong:
            raise KeyError(f"no such columns, or there twice: {sorted(wrong)}")
        row = {column: text(values.get(column)) for column in self.columns}
        self._append(row.values())
        self.rows.append(row)
        return row
