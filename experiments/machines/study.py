"""Parties of several machines: table 2 of the paper, and a billion queries."""

import os
import sys

from lib import chain, machine, paper, plots, runner

# Table 2: keys and queries; noise for one changed query of 1 in all that follows.
_KEYS, _QUERIES, _EPSILON, _DELTA = 100_000, 1_000_000, 0.1, 1e-6
_VALUE_BYTES = 4
# The planner's rows depend on the workload: those of the largest one here.
_ROWS = {1: "rows of one record", 0: "rows of the planner's"}
# A machine of the authors, an AWS r4.xlarge, has four virtual cores; they used one thread of it. Its price on demand in
# us-east-1 can be given anew.
_CORES = 4
_PRICE_MACHINE_HOUR = 0.266
_BILLION = 1_000_000_000
_OWN_COLORS = {1: (plots.GREEN, "^"), 0: (plots.BLUE, "o")}


def efficiency(seconds_one, seconds, machines):
    """The share of the work of `machines` machines that one machine would have, too."""
    return seconds_one / (machines * seconds)


class Machines(runner.Study):
    name = "machines"
    title = "Parties of several machines (table 2), and a billion queries"
    about = (
        "Two parties with as many machines each, (epsilon, delta) = (0.1, 1e-6) for single lookups as in the paper (phi = 1), integer keys, "
        "values of 4 bytes.\n\n"
        "Measured: all machines of both parties in one process, each on one thread; processor seconds. Offline is noise, offline "
        "stage and commitments, of the machine of each party that took most. Online is the online stage of both parties with the TLS "
        "connections between them over loopback, over all machines. What machines of one party pass to each other is sealed, "
        "padded and opened, but goes through queues in memory: no network is in it, and no waiting for one. The online stage's "
        "input is made up; answers are checked.\n\n"
        "Modelled: what shoal plan --machines predicts from unit costs that were measured in the same run on the same machine. It takes "
        "the machines of a party to be equally busy, and does not model the speed of a network. Nobody has run a party on so many "
        "machines with this program.\n\n"
        "Efficiency is what one machine takes, divided by what all machines take together. The authors' seconds are wall time of "
        "r4.xlarge machines, one thread each, with their network.")
    point_columns = ("kind", "stage", "keys_per_row", "keys", "queries", "machines", "machine_cores", "repetition")
    measured_columns = ("row_bytes", "rows", "noise_per_row", "offline_cpu_s", "online_cpu_s", "offline_s", "online_s",
                        "answers_checked", "minutes", "memory_bytes", "rest_bytes_per_position", "link_gigabytes",
                        "inside_gigabytes", "price_machine_hour", "price_gb", "machines_price", "traffic_price", "refused",
                        "other_load_cores")

    def add_options(self, parser):
        parser.add_argument("--price-machine-hour", type=float, default=_PRICE_MACHINE_HOUR, metavar="PRICE",
                            help=f"of one machine with {_CORES} cores, for a billion queries ({_PRICE_MACHINE_HOUR})")

    def points(self, size):
        # The offline stage takes some 30 times as long as the online stage.
        offline, online, counts = {"tiny": (10, 20, [1, 2]), "quick": (200, 2000, [1, 2, 4, 8]),
                                   "full": (2000, 10_000, [1, 2, 4, 8])}[size]
        point = lambda kind, stage, per_row, keys, queries, machines, cores: {
            "kind": kind, "stage": stage, "keys_per_row": per_row, "keys": keys, "queries": queries,
            "machines": machines, "machine_cores": cores, "repetition": 1}
        points = []
        for per_row in _ROWS:
            for stage, keys in (("offline", offline), ("online", online)):
                # The planner's rows are so few that as much noise needs more keys. Submissions have 64 slots.
                keys *= 1 if per_row else 16
                queries = 64 * max(1, 10 * keys // 64)
                for kind in ("measured", "modelled"):
                    points += [point(kind, stage, per_row, keys, queries, k, 1) for k in counts]
        for per_row in _ROWS:
            points += [point("modelled", "both", per_row, _KEYS, _QUERIES, k, 1)
                       for k in ((1, 8) if size == "tiny" else (1, 2, 4, 8))]
            for many in (2_500_000, 100_000_000):
                points += [point("modelled", "both", per_row, many, _BILLION, k, _CORES)
                           for k in ([64] if size == "tiny" else [8, 16, 32, 64])]
        return points

    def repeats(self, point):
        return point["kind"] == "measured" and point["stage"] == "online"

    def prepare(self, bench, out):
        # The smallest size is for tests, which do not look at times.
        if self.options.size != "tiny":
            runner.calibrate(bench, out)

    def _plan(self, point, bench, machines=None):
        rows = {"row_bytes": point["keys_per_row"] * _VALUE_BYTES} if point["keys_per_row"] else {}
        return bench.programs.plan(
            costs=bench.costs, layout="dense", records=point["keys"], value_bytes=_VALUE_BYTES, parties=2,
            queries=point["queries"], epsilon=_EPSILON, delta=_DELTA, cores=point["machine_cores"],
            machines=machines or point["machines"], price_machine_hour=self.options.price_machine_hour, **rows)

    def run(self, point, bench):
        try:
            plan = self._plan(point, bench)
        except chain.Failed as failed:
            if point["kind"] == "modelled" and "noise overflow" in str(failed):
                return {"refused": "more positions than 32 bits can number"}
            raise
        table, noise = plan["table"], plan["noise"]
        facts = {"row_bytes": table["row_bytes"], "rows": int(table["rows"]), "noise_per_row": noise["mean_per_row"]}
        return {**facts, **(self._measure(point, plan, bench) if point["kind"] == "measured" else self._model(point, plan))}

    def _model(self, point, plan):
        parties, rental, k = plan["party"], plan["rental"], point["machines"]
        return {
            "offline_cpu_s": sum(party["noise_cpu_s"] + party["offline_cpu_s"] for party in parties) / k,
            "online_cpu_s": sum(party["online_cpu_s"] + party["answers_cpu_s"] + party["links_cpu_s"] for party in parties) / k,
            "offline_s": plan["chain_times"]["offline_beside_noise_seconds"],
            "online_s": plan["chain_times"]["online_seconds"],
            "minutes": rental["minutes"],
            "memory_bytes": max(party["peak_memory_bytes"] for party in parties),
            "link_gigabytes": rental["gigabytes"], "inside_gigabytes": rental["inside_gigabytes"],
            "price_machine_hour": rental["price_machine_hour"], "price_gb": plan["price_gb"],
            "machines_price": rental["machines_price"], "traffic_price": rental["traffic_price"],
        }

    def _measure(self, point, plan, bench):
        program = os.path.join(bench.programs.directory, "bench", "machines_benchmark")
        noise, k = plan["noise"], point["machines"]
        if noise["mechanism"] != "geometric":
            raise chain.Failed(f"the program draws geometric noise, not {noise['mechanism']}")
        spent = 0.0
        load = machine.OtherLoad(lambda: spent)
        before = os.times()
        lines = bench.programs.run(
            [program, point["stage"], "--machines", str(k), "--queries", str(point["queries"]),
             "--rows", str(int(plan["table"]["rows"])), "--row-bytes", str(plan["table"]["row_bytes"]),
             "--mode", str(noise["mode"]), "--left", repr(noise["left_scale"]), "--right", repr(noise["right_scale"])])
        after = os.times()
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        figures = {}
        for line in lines.splitlines()[1:]:
            name, party, rank, items, cpu_s = line.split("\t")
            figures[name, int(party), int(rank)] = int(items), float(cpu_s)
        sent = sum(items for (name, _, _), (items, _) in figures.items() if name.startswith("sent-"))
        found = {"inside_gigabytes": sent / 1e9, "other_load_cores": load.cores()}
        if point["stage"] == "online":
            return {**found, "online_cpu_s": figures["online", 0, 0][1] / k, "answers_checked": point["queries"]}
        most = sum(max(figures["noise", party, rank][1] + figures["offline", party, rank][1] for rank in range(k))
                   for party in (1, 2))
        return {**found, "offline_cpu_s": most,
                "rest_bytes_per_position": figures["rest-bytes", 0, 0][0] / figures["positions", 0, 0][0]}

    def cost(self, point, bench):
        if point["kind"] == "modelled":
            return runner.Cost(seconds=0.3)
        plan = self._plan(point, bench, machines=1)
        seconds = sum(party[f"{stage}_cpu_s"] for party in plan["party"]
                      for stage in ("noise", "offline", "online", "answers", "links"))
        # The program makes the clients' onions, and checks answers.
        seconds += 2e-9 * point["queries"] * plan["costs"]["seal_ns"]
        return runner.Cost(seconds=1.5 * seconds / bench.cores + 1,
                           memory_bytes=sum(party["peak_memory_bytes"] for party in plan["party"]))

    def describe(self, point):
        machines = f"{point['machines']} machine{'s' if point['machines'] > 1 else ''} a party"
        return (f"{point['kind']}: {runner.grouped(point['keys'])} keys, {_ROWS[int(point['keys_per_row'])]}, "
                f"{runner.grouped(point['queries'])} queries, {machines}")

    def describe_result(self, row):
        if row["refused"]:
            return f"refused: {row['refused']}"
        return "a machine's processor seconds: " + ", ".join(
            f"{stage} {float(row[stage + '_cpu_s']):.3g}" for stage in ("offline", "online") if row[stage + "_cpu_s"])

    @staticmethod
    def _seconds(rows, name, **where):
        """The median of a column by machines, over the lines that have it and whose columns equal `where`."""
        found = {}
        for row in rows:
            if row[name] and all(row[column] == str(value) for column, value in where.items()):
                found.setdefault(int(row["machines"]), []).append(float(row[name]))
        return {k: plots.median(values) for k, values in sorted(found.items())}

    def figures(self, rows, out):
        del out
        return [self._efficiency(rows), self._table2(rows)]

    def _efficiency(self, rows):
        figure = plots.Figure("efficiency", "Efficiency of a party's machines", panels=2, height=4.6)
        theirs = paper.points("table2")
        for axis, name, column, title in ((figure.axes[0], "offline_cpu_s", "offline_seconds", "noise and offline stage"),
                                          (figure.axes[1], "online_cpu_s", "online_seconds", "online stage with TLS")):
            one = theirs[0][column]
            axis.plot([row["machines_per_party"] for row in theirs],
                      [100 * efficiency(one, row[column], row["machines_per_party"]) for row in theirs],
                      **plots.theirs(label="paper, table 2: wall time"))
            for per_row, (color, marker) in _OWN_COLORS.items():
                measured = self._seconds(rows, name, kind="measured", keys_per_row=per_row)
                model = self._seconds(rows, name, kind="modelled", stage="both", keys_per_row=per_row, keys=_KEYS)
                for line, style, words in ((measured, plots.ours, "measured (smaller, processor time)"),
                                           (model, plots.modelled, "modelled (table 2's size)")):
                    if 1 in line:
                        axis.plot(list(line), [100 * efficiency(line[1], line[k], k) for k in line],
                                  **style(color, marker, f"{words}, {_ROWS[per_row]}"))
            axis.set(title=title, xlabel="machines a party", ylabel="efficiency, per cent")
            axis.set_ylim(bottom=0)
            axis.set_xticks([1, 2, 4, 8])
        parts = []
        for name, column, stage in (("offline_cpu_s", "offline_seconds", "offline"), ("online_cpu_s", "online_seconds", "online")):
            for per_row in _OWN_COLORS:
                line = self._seconds(rows, name, kind="measured", keys_per_row=per_row)
                many = max(line, default=1)
                if 1 in line and many > 1:
                    author = {row["machines_per_party"]: row[column] for row in theirs}
                    beside = (f", the paper's {100 * efficiency(author[1], author[many], many):.0f} %" if many in author else "")
                    parts.append(f"{stage}, {_ROWS[per_row]}: {100 * efficiency(line[1], line[many], many):.0f} % at {many}{beside}")
        figure.conclude("Of one machine's efficiency there is left, measured in processor time: " + "; ".join(parts) + "."
                        if parts else "Nothing was measured with several machines.")
        return figure, ("Two parties, noise (0.1, 1e-6) for single lookups. Paper: 100,000 keys, 1,000,000 queries, rows of one record, "
                        "r4.xlarge each, one thread.")

    def _table2(self, rows):
        figure = plots.Figure("table2", "Table 2: 1,000,000 queries on 100,000 keys", panels=2, height=4.6)
        theirs = paper.points("table2")
        for axis, name, column, title in ((figure.axes[0], "offline_s", "offline_seconds", "offline, with its noise"),
                                          (figure.axes[1], "online_s", "online_seconds", "online")):
            axis.plot(*zip(*paper.series(theirs, "machines_per_party", column)),
                      **plots.theirs(label="paper, table 2 (rows of one record)"))
            for per_row, (color, marker) in _OWN_COLORS.items():
                line = [(int(row["machines"]), float(row[name])) for row in rows
                        if row["kind"] == "modelled" and int(row["keys_per_row"]) == per_row
                        and int(row["keys"]) == _KEYS and int(row["queries"]) == _QUERIES]
                axis.plot(*zip(*sorted(line)), **plots.modelled(color, marker, f"modelled, {_ROWS[per_row]}"))
            plots.logarithmic(axis)
            axis.set(title=title, xlabel="machines a party", ylabel="seconds")
            axis.set_xticks([1, 2, 4, 8], labels=["1", "2", "4", "8"])
            axis.minorticks_off()
        parts = []
        for per_row in _OWN_COLORS:
            line = {int(row["machines"]): row for row in rows if row["kind"] == "modelled" and int(row["keys_per_row"]) == per_row
                    and int(row["keys"]) == _KEYS and int(row["queries"]) == _QUERIES}
            if line:
                most = line[max(line)]
                parts.append(f"{float(most['offline_s']):.3g} s offline and {float(most['online_s']):.2g} s online with {_ROWS[per_row]}")
        last = theirs[-1]
        figure.conclude(f"With {last['machines_per_party']:.0f} machines a party the model says " + ", ".join(parts)
                        + f"; the paper measured {last['offline_seconds']:,.0f} and {last['online_seconds']:.2g} s." if parts
                        else "Nothing was modelled.")
        return figure, "Ours: modelled from unit costs of this machine, one core a machine; no network's speed. Paper: measured, wall time."

    def tables(self, rows):
        theirs = {int(row["machines_per_party"]): row for row in paper.points("table2")}
        lines = []
        cases = dict.fromkeys((row["kind"], row["stage"], row["keys_per_row"], row["keys"], row["queries"]) for row in rows
                              if int(row["queries"]) != _BILLION)
        for kind, stages, per_row, keys, queries in cases:
            for stage in ("offline", "online") if stages == "both" else (stages,):
                line = self._seconds(rows, stage + "_cpu_s", kind=kind, stage=stages, keys_per_row=per_row, keys=keys,
                                     queries=queries)
                for k in line:
                    author = ""
                    if (int(keys), int(queries), int(per_row)) == (_KEYS, _QUERIES, 1):
                        author = f"{100 * efficiency(theirs[1][stage + '_seconds'], theirs[k][stage + '_seconds'], k):.0f} %"
                    share = f"{100 * efficiency(line[1], line[k], k):.0f} %" if 1 in line else "-"
                    lines.append((f"{stage}, {kind}", runner.grouped(keys), _ROWS[int(per_row)], runner.grouped(queries), k,
                                  f"{line[k]:.3g}", share, author))
        header = ("stage", "keys", "rows", "queries", "machines a party", "processor s a machine, both parties", "efficiency",
                  "the authors'")
        many = []
        for row in rows:
            if int(row["queries"]) != _BILLION:
                continue
            head = (runner.grouped(row["keys"]), _ROWS[int(row["keys_per_row"])], row["row_bytes"] or "-", row["machines"])
            if row["refused"]:
                many.append((*head, f"refused: {row['refused']}") + ("",) * 6)
                continue
            number = lambda name, row=row: float(row[name])
            many.append((*head, f"{number('offline_s') / 60:.1f}", f"{number('online_s') / 60:.2f}",
                         f"{number('memory_bytes') / 1e9:.1f}", f"{number('link_gigabytes'):,.0f}",
                         f"{number('inside_gigabytes'):,.0f}", f"{number('machines_price'):.2f}", f"{number('traffic_price'):.2f}"))
        prices = sorted({(row["price_machine_hour"], row["price_gb"]) for row in rows if row["price_gb"]})
        words = "; ".join(f"{hour} a machine hour, {gb} a GB" for hour, gb in prices)
        return [("Measured and modelled; efficiency", header, lines),
                (f"A billion queries, modelled ({_CORES} cores a machine; {words})",
                 ("keys", "rows", "row bytes", "machines a party", "offline with its noise, min", "online, min", "memory a machine, GB",
                  "clients and parties, GB", "inside parties, GB", "machines, money", "traffic, money"), many)]


if __name__ == "__main__":
    sys.exit(runner.main(Machines()))
