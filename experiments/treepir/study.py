"""TreePIR's figures 7 to 9 beside the engines `treepir` and `permuted` of this repository."""

import math
import sys

from lib import engines, paper, plots, runner

_FIGURES = ("figure7", "figure8", "figure9")
_NAMES = {"1": "treepir, here, the paper's tree", "0": "treepir, here"}
_COLORS = {"checklist": plots.RED, "prp-pir": plots.PURPLE, "treepir": plots.ORANGE, "treepir+spiral": plots.ORANGE}


def label(row):
    return _NAMES[row["choice"]] if row["engine"] == "treepir" else f"{row['engine']}, here, {row['choice']} chunks"


def amortized_s(row, queries):
    return engines.prepare_s(row) / queries + engines.query_s(row)


def theirs_of(figure):
    return [line for system in _COLORS for line in _lines(figure, system)]


def _lines(figure, system):
    try:
        return paper.treepir(figure, system=system)
    except KeyError:
        return []



class TreePir(engines.SetsStudy):
    name = "treepir"
    title = "TreePIR: queries, memory and traffic beside the paper's (TreePIR, figures 7 to 9)"
    about = (
        "The engines treepir and permuted of this repository (src/pir/sets) in one process, on one thread, without a network, over "
        "the paper's tables; every record that a query brought is compared with the table. Time is of the processor, of the "
        "client and both servers together, with a share of the preparation for so many queries as the paper counts; the "
        "authors' is their own, on an AWS m5d.8xlarge.\n\n"
        "The paper's TreePIR in figures 8 and 9 reads its answers by a second engine (Spiral), which saves bytes and costs time. "
        "Here the answers are sent as they are. In figure 7, eight entries of one bit are a record of one byte.")

    def points(self, size):
        if size == "tiny":
            return [self.point("figure8", "treepir", 4096, 16, fan, 3) for fan in (0, 1)] + [
                self.point("figure8", "permuted", 4096, 16, 32, 3)]
        eight = [self.point("figure8", "treepir", 2**22, 256, fan, 100) for fan in (0, 1)] + [
            self.point("figure8", "permuted", 2**22, 256, 32, 100)]
        if size == "quick":
            return eight
        return ([self.point("figure7", "treepir", 2**29, 1, 0, 100)] + eight
                + [self.point("figure9", "treepir", 2**28, 32, 0, 100)])

    def repeats(self, point):
        """The two large tables take minutes to fill, and once is enough of them."""
        return point["table"] == "figure8"

    def figures(self, rows, out):
        del out
        figure = plots.Figure("figures", "Time and traffic of a query", panels=3, across=3, height=3.6)
        for axis, name in zip(figure.axes, _FIGURES):
            line = paper.treepir(name)[0]
            for theirs in theirs_of(name):
                if theirs["query_ms"] is None:
                    continue
                total = theirs["query_ms"] + (theirs["recursion_ms"] or 0)
                axis.plot([theirs["bandwidth_kb"]], [total],
                          **plots.theirs(_COLORS[theirs["system"]], "D" if theirs["system"] == "treepir" else "s",
                                         f"{theirs['system']}, the paper"))
            for color, marker, text in ((plots.GREEN, "^", _NAMES["0"]), (plots.BLUE, "o", _NAMES["1"]),
                                        (plots.BLACK, "D", "permuted, here, 32 chunks")):
                mine = [row for row in rows if row["table"] == name and label(row) == text]
                if mine:
                    plots.through_medians(axis, [(engines.bytes_a_query(row) / 1e3,
                                                  1e3 * amortized_s(row, line["queries"])) for row in mine],
                                          **plots.ours(color, marker, text))
            plots.logarithmic(axis)
            axis.set(xlabel="KB a query, up and down", ylabel="ms a query",
                     title=f"{name.replace('figure', 'figure ')}: 2^{math.log2(line['rows']):g} x {line['record_bits']:g} bit"
                     + "s" * (line["record_bits"] > 1))
        parts = []
        for name in _FIGURES:
            line = paper.treepir(name)[0]
            theirs = [t["query_ms"] + (t["recursion_ms"] or 0) for t in theirs_of(name)
                      if t["system"].startswith("treepir") and t["query_ms"] is not None]
            mine = [1e3 * amortized_s(row, line["queries"]) for row in rows
                    if row["table"] == name and label(row) in (_NAMES["0"], _NAMES["1"])]
            if mine and theirs:
                parts.append(f"{name.replace('figure', 'figure ')} {min(mine):.2g} ms (the paper: {min(theirs):,.0f})")
        if parts:
            figure.conclude("A query of treepir with its share of the preparation, the faster of its trees: " + ", ".join(parts) + ".")
        return [(figure, "With a share of the preparation. Theirs: one thread of an AWS m5d.8xlarge; figures 8 and 9 with "
                         "Spiral, whose time is added. Ours: client and both servers, processor time, one thread; answers as they are.")]

    def tables(self, rows):
        header = ("", "preparation, s", "amortized over", "a query, ms", "a server, ms", "the client, ms", "kept, MB",
                  "a query, KB", "records checked")
        tables = []
        text = lambda value: "" if value is None else f"{value:g}"
        for name in _FIGURES:
            line = paper.treepir(name)[0]
            count = f"{line['queries']:g} queries"
            lines = [(f"{theirs['system']}, the paper", "", count, text(theirs["query_ms"])
                      + (f" + {theirs['recursion_ms']:g}" if theirs["recursion_ms"] else ""), "", "",
                      text(theirs["storage_mb"]), text(theirs["bandwidth_kb"]), "") for theirs in theirs_of(name)]
            for row in rows:
                if row["table"] == name:
                    client = float(row["ask_cpu_s"]) + float(row["recover_cpu_s"])
                    lines.append((label(row), f"{engines.prepare_s(row):.2f}", count,
                                  f"{1e3 * amortized_s(row, line['queries']):.3f}",
                                  f"{1e3 * float(row['answer_cpu_s']):.3f}", f"{1e3 * client:.3f}",
                                  f"{float(row['client_bytes']) / 1e6:.1f}",
                                  f"{engines.bytes_a_query(row) / 1e3:.1f}", row["answers_checked"]))
            tables.append((f"{name.replace('figure', 'Figure ')}: {runner.grouped(line['rows'])} entries of "
                           f"{line['record_bits']:g} bits", header, lines))
        return tables


if __name__ == "__main__":
    sys.exit(runner.main(TreePir()))
