"""What runs on an experiment's machines, and what comes home of it.

Each party makes its keys on its own machine, and they stay there: what leaves it is the announcement, signatures and logs.
The roster is put together from announcements, as docs/operations.md has it.
"""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
import time

from cloud.aws import Failed, say
from cloud.experiment import Wrong
from cloud.infrastructure import address_for, addresses_for, callers, port_of
from cloud.large_party import LargeParty
from cloud.remote import JobFailed

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "experiments"))

from lib import chain, results  # noqa: E402 (the studies' code)

# What `shoal` and `shoald` need of Debian 12, when they come from elsewhere.
LIBRARIES = ("libabsl20220623", "libboost-program-options1.81.0", "libfmt9", "libprometheus-cpp-core1.0",
             "libprotobuf32", "libsodium23", "libspdlog1.10", "libssl3", "libstdc++6")
# And `shoald-machines`, which a party of several machines runs.
LARGE_PARTY_LIBRARIES = ("libopenmpi3", "openmpi-bin", "openssh-client")
COLUMNS = results.POINT + results.MEASURED + ("machines", "commit", "date")

# scripts/study's exit code when an answer was wrong or missing.
_STUDY_WRONG = 3
_MOST_FILES = 1000
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(?:/[A-Za-z0-9_][A-Za-z0-9._-]*){0,3}")


def programs_of(experiment):
    """What the machines run, below bazel-bin/src."""
    return ("shoal/shoal", "shoald/shoald") + (
        ("shoald/machines/shoald-machines",) if experiment.has_large_party() else ())


def _libraries(experiment):
    return LIBRARIES + (LARGE_PARTY_LIBRARIES if experiment.has_large_party() else ())


def _targets(experiment):
    return " ".join("//src/" + ":".join(program.rsplit("/", 1)) for program in programs_of(experiment))


def plan_steps(experiment, programs):
    """What is done on the machines, one line each, for people."""
    if programs:
        yield (f"each machine: takes {' '.join(programs_of(experiment))} from {programs}; installs "
               f"{' '.join(_libraries(experiment))}")
    else:
        yield f"each machine: takes this tree's last commit; scripts/setup; bazel build --config=opt {_targets(experiment)}"
    if experiment.study:
        yield f"crowd: scripts/study {experiment.study.name} {' '.join(experiment.study.arguments)}".rstrip()
        return
    yield "each party: shoal keys generate; only the announcement leaves the machine"
    yield "crowd: shoal roster assemble, from the announcements; each party: shoal roster sign; crowd: shoal roster aggregate"
    yield "crowd: shoal table build; each party: shoal table sign; crowd: shoal table aggregate"
    for group in experiment.parties:
        if group.machines > 1:
            yield (f"{group.name}: ssh-keygen on its first machine; its others take commands from there; by that ssh they get "
                   "keys (shoal keys machine), roster, table")
    for queries in experiment.rounds.queries:
        runs = "shoald or party-machines" if experiment.has_large_party() else "shoald"
        yield (f"each party: {runs}; crowd: shoal simulate, {queries} queries, every answer compared with the table"
               f" (x {experiment.rounds.repetitions or 1})")


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, check=False)
    return done.stdout.strip() or "unknown"


def install(remote, experiment, programs, limit_s):
    """Each machine has the experiment's programs below programs/, and party-machines, when this returns.

    `programs`: a folder as bazel-bin/src that has them, or None, for a build on each machine.
    """
    if programs:
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for name in programs_of(experiment):
                # Bazel's are links.
                tar.add(os.path.realpath(os.path.join(programs, name)), name)
            tar.add(os.path.realpath(os.path.join(ROOT, "scripts", "party-machines")), "party-machines")

        def take(machine):
            remote.run(machine, "rm -rf programs; mkdir programs; tar -x -C programs", content.getvalue())
            remote.job(machine, "install", "sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "
                       f"--no-install-recommends {' '.join(_libraries(experiment))}", limit_s)
    else:
        bundle = subprocess.run(["git", "-C", ROOT, "bundle", "create", "-q", "-", "HEAD"],
                                stdout=subprocess.PIPE, check=True).stdout

        def take(machine):
            remote.put(machine, "shoal.bundle", bundle)
            remote.job(machine, "build", "set -e; sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq git; "
                       "rm -rf shoal; git clone -q shoal.bundle shoal; cd shoal; scripts/setup; "
                       f"bazel build --config=opt {_targets(experiment)}; "
                       "cd; rm -rf programs; mkdir programs; cd programs; "
                       "ln -s ../shoal/bazel-bin/src/shoal ../shoal/bazel-bin/src/shoald ../shoal/scripts/party-machines .",
                       limit_s)

    say("programs:", "copying" if programs else "building on each machine")
    remote.each(remote.machines, take)


