"""Compares `shoal audit` with other people's readers and orders of versions on random inputs.

    scripts/audit-truth readers [--count N] [--seed TEXT] [--only FORMAT]..
    scripts/audit-truth readers --replay DIR

An example, which takes half a minute:

    scripts/audit-truth readers --count 500 --only cargo-lock --only order-debian

Makes N inputs of every format that the audit reads, and OSV records about what they name (scripts/truth/generate.py), and gives
both to src/audit's readers and to other programs: packageurl-python, cyclonedx-python-lib, spdx-tools, pip and pip-audit,
Poetry, npm, dpkg-query, Python's own readers of TOML and of messages. What they name is compared, and what is then found for
it: versions are ordered by packaging, npm's semver and dpkg, and the records evaluated as the OSV schema says. Pairs of
versions are compared with packaging, npm's semver, dpkg and univers by themselves (order-*).

scripts/truth/written.tsv has the differences that are known, each with its reason. Any other one is printed, kept in
--keep and made smaller there, and ends the command with 1. Standard output has a line for each format: inputs, those that both
refuse, packages compared, of which vulnerable by the other programs, those that Shoal calls unclear where the others
are sure, their share in percent, differences that are written down, and new ones. After that come the reasons, with how often each came up.

The same seed makes the same inputs. The others are installed into .deps on the first run.
"""

import argparse
import collections
import multiprocessing
import os
import sys
import time

import generate

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PEER = os.path.join(ROOT, "bazel-bin/src/audit/peer")
FORMATS = tuple(generate.MAKERS) + generate.ORDERS
# The most packages that may be unclear where the others are sure, in percent.
MOST_UNCLEAR = 5.0


def parsed(arguments):
    parser = argparse.ArgumentParser(prog="audit-truth readers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20000, help="inputs of each format (default 20000)")
    parser.add_argument("--seed", default="1", help="any text (default 1)")
    parser.add_argument("--only", action="append", choices=FORMATS, metavar="FORMAT", help="one of " + ", ".join(FORMATS))
    parser.add_argument("--keep", default=os.path.join(ROOT, ".deps/audit-truth/kept"),
                        help="where inputs that differ go (default .deps/audit-truth/kept)")
    parser.add_argument("--replay", metavar="DIR", help="compare one input that was kept")
    parser.add_argument("--show", type=int, default=20, help="new differences of each format that are printed (default 20)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one for each processor)")
    parser.add_argument("--peer", default=PEER, help="the program under test (default bazel-bin/src/audit/peer)")
    parser.add_argument("--modules", default="", help="the folder of npm's packages @npmcli/arborist and semver")
    return parser.parse_args(arguments)


class Result:
    """What is known of one format so far."""

    def __init__(self):
        self.stats, self.reasons, self.new = collections.Counter(), collections.Counter(), []

    def add(self, part):
        self.stats.update(part.stats)
        self.reasons.update(part.reasons)
        self.new += part.new

    def share(self):
        return 100 * self.stats["unclear"] / max(self.stats["packages"], 1)


def run(options):
    """Format -> Result, and format -> what is not installed."""
    # Imported late, so that --help needs nothing.
    import compare

    part = max(1, min(250, options.count // max(options.jobs, 1)))
    tasks = [compare.Task(options.peer, options.modules, options.seed, name, range(at, min(at + part, options.count)))
             for name in options.only or FORMATS for at in range(0, options.count, part)]
    results, absent = collections.defaultdict(Result), {}
    started = said = time.time()
    with multiprocessing.Pool(options.jobs) as pool:
        for done, (name, part) in enumerate(pool.imap(compare.work, tasks), 1):
            if part.absent:
                absent[name] = part.absent
                continue
            results[name].add(part)
            if time.time() - said >= 60:
                said = time.time()
                print(f"audit-truth: {name}: {results[name].stats['inputs']} of {options.count} inputs; {100 * done // len(tasks)} % of all, "
                      f"{sum(len(result.new) for result in results.values())} new differences, {(said - started) / 60:.0f} minutes",
                      file=sys.stderr)
    return results, absent


def faults(name, result, options):
    """Why the command fails for a format."""
    if result.new:
        yield f"{len(result.new)} differences that are not in scripts/truth/written.tsv"
    if result.share() > MOST_UNCLEAR:
        yield f"more than {MOST_UNCLEAR} % are unclear where the others are sure"
    if name not in generate.ORDERS and options.count >= 100 and not result.stats["vulnerable"]:
        yield "nothing was vulnerable: this compares nothing"
    if 2 * result.stats["both_refuse"] > result.stats["inputs"]:
        yield "the others refuse most: this compares nothing"
    if name in generate.ORDERS and options.count >= 1000:
        for sign in ("<", "=", ">", "none"):
            if result.stats["ordered " + sign] < options.count // 1000:
                yield f"hardly a pair is {sign}"


def main(arguments):
    options = parsed(arguments)
    if not os.path.exists(options.peer):
        sys.exit("audit-truth: no program to test; run: bazel build --config=opt //src/audit:peer")
    if options.replay:
        import compare

        return compare.replay(options.replay, options.peer, options.modules)
    results, absent = run(options)
    print("format\tinputs\tboth refuse\tpackages\tvulnerable\tunclear\tpercent\twritten down\tnew")
    for name, result in results.items():
        stats = result.stats
        print(name, stats["inputs"], stats["both_refuse"], stats["packages"], stats["vulnerable"], stats["unclear"], f"{result.share():.2f}",
              sum(result.reasons.values()), len(result.new), sep="\t")
    for name, result in results.items():
        for (kind, reason), count in sorted(result.reasons.items()):
            print("written down", name, kind, count, reason, sep="\t")
    for name, result in results.items():
        for index, difference in result.new[: options.show]:
            print("new", name, index, difference.kind, difference.detail, sep="\t")
    for name, result in results.items():
        if result.new and name not in generate.ORDERS:
            import compare

            compare.keep_all(options, name, result.new)
    said = [f"{name}: not compared: {what} is not here" for name, what in absent.items()]
    said += [f"{name}: {why}" for name, result in results.items() for why in faults(name, result, options)]
    for line in said:
        print(f"audit-truth: {line}", file=sys.stderr)
    return bool(said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
