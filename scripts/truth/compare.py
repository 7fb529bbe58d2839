"""Compares one input, or a part of all, with what the other programs say of it. command.py says what that is for."""

import collections
import dataclasses
import json
import os
import re
import subprocess
import sys

import generate
import judge
import readers
from readers import Missing, Refused, key

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT_OF_A_KIND = 3
MOST_DETAIL = 500
# Members that have packages: a broken name of one hides all of them, and ours says so once.
LISTS = ("components", "packages", "dependencies")


@dataclasses.dataclass(frozen=True)
class Difference:
    """What differs. The kinds, the worst first:

    clean    they say vulnerable, or that nobody can tell, and ours says nothing
    missing  they name a package, and ours neither names it nor says that something was not read
    alarm    they say clean, and ours vulnerable
    ids      other advisories
    extra    ours names a package that they do not
    lenient  they refuse the input, and ours reads all of it
    record   they refuse an OSV record that ours reads
    order    versions are in another order
    unclear  ours refuses, or says unclear or unchecked, where they are sure
    """

    kind: str
    detail: str

    def __post_init__(self):
        object.__setattr__(self, "detail", " ".join(self.detail.split())[:MOST_DETAIL])


class Peer:
    """src/audit's readers, in a process of their own."""

    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, question):
        self.process.stdin.write(question)
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"audit-truth: the program under test ended on {question[:2000]!r}")
        return line

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def audit(self, case):
        parts = [case.content] + list(case.records)
        line = "\t".join(["audit", case.name, case.distribution, str(case.max_bytes)] + [str(len(part)) for part in parts])
        return json.loads(self.ask(line.encode() + b"\n" + b"".join(parts)).decode(errors="replace"))

    def order(self, order, a, b):
        return self.ask(f"{order}\t{a}\t{b}\n".encode()).decode().strip()


class Others:
    """The other programs. Those that run in processes are started when they are asked for."""

    def __init__(self, modules):
        self.modules = modules
        self.started = None
        self.orders = judge.Orders(self)

    def ask(self, question):
        if self.started is None:
            self.started = readers.NpmPeer(self.modules)
        return self.started.ask(question)

    def close(self):
        for process in (self.started and self.started.process, self.orders.dpkg):
            if process:
                process.stdin.close()
                process.wait()

    def read(self, case):
        reader = readers.READERS[case.format]
        return reader(case, self) if case.format == "package-lock" else reader(case)


# How a verdict differs.


def same_version(ecosystem, text):
    """A form that two texts of one version have in common."""
    text = text and " ".join(text.split())
    if ecosystem == "PyPI" and text:
        try:
            return str(readers.PypiVersion(text))
        except readers.InvalidVersion:
            return text.strip()
    if ecosystem.startswith(("Debian", "Ubuntu")) and text:
        return re.sub("^0+:", "", text)
    if ecosystem == "Go" and text:
        return text.removeprefix("v")
    if ecosystem == "npm" and text and not re.match(r"v?\d+\.\d+\.\d+([-+][\w.+-]*)?$", text):
        return ""  # npm has none where it is an address or no version
    return text or ""


def of_verdicts(entry, found, possible, ours, sure):
    """The difference between the others' verdicts, id -> verdict, and ours for one package. `possible` are the verdicts on all
    packages that it may be, `ours` what is found under these names. Unless `sure`, there is more that nobody can read."""
    worst, most = max(found.values(), default=judge.CLEAN), max(possible.values(), default=judge.CLEAN)
    where = (f"{entry.ecosystem} {entry.name} {entry.version}: theirs {judge.NAMES[worst]}, "
             f"ours {', '.join(sorted(ours.statuses)) or 'clean'}")
    unclear = ours.statuses - {"vulnerable"}
    if worst in (judge.VULNERABLE, judge.UNSURE) and not ours.statuses:
        return Difference("clean", where)
    if entry.any_of and most == judge.VULNERABLE and not ours.statuses:
        return Difference("clean", where + ", and that may be another one's")
    if worst == judge.VULNERABLE and "vulnerable" not in ours.statuses and not entry.open:
        return Difference("unclear", f"verdict: {' | '.join(sorted(ours.notes))}: {where}")
    if most == judge.CLEAN and "vulnerable" in ours.statuses:
        return Difference("alarm", where)
    if worst == judge.CLEAN and unclear and not entry.open and sure and not (entry.any_of and most > judge.CLEAN):
        return Difference("unclear", f"verdict: {' | '.join(sorted(ours.notes))}: {where}")
    surely = {name for name, verdict in found.items() if verdict == judge.VULNERABLE}
    perhaps = {name for name, verdict in possible.items() if verdict >= judge.MAYBE}
    if worst == judge.VULNERABLE and not entry.open and not ours.cut and not entry.any_of and (not surely <= ours.ids or not ours.ids <= perhaps):
        return Difference("ids", f"{where}: theirs {sorted(surely)}, ours {sorted(ours.ids)}")
    return None


