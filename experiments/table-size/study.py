"""Completion time against the size of the table: figure 4 of the paper."""

import sys

from lib import paper, plots, runner


class TableSize(runner.ChainStudy):
    name = "table-size"
    title = "Completion time against the size of the table (figure 4)"
    about = (
        "One query, so that nearly every message is noise: what a round costs before anybody asks. Two parties, "
        "(epsilon, delta) = (0.1, 1e-6) for single lookups as in the paper (phi = 1), integer keys, values of 4 bytes.\n\n"
        "Noise is paid for every row. With 16 keys in a row there are a sixteenth as many rows; with one key in a "
        "row the table is the paper's.")

    def points(self, size):
        sizes = {
            "tiny": {16: [100], 1: [100]},
            "quick": {16: [100, 1000, 10_000, 100_000], 1: [100, 1000, 10_000]},
            "full": {16: [100, 1000, 10_000, 100_000, 1_000_000, 2_500_000],
                     1: [100, 1000, 10_000, 100_000, 1_000_000]},
        }[size]
        return [self.point(records, 1, keys_per_row=keys)
                for keys, all_records in sizes.items() for records in all_records]

    def figures(self, rows, out):
        del out
        figure = plots.Figure("table-size", self.title, panels=2)
        authors = paper.points("figure4")
        for axis, title, ours, theirs in (
                (figure.axes[0], "Offline stage, with its noise", runner.offline_total, "offline_seconds"),
                (figure.axes[1], "Online stage", "online_s", "online_seconds")):
            axis.plot(*zip(*paper.series(authors, "database_rows", theirs)),
                      **plots.theirs(label="paper, figure 4 (1 key a row)"))
            for keys, color, marker in ((1, plots.GREEN, "^"), (16, plots.BLUE, "o")):
                plots.through_medians(
                    axis, runner.column(rows, "records", ours, keys_per_row=keys),
                    **plots.ours(color, marker, f"Shoal, {keys} key{'s' if keys > 1 else ''} a row"))
            plots.logarithmic(axis)
            axis.set(title=title, xlabel="records in the table", ylabel="completion time, seconds")
        figure.conclude(self._conclusion(rows))
        return [(figure, "One query, two parties, (0.1, 1e-6) for single lookups. Paper: r4.xlarge, one thread a party.")]

    @staticmethod
    def _conclusion(rows):
        parts = []
        for keys in sorted({int(row["keys_per_row"]) for row in rows}, reverse=True):
            points = runner.column(rows, "records", runner.offline_total, keys_per_row=keys)
            k = plots.exponent(points)
            if k is not None:
                times = plots.medians(points)
                parts.append(f"{10 ** k:.1f} times with {keys} key{'s' if keys > 1 else ''} a row ({max(times):,.0f} records: "
                             f"{times[max(times)]:.3g} s)")
        return ("With a single query, ten times the records take so many times as long offline: " + "; ".join(parts) + "."
                if parts else "One size of table alone: nothing follows.")


if __name__ == "__main__":
    sys.exit(runner.main(TableSize()))
