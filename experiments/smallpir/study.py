"""Small PIR's tables 1 to 6 and figure 2 beside the engine `smallpir` of this repository."""

import math
import os
import sys

from lib import engines, machine, paper, plots, runner

_SLICE_BYTES = 2048  # of a table, in a ring element, at a byte a coefficient
_TABLES_MIB = (1024, 256, 128)
# Table 6: users' raw queries an hour and the hours of a month; of them those that reach the server, as 2^22 prefixes of 40
# bits are known; the share of users that are new; prices of a core hour and of a gigabyte.
_QUERIES_A_MONTH = 500 * 24 * 30 * 2.0**-18
_NEW_USERS, _CORE_HOUR, _GIGABYTE = 0.15, 0.05, 0.10


def kib(row, what):
    """A message of ours ("query" or "answer")."""
    return float(row[what + "_bytes"]) / 1024


def dollars(line, query_mb, query_s):
    """What a million users cost in a month, by table 6's parameters; query_mb is a user's in that month."""
    mb = _NEW_USERS * line["first_mb"] + line["updates_mb"] + query_mb
    return 1e6 * (mb / 1e3 * _GIGABYTE + _QUERIES_A_MONTH * query_s / 3600 * _CORE_HOUR)


def text(value):
    return "" if value is None else f"{value:g}"


