"""A deployment of real processes on this machine, and rounds of a simulated crowd on it.

The building blocks are the ones that people use: scripts/local-chain (keys, roster, signed table, one shoald a party,
TLS between all of them), `shoal simulate` for the crowd, `shoal status` for what a round cost, `shoal plan`
for the noise.
"""

import fcntl
import glob
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import time

from lib import machine

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOCAL_CHAIN = os.path.join(ROOT, "scripts", "local-chain")

# Longer than any round of a study takes: a round ends when its counts are reached, or with its
# processes.
WINDOW_S = 6 * 3600
# If the study stood still for longer than this during a round, the round's times are not kept.
_LONGEST_PAUSE_S = 3
_ATTEMPTS = 5
# Engines of two servers: the parties that are them, offline first.
_TWO_SERVERS = {"treepir": (1, 2), "permuted": (1, 2), "pair": (1, 2)}
# Time limit for an engine to make its hint.
_ENGINE_START_S = 1800
# The most slots that a roster allows (src/roster/roster.h).
_MAX_SLOTS = 1 << 30


class Failed(Exception):
    """A program failed, or a round did."""


class WrongAnswers(Failed):
    """An answer was wrong, or missing, or not compared with the table."""


class Programs:
    """The programs of one build."""

    def __init__(self, directory=None):
        """`directory`: bazel-bin/src, or the environment's SHOAL_BIN."""
        self.directory = os.path.abspath(
            directory or os.environ.get("SHOAL_BIN") or os.path.join(ROOT, "bazel-bin", "src"))
        self.shoal = os.path.join(self.directory, "shoal", "shoal")
        self.shoald = os.path.join(self.directory, "shoald", "shoald")
        self._plans = {}

    def run(self, command, log=None):
        """Standard output of a program that succeeds; raises Failed with its last words."""
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "SHOAL_BIN": self.directory}, check=False)
        if log:
            with open(log, "a", encoding="utf-8") as file:
                file.write(done.stderr)
        if done.returncode != 0:
            words = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-5:])
            raise Failed(f"{' '.join(map(str, command[:3]))}: exit code {done.returncode}: {words}")
        return done.stdout

    def plan(self, costs=None, **options):
        """`shoal plan` with these options (records=.., value_bytes=.., one_machine=True) as a dictionary."""
        words = []
        for name, value in sorted(options.items()):
            words += ["--" + name.replace("_", "-")] + ([] if value is True else [str(value)])
        if costs:
            words += ["--costs", costs]
        key = tuple(words)
        if key not in self._plans:
            self._plans[key] = json.loads(self.run([self.shoal, "plan", "--format", "json", *words]))
        return self._plans[key]


def plan_options(point):
    """Options of `shoal plan` for a point (results.POINT)."""
    options = {name: point[name] for name in
               ("layout", "records", "value_bytes", "parties", "queries", "epsilon", "delta", "phi")}
    if point["layout"] == "hashed":
        options["key_bytes"] = len(hashed_key(0))
    if point["keys_per_row"]:
        options["row_bytes"] = point["keys_per_row"] * point["value_bytes"]
    return options


def hashed_key(i):
    """The i-th key of a hashed table: an application's name, of one length."""
    return f"org.example.app{i:09d}"


def value(i, value_bytes):
    """The value of the i-th record: digits, of one length."""
    return f"{i * 2654435761 % 10**9:0{value_bytes}d}"[-value_bytes:]


def noise_text(noise):
    """The noise of a plan as the roster wants it."""
    return (f"mechanism: {noise['mechanism'].upper()} epsilon: {noise['epsilon']!r} "
            f"delta: {noise['delta']!r} phi: {noise['phi']} mode: {noise['mode']} "
            f"left_scale: {noise['left_scale']!r} right_scale: {noise['right_scale']!r}")


def few_devices(queries, rows):
    """The least number of devices that send exactly `queries` in equal shares of at most a thousand rows."""
    most = max(1, min(1000, rows, queries))
    return queries // next(each for each in range(most, 0, -1) if queries % each == 0)