class Found:
    """What ours found for one package."""

    def __init__(self):
        self.statuses, self.notes, self.ids = set(), set(), set()
        self.cut = False  # not all advisories are listed

    def add(self, status, number, note):
        self.statuses.add(status)
        if status != "vulnerable":
            self.notes.add(note)
            self.cut |= "did not fit into the table" in note
        elif number:
            self.ids.add(number)
        else:
            self.cut = True

    def join(self, other):
        self.statuses |= other.statuses
        self.notes |= other.notes
        self.ids |= other.ids
        self.cut |= other.cut


def item_of(ecosystem, name, text):
    return key(ecosystem, name), same_version(ecosystem, text)


def name_of(place):
    (ecosystem, name), text = place
    return f"{ecosystem} {name} {text}"


def compare(case, ours, truth, others, stats):
    """All differences of one input. `truth` is a Truth or a Refused."""
    refused = isinstance(truth, Refused)
    if "failed" in ours:
        stats["both_refuse"] += refused
        return [] if refused else [Difference("unclear", "refuses: " + ours["failed"])]
    unsure_of_ours = ours["unchecked"] or any(finding[0] != "vulnerable" for finding in ours["findings"])
    if refused:
        stats["both_refuse"] += bool(unsure_of_ours)
        return [] if unsure_of_ours else [Difference("lenient", "theirs: " + str(truth)[:400])]
    differences = []
    records = judge.parse(case.records)
    for index, (record, message) in enumerate(zip(records, ours["records"], strict=True)):
        if record is None and not message:
            differences.append(Difference("record", f"theirs refuses, ours reads: record {index}"))
    odd = {record["id"] for record, message in zip(records, ours["records"], strict=True) if record and message}
    # What a record is about that nobody can read, nobody knows.
    all_read = None not in records
    names = collections.Counter(name for record in records if record for name in {record["id"], *(record.get("aliases") or [])})
    joined = any(count > 1 for count in names.values())

    certainty = collections.defaultdict(set)
    for item in ours["items"]:
        certainty[item_of(*item[:3])].add(item[3])
    findings = collections.defaultdict(Found)
    for status, ecosystem, name, text, number, note in ours["findings"]:
        findings[item_of(ecosystem, name, text)].add(status, number, note)
    # What is named and not read has lines of its own, or is of an ecosystem of which the table has nothing.
    unchecked = [f"{why}: {what}"[:200] for what, why in ours["unchecked"]]
    unchecked += [name_of(place) for place in certainty if findings[place].statuses == {"unchecked"}]
    spare = len(unchecked) - len(truth.unknown)
    if any(why == "names no packages" or (why.endswith("that is not known here") and what.lower() in LISTS) for what, why in ours["unchecked"]):
        spare = len(truth.entries)  # which says of the whole input that it was not read
    if spare < 0:
        differences.append(Difference("missing", f"not to be looked up, and left out: {truth.unknown}; ours says of {unchecked}"))
    expected, absent = set(), set()
    entries = {item_of(entry.ecosystem, entry.name, entry.version): entry
               for entry in sorted(truth.entries, key=lambda entry: entry.open)}
    for place, entry in entries.items():
        stats["packages"] += 1
        names = ((entry.name, entry.version), *entry.others)
        places = [item_of(entry.ecosystem, *name) for name in names]
        expected.update(places)
        if (place[0], "") in certainty and place not in certainty:
            # Named without the version, and so unclear against every advisory.
            expected.add((place[0], ""))
            stats["unclear"] += 1
            differences.append(Difference("unclear", f"no version: theirs {name_of(place)}"))
            continue
        if certainty.keys().isdisjoint(places):
            absent.add(place)
            continue
        verdicts = [judge.judge(others.orders, records, odd, entry.ecosystem, *name) for name in names]
        stats["vulnerable"] += judge.VULNERABLE in verdicts[0].values()
        possible = {name: max(one.get(name, judge.CLEAN) for one in verdicts) for one in verdicts for name in one}
        found = Found()
        for one in places:
            found.join(findings[one])
        # That the table lacks records of the ecosystem is said once, and leaves every package of it unclear.
        found.join(findings[item_of(entry.ecosystem, "", "")])
        found.cut |= joined
        difference = of_verdicts(entry, verdicts[0], possible, found, all_read)
        if difference is not None:
            stats["unclear"] += difference.kind == "unclear"
            differences.append(difference)
    # What a package may be rather than what the file names is no package more.
    instead = {place for place in certainty if "certain" in certainty[place] and findings[place].statuses != {"unchecked"}} - expected
    named = sorted(name_of(place) for place in instead)
    for place in sorted(absent):
        if spare > 0:
            spare -= 1
            # The other readers do not look at what a registry's names are made of, and are not sure of one that is none.
            stats["unclear"] += not all("is no name of a package of " in reason for reason in unchecked)
            differences.append(Difference("unclear", f"unchecked: {' | '.join(sorted(unchecked))}: theirs {name_of(place)}"))
        else:
            differences.append(Difference("missing", f"{name_of(place)}; ours has instead {named}"))
    for name in named:
        differences.append(Difference("extra", f"{name}; theirs has instead {sorted(name_of(one) for one in absent)}"))
    if case.format == "requirements" and not ours["unchecked"]:
        differences += of_pip_audit(case, set(certainty))
    return differences