class SmallPir(runner.Study):
    name = "smallpir"
    title = "Small PIR: queries, traffic and cost beside the paper's (tables 1 to 6, figure 2)"
    about = (
        "The engine smallpir of this repository (src/pir/rlwe) in one process, on one thread, without a network; every record that a "
        "query brought is compared with the table. Time is of the processor, a server's for one query: alone, and of four that share a "
        "pass over the table. The authors' is their own, one thread of Azure Esv5 (Ice Lake) and Easv6 (Genoa).\n\n"
        "Rows of s times 2,048 bytes make s slices of the table. The paper's parameters differ with table and metric, ours do not: log q 54, a byte a "
        "coefficient, and a bound of the chance of a wrong byte by a proof. So it is sizes that are beside each other, not parameters.\n\n"
        "The paper's tables 2 and 3 disagree on two rows: a query of 1gb-b has 232 kiB in one and 278 in the other (its answer 224 and 28), one "
        "of 1gb-c 350 and 378. Both are shown. The name 1gb-e is not in table 2.")
    point_columns = ("table_mib", "record_bytes", "repetition")
    measured_columns = (
        "small_kernel", "rows", "degree", "modulus_bits", "group_rows", "slices", "terms", "folds", "fold_digits", "key_digits",
        "packed_positions", "packed_positions_automorphisms", "packed_values", "packed_values_automorphisms",
        "query_automorphisms", "failure_log2", "query_bytes", "answer_bytes", "answer_mask_bits", "answer_body_bits",
        "encoded_bytes", "server_bytes", "transform_cpu_s", "transform_back_cpu_s", "setup_cpu_s", "ask_cpu_s", "together",
        "answer_cpu_s", "unpack_cpu_s", "first_stage_cpu_s", "fold_cpu_s", "pass_bytes_per_s",
        "together_answer_cpu_s", "together_unpack_cpu_s", "together_first_stage_cpu_s", "together_fold_cpu_s",
        "together_pass_bytes_per_s", "read_bytes_per_s", "answers_checked", "recover_cpu_s", "other_load_cores")

    def points(self, size):
        tables, slices = {"tiny": ((1,), (1, 8)), "quick": (_TABLES_MIB, (1, 8)), "full": (_TABLES_MIB, (1, 8, 16, 64))}[size]
        return [{"table_mib": mib, "record_bytes": s * _SLICE_BYTES, "repetition": 1} for mib in tables for s in slices]

    def run(self, point, bench):
        load = machine.OtherLoad(lambda: sum(os.times()[2:4]))
        found = engines.run_of_src(bench, os.path.join("pir", "rlwe", "small_benchmark"), "--mib", point["table_mib"],
                                   "--record-bytes", point["record_bytes"])
        return {**found, "other_load_cores": load.cores()}

    def cost(self, point, bench):
        del bench
        # Encoded, a table takes eight bytes for each of its own; reading memory takes a gigabyte of it.
        return runner.Cost(seconds=1 + 0.04 * point["table_mib"], memory_bytes=9 * (point["table_mib"] << 20) + 2**30)

    def describe(self, point):
        return f"{runner.grouped(point['table_mib'])} MiB, rows of {runner.grouped(point['record_bytes'])} bytes"

    def describe_result(self, row):
        return (f"{kib(row, 'query'):.0f} + {kib(row, 'answer'):.0f} kiB, {1e3 * float(row['answer_cpu_s']):.0f} ms, "
                f"{row['answers_checked']} records right")

    @staticmethod
    def _theirs(mib):
        """Measured lines of the authors for a table: (name, line)."""
        lines = [("YPIR, the paper, table 4", line) for line in paper.smallpir("table4") if line["system"] == "ypir"]
        lines += [(f"{line['configuration']}, the paper, table 3", line) for line in paper.smallpir("table3")]
        lines += [("the paper, table 4", line) for line in paper.smallpir("table4")
                  if line["system"] == "smallpir" and line["table_mib"] != 1024]  # 1 GiB's is 1gb-c of table 3
        lines += [("the paper, table 5", line) for line in paper.smallpir("table5")]
        return [(name, line) for name, line in lines if line["table_mib"] == mib and line["icelake_ms"] is not None]

    @staticmethod
    def _ours(rows, mib=None):
        """Medians of repetitions: (slices, the columns as numbers), of a table or of all."""
        groups = {}
        for row in rows:
            if mib is None or float(row["table_mib"]) == mib:
                groups.setdefault((int(row["table_mib"]), int(row["slices"])), []).append(row)
        return [(slices, {name: plots.median([float(row[name]) for row in group])
                          for name in group[0] if name in SmallPir.point_columns + SmallPir.measured_columns and name != "small_kernel"}) for (_, slices), group in sorted(groups.items())]

    def figures(self, rows, out):
        del out
        figure = plots.Figure("figure2", "Processor time and traffic of a query", panels=3, across=3, height=3.8)
        for axis, mib in zip(figure.axes, _TABLES_MIB):
            theirs = self._theirs(mib)
            for column, color, marker, where in (("icelake_ms", plots.ORANGE, "s", "Ice Lake"), ("genoa_ms", plots.BROWN, "D", "Genoa")):
                for system, mark in (("smallpir", marker), ("ypir", "v")):
                    points = sorted((line["request_kib"] + line["response_kib"], line[column])
                                    for _, line in theirs if line["system"] == system)
                    if points:
                        name = "Small PIR" if system == "smallpir" else "YPIR"
                        axis.plot(*zip(*points), **plots.theirs(color, mark, f"{name}, the paper, {where}"))
            mine = [(kib(row, "query") + kib(row, "answer"), row) for _, row in self._ours(rows, mib)]
            for column, color, marker, words in (("answer_cpu_s", plots.BLUE, "o", "smallpir, here, alone"),
                                                 ("together_answer_cpu_s", plots.GREEN, "^", "smallpir, here, one of four in a pass")):
                if mine:
                    axis.plot(*zip(*sorted((traffic, 1e3 * row[column]) for traffic, row in mine)),
                              **plots.ours(color, marker, words))
            plots.logarithmic(axis)
            axis.set(xlabel="kiB a query, up and down", ylabel="ms a query, server",
                     title=f"{mib} MiB" if mib < 1024 else "1 GiB (figure 2)")
            axis.set_ylim(30, 20_000)  # one scale for all
            axis.minorticks_off()
            axis.set_xticks([256, 512, 1024], labels=["256", "512", "1,024"])
        parts = []
        for mib in _TABLES_MIB:
            mine = [row["answer_cpu_s"] for _, row in self._ours(rows, mib)]
            theirs = [line["genoa_ms"] for _, line in self._theirs(mib) if line["system"] == "smallpir" and line["genoa_ms"]]
            if mine:
                beside = f" (the paper: {min(theirs):,.0f})" if theirs else ""
                parts.append(f"{1e3 * min(mine):,.0f} ms for {mib:,} MiB{beside}")
        if parts:
            figure.conclude("The server's time for a query of smallpir alone: " + ", ".join(parts) + ".")
        return [(figure, "Theirs: one thread, Azure Esv5 and Easv6; figure 2 and tables 3 to 5. Ours: one thread, processor time, medians; points "
                         "are tables of different slices. The other systems of figure 2 have no numbers in the paper.")]

    def tables(self, rows):
        ours = self._ours(rows)
        return [self._table1(ours), *(self._table2(ours, mib) for mib in (256, 1024)), self._table3(ours), self._table4(ours),
                self._table5(ours), self._table6(ours), self._measured(rows)]

    @staticmethod
    def _table1(ours):
        here = {}
        for _, row in ours:
            for what in ("positions", "values"):
                here[row[f"packed_{what}"], 1] = row[f"packed_{what}_automorphisms"]
        whispir = {line["packed"]: line["count"] for line in paper.smallpir("table1", system="whispir")}
        lines = [(f"2^{math.log2(line['packed']):g}", text(line["keys"]), text(line["depth"]), text(line["count"]),
                  text(whispir.get(line["packed"])) if line["keys"] == 1 else "",
                  text(here.get((line["packed"], line["keys"])))) for line in paper.smallpir("table1", system="smallpir")]
        return ("Table 1: unpacking of packed values, in automorphisms", ("values", "keys", "depth", "count", "WhisPIR", "here"), lines)

    @staticmethod
    def _shape(name, line):
        """A line of parameters of the authors."""
        gsw = text(line["gsw_bits"]) + ("†" if line["synthesis"] else "")
        return (name, text(line["log_q"]), text(line["log_p"]), text(line["slices"]), text(line["gsw_digits"]), text(line["key_digits"]),
                text(line["index_bits"]), gsw, text(line["packed"]), text(line["answer_log_q"]), text(line["request_kib"]),
                text(line["response_kib"]))

    @staticmethod
    def _own_shape(slices, row):
        index = row["folds"] + math.log2(row["terms"])
        return (f"here, rows of {runner.grouped(row['record_bytes'])} bytes", text(row["modulus_bits"]), "8", str(slices), text(row["fold_digits"]),
                text(row["key_digits"]), f"{index:.3g}", text(row["folds"]) + "†", text(row["packed_positions"]),
                f"{row['answer_mask_bits']:g}, {row['answer_body_bits']:g}", f"{kib(row, 'query'):.0f}", f"{kib(row, 'answer'):.0f}")

    _SHAPE = ("", "log q", "log p", "s", "l gsw", "l ks", "i tot", "i gsw", "d", "log q'", "query, kiB", "answer, kiB")

    def _table2(self, ours, mib):
        lines = [self._shape(line["configuration"], line) for line in paper.smallpir("table2", table_mib=mib)]
        lines += [self._own_shape(slices, row) for slices, row in ours if row["table_mib"] == mib]
        return (f"Table 2: parameters for {runner.grouped(mib)} MiB († RGSW synthesis)", self._SHAPE, lines)

    @staticmethod
    def _table3(ours):
        named = {line["configuration"]: line for line in paper.smallpir("table2")}
        lines = []
        for line in paper.smallpir("table3"):
            other = named.get(line["configuration"], {"request_kib": None, "response_kib": None})
            lines.append((line["configuration"], text(line["request_kib"]), text(line["response_kib"]), text(other["request_kib"]),
                          text(other["response_kib"]), text(line["icelake_ms"]), text(line["genoa_ms"]), "", ""))
        lines += [(f"here, {slices} slice{'s' * (slices > 1)}", f"{kib(row, 'query'):.0f}", f"{kib(row, 'answer'):.0f}", "", "", "", "",
                   f"{1e3 * row['answer_cpu_s']:.0f}", f"{1e3 * row['together_answer_cpu_s']:.0f}")
                  for slices, row in ours if row["table_mib"] == 1024]
        return ("Table 3 and figure 2: 1 GiB", ("", "query, kiB", "answer, kiB", "query in table 2", "answer in table 2", "ms, Ice Lake",
                                                "ms, Genoa", "ms here, alone", "ms here, one of four"), lines)

    @staticmethod
    def _table4(ours):
        rate = lambda mib, ms: f"{mib * 2**20 / ms / 1e6:.3g}"
        lines = []
        for line in paper.smallpir("table4"):
            name = "YPIR" if line["system"] == "ypir" else "Small PIR"
            for where, column in (("Ice Lake", "icelake_ms"), ("Genoa", "genoa_ms")):
                lines.append((f"{name}, the paper, {where}", text(line["table_mib"]), text(line[column]), rate(line["table_mib"], line[column]),
                              text(line["request_kib"]), text(line["response_kib"])))
        for slices, row in ours:
            if row["table_mib"] in (256, 1024):
                for words, column in (("alone", "answer_cpu_s"), ("one of four", "together_answer_cpu_s")):
                    lines.append((f"here, {words}, {slices} slice{'s' * (slices > 1)}", text(row["table_mib"]), f"{1e3 * row[column]:.0f}",
                                  rate(row["table_mib"], 1e3 * row[column]), f"{kib(row, 'query'):.0f}", f"{kib(row, 'answer'):.0f}"))
        lines.sort(key=lambda line: float(line[1]))
        return ("Table 4: beside YPIR", ("", "MiB", "ms", "GB/s", "up, kiB", "down, kiB"), lines)

    def _table5(self, ours):
        lines = [(*self._shape("", line), text(line["icelake_ms"]), text(line["genoa_ms"]), "") for line in paper.smallpir("table5")]
        lines += [(*self._own_shape(slices, row), "", "", f"{1e3 * row['answer_cpu_s']:.0f}") for slices, row in ours if row["table_mib"] == 128]
        return ("Table 5: Safe Browsing, 128 MiB", (*self._SHAPE, "ms, Ice Lake", "ms, Genoa", "ms here, alone"), lines)

    @staticmethod
    def _table6(ours):
        lines = []
        theirs = {line["system"]: line for line in paper.smallpir("table6")}
        measured = paper.smallpir("table5")[0]  # the one with a time
        for name, line in theirs.items():
            seconds = measured["icelake_ms"] / 1e3 if name == "smallpir" else 0
            lines.append((f"{name}, the paper", text(line["first_mb"]), text(line["updates_mb"]), text(line["query_mb"]),
                          text(line["dollars"]), f"{dollars(line, line['query_mb'] or 0, seconds):.0f}"))
        for slices, row in ours:
            if row["table_mib"] == 128:
                line = theirs["smallpir"]
                transfer = _QUERIES_A_MONTH * (row["query_bytes"] + row["answer_bytes"]) / 1e6
                lines.append((f"here, {slices} slice{'s' * (slices > 1)}", text(line["first_mb"]), text(line["updates_mb"]), f"{transfer:.2f}", "",
                              f"{dollars(line, transfer, row['answer_cpu_s']):.0f}"))
        return (f"Table 6: cost of Safe Browsing, computed: a million users, {_QUERIES_A_MONTH:.2f} queries a user and month, "
                f"${_CORE_HOUR} a core hour, ${_GIGABYTE} a GB",
                ("", "first transfer, MB", "updates, MB", "queries, MB", "$, as printed", "$, by these parameters"), lines)

    @staticmethod
    def _measured(rows):
        ms = lambda row, name: f"{1e3 * float(row[name]):.1f}"
        lines = [(runner.grouped(row["table_mib"]), runner.grouped(row["record_bytes"]), f"{float(row['setup_cpu_s']):.1f}",
                  f"{float(row['server_bytes']) / 2**30:.2f}", ms(row, "ask_cpu_s"), ms(row, "recover_cpu_s"),
                  *(ms(row, prefix + part + "_cpu_s") for prefix in ("", "together_") for part in ("answer", "unpack", "first_stage", "fold")),
                  f"{float(row['pass_bytes_per_s']) / 1e9:.1f}", f"{float(row['read_bytes_per_s']) / 1e9:.1f}",
                  f"2^{float(row['failure_log2']):.1f}", row["small_kernel"], row["answers_checked"], f"{float(row['other_load_cores']):.2f}")
                 for row in rows]
        four = ("answer", "unpacking", "first stage", "folding")
        return ("What was measured here", ("MiB", "row bytes", "set-up, s", "server, GiB", "asking, ms", "recovering, ms",
                                           *(f"{part}, ms" for part in four), *(f"{part}, one of four, ms" for part in four),
                                           "the pass, GB/s", "memory, GB/s", "a wrong byte below", "kernel", "records checked", "others, cores"), lines)


if __name__ == "__main__":
    sys.exit(runner.main(SmallPir()))
