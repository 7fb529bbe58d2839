"""Throughput and communication of the single-server engines: tables 1 and 8, figures 7 and 9 of the SimplePIR paper."""

import sys

from lib import engines, paper, plots, runner

_COLORS = {"simplepir": (plots.GREEN, "^"), "doublepir": (plots.BLUE, "o")}
# The paper's figures 6 and 7 spread the hint over so many queries.
_QUERIES_A_HINT = 100
# What the text of section 8.1 says of figure 9: (batch, GB/s, "more than"), effective.
_FIGURE9 = {"simplepir": [(16, 100), (256, 1000)], "doublepir": [(32, 50), (256, 100)]}


def payload(row):
    """Bytes of records in the table."""
    return int(row["table_bytes"]) // int(row["record_bytes"]) * int(row["record_bytes"])


def throughput(row):
    """MB/s and core, for one query after the other or for passes that serve several clients."""
    return payload(row) / float(row["answer_cpu_s"]) / 1e6


def effective(row):
    """GB/s as in the paper's figure 9: the whole table counts for each query of the batch that fetched its record."""
    fetched = float(row["fetched_per_batch"]) if row["mode"] == "chunks" else 1
    return payload(row) * fetched / float(row["answer_cpu_s"]) / 1e9


def communication(row):
    """Bytes of one query and its answer, with its share of the hint."""
    return float(row["hint_bytes"]) / _QUERIES_A_HINT + float(row["query_bytes"]) + float(row["answer_bytes"])