def of_pip_audit(case, mine):
    try:
        audited = readers.read_pip_audit(case)
    except (Missing, Refused):
        return []
    pinned = {(name, text) for (_, name), text in mine if text}
    return [Difference("missing", f"pip-audit has {one}; ours names {sorted(pinned)}") for one in sorted(audited - pinned)]


def audited(peer, others, case, stats):
    ours = peer.audit(case)
    try:
        truth = others.read(case)
    except Refused as error:
        truth = error
    return compare(case, ours, truth, others, stats)


def order_differences(peer, others, order, pair, stats):
    ours = peer.order({"order-pypi": "pep440", "order-debian": "debian"}.get(order, "semver"), *pair)
    said = {}
    if order == "order-pypi":
        said["packaging"] = readers.by_packaging(*pair)
    elif order == "order-debian":
        said["dpkg"] = readers.by_dpkg(*pair)
    else:
        said["npm's semver"] = others.ask({"pair": pair})
    try:
        said["univers"] = readers.by_univers(order, *pair)
    except Missing:
        pass
    stats["packages"] += 1
    stats["ordered " + next(iter(said.values()))] += 1
    return [Difference("order", f"{name}: {pair[0]!r} {pair[1]!r}: ours {ours}, theirs {theirs}")
            for name, theirs in said.items() if theirs != ours]


# The table of differences that are written down.


class Written:
    def __init__(self):
        self.rows = []
        with open(os.path.join(HERE, "written.tsv"), encoding="utf-8") as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    kind, formats, pattern, reason = line.rstrip("\n").split("\t")
                    self.rows.append((kind, formats.split(","), re.compile(pattern), reason))

    def reason(self, format_name, difference):
        for kind, formats, pattern, reason in self.rows:
            if kind == difference.kind and ("*" in formats or format_name in formats) and pattern.search(difference.detail):
                return reason
        return None


# One part of the work, in a process of its own.


@dataclasses.dataclass
class Task:
    peer: str
    modules: str
    seed: str
    format: str
    numbers: range


@dataclasses.dataclass
class Part:
    stats: collections.Counter
    reasons: collections.Counter  # (kind, reason) -> count
    new: list  # (number, Difference)
    absent: str = ""  # what is not installed


