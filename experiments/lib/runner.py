"""What all studies have in common: points that are run one after the other, kept as CSV, drawn, and put on a page.

A study is a class with a name, a title, points for each size, and figures; `main` is its command line.
"""

import argparse
import datetime
import glob
import json
import os
import shutil
import signal
import sys
import tempfile
import time

from lib import chain, machine, page, plots, results

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_WRONG = 0, 1, 2, 3

# A point that takes less than this is run three times in a full run.
_REPEAT_BELOW_S = 60.0
_REPETITIONS = 3
# The shares of the machine's memory, and of the free disk, that all parties and the crowd together
# may take.
_MEMORY_SHARE, _DISK_SHARE = 0.85, 0.9

# Processor seconds, measured once on one core of an AMD EPYC with AVX2. They only serve to estimate
# times.
_SIGN_S, _AGGREGATE_S, _CHECK_S = 220e-6, 580e-6, 220e-6
_CONNECTION_S = 4e-3      # of which a device makes three
_CROWD_QUERY_S = 5e-6     # in addition to its seals
_VERIFY_S = 200e-6        # for each row that was asked
_START_S = 3.0            # wall time: starting processes and waiting until they rest

# Bytes of memory during a stage, in addition to the state at rest and the lists: for each position
# at the party whose stage runs (33 measured in the largest round), and for each query and each row
# in the crowd.
_STAGE_BYTES, _CROWD_QUERY_BYTES, _CROWD_ROW_BYTES = 40, 8, 33


# Files beside the results: the machine's unit costs, and the size and notes of the last run, for
# drawing again.
_COSTS, _RUN = "costs.textproto", "run.json"

# Points that agree in these columns share a deployment.
_DEPLOYMENT = ("layout", "records", "value_bytes", "keys_per_row", "parties", "epsilon", "delta", "phi")


class Bench:
    """What points are run with: the programs, a directory for scratch data, the machine."""

    def __init__(self, programs, work, cores):
        self.programs = programs
        self.work = work
        self.cores = cores
        self.costs = None  # file of unit costs, of this machine
        self._chain = None
        self._chain_key = None
        self._chains = 0

    def chain(self, point, plan, spool_bytes=None):
        """The deployment of a point; the last one is kept, since points often share it."""
        key = (plan["table"]["row_bytes"],) + tuple(point[name] for name in _DEPLOYMENT)
        if key != self._chain_key:
            self.drop_chain()
            self._chains += 1
            self._chain = chain.Chain(self.programs, os.path.join(self.work, f"chain-{self._chains}"),
                                      point, plan, spool_bytes)
            self._chain_key = key
        return self._chain

    def drop_chain(self):
        """The next point makes a deployment of its own."""
        if self._chain:
            self._chain.remove()
        self._chain = self._chain_key = None


class Cost:
    """What a point is expected to take: seconds of the round and of making its deployment, bytes."""

    def __init__(self, seconds, setup_seconds=0.0, memory_bytes=0.0, disk_bytes=0.0):
        self.seconds = seconds
        self.setup_seconds = setup_seconds
        self.memory_bytes = memory_bytes
        self.disk_bytes = disk_bytes

    def too_much(self, memory_bytes, disk_bytes):
        """Why it cannot be run where there is so much, or None."""
        for what, needed, there in (("memory", self.memory_bytes, memory_bytes),
                                    ("disk", self.disk_bytes, disk_bytes)):
            if needed > there:
                return (f"it would take {needed / 2**30:.0f} GiB of {what}, "
                        f"{there / 2**30:.0f} GiB are allowed")
        return None