class Engines(runner.Study):
    name = "engines"
    title = "Single-server engines: throughput and communication (SimplePIR, tables 1 and 8, figures 7 and 9)"
    about = (
        "SimplePIR and DoublePIR as Shoal has them (src/pir), over tables of pseudorandom records; every record that was fetched is "
        "compared with the table. Throughput is bytes of the table over the processor's seconds of the server, of all threads "
        "together: the authors' is of one thread of an AWS c5n.metal.\n\n"
        "An entry of one bit in the paper is an eighth of a record of one byte here: eight of them stand in one element of the "
        "matrix, as ten and more do in the paper's.")
    point_columns = ("kind", "engine", "table_bytes", "record_bytes", "mode", "batch", "queries", "repetition")
    measured_columns = ("setup_s", "setup_cpu_s", "columns", "hint_bytes", "query_bytes", "answer_bytes", "query_s",
                        "query_cpu_s", "answer_s", "answer_cpu_s", "recover_cpu_s", "answers_checked",
                        "fetched_per_batch")

    def points(self, size):
        table = {"tiny": 2**16, "quick": 2**25, "full": 2**30}[size]
        widths = {"tiny": {"simplepir": [16], "doublepir": [1]},
                  "quick": {"simplepir": [1, 32, 1024, 32768], "doublepir": [1, 8]},
                  "full": {"simplepir": [1, 8, 64, 256, 1024, 8192, 65536], "doublepir": [1, 4, 16, 64]}}[size]
        batches = {"tiny": [2], "quick": [1, 4, 16], "full": [1, 2, 4, 8, 16]}[size]
        chunks = {"tiny": [4], "quick": [1, 4, 16, 64, 256], "full": [1, 4, 16, 32, 64, 128, 256, 512]}[size]
        queries = {"tiny": 2, "quick": 7, "full": 7}[size]
        point = lambda kind, engine, width, mode, batch: {
            "kind": kind, "engine": engine, "table_bytes": table, "record_bytes": width, "mode": mode,
            "batch": batch, "queries": queries, "repetition": 1}
        return ([point("entries", engine, width, "clients", 1) for engine in _COLORS for width in widths[engine]]
                + [point("batches", engine, 1, "clients", batch) for engine in _COLORS for batch in batches]
                + [point("batches", engine, 1, "chunks", batch) for engine in _COLORS for batch in chunks])

    def run(self, point, bench):
        return engines.run(bench, self.name, "engine", point["engine"], point["table_bytes"], point["record_bytes"],
                           point["mode"], point["batch"], point["queries"])

    def cost(self, point, bench):
        table, batch = point["table_bytes"], point["batch"]
        passes = 1 if point["mode"] == "chunks" else batch
        # DoublePIR's second level: 3,072 rows for every byte of a record, and a column for every block.
        columns = (table / point["record_bytes"])**0.5
        second = 3072 * point["record_bytes"] * columns if point["engine"] == "doublepir" else 0
        return runner.Cost(
            seconds=0.2 + engines.setup_seconds(table + 2 * second, bench.cores)
            + point["queries"] * (passes * table + batch * second) / engines.ANSWERED_A_SECOND,
            memory_bytes=1.3 * table + second * 1.3 + 4096 * 3072 * 3 * point["record_bytes"] * (second > 0) + 2**28)

    def describe(self, point):
        how = "" if point["kind"] == "entries" else f", {point['batch']} {point['mode']}"
        return f"{point['engine']}, {point['table_bytes'] / 2**20:g} MiB in records of {point['record_bytes']}{how}"

    def describe_result(self, row):
        words = f"{throughput(row):,.0f} MB/s a core"
        return words + (f", effective {effective(row):,.1f} GB/s" if row["mode"] == "chunks" else "")

    def figures(self, rows, out):
        return [self._entries([row for row in rows if row["kind"] == "entries"]),
                self._batches([row for row in rows if row["kind"] == "batches"])]

    def _entries(self, rows):
        figure = plots.Figure("entries", "Against the size of an entry (figure 7)", panels=2)
        speed, bytes_axis = figure.axes
        for engine, (color, marker) in _COLORS.items():
            some = [row for row in rows if row["engine"] == engine]
            plots.through_medians(speed, runner.column(some, "record_bytes", throughput),
                                  **plots.ours(color, marker, engine))
            plots.through_medians(bytes_axis, runner.column(some, "record_bytes", lambda row: communication(row) / 1e3),
                                  **plots.ours(color, marker, engine))
            theirs = paper.simplepir("table1", system=engine)
            theirs += paper.simplepir("table8", system=engine)
            speed.plot(*zip(*sorted((line["entry_bits"] / 8, line["throughput_mb_s"]) for line in theirs)),
                       **plots.theirs(color, marker, f"{engine}, the paper"))
            for line in paper.simplepir("table8", system=engine):
                amortized = 1e3 * line["offline_down_mb"] / _QUERIES_A_HINT + line["online_up_kb"] + line["online_down_kb"]
                bytes_axis.plot([line["entry_bits"] / 8], [amortized],
                                **plots.theirs(color, marker, f"{engine}, the paper"))
        for axis, label in ((speed, "MB/s a core"), (bytes_axis, "KB a query, with 1/100 of the hint")):
            axis.set(xlabel="bytes of an entry", ylabel=label)
            plots.logarithmic(axis)
        parts = []
        for engine in _COLORS:
            speeds = plots.medians(runner.column([row for row in rows if row["engine"] == engine], "record_bytes", throughput))
            best = max((line["throughput_mb_s"] for table in ("table1", "table8") for line in paper.simplepir(table, system=engine)),
                       default=None)
            if speeds:
                parts.append(f"{engine} {min(speeds.values()) / 1e3:.3g} to {max(speeds.values()) / 1e3:.3g} GB/s a core"
                             + (f" (the paper: at most {best / 1e3:.3g})" if best else ""))
        if parts:
            figure.conclude("Over all sizes of an entry: " + "; ".join(parts) + ".")
        return figure, "Paper: tables 1, 8 and 10, at 2^33 bits; its figure 7 is drawn only."

    def _batches(self, rows):
        figure = plots.Figure("batches", "Queries at once (figure 9)", panels=2)
        clients, chunks = figure.axes
        for engine, (color, marker) in _COLORS.items():
            some = [row for row in rows if row["engine"] == engine]
            one = [row for row in some if row["mode"] == "clients"]
            plots.through_medians(clients, runner.column(one, "batch", lambda row: throughput(row) / 1e3),
                                  **plots.ours(color, marker, engine))
            batches = [row for row in some if row["mode"] == "chunks"]
            if batches:
                plots.through_medians(chunks, runner.column(batches, "batch", effective),
                                      **plots.ours(color, marker, engine))
            chunks.plot(*zip(*_FIGURE9[engine]),
                        **plots.theirs(color, marker, f"{engine}, the paper: at least"))
        clients.set(xlabel="clients in one pass", ylabel="GB/s a core", ylim=(0, None))
        chunks.set(xlabel="queries of one client's batch", ylabel="effective GB/s a core")
        plots.logarithmic(chunks)
        parts = []
        for engine in _COLORS:
            together = plots.medians(runner.column(
                [row for row in rows if row["engine"] == engine and row["mode"] == "clients"], "batch", throughput))
            if len(together) > 1:
                few, many = min(together), max(together)
                parts.append(f"{engine} {together[many] / together[few]:.1f} times the queries of {few:.0f} in a second")
        if parts:
            figure.conclude(f"{many:.0f} clients in one pass: " + ", ".join(parts) + ".")
        return figure, ("Left: queries of different clients that one pass answers. Right: the paper's batch, bytes of the table for "
                        "every query that falls into a chunk of its own; the authors' points are what their text "
                        "says of figure 9.")

    def tables(self, rows):
        header = ("", "entry", "hint, MB", "up, KB", "down, KB", "MB/s a core", "setup, core s", "records checked")
        lines = [(f"{line['system']}, the paper", "1 bit", f"{line['offline_down_mb']:g}", f"{line['online_up_kb']:g}",
                  f"{line['online_down_kb']:g}", f"{line['throughput_mb_s']:,.0f}", "", "")
                 for line in paper.simplepir("table8")]
        lines += [(f"{line['system']}, the paper's table 1", f"{line['entry_bits'] / 8:g} bytes", "", "", "",
                   f"{line['throughput_mb_s']:,.0f}", "", "") for line in paper.simplepir("table1")]
        for row in rows:
            if row["kind"] == "entries":
                value = lambda name, row=row: float(row[name])
                lines.append((row["engine"], f"{row['record_bytes']} bytes", f"{value('hint_bytes') / 1e6:.1f}",
                              f"{value('query_bytes') / 1e3:.1f}", f"{value('answer_bytes') / 1e3:.1f}",
                              f"{throughput(row):,.0f}", f"{value('setup_cpu_s'):.1f}", row["answers_checked"]))
        batches = [(row["engine"], row["mode"], row["batch"], f"{float(row['answer_cpu_s']):.4f}",
                    f"{throughput(row) / 1e3:.1f}", f"{effective(row):.1f}" if row["mode"] == "chunks" else "",
                    row["answers_checked"]) for row in rows if row["kind"] == "batches"]
        return [("Engines on one table (tables 1 and 8)", header, lines),
                ("Queries at once (figure 9)", ("engine", "of", "at once", "core s: a query, or a client's batch", "GB/s a core",
                                                "effective GB/s", "records checked"), batches)]


if __name__ == "__main__":
    sys.exit(runner.main(Engines()))
