"""Completion time against the number of queries: figure 3 of the paper."""

import sys

from lib import paper, plots, runner


class Queries(runner.ChainStudy):
    name = "queries"
    title = "Completion time against queries (figure 3)"
    about = (
        "A round's time against the queries in it. Two parties, (epsilon, delta) = (0.1, 1e-6) for single lookups as in the paper (phi = 1), integer keys, values "
        "of 4 bytes. The paper's figure 3 has 100,000 records; its figure 8, measured on another occasion, has 10,000 and the "
        "online stage alone.\n\n"
        "Few queries cost what the noise costs. The line rises once there are as many queries as noise queries: with 16 keys "
        "in a row that is sixteen times earlier than with one.")

    def points(self, size):
        series = {
            "tiny": [(100, 16, [1, 100])],
            "quick": [(100_000, 16, [1, 500_000]), (10_000, 1, [10_000])],
            "full": [(10_000, 16, [10**k for k in range(8)]), (10_000, 1, [10**k for k in range(8)]),
                     (100_000, 16, [10**k for k in range(9)]), (100_000, 1, [10**k for k in range(9)])],
        }[size]
        return [self.point(records, queries, keys_per_row=keys)
                for records, keys, all_queries in series for queries in all_queries]

    def figures(self, rows, out):
        del out
        figure = plots.Figure("queries", self.title, panels=2, height=4.4)
        offline, online = figure.axes
        big, small = paper.points("figure3"), paper.points("figure8")
        offline.plot(*zip(*paper.series(big, "queries", "offline_seconds")),
                     **plots.theirs(label="paper, figure 3: 100,000 records"))
        online.plot(*zip(*paper.series(big, "queries", "online_seconds")),
                    **plots.theirs(label="paper, figure 3: 100,000 records"))
        online.plot(*zip(*paper.series(small, "queries", "online_seconds")),
                    **plots.theirs(plots.BROWN, "D", "paper, figure 8: 10,000 records"))
        for records, keys, color, marker in (
                (100_000, 1, plots.GREEN, "^"), (100_000, 16, plots.BLUE, "o"),
                (10_000, 1, plots.PURPLE, "v"), (10_000, 16, plots.GRAY, "P")):
            label = f"Shoal, {records:,} records, {keys} key{'s' if keys > 1 else ''} a row"
            for axis, what in ((offline, runner.offline_total), (online, "online_s")):
                plots.through_medians(
                    axis, runner.column(rows, "queries", what, records=records, keys_per_row=keys),
                    **plots.ours(color, marker, label))
        for axis, title in ((offline, "Offline stage, with its noise"), (online, "Online stage")):
            plots.logarithmic(axis)
            axis.set(title=title, xlabel="queries in the round", ylabel="completion time, seconds")
        figure.conclude(self._conclusion(rows))
        return [(figure, "Two parties, (0.1, 1e-6) for single lookups. Paper: r4.xlarge, one thread a party, 1 key a row.")]

    @staticmethod
    def _conclusion(rows):
        """Of the series with the most different numbers of queries: what more queries cost."""
        series = {}
        for row in rows:
            series.setdefault((int(row["records"]), int(row["keys_per_row"])), []).append(row)
        (records, keys), some = max(series.items(), key=lambda item: (len({row["queries"] for row in item[1]}), item[0]))
        offline, online = (plots.medians(runner.column(some, "queries", what)) for what in (runner.offline_total, "online_s"))
        few, many = min(offline), max(offline)
        where = f"{records:,} records, {keys} key{'s' if keys > 1 else ''} a row"
        if few == many:
            return f"{where}: a round of {few:,.0f} queries takes {offline[few]:.3g} s offline and {online[few]:.2g} s online."
        more, longer, slower = many / few, offline[many] / offline[few], online[many] / online[few]
        tail = "few queries cost what their noise costs" if max(longer, slower) < more / 10 else "the queries outweigh the noise"
        return (f"{where}: {many:,.0f} queries in place of {few:,.0f} take {longer:.1f} times as long offline ({offline[few]:.3g} s, "
                f"{offline[many]:.3g} s) and {slower:.1f} times online: {tail}.")


if __name__ == "__main__":
    sys.exit(runner.main(Queries()))