class Study:
    """Override what is below."""

    name = ""        # the folder's
    title = ""
    about = ""       # paragraphs for the page
    point_columns = results.POINT
    measured_columns = results.MEASURED
    timed = True     # False: nothing depends on the machine; captions do not name it, points are run once
    extra_files = ()  # files that prepare() leaves beside points.csv; --fresh deletes them
    options = None    # the command line's, before points() is called

    def add_options(self, parser):
        """Adds options that only this study has to an argparse parser."""

    def repeats(self, point):
        """Whether a short point is run several times in a full run: if it is timed."""
        del point
        return self.timed

    def prepare(self, bench, out):
        """What is done before the points, and again whenever the study is run."""

    def points(self, size):
        """Dictionaries of the point's columns for "tiny" (tests), "quick" and "full"; repetition is 1."""
        raise NotImplementedError

    def run(self, point, bench):
        """The measured columns of a point."""
        raise NotImplementedError

    def cost(self, point, bench):
        """A Cost, from bench.costs if there are any."""
        raise NotImplementedError

    def group(self, point):
        """Points of one group share what is made for them; they stand together."""
        del point
        return ()

    def describe(self, point):
        """A point in a few words, for progress."""
        raise NotImplementedError

    def describe_result(self, row):
        raise NotImplementedError

    def tell(self, rows):
        """What is printed at the end, beside where the page is."""

    def figures(self, rows, out):
        """(plots.Figure, what its caption says before the machine) for the lines that there are in `out`; third, if
        these are not all, the lines that it shows."""
        raise NotImplementedError

    def tables(self, rows):
        """(heading, header, lines) for the page."""
        raise NotImplementedError


def grouped(value):
    """1234567 as "1,234,567"."""
    return f"{int(value):,}"