class Ports:
    """Ports in a row that nothing listens on, below those of outgoing connections.

    No other test or study of this user is given them until this is closed or its process ends: each block of ports has a
    file that its owner holds a lock of (FreePorts in src/sim/processes.h).
    """

    BLOCK = 10

    def __init__(self, count):
        """At most BLOCK ports. Raises Failed."""
        if count > self.BLOCK:
            raise Failed(f"{count} ports; a block has {self.BLOCK}")
        locks = f"/tmp/shoal-ports-{os.getuid()}"
        os.makedirs(locks, mode=0o700, exist_ok=True)
        for _ in range(2000):
            self.first = random.randrange(20000, 32000, self.BLOCK)
            self._lock = open(os.path.join(locks, str(self.first)), "a", encoding="utf-8")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._probe(count)
                return
            except OSError:
                self._lock.close()
        raise Failed(f"no {count} free ports in a row")

    def _probe(self, count):
        for port in range(self.first, self.first + count):
            with socket.socket() as one:
                one.bind(("127.0.0.1", port))

    def close(self):
        """Others may have them."""
        self._lock.close()


def spool_memory_bytes(parties):
    """Bytes of a round's lists that each party may hold in memory: all parties together two fifths of the memory."""
    return int(0.4 * machine.memory_bytes() / parties)


def rounds_text(queries, max_slots=None):
    """The field `rounds` of party 1, for one round that ends when it has so many queries.

    It has room for `max_slots`, or for these alone. Only one round at a time: otherwise the next round's noise would be made while this one is timed.
    """
    return (f"rounds {{ open_ahead: 1 max_rounds: 1 max_slots: {max_slots or queries} "
            f"onions_window_s: {WINDOW_S} onions_count: {queries} "
            f"queries_window_s: {WINDOW_S} queries_count: {queries} answers_window_s: {WINDOW_S} }}")


class _Work:
    """Counts what processes and the crowd do from its creation on."""

    def __init__(self, pids):
        self._pids = pids
        self._crowd_cpu = 0.0
        self._start = self._servers()
        self._load = machine.OtherLoad(lambda: self._crowd_cpu + self._servers())

    def _servers(self):
        return sum(machine.process_cpu_seconds(pid) for pid in self._pids)

    def done(self, report):
        """Columns of results.MEASURED, once the crowd has ended with this report; the processes run."""
        self._crowd_cpu = report["cpu_seconds_total"]
        return {
            "parties_cpu_s": self._servers() - self._start,
            "latency_p50_s": report["latency_seconds_p50"],
            "latency_p99_s": report["latency_seconds_p99"],
            "peak_memory_bytes": max(machine.peak_memory_bytes(pid) for pid in self._pids),
            "crowd_memory_bytes": report["peak_memory_bytes"],
            "other_load_cores": self._load.cores(),
        }