class Study:
    """A study of experiments/, on the crowd's machine."""

    def __init__(self, remote, experiment):
        self._remote = remote
        self._experiment = experiment

    def run(self, limit_s):
        """Leaves results/ at the crowd's machine. Raises Failed, and chain.WrongAnswers where the study says so."""
        study = self._experiment.study
        words = " ".join(shlex.quote(word) for word in (study.name, *study.arguments))
        try:
            self._remote.job(self._experiment.crowd.running[0], "study",
                             f"rm -rf results; cd shoal && scripts/study {words} --out ../results", limit_s)
        except JobFailed as failed:
            if failed.code == _STUDY_WRONG:
                raise chain.WrongAnswers(str(failed)) from None
            raise


def asked_for(rounds):
    """(queries, repetition) of each round, in order."""
    return [(queries, repetition) for queries in rounds.queries for repetition in range(1, (rounds.repetitions or 1) + 1)]


class Rounds:
    """A chain over the parties' machines, and rounds of a crowd."""

    def __init__(self, remote, experiment):
        self._remote = remote
        self._experiment = experiment
        self._rounds = experiment.rounds
        # The first machine of each, a party's head, and all of them.
        self._parties = [party.running[0] for party in experiment.parties]
        self._machines = [machine for party in experiment.parties for machine in party.running]
        self._large = {party.number: LargeParty(remote, party) for party in experiment.parties if party.machines > 1}
        self._crowd = experiment.crowd.running[0]

    def run(self, limit_s):
        """Leaves results/round-N.json at the crowd's machine for each round."""
        remote = self._remote
        self._stop()
        remote.run(self._crowd, "rm -rf anybody results; mkdir anybody results")
        plan = self._plan()
        self._roster(plan)
        self._table(plan)
        self._configure()
        for party in self._large.values():
            say("ssh, keys and table of a party's other machines")
            party.connect()
            party.hand_out()
        for number, (queries, repetition) in enumerate(asked_for(self._rounds), 1):
            say(f"round {number}: {queries} queries")
            self._round(number, plan, queries, repetition, limit_s)

    def _point(self):
        rounds = self._rounds
        return {"engine": "shoal", "layout": "dense", "records": rounds.records, "value_bytes": rounds.value_bytes or 4,
                "keys_per_row": rounds.keys_per_row, "queries": max(rounds.queries), "parties": len(self._parties),
                "epsilon": rounds.epsilon or 1.0, "delta": rounds.delta or 1e-6, "phi": rounds.phi or 1}

    def _plan(self):
        words = " ".join(f"--{name.replace('_', '-')} {value}"
                         for name, value in chain.plan_options(self._point()).items())
        return json.loads(self._remote.run(self._crowd, f"shoal plan --format json {words}"))

    def _roster(self, plan):
        remote, experiment = self._remote, self._experiment
        settings = [f'deployment: "{experiment.name}"', "epoch: 1", f"noise {{ {chain.noise_text(plan['noise'])} }}",
                    "clock_tolerance_s: 60", f"max_slots: {max(map(self._room, self._rounds.queries))}"]
        for caller, party in callers(experiment):
            where = "client_address" if party.number == 1 else "peer_address"
            first, *others = [f'{where}: "{address}:{port_of(party)}"' for address in addresses_for(caller, party)]
            settings.append(f'parties {{ number: {party.number} name: "{party.name}" {first} machines: {party.machines} '
                            + " ".join(f"other_machines {{ {other} }}" for other in others) + " }")
        remote.put(self._crowd, "anybody/settings.textproto", "\n".join(settings + [""]).encode())
        say("keys and roster")

        def keys(machine):
            return remote.run(machine, "rm -rf party; mkdir party; cd party; "
                              f"shoal keys generate --name {machine.group.name} --out keys")

        words = ""
        for machine, announcement in zip(self._parties, remote.each(self._parties, keys)):
            remote.put(self._crowd, f"anybody/{machine.group.name}.announcement", announcement)
            words += f" --announcement {machine.group.name}.announcement"
        unsigned = remote.run(self._crowd, "cd anybody; shoal roster assemble --settings settings.textproto"
                              f"{words} --out roster.unsigned >/dev/null; cat roster.unsigned")

        def sign(machine):
            remote.put(machine, "party/roster.unsigned", unsigned)
            return remote.run(machine, "cd party; shoal roster sign --roster roster.unsigned --keys keys "
                              "--out roster-share >/dev/null; cat roster-share")

        words = ""
        for machine, share in zip(self._parties, remote.each(self._parties, sign)):
            remote.put(self._crowd, f"anybody/{machine.group.name}.roster-share", share)
            words += f" --share {machine.group.name}.roster-share"
        signed = remote.run(self._crowd, f"cd anybody; shoal roster aggregate --roster roster.unsigned{words} "
                            "--out roster.textproto >/dev/null; "
                            "shoal roster pins --roster roster.textproto --out pinned.textproto >/dev/null; "
                            "tar -c roster.textproto pinned.textproto")
        remote.each(self._parties, lambda machine: remote.run(machine, "tar -x -C party", signed))

    def _table(self, plan):
        remote, trust = self._remote, "--roster roster.textproto --pinned pinned.textproto"
        say("table")
        point = self._point()
        # The values of the studies' tables (chain.value).
        records = (f"for i in range({point['records']}): "
                   f"print(i, f\"{{i * 2654435761 % 10**9:0{point['value_bytes']}d}}\"[-{point['value_bytes']}:], sep=\"\\t\")")
        remote.job(self._crowd, "table", f"set -e; cd anybody; python3 -c {shlex.quote(records)} >records.tsv; "
                   "$HOME/programs/shoal/shoal table build --tsv records.tsv --layout dense --name experiment "
                   f"--row-bytes {plan['table']['row_bytes']} --deployment {self._experiment.name} --out table", 3600)
        table = remote.run(self._crowd, "tar -c -C anybody table")

        def sign(machine):
            remote.run(machine, "tar -x -C party", table)
            return remote.run(machine, f"cd party; shoal table sign table --keys keys {trust} >/dev/null; "
                              "tar -c -C table/shares .", limit_s=3600)

        for shares in remote.each(self._parties, sign):
            remote.run(self._crowd, "mkdir -p anybody/table/shares; tar -x -C anybody/table/shares", shares)
        signed = remote.run(self._crowd, f"cd anybody; shoal table aggregate table {trust} >/dev/null; "
                            "rm -r table/shares; tar -c table", limit_s=3600)
        remote.each(self._parties, lambda machine: remote.run(
            machine, "rm -r party/table; tar -x -C party", signed))

    def _configure(self):
        for machine in self._parties:
            self._remote.put(machine, "party/common.textproto", "\n".join([
                f"party: {machine.group.number}", 'keys_directory: "keys"', 'roster_file: "roster.textproto"',
                'pinned_parties_file: "pinned.textproto"', 'table_directory: "table"', 'state_directory: "state"',
                f'listen_address: "0.0.0.0:{port_of(machine.group)}"', f"stage_limit_s: {chain.WINDOW_S}", ""]).encode())

    def _stop(self):
        self._remote.each(self._parties, self._end)
        # Of the others nobody is left, or none that hears from the head.
        self._remote.each(self._machines, lambda machine: self._remote.run(
            machine, "kill -9 $(cat party/machine 2>/dev/null) 2>/dev/null || true; "
            "rm -rf party/pid party/machine party/state"))

    def _end(self, head):
        """Ends a party's process, or the launcher of its machines, which takes a while to end them."""
        name, polls = ("TERM", 600) if head.group.machines > 1 else ("KILL", 0)
        self._remote.run(head, "if [ -e party/pid ]; then pid=$(cat party/pid); "
                         f"kill -{name} $pid 2>/dev/null || true; polls={polls}; "
                         "while [ $polls -gt 0 ] && grep -qs '^State:.[^Z]' /proc/$pid/status; do "
                         "sleep 0.1; polls=$((polls - 1)); done; kill -9 $pid 2>/dev/null || true; fi")

    def _room(self, queries):
        """Slots of a round for so many queries: each machine of the frontend has an equal share of these."""
        return min(queries * self._experiment.parties[0].machines, 1 << 30)

    def _start(self, machine, queries):
        """Returns once a party, whose first machine this is, serves."""
        config = ""
        if machine.group.number == 1:
            # All of the crowd's queries come from one address.
            crowd = address_for(machine.group, self._experiment.crowd)
            config = f'{chain.rounds_text(queries, self._room(queries))}\nshared_addresses: "{crowd}"\n'
        self._remote.each(machine.group.running, lambda one: self._remote.run(
            one, "cd party; cat common.textproto - >party.textproto; : >log; : >launcher.log", config.encode()))
        large = self._large.get(machine.group.number)
        command = large.launcher() if large else "shoald --config party.textproto"
        self._remote.run(machine, "cd party; ulimit -c 0; "
                         f"setsid -f sh -c {shlex.quote('echo $$ >pid; exec ' + command)} "
                         f">>{'launcher.log' if large else 'log'} 2>&1 </dev/null; "
                         "until [ -s pid ]; do sleep 0.1; done; until grep -q 'listens on' log; do "
                         "kill -0 $(cat pid) || { tail -n 5 launcher.log log >&2; exit 1; }; sleep 0.2; done",
                         limit_s=3600)

    def _rest(self, machine):
        """Waits until a party's machine rests: the noise of the round that it has opened is made."""
        self._remote.run(machine, "pid=$(cat party/machine 2>/dev/null || cat party/pid); calm=0; used=0; while [ $calm -lt 3 ]; do sleep 0.2; "
                         "kill -0 $pid; now=$(awk '{ print $14 + $15 }' /proc/$pid/stat); "
                         "if [ $((now - used)) -le 3 ]; then calm=$((calm + 1)); else calm=0; fi; used=$now; done",
                         limit_s=chain.WINDOW_S)

    def _round(self, number, plan, queries, repetition, limit_s):
        remote = self._remote
        rows = plan["table"]["rows"]
        devices = chain.few_devices(queries, rows)
        frontend = address_for(self._experiment.crowd, self._experiment.parties[0])
        remote.put(self._crowd, "anybody/client.textproto",
                   f'frontend: "{frontend}:{port_of(self._experiment.parties[0])}"\n'
                   'pinned_parties_file: "pinned.textproto"\nstate: "client.state"\n'
                   f"pad_to: {queries // devices}\n".encode())
        try:
            for machine in reversed(self._parties):
                self._start(machine, queries)
            remote.run(self._crowd, "cd anybody; until shoal status --config client.textproto --format json | "
                       "grep -q 'open for onions'; do sleep 0.2; done", limit_s=300)
            remote.each(self._machines, self._rest)
            remote.job(self._crowd, f"round-{number}", "set -e; cd anybody; $HOME/programs/shoal/shoal simulate "
                       f"--config client.textproto --table table --devices {devices} --pad {queries // devices} "
                       "--apps all --zipf 0 --share-connections --verify distinct --format json >simulate.json",
                       limit_s)
            report = _json(remote.run(self._crowd, "cat anybody/simulate.json"))
            status = _json(remote.run(
                self._crowd, "cd anybody; shoal status --config client.textproto --format json"))
        finally:
            self._stop()
        point = {**self._point(), "queries": queries, "devices": devices, "repetition": repetition}
        row = {**point, "rows": rows, "row_bytes": plan["table"]["row_bytes"], "mechanism": plan["noise"]["mechanism"]}
        remote.put(self._crowd, f"results/round-{number}.json",
                   json.dumps({"row": row, "report": report, "status": status}).encode())


