"""Approximate set membership over the single-server engines: sections 6 to 8 of the SimplePIR paper."""

import sys

from lib import engines, paper, plots, runner

_MEASURED = (
    "chance_rate", "forged_rate", "failure_log2",
    "strings_by_name", "hash_cpu_s", "setup_s", "setup_cpu_s", "columns", "hint_bytes", "query_bytes",
    "answer_bytes", "query_s", "query_cpu_s", "answer_s", "answer_cpu_s", "recover_cpu_s", "answers_checked",
    "in_asked", "in_found", "out_asked", "out_found")
_COLORS = {"simplepir": (plots.GREEN, "^"), "doublepir": (plots.BLUE, "o")}
# One connection in this many is audited (the paper's section 8.2).
_AUDITED = 500


def _paper():
    """Points of the authors: (engine, log2 of bits, hint MB, up KB, down KB, core seconds a query)."""
    lines = paper.simplepir("section8.2") + [line for line in paper.simplepir("table8")
                                             if line["system"] in _COLORS]
    for line in lines:
        seconds = line["answer_core_s"] or line["database_bits"] / 8 / 1e6 / line["throughput_mb_s"]
        yield (line["system"], int(line["database_bits"]).bit_length() - 1,
               line["offline_down_mb"], line["online_up_kb"], line["online_down_kb"], seconds)