class Chain:
    """Keys, roster and signed table of one deployment in a directory; processes while a round runs."""

    def __init__(self, programs, directory, point, plan, spool_bytes=None):
        """Makes the deployment of a point (results.POINT); noise and rows are those of its plan.

        Every party holds `spool_bytes` of a round's lists in memory (spool_memory_bytes).
        """
        self._programs = programs
        self.directory = directory
        self.table = os.path.join(directory, "table")
        self.parties = point["parties"]
        self._ports = Ports(self.parties)
        self.stages = []  # every party's report of every stage of the last round
        self.crowd = {}   # what `shoal simulate` reported of the last round
        self._log = os.path.join(os.path.dirname(directory), "create.log")
        records = directory + ".tsv"
        with open(records, "w", encoding="utf-8") as file:
            for i in range(point["records"]):
                key = hashed_key(i) if point["layout"] == "hashed" else i
                file.write(f"{key}\t{value(i, point['value_bytes'])}\n")
        programs.run(
            [LOCAL_CHAIN, "create", directory, "--parties", str(self.parties),
             "--port", str(self._ports.first), "--max-slots", str(_MAX_SLOTS),
             "--noise", noise_text(plan["noise"]), "--rounds", "open_ahead: 1", "--",
             "--tsv", records, "--layout", point["layout"], "--name", "study",
             "--row-bytes", str(plan["table"]["row_bytes"])], log=self._log)
        os.remove(records)
        spool_bytes = spool_bytes or spool_memory_bytes(self.parties)
        for j in range(1, self.parties + 1):
            with open(os.path.join(directory, f"party-{j}.textproto"), "a", encoding="utf-8") as file:
                file.write(f"stage_limit_s: {WINDOW_S}\nspool_memory_mib: {spool_bytes >> 20}\n")

    def round(self, queries, devices, apps=None):
        """Runs _round, and runs it again if everything stood still meanwhile."""
        for _ in range(_ATTEMPTS):
            with machine.Pauses() as pauses:
                measured = self._round(queries, devices, apps)
            if pauses.longest_s < _LONGEST_PAUSE_S:
                return measured
            print(f"stopped for {pauses.longest_s:.0f} s during the round: once more", file=sys.stderr)
        raise Failed(f"{_ATTEMPTS} rounds, and each time everything was stopped for seconds")

    def _round(self, queries, devices, apps):
        """One round: processes start, the crowd asks, every answer is checked, processes end.

        Every device sends its equal share of the queries. With `apps`, it wants that many keys and has
        connections of its own; otherwise the devices ask for keys at random and share connections.
        Returns columns of results.MEASURED. Raises Failed, WrongAnswers.
        """
        self._set_rounds(queries)
        try:
            self._programs.run([LOCAL_CHAIN, "start", self.directory], log=self._log)
            pids = self._pids()
            rows = self._wait_until_ready(pids)
            if queries // devices > rows:
                raise Failed(f"{queries // devices} queries of a device do not fit the table's {rows} rows")
            work = _Work(pids)
            self.crowd = report = self._simulate(devices, queries // devices, apps)
            done = work.done(report)  # before anything else is asked of the parties
            return {
                **self._costs(report["round"]),
                **done,
                "rows": rows,
                "answer_bytes": report["answer_bytes"],
                "client_sent_bytes": report["bytes_sent"],
                "client_received_bytes": report["bytes_received"],
                "answers_checked": report["answers_correct"],
            }
        finally:
            self.stop()

    def engine_round(self, engine, queries, devices):
        """Sends queries of a crowd to an engine at party 1, or at parties 1 and 2 where it has two servers. There is no round.

        Returns columns of results.MEASURED and of results.ENGINE. Raises Failed, WrongAnswers.
        """
        self._programs.run([LOCAL_CHAIN, "engine", self.directory, engine], log=self._log)
        parties = _TWO_SERVERS.get(engine, (1,))
        servers = []
        try:
            for party in parties:
                log = os.path.join(self.directory, f"{engine}-{party}.log")
                with open(log, "w", encoding="utf-8") as file:
                    servers.append(subprocess.Popen(
                        [self._programs.shoald, "--config",
                         os.path.join(self.directory, f"party-{party}.textproto"), "--engine", engine],
                        stdout=file, stderr=subprocess.STDOUT))
                deadline = time.monotonic() + _ENGINE_START_S
                while "listens on" not in open(log, encoding="utf-8").read():
                    if servers[-1].poll() is not None or time.monotonic() > deadline:
                        with open(log, encoding="utf-8") as file:
                            last = (file.read().strip().splitlines() or ["no word"])[-1]
                        raise Failed(f"shoald --engine {engine}: {last}")
                    time.sleep(0.1)
            work = _Work([server.pid for server in servers])
            named = [word for party in parties if len(parties) > 1 for word in ("--party", str(party))]
            report = self._simulate(devices, queries // devices, None, "--engine", engine, *named)
            return {
                **work.done(report),
                "rows": report["table_rows"],
                "answer_bytes": report["cost_answer_bytes"],
                # From sending the first query to receiving the last answer: the server's passes,
                # and TLS.
                "online_s": report["seconds_wait_online"],
                "online_cpu_s": report["cost_answer_seconds"] * queries,
                "client_sent_bytes": report["bytes_sent"],
                "client_received_bytes": report["bytes_received"] + report["cost_hint_bytes"],
                "answers_checked": report["answers_correct"],
                "setup_s": report["cost_setup_seconds"],
                "hint_bytes": report["cost_hint_bytes"],
                "query_bytes": report["cost_query_bytes"],
                "queries_per_pass": report["queries_per_pass"],
                "client_cpu_s": report["cpu_seconds_seal"] + report["cpu_seconds_check"],
            }
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait()
            # A hint that this server keeps would be found by the next server, whose set-up is to be
            # measured too.
            for party in parties:
                shutil.rmtree(os.path.join(self.directory, f"party-{party}.state"), ignore_errors=True)

    def remove(self):
        """Deletes everything, with the processes ended; others may have the ports."""
        shutil.rmtree(self.directory)
        self._ports.close()

    def stop(self):
        """Ends the processes and deletes their state of the round."""
        self._programs.run([LOCAL_CHAIN, "stop", self.directory], log=self._log)
        for state in glob.glob(os.path.join(self.directory, "party-?.state")):
            shutil.rmtree(state)

    def _set_rounds(self, queries):
        path = os.path.join(self.directory, "party-1.textproto")
        with open(path, encoding="utf-8") as file:
            config = file.read()
        config, changed = re.subn(r"^rounds \{.*\}$", rounds_text(queries), config, flags=re.MULTILINE)
        if changed != 1:
            raise Failed(f"{path}: has no rounds")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)

    def _pids(self):
        pids = []
        for j in range(1, self.parties + 1):
            with open(os.path.join(self.directory, f"party-{j}.pid"), encoding="utf-8") as file:
                pids.append(int(file.read()))
        return pids

    def _status(self):
        return json.loads(self._programs.run(
            [self._programs.shoal, "status", "--config",
             os.path.join(self.directory, "client.textproto"), "--format", "json"]))

    def _wait_until_ready(self, pids):
        """Waits until a round is open and the parties rest, as its noise is made. Returns the table's rows.

        Otherwise some of the noise would fall into the offline stage: the more, the quicker the crowd is.
        """
        deadline = time.monotonic() + 60
        while True:
            status = self._status()
            if any(r["state"] == "open for onions" for r in status["rounds"]):
                break
            if time.monotonic() > deadline:
                raise Failed("no round was opened within a minute; see party-1.log")
            time.sleep(0.1)
        calm = 0
        used = None
        while calm < 3:
            time.sleep(0.2)
            now = sum(machine.process_cpu_seconds(pid) for pid in pids)
            calm = calm + 1 if used is not None and now - used <= 0.03 else 0
            used = now
        return status["rows"]

    def _simulate(self, devices, each, apps, *more):
        command = [self._programs.shoal, "simulate", "--config",
                   os.path.join(self.directory, "client.textproto"), "--table", self.table,
                   "--devices", str(devices), "--pad", str(each), "--verify", "distinct", "--format", "json"]
        # With `apps`, devices have applications and connections of their own. Without, they only
        # bring queries, for rows that are all different.
        command += ["--apps", str(apps)] if apps else ["--apps", "all", "--zipf", "0", "--share-connections"]
        command += more
        # The command fails if an answer is wrong. Its report says how many are, so it is read all
        # the same.
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        if not done.stdout.strip():
            raise Failed(f"shoal simulate: exit code {done.returncode}: {last}")
        report = json.loads(done.stdout)
        check_answers(report, devices * each)
        if done.returncode != 0:
            raise Failed(f"shoal simulate: exit code {done.returncode}: {last}")
        return report

    def _costs(self, number):
        report = next(r for r in self._status()["rounds"] if r["round"] == number)
        self.stages = report["stages"]
        return round_costs(report)


def round_costs(report):
    """What a round cost, by what `shoal status` reports of it, as columns of results.MEASURED."""
    stages = report["stages"]

    def total(field, *names):
        return sum(stage[field] for stage in stages if stage["stage"] in names)

    return {
        "noise_queries": total("noise_queries", "noise"),
        "noise_s": max((s["seconds"] for s in stages if s["stage"] == "noise"), default=0.0),
        "offline_s": report["offline_ms"] / 1000,
        "online_s": report["online_ms"] / 1000,
        "noise_cpu_s": total("cpu_seconds", "noise"),
        "offline_cpu_s": total("cpu_seconds", "offline"),
        "online_cpu_s": total("cpu_seconds", "online", "answers"),
        # Every party but the first takes in what its predecessor sent. The bytes of answers are
        # counted at the stage "answers".
        "link_bytes": sum(stage["bytes_in"] for stage in stages
                          if stage["stage"] == "answers" or stage["party"] > 1),
    }


def check_answers(report, queries):
    """Raises WrongAnswers unless a report of `shoal simulate` says that all is well."""
    if report["answers_compared_with_table"] != 1:
        raise WrongAnswers("the answers were not compared with the table")
    bad = {name: report[name] for name in
           ("answers_wrong", "answers_failed", "keys_failed", "devices_lost") if report[name] != 0}
    if bad or report["answers_correct"] != queries:
        raise WrongAnswers(
            f"{report['answers_correct']} of {queries} answers are right; "
            + ", ".join(f"{name} {count}" for name, count in bad.items()))