def work(task):
    peer, others, written = Peer(task.peer), Others(task.modules), Written()
    part = Part(collections.Counter(), collections.Counter(), [])
    try:
        for index in task.numbers:
            part.stats["inputs"] += 1
            if task.format in generate.ORDERS:
                pair = generate.pair(task.seed, task.format, index)
                differences = order_differences(peer, others, task.format, pair, part.stats)
            else:
                differences = audited(peer, others, generate.case(task.seed, task.format, index), part.stats)
            for difference in differences:
                reason = written.reason(task.format, difference)
                if reason is None:
                    part.new.append((index, difference))
                else:
                    part.reasons[difference.kind, reason] += 1
    except Missing as error:
        part.absent = str(error)
    finally:
        peer.close()
        others.close()
    return task.format, part


# Keeping and replaying.


def keep(folder, case, difference):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, case.name), "wb") as file:
        file.write(case.content)
    for i, record in enumerate(case.records):
        with open(os.path.join(folder, f"record-{i}.json"), "wb") as file:
            file.write(record)
    about = {"format": case.format, "name": case.name, "records": len(case.records), "distribution": case.distribution,
             "max_bytes": case.max_bytes, "difference": dataclasses.asdict(difference)}
    with open(os.path.join(folder, "case.json"), "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)


def kept(folder):
    with open(os.path.join(folder, "case.json"), encoding="utf-8") as file:
        about = json.load(file)

    def content(name):
        with open(os.path.join(folder, name), "rb") as file:
            return file.read()

    return generate.Case(about["format"], about["name"], content(about["name"]),
                         [content(f"record-{i}.json") for i in range(about["records"])], about["distribution"], about["max_bytes"])


def smaller(case, still):
    """The case without records, lines and list items that the difference does not need."""
    def tries(case):
        for i in range(len(case.records)):
            yield dataclasses.replace(case, records=case.records[:i] + case.records[i + 1:])
        try:
            value = json.loads(case.content)
        except ValueError:
            lines = case.content.split(b"\n")
            for size in (len(lines) // 2, len(lines) // 4, 2, 1):
                for at in range(0, len(lines), size) if size else []:
                    yield dataclasses.replace(case, content=b"\n".join(lines[:at] + lines[at + size:]))
            return
        for without in json_without(value):
            yield dataclasses.replace(case, content=json.dumps(without).encode())

    def json_without(value):
        items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
        for name, inner in items:
            left = [item for item in items if item[0] != name]
            yield dict(left) if isinstance(value, dict) else [item for _, item in left]
            for less in json_without(inner):
                replaced = [(other, less if other == name else item) for other, item in items]
                yield dict(replaced) if isinstance(value, dict) else [item for _, item in replaced]

    left = 400
    while True:
        for candidate in tries(case):
            left -= 1
            if left < 0:
                return case
            if still(candidate):
                case = candidate
                break
        else:
            return case


def keep_all(options, format_name, new):
    """Keeps some inputs of each kind of difference, made smaller."""
    peer, others, written = Peer(options.peer), Others(options.modules), Written()
    counts = collections.Counter()
    for index, difference in new:
        counts[difference.kind] += 1
        if counts[difference.kind] > KEPT_OF_A_KIND:
            continue

        def still(candidate, kind=difference.kind):
            try:
                differences = audited(peer, others, candidate, collections.Counter())
            except (KeyError, TypeError, AttributeError, ValueError):
                return False  # no input of the format any more, for a reader of a few lines
            return any(one.kind == kind and written.reason(candidate.format, one) is None for one in differences)

        case = smaller(generate.case(options.seed, format_name, index), still)
        place = os.path.join(options.keep, f"{format_name}-{difference.kind}-{options.seed}-{index}")
        keep(place, case, difference)
        print(f"audit-truth: kept: {place}", file=sys.stderr)
    peer.close()
    others.close()


def replay(folder, peer_path, modules):
    """Prints what each says of an input that was kept. Whether there is a new difference."""
    case, peer, others, written = kept(folder), Peer(peer_path), Others(modules), Written()
    print("input", repr(case.content), sep="\t")
    print("ours", json.dumps(peer.audit(case)), sep="\t")
    try:
        print("theirs", others.read(case), sep="\t")
    except Refused as error:
        print("theirs", f"refused: {error}", sep="\t")
    differences = audited(peer, others, case, collections.Counter())
    for difference in differences:
        print(difference.kind, difference.detail, written.reason(case.format, difference) or "new", sep="\t")
    peer.close()
    others.close()
    return any(written.reason(case.format, difference) is None for difference in differences)
