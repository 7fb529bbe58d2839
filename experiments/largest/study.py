"""The paper's largest round, 100 million queries on 2.5 million keys, on one machine."""

import sys

from lib import machine, paper, plots, results, runner

# Queries per record, as in the paper's largest round.
_QUERIES_A_RECORD = 40
# Bytes of its lists that a party holds in memory, whatever the size of the round. The rest goes to
# disk.
_SPOOL_BYTES = 512 << 20


class Largest(runner.ChainStudy):
    name = "largest"
    title = "The paper's largest round on one machine"
    about = (
        "40 queries for every record, up to 100 million on 2.5 million keys: the largest round of the paper (figure 1). Two "
        "parties, (epsilon, delta) = (0.1, 1e-6) for single lookups as in the paper (phi = 1), integer keys, values of 4 bytes, 16 in a row. "
        "Both parties and the crowd share one machine.\n\n"
        f"A party holds {_SPOOL_BYTES >> 20} MiB of a round's lists in memory; what is more goes to disk, encrypted, in files "
        "without a name. Memory and disk are the most that crowd and parties together held at any time.")
    measured_columns = results.MEASURED + (
        "memory_bytes", "disk_bytes",  # of all processes, at the same time
        "seal_s", "submit_s", "fetch_s", "round_s",  # the crowd's wall times; the whole round, windows and all
        "crowd_cpu_s",
    )

    def points(self, size):
        queries = {"tiny": [4000], "quick": [400_000, 1_000_000], "full": [1_000_000, 10_000_000, 100_000_000]}[size]
        return [self.point(count // _QUERIES_A_RECORD, count) for count in queries]

    def spool_bytes(self, point):
        return _SPOOL_BYTES

    def measure(self, deployment, point):
        with machine.Use(deployment.directory) as use:
            measured = super().measure(deployment, point)
        crowd = deployment.crowd
        return {**measured,
                "memory_bytes": use.memory_bytes, "disk_bytes": use.disk_bytes,
                "seal_s": crowd["seconds_obtain"], "submit_s": crowd["seconds_submit"],
                "fetch_s": crowd["seconds_fetch"], "round_s": crowd["seconds_total"],
                "crowd_cpu_s": crowd["cpu_seconds_total"]}

    def describe_result(self, row):
        return (f"{super().describe_result(row)}; {float(row['memory_bytes']) / 1e9:.1f} GB of memory, "
                f"{float(row['disk_bytes']) / 1e9:.1f} of disk")

    def figures(self, rows, out):
        del out
        figure = plots.Figure("largest", self.title, panels=2)
        times, space = figure.axes
        times.plot(*zip(*paper.series(paper.points("figure1"), "queries", "online_seconds")[-1:]), **plots.theirs(label="paper, figure 1: online stage (1 key a row)"))
        for what, color, marker, label in (
                ("round_s", plots.BLACK, "P", "whole round, with the crowd"),
                (runner.offline_total, plots.BLUE, "o", "offline stage, with its noise"),
                ("online_s", plots.GREEN, "^", "online stage")):
            plots.through_medians(times, runner.column(rows, "queries", what), **plots.ours(color, marker, label))
        times.set(title="Time", xlabel="queries in the round", ylabel="seconds")
        for what, color, marker, label in (
                ("disk_bytes", plots.PURPLE, "v", "disk, all processes"),
                ("memory_bytes", plots.RED, "D", "memory, all processes"),
                ("peak_memory_bytes", plots.GRAY, "s", "memory, the party that had most"),
                ("crowd_memory_bytes", plots.BROWN, "x", "memory, the crowd")):
            points = runner.column(rows, "queries", lambda row, what=what: float(row[what]) / 1e9)
            plots.through_medians(space, points, **plots.ours(color, marker, label))
        space.set(title="Memory and disk, at most", xlabel="queries in the round", ylabel="GB")
        for axis in figure.axes:
            plots.logarithmic(axis)
        figure.conclude(self._conclusion(rows))
        return [(figure, "40 queries a record, two parties, (0.1, 1e-6) for single lookups, 16 keys a row. Paper: r4.xlarge each, one thread "
                 "a party.")]

    @staticmethod
    def _conclusion(rows):
        most = max(float(row["queries"]) for row in rows)
        middle = lambda what: plots.medians(runner.column(rows, "queries", what))[most]
        words = (f"{most:,.0f} queries in a round on one machine: {runner.seconds_text(middle(runner.offline_total))} offline, "
                 f"{middle('online_s'):.3g} s online, {middle('memory_bytes') / 1e9:.1f} GB of memory in all")
        theirs = dict(paper.series(paper.points("figure1"), "queries", "online_seconds"))
        return words + (f"; the paper's online stage took {theirs[most]:.0f} s." if most in theirs else ".")

    def tables(self, rows):
        header = ("queries", "memory, GB", "a party at most, GB", "crowd, GB", "disk, GB", "sealing and sending onions, s",
                  "sending queries, s", "fetching and checking, s", "whole round, s", "crowd, processor s")
        lines = []
        for row in rows:
            value = lambda name, row=row: float(row[name])
            lines.append((
                runner.grouped(value("queries")),
                *(f"{value(name) / 1e9:.2f}" for name in
                  ("memory_bytes", "peak_memory_bytes", "crowd_memory_bytes", "disk_bytes")),
                *(f"{value(name):.1f}" for name in
                  ("seal_s", "submit_s", "fetch_s", "round_s", "crowd_cpu_s"))))
        return super().tables(rows) + [("Memory, disk, and the crowd", header, lines)]


if __name__ == "__main__":
    sys.exit(runner.main(Largest()))