class SetMembership(runner.Study):
    name = "set-membership"
    title = "Private set membership, for auditing certificate timestamps (SimplePIR, sections 6 to 8)"
    about = (
        "A browser wants to know whether a certificate's timestamp is in an auditor's public set, and the auditor is not to learn "
        "which. The set is a number of filters of 8 bits a string, each with a hash function of its own; a client draws one "
        "filter and reads the one bit of its string by a single-server engine. A string of the set is always found. One that is not "
        "is taken for one of the set with probability at most 1/2 over the draw, also when somebody searched for it "
        "who knows set and hash functions.\n\n"
        "Below: what such a search achieves against the number of filters; what a question costs against the size of a filter, "
        "beside the authors' figures (their machine: AWS c5n.metal, one thread; seconds here are of the processor, all "
        "threads together).")
    point_columns = ("kind", "engine", "log2_bits", "filters", "strings", "tries", "queries", "repetition")
    measured_columns = _MEASURED

    def points(self, size):
        rates = {"tiny": [(4, 64, 50)], "quick": [(f, 512, 2000) for f in (1, 4, 16, 64, 256, 768)],
                 "full": [(f, 4096, 100_000) for f in (1, 4, 16, 64, 256, 768)]}[size]
        bits = {"tiny": [16], "quick": [20, 23, 26], "full": [24, 27, 30, 33, 35, 36]}[size]
        points = [{"kind": "rates", "engine": "", "log2_bits": 0, "filters": filters, "strings": strings,
                   "tries": tries, "queries": 0, "repetition": 1} for filters, strings, tries in rates]
        queries = {"tiny": 4, "quick": 20, "full": 20}[size]
        return points + [{"kind": "query", "engine": engine, "log2_bits": log2_bits, "filters": 768,
                          "strings": 2**log2_bits // 8, "tries": 0, "queries": queries, "repetition": 1}
                         for log2_bits in bits for engine in _COLORS]

    def repeats(self, point):
        return point["kind"] != "rates"

    def run(self, point, bench):
        if point["kind"] == "rates":
            words = "rates", point["filters"], point["strings"], point["tries"]
        else:
            words = "query", point["engine"], point["log2_bits"], point["queries"]
        printed = engines.run(bench, self.name, "membership", *words)
        printed.pop("strings", None)
        return printed

    def cost(self, point, bench):
        hashes = point["filters"] * (point["strings"] + point["tries"])
        if point["kind"] == "rates":
            return runner.Cost(seconds=0.7e-6 * hashes / bench.cores,
                               memory_bytes=4 * point["filters"] * point["tries"])
        table = 2**point["log2_bits"] / 8
        # The filter takes memory twice, as it is and as the engine's matrix. The product with the
        # public matrix comes to that.
        return runner.Cost(
            seconds=1 + engines.setup_seconds(table, bench.cores)
            + point["queries"] * table / engines.ANSWERED_A_SECOND + min(point["strings"], 2**20) * 1e-6,
            memory_bytes=2 * table + 2**29 + 4096 * table**0.5 * 4)

    def describe(self, point):
        if point["kind"] == "rates":
            return f"{point['filters']} filters, {point['tries']:,} forged strings"
        return f"{point['engine']}, 2^{point['log2_bits']} bits"

    def describe_result(self, row):
        if row["kind"] == "rates":
            return f"the best forged string is in {100 * float(row['forged_rate']):.1f} % of the filters"
        return (f"{float(row['answer_cpu_s']):.4f} core seconds a question, hint {float(row['hint_bytes']) / 1e6:.1f} MB; "
                f"{row['in_found']} of {row['in_asked']} in the set found, {row['out_found']} of {row['out_asked']} others")

    def figures(self, rows, out):
        return [self._rates([row for row in rows if row["kind"] == "rates"]),
                self._costs([row for row in rows if row["kind"] == "query"])]

    def _rates(self, rows):
        figure = plots.Figure("forged", "Strings outside of the set that are taken for ones of it")
        axis = figure.axes[0]
        plots.through_medians(axis, runner.column(rows, "filters", "forged_rate"),
                              **plots.ours(plots.RED, "o", "the best that a search found"))
        plots.through_medians(axis, runner.column(rows, "filters", "chance_rate"),
                              **plots.ours(plots.GREEN, "^", "any string"))
        axis.axhline(0.5, color=plots.GRAY, linewidth=0.8, linestyle=":", label="the bound, for 768 filters")
        axis.set(xlabel="filters", ylabel="share of the filters that have it", ylim=(0, 1.05))
        plots.logarithmic(axis, y=False)
        best, chance = (plots.medians(runner.column(rows, "filters", what)) for what in ("forged_rate", "chance_rate"))
        if best:
            few, many = min(best), max(best)
            figure.conclude(f"The best forged string is in {best[few]:.0%} of {few:.0f} filter{'s' if few > 1 else ''} and in "
                            f"{best[many]:.0%} of {many:.0f}, any string in {chance[many]:.0%}: more filters, fewer forgeries.")
        tries = max((int(row["tries"]) for row in rows), default=0)
        return figure, (f"A search over {tries:,} strings with all hash functions known, the client's draw unknown. With one "
                        "filter, a one-hash Bloom filter, every search ends at 1 (the paper's table 5).")

    def _costs(self, rows):
        figure = plots.Figure("cost", "What a question costs", panels=3, across=3, height=3.6)
        columns = (("answer_cpu_s", lambda line: line[5], "core seconds of the server"),
                   (lambda row: (float(row["query_bytes"]) + float(row["answer_bytes"])) / 1e3,
                    lambda line: line[3] + line[4], "KB up and down"),
                   (lambda row: float(row["hint_bytes"]) / 1e6, lambda line: line[2], "MB of hint"))
        for axis, (ours, theirs, label) in zip(figure.axes, columns):
            for engine, (color, marker) in _COLORS.items():
                some = [row for row in rows if row["engine"] == engine]
                plots.through_medians(axis, runner.column(some, "log2_bits", ours),
                                      **plots.ours(color, marker, engine))
                points = sorted((line[1], theirs(line)) for line in _paper() if line[0] == engine)
                axis.plot(*zip(*points), **plots.theirs(color, marker, f"{engine}, the paper"))
            axis.set(xlabel="log2 of a filter's bits", ylabel=label)
            plots.logarithmic(axis, x=False)
        most = max((int(row["log2_bits"]) for row in rows), default=None)
        parts = []
        for row in {row["engine"]: row for row in rows if int(row["log2_bits"]) == most}.values():
            parts.append(f"{row['engine']} {float(row['answer_cpu_s']):.2g} core seconds, "
                         f"{(float(row['query_bytes']) + float(row['answer_bytes'])) / 1e3:,.0f} KB and a hint of "
                         f"{float(row['hint_bytes']) / 1e6:.3g} MB")
        if parts:
            figure.conclude(f"A question to a filter of 2^{most} bits takes " + "; ".join(parts) + ".")
        return figure, "Paper: table 8 (2^33 bits; seconds from its throughput) and section 8.2 (2^36 bits)."

    def tables(self, rows):
        header = ("", "bits of a filter", "hint, MB", "up, KB", "down, KB", "server, core s", "client: making, ms",
                  "client: reading, ms", f"a connection (1 of {_AUDITED} audited): KB", "core ms",
                  "in the set: found", "not in it: taken")
        lines = []
        for engine, bits, hint, up, down, seconds in sorted(_paper(), key=lambda line: line[1]):
            lines.append((f"{engine}, the paper", f"2^{bits}", f"{hint:g}", f"{up:g}", f"{down:g}", f"{seconds:.3f}", "", "",
                          f"{(up + down) / _AUDITED:.2f}", f"{seconds * 1e3 / _AUDITED:.3f}", "", ""))
        for row in rows:
            if row["kind"] != "query":
                continue
            value = lambda name, row=row: float(row[name])
            online = (value("query_bytes") + value("answer_bytes")) / 1e3
            lines.append((row["engine"], f"2^{row['log2_bits']}", f"{value('hint_bytes') / 1e6:.1f}",
                          f"{value('query_bytes') / 1e3:.1f}", f"{value('answer_bytes') / 1e3:.1f}",
                          f"{value('answer_cpu_s'):.4f}", f"{1e3 * value('query_cpu_s'):.1f}",
                          f"{1e3 * value('recover_cpu_s'):.2f}", f"{online / _AUDITED:.3f}",
                          f"{1e3 * value('answer_cpu_s') / _AUDITED:.4f}",
                          f"{row['in_found']} of {row['in_asked']}", f"{row['out_found']} of {row['out_asked']}"))
        lines.append(("Chrome today (k-anonymous, 1,000), the paper", "", "0", "", "", "", "", "", "0.24", "", "", ""))
        rates = [(row["filters"], f"{float(row['chance_rate']):.4f}", f"{float(row['forged_rate']):.4f}",
                  f"2^{float(row['failure_log2']):.0f}" if float(row["failure_log2"]) < 0 else "no bound")
                 for row in rows if row["kind"] == "rates"]
        return [("What a question costs", header, lines),
                ("Strings outside of the set", ("filters", "any string", "the best of the search",
                                                "chance of any string of 2^256 above 1/2, at most"), rates)]


if __name__ == "__main__":
    sys.exit(runner.main(SetMembership()))
