"""Throughput against queries per record, and where engines meet: figures 1, 2 and 6 to 9 of the paper."""

import glob
import os
import sys

from lib import chain, crossover, paper, plots, results, runner

# Engines of this repository that are measured beside the chain, over the same tables: (name, label, color).
_OWN = (("simplepir", "SimplePIR", plots.BLACK), ("doublepir", "DoublePIR", plots.GRAY),
        ("piano", "Piano", plots.RED), ("treepir", "TreePIR", plots.PURPLE), ("permuted", "SinglePass", plots.PINK),
        ("smallpir", "Small PIR", plots.TEAL), ("hintless", "SimplePIR without a hint", plots.ORANGE))

# Other engines' results: CSV with at least engine, records, queries and online_s of the columns of lib/results.py.
ENGINES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "engines")

# (label, color, marker, points of the authors) of the engines that the paper compares with.
_AUTHORS = (
    ("Checklist", plots.RED, "s", (("figure1", "checklist-punc"), ("figure2", "checklist-punc"))),
    ("DPF", plots.PURPLE, "D", (("figure6", "checklist-dpf"), ("figure7", "checklist-dpf"))),
    ("SealPIR", plots.BROWN, "v", (("figure8", "sealpir"), ("figure9", "sealpir"))),
)


def authors_points(sources):
    """(records, queries, seconds) of an engine that the authors measured."""
    return [(p["database_rows"], p["queries"], p["online_seconds"])
            for experiment, system in sources for p in paper.points(experiment, system)]


def authors_chain(engine, records):
    """The authors' own DP-PIR at a table size, scaled from the figure in which they compare it with `engine`."""
    if engine == "Checklist":  # figure 1: 2,500,000 records
        points, size = paper.points("figure1"), 2_500_000
    else:                      # figures 6 and 8, in which the other two engines were measured
        points, size = paper.points("figure8"), 10_000
    line = paper.series(points, "queries", "online_seconds")
    base = min(t for _, t in line)
    slope = (line[-1][1] - line[-2][1]) / (line[-1][0] - line[-2][0])
    fixed = base * records / size
    return crossover.CompletionTime([(1, fixed), (1e9, fixed + slope * 1e9)])


def measured_chain(rows, records, keys):
    """The measured CompletionTime for a table, None if there is none."""
    groups = {}
    for queries, seconds in runner.column(rows, "queries", "online_s", records=records, keys_per_row=keys):
        groups.setdefault(queries, []).append(seconds)
    if not groups:
        return None
    return crossover.CompletionTime([(q, plots.median(ts)) for q, ts in groups.items()])


def engine_files():
    """Lines of all other engines that were measured with this repository."""
    return [row for path in sorted(glob.glob(os.path.join(ENGINES, "*.csv"))) for row in results.read(path)]


def own_engine(rows, engine):
    """(records, queries, seconds) of an engine that was measured on this machine: medians of repetitions."""
    groups = {}
    for row in rows:
        if row["engine"] == engine:
            groups.setdefault((float(row["records"]), float(row["queries"])), []).append(float(row["online_s"]))
    return [(*point, plots.median(seconds)) for point, seconds in groups.items()]


def total_cpu(row):
    """Processor seconds of all servers for a query: for the chain with its noise, which is made before the clients come."""
    return (float(row["noise_cpu_s"] or 0) + float(row["parties_cpu_s"])) / float(row["queries"])


# In the names of lines: how many times as fast the chain is.
_TIMES = {1: "", 10: ", x 10"}


