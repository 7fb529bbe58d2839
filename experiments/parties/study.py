"""Completion time against the number of parties: figure 5 of the paper."""

import sys

from lib import paper, plots, runner


class Parties(runner.ChainStudy):
    name = "parties"
    title = "Completion time against parties (figure 5)"
    about = (
        "100,000 queries on 10,000 records, (epsilon, delta) = (0.1, 1e-6) for single lookups as in the paper (phi = 1), integer keys, values of 4 bytes. Every party but "
        "the last adds all the noise that is needed if it is the only honest one, and every onion has a layer for "
        "every party: the offline stage grows with the square of the parties.\n\n"
        "All parties share the cores of one machine here; in the paper each has a machine of its own. The stages "
        "of a round run one after the other, so that this matters for the noise alone, which all parties make at the same time.")

    def points(self, size):
        parties = {
            "tiny": {16: [2, 3]},
            "quick": {16: [2, 3, 5], 1: [2]},
            "full": {16: [2, 3, 4, 5, 6, 7, 8], 1: [2, 3, 4, 5]},
        }[size]
        records, queries = (100, 100) if size == "tiny" else (10_000, 100_000)
        return [self.point(records, queries, keys_per_row=keys, parties=m)
                for keys, all_parties in parties.items() for m in all_parties]

    def figures(self, rows, out):
        del out
        figure = plots.Figure("parties", self.title, panels=2)
        authors = paper.points("figure5")
        for axis, title, ours, theirs in (
                (figure.axes[0], "Offline stage, with its noise", runner.offline_total, "offline_seconds"),
                (figure.axes[1], "Online stage", "online_s", "online_seconds")):
            axis.plot(*zip(*paper.series(authors, "parties", theirs)),
                      **plots.theirs(label="paper, figure 5 (1 key a row)"))
            for keys, color, marker in ((1, plots.GREEN, "^"), (16, plots.BLUE, "o")):
                plots.through_medians(
                    axis, runner.column(rows, "parties", ours, keys_per_row=keys),
                    **plots.ours(color, marker, f"Shoal, {keys} key{'s' if keys > 1 else ''} a row"))
            plots.logarithmic(axis, x=False)
            axis.set(title=title, xlabel="parties", ylabel="completion time, seconds")
            axis.set_xticks(range(2, 1 + max([5] + [int(row["parties"]) for row in rows])))
        figure.conclude(self._conclusion(rows))
        return [(figure, "100,000 queries, 10,000 records, (0.1, 1e-6) for single lookups. Paper: r4.xlarge each, one thread a party.")]

    @staticmethod
    def _conclusion(rows):
        def grows(what):
            points = runner.column(rows, "parties", what, keys_per_row=keys)
            return plots.exponent(points), plots.medians(points)

        keys = max((int(row["keys_per_row"]) for row in rows),
                   key=lambda k: (len({row["parties"] for row in rows if int(row["keys_per_row"]) == k}), k))
        (offline, times), (online, _) = grows(runner.offline_total), grows("online_s")
        if offline is None:
            return "One number of parties alone: nothing follows."
        return (f"From {min(times):.0f} to {max(times):.0f} parties the offline stage takes {times[min(times)]:.3g} to "
                f"{times[max(times)]:.3g} s, as the power {offline:.1f} of their number; the online stage grows as the power "
                f"{online:.1f} ({keys} key{'s' if keys > 1 else ''} a row).")


if __name__ == "__main__":
    sys.exit(runner.main(Parties()))