def seconds_text(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class ChainStudy(Study):
    """A study whose points are rounds of real processes."""

    def apps(self, point):
        """Applications of a device that has connections of its own; None for a crowd that shares them."""
        del point
        return None

    def spool_bytes(self, point):
        """What each party may hold of a round's lists in memory."""
        return chain.spool_memory_bytes(point["parties"])

    def group(self, point):
        return tuple(point[name] for name in _DEPLOYMENT)

    @staticmethod
    def point(records, queries, keys_per_row=16, parties=2, epsilon=0.1, delta=1e-6, phi=1, value_bytes=4):
        """A point of a dense table of short values, as in the paper."""
        return {"engine": "shoal", "layout": "dense", "records": records, "value_bytes": value_bytes,
                "keys_per_row": keys_per_row, "queries": queries,
                "devices": chain.few_devices(queries, -(-records // keys_per_row)),
                "parties": parties, "epsilon": epsilon, "delta": delta, "phi": phi, "repetition": 1}

    def run(self, point, bench):
        plan = bench.programs.plan(**chain.plan_options(point))
        deployment = bench.chain(point, plan, self.spool_bytes(point))
        return {
            "row_bytes": plan["table"]["row_bytes"],
            "mechanism": plan["noise"]["mechanism"],
            "noise_per_row": plan["noise"]["mean_per_row"],
            **self.measure(deployment, point),
        }

    def measure(self, deployment, point):
        """The measured columns of a round."""
        return deployment.round(point["queries"], point["devices"], self.apps(point))

    def cost(self, point, bench):
        plan = bench.programs.plan(costs=bench.costs, cores=bench.cores, **chain.plan_options(point),
                                   spool_memory_mib=self.spool_bytes(point) >> 20)
        rows, parties, queries = plan["table"]["rows"], point["parties"], point["queries"]
        crowd = (queries * (parties * plan["costs"]["seal_ns"] * 1e-9 + _CROWD_QUERY_S)
                 + (3 * point["devices"] * _CONNECTION_S if self.apps(point) else 0)
                 + min(rows, queries) * _VERIFY_S)
        served = sum(sum(party[f"{stage}_cpu_s"] for stage in
                         ("noise", "offline", "online", "answers", "links")) for party in plan["party"])
        # Lists that do not fit what a party may hold of them go to disk (docs/architecture.md,
        # "Memory of a party"). The rest stays in memory.
        memory = _CROWD_QUERY_BYTES * queries + _CROWD_ROW_BYTES * rows
        disk = queries * plan["client"]["onion_bytes"]
        spool = self.spool_bytes(point)
        memory += _STAGE_BYTES * max(party["positions_in"] for party in plan["party"])
        for party in plan["party"]:
            # The noise that is made for the next round is a list, too.
            inner = plan["client"]["onion_bytes"] * (parties - party["party"]) / parties
            stays = party["rest_memory_bytes"] - party["noise_queries"] * (inner + 4)
            lists = max(0.0, party["peak_memory_bytes"] - stays - _STAGE_BYTES * party["positions_in"])
            memory += stays + min(lists, spool)
            disk += max(0.0, lists - spool)
        return Cost(
            seconds=(served + crowd + parties * rows * _CHECK_S) / bench.cores + _START_S,
            setup_seconds=rows * (parties * _SIGN_S + _AGGREGATE_S) / bench.cores,
            memory_bytes=memory, disk_bytes=disk)

    def describe(self, point):
        rows = f"{point['keys_per_row']} a row" if point["keys_per_row"] else "rows of the planner's"
        return (f"{grouped(point['records'])} records, {rows}, "
                f"{grouped(point['queries'])} queries, {point['parties']} parties")

    def describe_result(self, row):
        return (f"offline {float(row['noise_s']) + float(row['offline_s']):.2f} s, "
                f"online {float(row['online_s']):.3f} s, {grouped(row['answers_checked'])} answers right")

    def tables(self, rows):
        header = ("records", "keys a row", "queries", "parties", "noise queries", "noise, s",
                  "offline, s", "online, s", "processor s, offline", "processor s, online",
                  "between parties, MB", "peak memory, MB", "answers checked", "others, cores")
        lines = []
        for row in rows:
            value = lambda name, row=row: float(row[name])
            lines.append((
                grouped(value("records")), row["keys_per_row"] if value("keys_per_row") else "the planner's", grouped(value("queries")), row["parties"],
                grouped(value("noise_queries")), f"{value('noise_s'):.2f}", f"{value('offline_s'):.2f}",
                f"{value('online_s'):.3f}", f"{value('noise_cpu_s') + value('offline_cpu_s'):.2f}",
                f"{value('online_cpu_s'):.2f}", f"{value('link_bytes') / 1e6:.1f}",
                f"{value('peak_memory_bytes') / 1e6:.0f}", grouped(value("answers_checked")),
                f"{value('other_load_cores'):.2f}"))
        return [("What was measured", header, lines)]


def offline_total(row):
    """Seconds of the offline stage and of making the noise, which the paper counts as part of that stage."""
    return float(row["noise_s"]) + float(row["offline_s"])


def column(rows, x, y, **where):
    """(x, y) of the lines of results whose columns equal `where`; y is a column or a function of the line."""
    take = y if callable(y) else (lambda row: float(row[y]))
    return [(float(row[x]), take(row)) for row in rows
            if all(float(row[name]) == value for name, value in where.items())]


def calibrate(bench, out):
    """Measures this machine's unit costs for `shoal plan`, once in a directory of results."""
    bench.costs = os.path.join(out, _COSTS)
    if not os.path.exists(bench.costs):
        _say("study: measuring this machine's unit costs")
        bench.programs.run([bench.programs.shoal, "plan", "--calibrate", "--costs", bench.costs])


# --- the command line ---

_HELP = """examples:
  scripts/study {name} --quick
  scripts/study {name} --full --out ~/{name}
  scripts/study {name} --full --estimate
  scripts/study {name} --full --only '1,000,000'      the points described with these words

Results go to OUT: points.csv, figures as PNG, and index.html, which opens without a network.
A run that was interrupted goes on where it stopped: points that are in the CSV are not run again.

A point whose round or program fails is left out: the others are run, its logs are kept in OUT, and the
same command tries it again.

exit codes: 0 done, 1 a round or a program failed, 2 wrong usage, 3 an answer was wrong or missing
"""


def _parser(study):
    parser = argparse.ArgumentParser(
        prog=f"scripts/study {study.name}", description=study.title,
        epilog=_HELP.format(name=study.name), formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", dest="size", action="store_const", const="quick",
                      help="small points: about two minutes on two cores (default)")
    size.add_argument("--full", dest="size", action="store_const", const="full",
                      help="as large as the machine allows")
    size.add_argument("--tiny", dest="size", action="store_const", const="tiny", help=argparse.SUPPRESS)
    parser.set_defaults(size="quick")
    parser.add_argument("--out", metavar="DIR", help="results (study-results/NAME-SIZE-COMMIT)")
    parser.add_argument("--fresh", action="store_true", help="throw away what is in DIR already")
    parser.add_argument("--estimate", action="store_true",
                        help="measure this machine's unit costs, print what the run would take, and end")
    parser.add_argument("--all", action="store_true",
                        help="with --full: also points that do not fit memory or disk, by shoal plan")
    parser.add_argument("--only", metavar="WORDS",
                        help="only points that --estimate and the progress describe with these words")
    parser.add_argument("--draw", action="store_true", help="draw again what is in DIR; run nothing")
    parser.add_argument("--work", metavar="DIR", help="scratch data (the system's temporary directory)")
    study.add_options(parser)
    return parser


def _say(words):
    print(words, file=sys.stderr, flush=True)


def _draw(study, rows, out, size, notes):
    """Figures and page of the lines of results."""
    sheet = page.Page(study.title)
    sheet.text(study.about)
    where = plots.machine_caption(rows)
    sheet.text(where, note=True)
    for note in notes:
        sheet.text(note, note=True)
    concluded = []
    for figure, caption, *shown in study.figures(rows, out):
        # A figure of some of the lines names the machines of these alone.
        here = plots.machine_caption(shown[0]) if shown else where
        path = figure.save(out, (caption + " " + here).strip() if study.timed else caption)
        sheet.image(path, f"{figure.title}. {figure.conclusion}")
        concluded.append(figure.conclusion)
    for heading, header, lines in study.tables(rows):
        sheet.heading(heading)
        sheet.table(header, lines)
    sheet.text(f"Run again: scripts/study {study.name} --{size}. All numbers: points.csv.", note=True)
    sheet.save(os.path.join(out, "index.html"))
    # Whoever ran it reads this last.
    for sentence in filter(None, concluded):
        _say(f"study {study.name}: {sentence}")


def _expand(study, points, costs, size):
    """Repetitions of short points in a full run, kept beside the first."""
    if size != "full" or "repetition" not in study.point_columns:
        return points
    out = []
    for point, cost in zip(points, costs):
        again = study.repeats(point) and cost.seconds < _REPEAT_BELOW_S
        for repetition in range(1, 1 + (_REPETITIONS if again else 1)):
            out.append((point, repetition))
    return [{**point, "repetition": repetition} for point, repetition in out]


def _total(study, points, bench):
    """Seconds that points are expected to take; what is made for a group is made once."""
    total, before = 0.0, object()
    for point in points:
        cost = study.cost(point, bench)
        total += cost.seconds + (cost.setup_seconds if study.group(point) != before else 0.0)
        before = study.group(point)
    return total


def _run(study, options, facts, bench, out):
    points = study.points(options.size)
    notes = []
    if options.only:
        points = [point for point in points if options.only in study.describe(point)]
        notes.append(f"Only points of \"{options.only}\".")
        if not points:
            described = "\n  ".join(study.describe(point) for point in study.points(options.size))
            _say(f"study {study.name}: no point of --{options.size} has the words {options.only!r}; there are:\n  {described}")
            return EXIT_USAGE
    estimated = options.size == "full" or options.estimate
    if estimated:
        calibrate(bench, out)
        costs = [study.cost(point, bench) for point in points]
        fitting = []
        for point, cost in zip(points, costs):
            lack = None if options.all else cost.too_much(
                _MEMORY_SHARE * machine.memory_bytes(), _DISK_SHARE * shutil.disk_usage(bench.work).free)
            if lack:
                notes.append(f"Not run: {study.describe(point)}: {lack}.")
                _say("study: " + notes[-1])
            else:
                fitting.append((point, cost))
        points = _expand(study, [p for p, _ in fitting], [c for _, c in fitting], options.size)

    kept = results.Results(os.path.join(out, "points.csv"), study.point_columns,
                           study.measured_columns, facts)
    left = [point for point in points if not kept.has(point)]
    words = f"study {study.name}: {len(points)} points, {len(points) - len(left)} finished before"
    expected = _total(study, left, bench) if estimated else None
    if estimated:
        words += f"; about {seconds_text(expected)} to go"
    _say(words)
    if options.estimate:
        return EXIT_DONE

    study.prepare(bench, out)
    code = EXIT_DONE
    start = time.monotonic()
    for i, point in enumerate(left):
        begun = time.monotonic()
        try:
            measured = study.run(point, bench)
        except chain.WrongAnswers:
            raise
        except (chain.Failed, OSError) as failed:  # OSError: of a process that is gone, too
            code = EXIT_FAILED
            notes.append(f"Failed: {study.describe(point)}: {failed}")
            logs = _keep_logs(bench.work, os.path.join(out, "logs", str(i + 1)))
            _say(f"[{i + 1}/{len(left)}] {notes[-1]}; logs: {logs}")
            bench.drop_chain()
            continue
        date = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        row = kept.add(point, measured, date)
        words = (f"[{i + 1}/{len(left)}] {study.describe(point)}: {study.describe_result(row)} "
                 f"({time.monotonic() - begun:.0f} s")
        if estimated:
            # The time left, at the pace of the points that are done.
            rest = _total(study, left[i + 1:], bench)
            pace = (time.monotonic() - start) / max(1e-9, expected - rest)
            words += f"; about {seconds_text(rest * pace)} left"
        _say(words + ")")
    # Lines stand in the order of the points, however often the run was interrupted.
    order = {tuple(results.text(p.get(c)) for c in study.point_columns): i for i, p in enumerate(points)}
    rows = sorted(kept.rows, key=lambda row: order.get(tuple(row[c] for c in study.point_columns), len(order)))
    if options.only and len(rows) > len(points):
        notes.append("The other points are of earlier runs.")
    with open(os.path.join(out, _RUN), "w", encoding="utf-8") as file:
        json.dump({"size": options.size, "notes": notes}, file)
    if rows:
        study.tell(rows)
        _draw(study, rows, out, options.size, notes)
    return code


def _keep_logs(work, to):
    """Copies the logs of the last deployment, whose scratch data will be deleted, to a directory; returns its path."""
    for pattern in ("create.log", os.path.join("chain-*", "*.log")):
        for path in glob.glob(os.path.join(work, pattern)):
            os.makedirs(to, exist_ok=True)
            shutil.copy(path, to)
    return to


def main(study, arguments=None):
    """Runs a study from its command line; returns the exit code."""
    options = study.options = _parser(study).parse_args(arguments)
    facts = machine.facts(chain.ROOT)
    out = os.path.abspath(options.out or os.path.join(
        chain.ROOT, "study-results", f"{study.name}-{options.size}-{facts['commit']}"))
    csv_path = os.path.join(out, "points.csv")

    def terminated(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, terminated)
    work = None
    try:
        if options.draw:
            if not os.path.exists(csv_path):
                _say(f"study {study.name}: {csv_path} is not there")
                return EXIT_USAGE
            run = {"size": options.size, "notes": []}
            if os.path.exists(os.path.join(out, _RUN)):
                with open(os.path.join(out, _RUN), encoding="utf-8") as file:
                    run = json.load(file)
            _draw(study, results.read(csv_path), out, run["size"], run["notes"])
            code = EXIT_DONE
        else:
            os.makedirs(out, exist_ok=True)
            for name in ("points.csv", "index.html", _COSTS, _RUN) + study.extra_files if options.fresh else ():
                if os.path.exists(os.path.join(out, name)):
                    os.remove(os.path.join(out, name))
            work = tempfile.mkdtemp(prefix="study-", dir=options.work)
            bench = Bench(chain.Programs(), work, int(facts["cores"]))
            code = _run(study, options, facts, bench, out)
            if options.estimate or code == EXIT_USAGE:
                return code
        if os.path.exists(os.path.join(out, "index.html")):
            print(os.path.join(out, "index.html"))
        return code
    except results.StaleResults as stale:
        _say(f"study {study.name}: {stale}; --fresh throws them away, --out goes elsewhere")
        return EXIT_USAGE
    except chain.WrongAnswers as wrong:
        _say(f"study {study.name}: WRONG ANSWERS: {wrong}")
        return EXIT_WRONG
    except chain.Failed as failed:
        _say(f"study {study.name}: {failed}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        _say(f"study {study.name}: interrupted; the same command goes on from here")
        return 130
    finally:
        if work:
            shutil.rmtree(work, ignore_errors=True)
