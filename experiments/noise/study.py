"""Noise for epsilon, delta and phi: table 3 of the paper, with the delta that really holds."""

import csv
import math
import os
import sys

from lib import paper, plots, results, runner

_MEASURED = ("paper_bound", "paper_mean", "paper_delta_lower", "paper_delta_upper", "least_mechanism",
             "least_mean", "least_delta_upper", "least_mode", "least_left_scale", "least_right_scale")


class Noise(runner.Study):
    name = "noise"
    title = "Noise for epsilon, delta and phi (table 3)"
    about = (
        "How many noise queries every party but the last adds for every row, on average. The paper's mechanism "
        "(Laplace, clamped at a bound B) against the least noise that Shoal's search finds, at the exact delta: the "
        "mechanism is exact, and so is the accountant; nothing here is timed.\n\n"
        "The paper's bound does not reach the delta that it states: by the exact sum over all outcomes it is nearly twice "
        "that for one changed query, and nearly 2 phi times that for phi of them (docs/privacy.md). The last column of the "
        "paper's table 3 is headed epsilon = 0.0001; its numbers are those of 0.001, where they stand here.")
    point_columns = ("epsilon", "delta", "phi")
    measured_columns = _MEASURED
    timed = False
    extra_files = ("curves.csv",)

    def points(self, size):
        if size == "tiny":
            return [{"epsilon": 1.0, "delta": 1e-6, "phi": 1}]
        table = [{"epsilon": epsilon, "delta": delta, "phi": 1}
                 for delta in (1e-5, 1e-6, 1e-7) for epsilon in (1.0, 0.1, 0.01, 0.001)]
        phis = [2, 5, 10] if size == "quick" else [2, 5, 10, 20, 50, 100]
        points = table + [{"epsilon": 0.1, "delta": 1e-6, "phi": phi} for phi in phis]
        if size == "full":
            points.append({"epsilon": 0.0001, "delta": 1e-6, "phi": 1})
        return points

    def prepare(self, bench, out):
        """The curves of the distributions, of all sizes: some seconds."""
        path = os.path.join(out, "curves.csv")
        if not os.path.exists(path):
            curves = bench.programs.run([self._program(bench, "curves")])
            with open(path, "w", encoding="utf-8") as file:
                file.write(curves)

    @staticmethod
    def _program(bench, name):
        return os.path.join(bench.programs.directory, os.pardir, "experiments", "noise", name)

    def run(self, point, bench):
        lines = bench.programs.run([self._program(bench, "level"),
                                    *(results.text(point[name]) for name in self.point_columns)])
        return dict(line.split("\t") for line in lines.splitlines())

    def cost(self, point, bench):
        # The search takes longer for noise with more values.
        values = 2 * point["phi"] / point["epsilon"] * math.log(1 / point["delta"])
        return runner.Cost(seconds=values / 4000 + (1 + point["phi"] / 2 if point["phi"] > 1 else 0))

    def describe(self, point):
        return f"epsilon {point['epsilon']:g}, delta {point['delta']:g}, phi {point['phi']}"

    def describe_result(self, row):
        return (f"paper {float(row['paper_mean']):,.1f} (delta {float(row['paper_delta_upper']):.2g}), "
                + (f"least {float(row['least_mean']):,.1f}" if row["least_mean"] else "beyond the limits"))

    def figures(self, rows, out):
        return [self._levels(rows), self._curves(out, "probability", "distributions"),
                self._curves(out, "delta", "delta")]

    def _levels(self, rows):
        figure = plots.Figure("levels", "Noise queries for a row", panels=2, height=4.4)
        against_epsilon, against_phi = figure.axes
        for delta, color, marker in ((1e-7, plots.PURPLE, "v"), (1e-6, plots.BLUE, "o"),
                                     (1e-5, plots.GREEN, "^")):
            table = [line for line in paper.table3() if line["delta"] == delta]
            against_epsilon.plot(*zip(*paper.series(table, "epsilon", "bound")),
                                 **plots.theirs(color, marker, f"paper, table 3: delta {delta:g} stated"))
            ours = [(float(r["epsilon"]), float(r["least_mean"])) for r in rows
                    if float(r["delta"]) == delta and r["phi"] == "1" and r["least_mean"]]
            plots.through_medians(against_epsilon, ours,
                                  **plots.ours(color, marker, f"least noise: delta {delta:g} reached"))
        some = [r for r in rows if float(r["epsilon"]) == 0.1 and float(r["delta"]) == 1e-6]
        for column, style in (
                ("paper_mean", plots.theirs(plots.ORANGE, "s", "paper's mechanism: delta 1e-06 stated")),
                ("least_mean", plots.ours(plots.BLUE, "o", "least noise: delta 1e-06 reached"))):
            line = sorted((float(r["phi"]), float(r[column])) for r in some if r[column])
            against_phi.plot(*zip(*line), **style)
        plots.logarithmic(against_epsilon)
        plots.logarithmic(against_phi)
        against_epsilon.set(title="one changed query", xlabel="epsilon", ylabel="noise queries a row, mean")
        against_phi.set(title="epsilon 0.1, delta 1e-6", xlabel="phi: changed queries of one client",
                        ylabel="noise queries a row, mean")
        one = next((r for r in some if r["phi"] == "1" and r["least_mean"]), None)
        if one:
            figure.conclude(f"At (0.1, 1e-6) for one changed query {float(one['least_mean']):.1f} noise queries a row are enough; the "
                            f"paper's mechanism takes {float(one['paper_mean']):.1f} and reaches a delta of "
                            f"{float(one['paper_delta_lower']):.2g} or more.")
        return figure, ("Paper: its table 3 (bound B), and its algorithm 6. Least noise: what src/noise finds; two-sided "
                        "geometric for phi = 1, split Gaussian above.")

    def _curves(self, out, kind, name):
        titles = {"one": "one changed query", "hundred": "a hundred changed queries"}
        labels = {"probability": ("noise queries for a row", "probability"), "delta": ("epsilon", "exact delta")}
        figure = plots.Figure(name, {"probability": "Noise for a row at (0.1, 1e-6)",
                                     "delta": "The delta that holds, against epsilon"}[kind], panels=2)
        with open(os.path.join(out, "curves.csv"), encoding="utf-8", newline="") as file:
            lines = [line for line in csv.DictReader(file) if line["kind"] == kind]
        styles = iter((plots.ORANGE, plots.BLUE, plots.PURPLE, plots.GREEN))
        for axis, which in zip(figure.axes, titles):
            for label in dict.fromkeys(line["name"] for line in lines if line["figure"] == which):
                points = [(float(line["x"]), float(line["y"])) for line in lines
                          if line["figure"] == which and line["name"] == label]
                axis.plot(*zip(*points), color=next(styles), label=label)
            axis.set(title=titles[which], xlabel=labels[kind][0], ylabel=labels[kind][1])
            if kind == "delta":
                axis.set_yscale("log")
                axis.axhline(1e-6, color=plots.GRAY, linewidth=0.7)
                axis.axvline(0.1, color=plots.GRAY, linewidth=0.7)
        figure.conclude(self._curves_conclusion(lines, kind))
        return figure, ""

    @staticmethod
    def _curves_conclusion(lines, kind):
        curves = {}
        for line in lines:
            if line["figure"] == "one":
                curves.setdefault(line["name"], []).append((float(line["x"]), float(line["y"])))
        if kind == "probability":
            means = {name: sum(x * y for x, y in points) / sum(y for _, y in points) for name, points in curves.items()}
            least, most = min(means, key=means.get), max(means, key=means.get)
            return (f"For one changed query {least.split(',')[0]} needs {means[least]:.1f} noise queries a row on average, "
                    f"{most.split(',')[0]} {means[most]:.1f}.")
        # Just above the epsilon that is stated: the curve falls steeply there.
        at = {name: next(y for x, y in sorted(points) if x > 0.1 + 1e-9) for name, points in curves.items()}
        return ("Beyond epsilon 0.1, where 1e-6 is stated, the delta for one changed query is "
                + ", ".join(f"{delta:.3g} with {name.split(',')[0]}" for name, delta in at.items()) + ".")

    def tables(self, rows):
        stated = {(line["epsilon"], line["delta"]): f"{line['bound']:.0f}" for line in paper.table3()}
        header = ("epsilon", "delta", "phi", "paper, table 3", "paper's B, recomputed",
                  "its delta, at least", "at most", "least noise", "its mean", "its delta, at most",
                  "less than the paper's")
        lines = []
        for row in rows:
            key = float(row["epsilon"]), float(row["delta"])
            number = lambda column, form, row=row: format(float(row[column]), form) if row[column] else "-"
            lines.append((
                f"{key[0]:g}", f"{key[1]:g}", row["phi"], stated.get(key, "-") if row["phi"] == "1" else "-",
                number("paper_bound", ",.0f"), number("paper_delta_lower", ".3g"),
                number("paper_delta_upper", ".3g"),
                row["least_mechanism"] or "beyond its limits", number("least_mean", ",.2f"),
                number("least_delta_upper", ".3g"),
                f"{float(row['paper_mean']) / float(row['least_mean']):.2f} x" if row["least_mean"] else "-"))
        return [("Noise queries for a row", header, lines)]


if __name__ == "__main__":
    sys.exit(runner.main(Noise()))