def _json(content):
    try:
        return json.loads(content)
    except ValueError:
        raise Failed(f"no JSON: {content[:100]!r}") from None


def claim(out, identifier):
    """Makes the folder `out` that of one experiment, for ever. Raises Wrong if it has results of another."""
    os.makedirs(out, exist_ok=True)
    path = os.path.join(out, "experiment-id")
    known = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            known = file.read().strip()
    if known != identifier:
        if os.listdir(out):
            raise Wrong(f"{out} has results of {'experiment ' + known if known else 'something else'}: name another --out")
        with open(path, "w", encoding="utf-8") as file:
            file.write(identifier + "\n")


def collect(remote, experiment, out, facts, whole=False):
    """Brings results and logs into the folder `out`, checks every round, and draws. Raises Failed, chain.WrongAnswers.

    `whole`: exactly the rounds that were asked for must be there; of a study, something.
    """
    crowd = experiment.crowd.running[0]
    collected = []
    os.makedirs(out, exist_ok=True)
    names = remote.run(crowd, f"mkdir -p results; cd results; find . -type f -printf '%P\\n' | head -n {_MOST_FILES}")
    for name in sorted(names.decode(errors="replace").splitlines()):
        # The names come from there: none leads out of the folder.
        if not _FILE.fullmatch(name):
            say(f"crowd: left out a file with an odd name: {name!r}")
            continue
        path = os.path.join(out, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(remote.run(crowd, f"cat results/{name}"))
        collected.append(name)
        say(f"collected: {path}")
    for group in experiment.groups:
        for machine in group.running:
            log = remote.run(machine, "cat jobs/*/log party/launcher.log party/log 2>/dev/null | tail -c 10000000 || true")
            os.makedirs(os.path.join(out, "logs"), exist_ok=True)
            with open(os.path.join(out, "logs", f"{machine}.log"), "wb") as file:
                file.write(log)
    if experiment.rounds:
        # What else is in the folder came home before, perhaps of other programs.
        _points(out, facts, collected, asked_for(experiment.rounds) if whole else None)
    elif whole and not collected:
        raise Failed("the study left no results")


def _points(out, facts, collected, asked):
    """points.csv and figures, of all rounds among the files `collected`; exactly those of `asked`, unless it is None.

    Raises Failed, and chain.WrongAnswers for a round with a wrong answer.
    """
    rows = []
    names = [name for name in collected if re.fullmatch(r"round-\d+\.json", name)]
    if asked is not None and sorted(names) != sorted(f"round-{number}.json" for number in range(1, len(asked) + 1)):
        raise Failed(f"not the {len(asked)} rounds that were asked for, but {', '.join(sorted(names)) or 'none'}")
    for name in sorted(names, key=lambda name: (len(name), name)):
        with open(os.path.join(out, name), "rb") as file:
            content = _json(file.read())
        try:
            row, report = content["row"], content["report"]
            chain.check_answers(report, row["queries"])
            costs = chain.round_costs(next(r for r in content["status"]["rounds"] if r["round"] == report["round"]))
            rows.append({**row, **costs, "answer_bytes": report["answer_bytes"],
                         "latency_p50_s": report["latency_seconds_p50"], "latency_p99_s": report["latency_seconds_p99"],
                         "client_sent_bytes": report["bytes_sent"], "client_received_bytes": report["bytes_received"],
                         "crowd_memory_bytes": report["peak_memory_bytes"],
                         "answers_checked": report["answers_correct"], **facts})
        except (KeyError, TypeError, StopIteration) as error:
            raise Failed(f"{name}: {error!r}: not a round") from None
        if asked is not None and (row["queries"], row.get("repetition")) != asked[len(rows) - 1]:
            raise Failed(f"{name}: not the round that was asked for")
    if not rows:
        return
    path = os.path.join(out, "points.csv")
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: results.text(row.get(name)) for name in COLUMNS} for row in rows)
    python = os.path.join(ROOT, ".deps", "venv", "bin", "python")
    if not os.path.exists(python):
        say("no figures: scripts/setup --test installs what draws them; then: scripts/aws collect")
        return
    drawn = subprocess.run([python, os.path.join(HERE, "figure.py"), path, out], stderr=subprocess.PIPE, text=True,
                           check=False)
    if drawn.returncode != 0:
        raise Failed(f"figure: {drawn.stderr.strip()[-500:]}")


def date():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
