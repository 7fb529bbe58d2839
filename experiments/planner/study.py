"""What `shoal plan` predicts of a round beside what the round takes: stage by stage, and wall times."""

import sys

from lib import chain, plots, results, runner

# (party, stage) of the longest chain that is run here, with the names that `shoal status` uses.
_MOST_PARTIES = 3
_STAGES = [(party, stage) for party in range(1, _MOST_PARTIES + 1)
           for stage in ("noise", "offline", "online", "answers")
           if party < _MOST_PARTIES or stage in ("offline", "online")]
_WALLS = ("offline", "online")
# Reports are in hundredths of a second, so the ratio of a shorter stage says nothing.
SHORTEST_S = 0.05
# The accuracy that the planner promises for every stage.
BOUND = 0.25


def names(kind):
    """Columns of what is predicted or measured."""
    return ([f"party{party}_{stage}_cpu_{kind}_s" for party, stage in _STAGES]
            + [f"{stage}_wall_{kind}_s" for stage in _WALLS])


def lines_of(row):
    """(what, predicted, measured, ratio) of a row of results; the ratio is None where it tells nothing."""
    lines = []
    for predicted, measured in zip(names("predicted"), names("measured")):
        p, m = results.number(row, predicted), results.number(row, measured)
        if p is None or m is None:
            continue
        what = predicted.removesuffix("_predicted_s").replace("_", " ")
        lines.append((what, p, m, p / m if m >= SHORTEST_S else None))
    return lines


class Planner(runner.ChainStudy):
    name = "planner"
    title = "The planner's predictions beside real rounds"
    about = (
        "Unit costs are measured first (shoal plan --calibrate); then every point is predicted, and only then "
        "run. Processor seconds are those that the parties report of their stages; wall times those that the "
        "frontend reports over the whole chain. All parties and the crowd share this machine. Reports are in "
        f"hundredths of a second, so that a stage below {SHORTEST_S} s is shown without a ratio. The noise protects single lookups (phi = 1).")
    measured_columns = results.MEASURED + tuple(names("predicted")) + tuple(names("measured"))

    def prepare(self, bench, out):
        runner.calibrate(bench, out)

    def points(self, size):
        # The Table 2 workload of docs/performance.md with the planner's own rows, and fewer queries in a quick
        # run; and a chain of three with wide rows, where answers weigh most.
        table2 = {"tiny": (1000, 500), "quick": (100_000, 200_000), "full": (100_000, 1_000_000)}[size]
        wide = {"tiny": (500, 200), "quick": (20_000, 50_000), "full": (100_000, 200_000)}[size]
        records, queries = table2
        # The planner may choose few rows, where a busy machine finds queries dear, and a device asks for at most as many
        # as there are.
        devices = chain.few_devices(queries, 4 if size == "tiny" else records // 100)
        return [{**self.point(records, queries), "keys_per_row": 0, "devices": devices},
                {**self.point(*wide, keys_per_row=8, parties=3, epsilon=1), "value_bytes": 84}]

    def run(self, point, bench):
        options = {**chain.plan_options(point),
                   "spool_memory_mib": chain.spool_memory_bytes(point["parties"]) >> 20}
        shared = bench.programs.plan(costs=bench.costs, cores=bench.cores, one_machine=True, **options)
        predicted = {}
        for party in shared["party"]:
            for stage in ("noise", "offline", "online", "answers"):
                name = f"party{party['party']}_{stage}_cpu_predicted_s"
                if name in self.measured_columns and party[f"{stage}_cpu_s"] > 0:
                    predicted[name] = party[f"{stage}_cpu_s"]
        for stage in _WALLS:
            predicted[f"{stage}_wall_predicted_s"] = shared["chain_times"][f"{stage}_seconds"]
        return {**super().run(point, bench), **predicted}

    def measure(self, deployment, point):
        measured = super().measure(deployment, point)
        for stage in deployment.stages:
            measured[f"party{stage['party']}_{stage['stage']}_cpu_measured_s"] = stage["cpu_seconds"]
        for stage in _WALLS:
            measured[f"{stage}_wall_measured_s"] = measured[f"{stage}_s"]
        return measured

    def describe_result(self, row):
        words = [f"{what} {ratio:.2f}" for what, _, _, ratio in lines_of(row) if ratio]
        return "predicted / measured: " + ", ".join(words)

    def tell(self, rows):
        for row in rows:
            print(f"{runner.grouped(row['records'])} records, {runner.grouped(row['queries'])} queries, "
                  f"{row['parties']} parties; others kept {float(row['other_load_cores']):.1f} cores busy",
                  file=sys.stderr)
            for what, predicted, measured, ratio in lines_of(row):
                text = f"{ratio:6.2f}" if ratio else "     -"
                off = "  off" if ratio and abs(ratio - 1) > BOUND else ""
                print(f"  {what:<26} predicted {predicted:9.3f} s   measured {measured:8.2f} s  {text}{off}",
                      file=sys.stderr)

    def figures(self, rows, out):
        del out
        figure = plots.Figure("planner", "Predicted and measured seconds", width=8.6, height=5)
        axis, = figure.axes
        for (label, color, marker), wall in ((("a stage at a party, processor time", plots.BLUE, "o"), False),
                                             (("a stage over the chain, wall time", plots.GREEN, "^"), True)):
            points = [(m, p) for row in rows for what, p, m, ratio in lines_of(row)
                      if ratio and what.endswith("wall") == wall]
            if points:
                axis.plot(*zip(*points), **{**plots.ours(color, marker, label), "linestyle": "none"})
        ends = [x for row in rows for _, p, m, ratio in lines_of(row) if ratio for x in (p, m)]
        if ends:
            low, high = min(ends), max(ends)
            for factor, style in ((1, "-"), (1 - BOUND, ":"), (1 + BOUND, ":")):
                axis.plot([low, high], [low * factor, high * factor], style, color="gray", linewidth=1)
        plots.logarithmic(axis)
        axis.set(xlabel="measured, s", ylabel="predicted, s")
        walls = [ratio for row in rows for what, _, _, ratio in lines_of(row) if ratio and what.endswith("wall")]
        stages = [ratio for row in rows for what, _, _, ratio in lines_of(row) if ratio and not what.endswith("wall")]
        within = lambda ratios: sum(abs(ratio - 1) <= BOUND for ratio in ratios)
        if walls or stages:
            figure.conclude(f"Within {BOUND:.0%} of what was measured are {within(walls)} of {len(walls)} wall times of the chain and "
                            f"{within(stages)} of {len(stages)} stages at a party.")
        return [(figure, f"Between the dotted lines the prediction is within {BOUND:.0%}.")]

    def tables(self, rows):
        out = []
        for row in rows:
            lines = []
            for what, predicted, measured, ratio in lines_of(row):
                off = "" if ratio is None or abs(ratio - 1) <= BOUND else "off"
                lines.append((what, f"{predicted:.3g}", f"{measured:.2f}",
                              f"{ratio:.2f}" if ratio else "too short", off))
            heading = (f"{runner.grouped(row['records'])} records, {runner.grouped(row['queries'])} queries, "
                       f"{row['parties']} parties")
            out.append((heading, ("what", "predicted, s", "measured, s", "predicted / measured", ""), lines))
        return out + super().tables(rows)


if __name__ == "__main__":
    sys.exit(runner.main(Planner()))