class Throughput(runner.ChainStudy):
    name = "throughput"
    title = "Throughput against queries per record, and where engines meet (figures 1, 2, 6 to 9)"
    about = (
        "A round of the chain costs its noise, however few queries are in it; an engine without noise pays for every "
        "query. So the chain's throughput grows with q/n, queries over records, until queries outweigh noise, and "
        "from some q/n on it is ahead. The first and the last figure show online stages alone, and noise for single "
        "lookups (phi = 1), as in the paper. The figure between them counts the offline stage too, which costs the chain "
        "most of its processor time.\n\n"
        "The lines of Checklist, DPF and SealPIR are the authors' points, from the authors' machine (r4.xlarge, one thread): "
        "where Shoal's line crosses them compares two machines, not only two engines. A table size at which they "
        "did not measure an engine is reached by a power law through their two nearest. The other engines of this "
        "repository join by CSV files in experiments/throughput/engines.")

    measured_columns = results.MEASURED + results.ENGINE

    def points(self, size):
        series = {
            "tiny": [(100, 16, [10, 1000])],
            "quick": [(10_000, 16, [100, 10_000, 100_000]), (100_000, 16, [1000, 100_000]),
                      (1000, 1, [1000, 100_000])],
            "full": [(n, 16, [n // 100, n // 10, n, 10 * n, 100 * n])
                     for n in (1000, 10_000, 100_000, 1_000_000, 2_500_000)]
                    + [(n, 1, [n // 100, n // 10, n, 10 * n, 100 * n]) for n in (1000, 10_000, 100_000)],
        }[size]
        # (engine, records, keys a row, queries). Each engine has rows that suit it: SimplePIR takes
        # any, DoublePIR's hint grows with their length. A query costs the same however many there
        # are.
        engines = {
            "tiny": [("simplepir", 100, 16, 20), ("treepir", 100, 16, 20)],
            "quick": [("simplepir", 10_000, 16, 2000), ("simplepir", 100_000, 16, 2000),
                      ("doublepir", 1000, 1, 128),
                      ("piano", 10_000, 16, 100), ("piano", 100_000, 16, 500),
                      ("treepir", 10_000, 16, 500), ("treepir", 100_000, 16, 500),
                      ("permuted", 10_000, 16, 500), ("permuted", 100_000, 16, 500),
                      ("smallpir", 10_000, 16, 200), ("smallpir", 100_000, 16, 200),
                      ("hintless", 10_000, 16, 500), ("hintless", 100_000, 16, 500)],
            "full": [("simplepir", n, 16, 5000) for n in (1000, 10_000, 100_000, 1_000_000, 2_500_000)]
                    + [("doublepir", n, 1, 256) for n in (1000, 10_000, 100_000)]
                    + [(engine, n, 16, queries) for engine in ("piano", "treepir", "permuted", "smallpir", "hintless")
                       for n, queries in ((10_000, 100), (100_000, 500), (1_000_000, 1000), (2_500_000, 1000))],
        }[size]
        # Sorted beside the chain's points of the same table, as they share its deployment.
        out = []
        for records, keys, all_queries in series:
            out += [self.point(records, queries, keys_per_row=keys) for queries in all_queries]
            out += [self.engine_point(*one) for one in engines if one[1:3] == (records, keys)]
        tables = {(records, keys) for records, keys, _ in series}
        return out + [self.engine_point(*one) for one in engines if one[1:3] not in tables]

    @classmethod
    def engine_point(cls, engine, records, keys_per_row, queries):
        return {**cls.point(records, queries, keys_per_row=keys_per_row), "engine": engine}

    def run(self, point, bench):
        if point["engine"] == "shoal":
            return super().run(point, bench)
        plan = bench.programs.plan(**chain.plan_options(point))
        return {"row_bytes": plan["table"]["row_bytes"],
                **bench.chain(point, plan).engine_round(point["engine"], point["queries"], point["devices"])}

    def cost(self, point, bench):
        if point["engine"] == "shoal":
            return super().cost(point, bench)
        plan = bench.programs.plan(costs=bench.costs, cores=bench.cores, **chain.plan_options(point))
        costs = next(e for e in plan["engine"] if e["engine"] == point["engine"])
        client = costs["query_seconds"] + costs["recover_seconds"]
        return runner.Cost(
            seconds=(costs["setup_seconds"] + point["queries"] * (costs["answer_seconds"] + client)) / bench.cores
            + 3, memory_bytes=costs["server_bytes"] + costs["hint_memory_bytes"] + costs["hint_bytes"])

    def describe(self, point):
        words = super().describe(point)
        return words if point["engine"] == "shoal" else f"{point['engine']}: {words.rsplit(',', 1)[0]}"

    def describe_result(self, row):
        if row["engine"] == "shoal":
            return super().describe_result(row)
        return (f"{float(row['queries']) / float(row['online_s']):.0f} queries/s, hint "
                f"{float(row['hint_bytes']) / 1e6:.1f} MB, {runner.grouped(row['answers_checked'])} answers right")

    def figures(self, rows, out):
        del out
        return [self._throughput(rows), self._total(rows), self._crossovers(rows)]

    @staticmethod
    def _chain(rows):
        return [row for row in rows if row["engine"] == "shoal"]

    def _throughput(self, all_rows):
        rows = self._chain(all_rows)
        figure = plots.Figure("throughput", "Online throughput against queries per record", width=8.6, height=5)
        axis, = figure.axes
        for experiment, records, marker in (("figure1", 2_500_000, "s"), ("figure3", 100_000, "D"),
                                            ("figure8", 10_000, "h")):
            points = [(p["queries"] / records, p["queries"] / p["online_seconds"])
                      for p in paper.points(experiment) if p["database_rows"] == records]
            axis.plot(*zip(*sorted(points)), **plots.theirs(
                plots.ORANGE, marker, f"paper, {experiment.replace('figure', 'figure ')}: DP-PIR, {records:,}"))
        for name, color, marker, sources in _AUTHORS:
            records = {"Checklist": 2_500_000, "DPF": 100_000, "SealPIR": 10_000}[name]
            points = sorted((q / n, q / t) for n, q, t in authors_points(sources) if n == records)
            axis.plot(*zip(*points), **plots.theirs(color, marker, f"paper: {name}, {records:,}"))
        shades = {1: (plots.GREEN, ("^", "<", ">", "v")), 16: (plots.BLUE, ("o", "P", "X", "*", "p"))}
        for keys, (color, markers) in shades.items():
            sizes = sorted({int(r["records"]) for r in rows if int(r["keys_per_row"]) == keys})
            for records, marker in zip(sizes, markers):
                points = [(q / records, q / t) for q, t in runner.column(
                    rows, "queries", "online_s", records=records, keys_per_row=keys)]
                plots.through_medians(axis, points, **plots.ours(
                    color, marker, f"Shoal: {records:,}, {keys} key{'s' if keys > 1 else ''} a row"))
        across = [float(r["queries"]) / float(r["records"]) for r in rows] or [1]
        for engine, label, color in _OWN:
            points = own_engine(all_rows, engine)
            for records, marker in zip(sorted({n for n, _, _ in points}), ("s", "D", "v", "h", "*")):
                rate = 1 / crossover.per_query(points, records)
                axis.plot([min(across), max(across)], [rate, rate], **plots.ours(
                    color, marker, f"{label}: {int(records):,}, this machine"))
        for engine in sorted({row["engine"] for row in engine_files()}):
            sizes = sorted({row["records"] for row in engine_files() if row["engine"] == engine}, key=float)
            for records in sizes:
                points = [(q / float(records), q / t) for q, t in runner.column(
                    [r for r in engine_files() if r["engine"] == engine], "queries", "online_s",
                    records=float(records))]
                plots.through_medians(axis, points, **plots.ours(plots.GRAY, "d", f"{engine}: {int(records):,}"))
        plots.logarithmic(axis)
        axis.set(xlabel="queries in the round / records in the table", ylabel="queries a second, online stage")
        best = max(((float(r["queries"]) / float(r["online_s"]), float(r["queries"]) / float(r["records"])) for r in rows),
                   default=None)
        servers = {label: max(1 / crossover.per_query(points, n) for n, _, _ in points)
                   for engine, label, _ in _OWN if (points := own_engine(all_rows, engine))}
        if best:
            words = f"The chain's online stage reaches {best[0]:,.0f} queries a second, at {best[1]:g} queries a record"
            if servers:
                first = max(servers, key=servers.get)
                words += f"; the fastest engine of one server here is {first} with {servers[first]:,.0f}, whatever their number"
            figure.conclude(words + ".")
        return figure, ("Numbers after the names: records in the table. Two parties, (0.1, 1e-6) for single lookups. "
                        "The paper's engines ran on r4.xlarge, one thread.")

    def _total(self, all_rows):
        """What a query costs the servers in processor time, with the offline stage and its noise."""
        rows = self._chain(all_rows)
        figure = plots.Figure("total", "Servers' processor time a query, offline stage included", width=8.6, height=5)
        axis, = figure.axes
        shades = {1: (plots.GREEN, ("^", "<", ">", "v")), 16: (plots.BLUE, ("o", "P", "X", "*", "p"))}
        for keys, (color, markers) in shades.items():
            sizes = sorted({int(r["records"]) for r in rows if int(r["keys_per_row"]) == keys})
            for records, marker in zip(sizes, markers):
                points = [(float(r["queries"]) / records, total_cpu(r)) for r in rows
                          if int(r["records"]) == records and int(r["keys_per_row"]) == keys]
                plots.through_medians(axis, points, **plots.ours(
                    color, marker, f"chain, all parties: {records:,}, {keys} key{'s' if keys > 1 else ''} a row"))
        across = [float(r["queries"]) / float(r["records"]) for r in rows] or [1]
        for engine, label, color in _OWN:
            mine = [row for row in all_rows if row["engine"] == engine]
            for records, marker in zip(sorted({int(r["records"]) for r in mine}), ("s", "D", "v", "h", "*")):
                cost = plots.median([total_cpu(r) for r in mine if int(r["records"]) == records])
                axis.plot([min(across), max(across)], [cost, cost], **plots.ours(
                    color, marker, f"{label}, its servers: {records:,}"))
        plots.logarithmic(axis)
        axis.set(xlabel="queries in the round / records in the table", ylabel="processor seconds a query")
        costs = {label: plots.median([total_cpu(r) for r in all_rows if r["engine"] == engine])
                 for engine, label, _ in _OWN if any(r["engine"] == engine for r in all_rows)}
        chain_least = min((total_cpu(r) for r in rows), default=None)
        if costs and chain_least:
            least = min(costs, key=costs.get)
            cheaper = [label for label, cost in costs.items() if cost > chain_least]
            figure.conclude(f"All in, a query costs the chain's parties {1e6 * chain_least:.3g} processor microseconds at best, and the "
                            f"server of {least} {1e6 * costs[least]:.3g}; at its best the chain is cheaper than "
                            f"{len(cheaper)} of {len(costs)} engines.")
        return figure, ("Noise, offline and online stage, TLS and the kernel of all parties; of an engine's server all but "
                        "the set-up, which is made once for a version of the table. Lower is better.")

    def _crossovers(self, all_rows):
        rows = self._chain(all_rows)
        own = [(label, own_engine(all_rows, engine)) for engine, label, _ in _OWN if own_engine(all_rows, engine)]
        figure = plots.Figure("crossovers", "Queries per record from which the chain is ahead",
                              panels=len(_AUTHORS) + len(own), across=3, height=2.3)
        for axis, (label, points) in zip(figure.axes[len(_AUTHORS):], own):
            for factor, style in ((1, {}), (10, {"alpha": 0.45})):
                for keys, shade, marker in ((1, plots.GREEN, "^"), (16, plots.BLUE, "o")):
                    line = []
                    for records in sorted({n for n, _, _ in points}):
                        chain_time = measured_chain(rows, records, keys)
                        at = chain_time and chain_time.crossover(crossover.per_query(points, records), factor)
                        if at is not None:
                            line.append((records, at / records))
                    if line:
                        axis.plot(*zip(*line), **plots.ours(
                            shade, marker,
                            f"{keys} a row{_TIMES[factor]}"), **style)
            plots.logarithmic(axis)
            axis.set(title=f"{label}, both here", xlabel="records in the table",
                     ylabel="queries / records")
        for axis, (name, color, _, sources) in zip(figure.axes, _AUTHORS):
            points = authors_points(sources)
            measured = sorted({n for n, _, _ in points})
            for factor, style in ((1, {}), (10, {"alpha": 0.45})):
                line = [(n, authors_chain(name, n).crossover(crossover.per_query(points, n), factor) / n)
                        for n in measured]
                axis.plot(*zip(*line), **plots.theirs(
                    plots.ORANGE, "s", f"paper{_TIMES[factor]}"), **style)
                for keys, shade, marker in ((1, plots.GREEN, "^"), (16, plots.BLUE, "o")):
                    sizes = sorted({int(r["records"]) for r in rows if int(r["keys_per_row"]) == keys})
                    line = []
                    for records in sizes:
                        at = measured_chain(rows, records, keys).crossover(
                            crossover.per_query(points, records), factor)
                        if at is not None:
                            line.append((records, at / records))
                    if line:
                        axis.plot(*zip(*line), **plots.ours(
                            shade, marker,
                            f"{keys} a row{_TIMES[factor]}"), **style)
            plots.logarithmic(axis)
            axis.set(title=f"{name}, theirs", xlabel="records in the table", ylabel="queries / records")
        low = min(axis.get_xlim()[0] for axis in figure.axes)
        high = max(axis.get_xlim()[1] for axis in figure.axes)
        for axis in figure.axes:
            axis.set_xlim(low, high)
        parts = []
        for label, points in own:
            n = max(n for n, _, _ in points)
            chain_time = measured_chain(rows, n, 16)
            at = chain_time and chain_time.crossover(crossover.per_query(points, n))
            if at is not None:
                parts.append(f"{label} from {at / n:.2g}")
        if parts:
            figure.conclude("Queries a record from which the chain's online stage is ahead, both here, largest table, 16 keys a row: "
                            + ", ".join(parts) + ".")
        return figure, ("The chain with so many keys a row, and the paper's, against each engine: as fast, and ten times as fast (x 10). "
                        "Lower is better for the chain. Online stages. Shoal on this machine against the authors' "
                        "measurements of the other engine on theirs; a power law where they measured no such table. SimplePIR, "
                        "DoublePIR, Piano and TreePIR were measured here.")

    def tables(self, all_rows):
        rows = self._chain(all_rows)
        own_header = ("engine", "records", "keys a row", "queries", "set-up, s", "hint, MB", "query, kB",
                      "answer, kB", "server, queries/s", "queries a pass", "client, ms a query", "p50, ms", "p99, ms",
                      "chain is even from q/n")
        own_lines = []
        for row in (r for r in all_rows if r["engine"] != "shoal"):
            value = lambda name, row=row: float(row[name])
            meets = []
            for keys in (16, 1):
                time = measured_chain(rows, value("records"), keys)
                at = time and time.crossover(value("online_s") / value("queries"))
                if at is not None:
                    meets.append(f"{at / value('records'):.3g} ({keys} a row)")
            own_lines.append((
                row["engine"], runner.grouped(value("records")), row["keys_per_row"],
                runner.grouped(value("queries")), f"{value('setup_s'):.2f}", f"{value('hint_bytes') / 1e6:.1f}",
                f"{value('query_bytes') / 1e3:.1f}", f"{value('answer_bytes') / 1e3:.1f}",
                f"{value('queries') / value('online_s'):.0f}", f"{value('queries_per_pass'):.1f}",
                f"{1e3 * value('client_cpu_s') / value('queries'):.2f}", f"{1e3 * value('latency_p50_s'):.1f}",
                f"{1e3 * value('latency_p99_s'):.1f}", ", ".join(meets) or "never"))
        header = ("engine of the paper", "records", "keys a row", "its seconds a query",
                  "even, queries", "even, q/n", "10 x, q/n")
        lines = []
        for name, _, _, sources in _AUTHORS:
            points = authors_points(sources)
            for keys in (16, 1):
                for records in sorted({int(r["records"]) for r in rows if int(r["keys_per_row"]) == keys}):
                    cost = crossover.per_query(points, records)
                    time = measured_chain(rows, records, keys)
                    even, ten = time.crossover(cost), time.crossover(cost, 10)
                    lines.append((name, f"{records:,}", keys, f"{cost:.3g}",
                                  f"{even:,.0f}" if even else "never",
                                  f"{even / records:.3g}" if even else "never",
                                  f"{ten / records:.3g}" if ten else "never"))
        return [("Single-server engines on this machine", own_header, own_lines),
                ("Where Shoal on this machine meets the paper's engines on theirs", header, lines),
                *super().tables(rows)]


if __name__ == "__main__":
    sys.exit(runner.main(Throughput()))
