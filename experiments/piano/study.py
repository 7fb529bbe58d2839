"""Piano's tables 1 and 2 beside the engine `piano` of this repository."""

import math
import sys

from lib import engines, paper, plots, runner

# Of table 2: a round trip, and bytes a second.
_ROUND_TRIP_S = 0.060
_LINK = 2e9 / 8
_COLORS = {"simplepir": (plots.ORANGE, "s"), "piano": (plots.BLUE, "o")}


def window(rows):
    """Queries of a session: those of the paper's windows."""
    return round(rows**0.5 * math.log(rows))


def gigabytes(row):
    return float(row["rows"]) * float(row["record_bytes"]) / 1e9


def share_s(row):
    """A query's share of the preparation, when every query of the session is used."""
    return engines.prepare_s(row) / float(row["choice"])


def share_bytes(row):
    return float(row["prepare_bytes"]) / float(row["choice"])


def modelled_s(row):
    """A query over the link of table 2: computed, not measured."""
    return _ROUND_TRIP_S + engines.bytes_a_query(row) / _LINK + engines.query_s(row)


class Piano(engines.SetsStudy):
    name = "piano"
    title = "Piano: preparation and queries beside the paper's (Piano, tables 1 and 2)"
    about = (
        "The engine piano of this repository (src/pir/sets/half_sets.h) in one process, on one thread, without a network, over "
        "the paper's tables. Every record that a query brought is compared with the table. A session has as many queries as the "
        "paper's windows: the root of the rows times their natural logarithm.\n\n"
        "Seconds here are of the processor; the authors' are their own, on an AWS m5.8xlarge, one thread. The largest table "
        "does not fit a memory of this size: its rows are a function of their number, 1 GiB of them stands in the table a hundred times, and "
        "only one chunk in 64 was read to prepare. Its preparation is the measured seconds times 64: an extrapolation, and marked as one.")

    def points(self, size):
        if size == "tiny":
            return [self.point("tiny", "piano", 4096, 8, 64, 3),
                    self.point("tiny larger", "piano", 2**20, 8, 64, 3, 2**21, 4)]
        if size == "quick":
            return [self.point("1 GB", "piano", 2**24, 64, window(2**24), 200)]
        return [self.point("1 GB", "piano", 2**27, 8, window(2**27), 500),
                self.point("2 GB", "piano", 2**28, 8, window(2**28), 500),
                self.point("100 GB", "piano", 100 * 2**24, 64, window(100 * 2**24), 500, 2**30, 64)]

    def figures(self, rows, out):
        del out
        figure = plots.Figure("tables", "Piano's table 1 and ours", panels=3, across=3, height=3.4)
        panels = ((figure.axes[0], "preparation, s", "prepare_s", engines.prepare_s),
                  (figure.axes[1], "a query, ms", "online_ms", lambda row: 1e3 * engines.query_s(row)),
                  (figure.axes[2], "share of preparation, ms a query", "amortized_ms",
                   lambda row: 1e3 * share_s(row)))
        for axis, label, column, ours in panels:
            for system, (color, marker) in _COLORS.items():
                theirs = paper.piano("table1", system=system)
                axis.plot(*zip(*((line["table_gb"], line[column]) for line in theirs)),
                          **plots.theirs(color, marker, f"{system}, the paper"))
            plots.through_medians(axis, [(gigabytes(row), ours(row)) for row in rows],
                                  **plots.ours(plots.GREEN, "^", "piano, here"))
            axis.set(xlabel="GB of the table", ylabel=label)
            plots.logarithmic(axis)
        if rows:
            size = max(gigabytes(row) for row in rows)
            most = [row for row in rows if gigabytes(row) == size]
            prepared, query = (plots.median([what(row) for row in most]) for what in (engines.prepare_s, engines.query_s))
            near = min(paper.piano("table1", system="piano"), key=lambda line: abs(line["table_gb"] - size))
            figure.conclude(f"{size:.3g} GB: prepared once in {prepared:,.0f} s, then {1e3 * query:.2g} ms a query; the authors, at "
                            f"{near['table_gb']:g} GB: {near['prepare_s']:,.0f} s and {near['online_ms']:g} ms.")
        return [(figure, "Theirs: one thread of an AWS m5.8xlarge; SimplePIR at 100 GB is extrapolated by the authors. Ours: one thread, "
                         "processor time. At 100 GB our rows are a function of their number, and our preparation "
                         "is extrapolated from one chunk in 64.")]

    def tables(self, rows):
        first = ("", "table", "rows x bytes", "preparation, s", "preparation, MB", "a query, ms", "a query, KB",
                 "share of the preparation, ms", "share of the preparation, KB", "kept, MB", "records checked")
        second = ("", "table", "a query, ms", "a query, KB", "of it processor, ms")
        text = lambda value: "" if value is None else f"{value:g}"
        mark = lambda line: ", extrapolated" if line["extrapolated"] else ""
        one = [(f"{line['system']}, the paper{mark(line)}", f"{line['table_gb']:g} GB",
                f"{runner.grouped(line['rows'])} x {line['record_bytes']:g}", text(line["prepare_s"]),
                text(line["prepare_mb"]), text(line["online_ms"]), text(line["online_kb"]), text(line["amortized_ms"]),
                text(line["amortized_kb"]), text(line["storage_mb"]), "")
               for system in _COLORS for line in paper.piano("table1", system=system)]
        two = [(f"{line['system']}, the paper{mark(line)}", f"{line['table_gb']:g} GB", text(line["online_ms"]),
                text(line["online_kb"]), "") for system in ("plain", *_COLORS)
               for line in paper.piano("table2", system=system)]
        for row in rows:
            function = int(row["resident_bytes"]) > 0
            rows_of = ", rows a function of their number" if function else ""
            prepared = ", preparation extrapolated" if int(row["part"]) > 1 else ""
            one.append((f"piano, here{rows_of}{prepared}", row["table"],
                        f"{runner.grouped(row['rows'])} x {row['record_bytes']}", f"{engines.prepare_s(row):.1f}",
                        f"{float(row['prepare_bytes']) / 1e6:.0f}", f"{1e3 * engines.query_s(row):.3f}",
                        f"{engines.bytes_a_query(row) / 1e3:.1f}", f"{1e3 * share_s(row):.3f}",
                        f"{share_bytes(row) / 1e3:.1f}", f"{float(row['client_bytes']) / 1e6:.0f}",
                        row["answers_checked"]))
            two.append((f"piano, here{rows_of}, link modelled", row["table"], f"{1e3 * modelled_s(row):.1f}",
                        f"{engines.bytes_a_query(row) / 1e3:.1f}", f"{1e3 * engines.query_s(row):.3f}"))
        return [("One machine (table 1)", first, one),
                ("Two machines, 60 ms between them and back, 2 Gbps (table 2; ours computed from the processor's time "
                 "and the bytes)", second, two)]


if __name__ == "__main__":
    sys.exit(runner.main(Piano()))
