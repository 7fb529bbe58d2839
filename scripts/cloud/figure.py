"""Draws the rounds of an experiment: figure.py POINTS.csv OUT. Needs the Python libraries of scripts/setup --test."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "experiments"))

from lib import plots, results, runner  # noqa: E402


def main():
    rows = results.read(sys.argv[1])
    figure = plots.Figure("rounds", "Completion time against queries", panels=2)
    for axis, title, what in zip(figure.axes, ("Offline stage, with its noise", "Online stage"),
                                 (runner.offline_total, "online_s")):
        plots.through_medians(axis, runner.column(rows, "queries", what), **plots.ours(plots.BLUE))
        plots.logarithmic(axis)
        axis.set(title=title, xlabel="queries in the round", ylabel="completion time, seconds")
    queries = sorted({int(row["queries"]) for row in rows})
    online = plots.medians(runner.column(rows, "queries", "online_s"))
    figure.conclude(f"{queries[-1]:,} queries: {online[queries[-1]]:.3g} s online.")
    figure.save(sys.argv[2], f"{rows[0]['machines']}; commit {rows[0]['commit']}; {rows[0]['date'][:10]}.")


if __name__ == "__main__":
    main()
