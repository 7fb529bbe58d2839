"""What OSV records say about a version, by the evaluation in the schema's text (ossf.github.io/osv-schema) and other people's
orders of versions: packaging's, npm's semver, dpkg's own Dpkg::Version.
"""

import functools
import json
import re
import subprocess

from packaging.version import InvalidVersion
from packaging.version import Version as PypiVersion
from readers import Refused, key

PERL = r"""
use Dpkg::Version; $| = 1;
while (<STDIN>) {
  chomp; my ($x, $y) = map { Dpkg::Version->new($_, check => 1) } split /\t/, $_, -1;
  my $found = $x && $y && $x->is_valid && $y->is_valid ? eval { $x <=> $y } : undef;
  print $found // "none", "\n";
}
"""

# Ecosystems whose versions are those of SemVer.
SEMVER = ("npm", "crates.io", "Go", "GitHub Actions")
# All that are read, by their names in small letters: ours takes a record's ecosystem in any case, as some write "pypi".
KNOWN = {name.lower(): name for name in ("PyPI", *SEMVER, "Debian", "Ubuntu")}

# RFC 3339. Nothing else withdraws a record.
TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")

# Verdicts, from the weakest. MAYBE: the record can be read as either.
CLEAN, MAYBE, UNSURE, VULNERABLE = range(4)
NAMES = ("clean", "either", "nobody can tell", "vulnerable")


class Orders:
    """Compares two versions of an ecosystem: below, at or above zero, or None if one is no version."""

    def __init__(self, npm):
        self.npm = npm
        self.dpkg = None
        self.compare = functools.lru_cache(maxsize=500000)(self._compare)

    def _compare(self, ecosystem, text, bound):
        if ecosystem == "PyPI":
            try:
                a, b = PypiVersion(text), PypiVersion(bound)
            except InvalidVersion:
                return None
            # PEP 440: a bound without a local label takes a version whatever its label is.
            if b.local is None and a.local is not None:
                a = PypiVersion(a.public)
            return (a > b) - (a < b)
        if ecosystem in SEMVER:
            # Ours also takes versions of one or two numbers.
            text, bound = (one + ".0" * (2 - one.count(".")) if re.fullmatch(r"v?\d+(\.\d+)?", one) else one for one in (text, bound))
            return {"<": -1, "=": 0, ">": 1}.get(self.npm.ask({"pair": [text, bound]}))
        if any(c in text + bound for c in "\t\n") or not text or not bound:
            return None
        if self.dpkg is None:
            self.dpkg = subprocess.Popen(["perl", "-e", PERL], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL)
        self.dpkg.stdin.write(f"{text}\t{bound}\n")
        self.dpkg.stdin.flush()
        said = self.dpkg.stdout.readline().strip()
        return None if said == "none" else int(said)


def in_range(orders, ecosystem, text, events):
    limits, others = [], []
    for event in events:
        if not isinstance(event, dict) or len(event) != 1:
            raise Refused("an event")
        (kind, bound), = event.items()
        if kind not in ("introduced", "fixed", "last_affected", "limit") or not isinstance(bound, str) or not bound:
            raise Refused("an event")
        (limits if kind == "limit" else others).append((kind, bound))
    if all(kind != "introduced" for kind, _ in others):
        raise Refused("nothing is introduced")

    def compare(a, b):
        found = orders.compare(ecosystem, a, b)
        if found is None:
            raise LookupError
        return found

    def order_of(a, b):
        """Of events by version; "0" is introduced before every one."""
        first, second = (event == ("introduced", "0") for event in (a, b))
        # Between two bounds a local label counts.
        return second - first if first or second else compare(a[1], b[1]) or -compare(b[1], a[1])

    def evaluated(text, ranks):
        vulnerable = False
        for kind, bound in sorted(others, key=functools.cmp_to_key(lambda a, b: order_of(a, b) or ranks[a[0]] - ranks[b[0]])):
            if kind == "introduced" and (bound == "0" or compare(text, bound) >= 0):
                vulnerable = True
            elif kind == "fixed" and compare(text, bound) >= 0:
                vulnerable = False
            elif kind == "last_affected" and compare(text, bound) > 0:
                vulnerable = False
        return vulnerable

    # The schema leaves open how events of one version are sorted.
    fixed_first, introduced_first = {"fixed": 0, "introduced": 1, "last_affected": 2}, {"introduced": 0, "fixed": 1, "last_affected": 2}
    try:
        # All bounds must be versions, or the record says more than can be read.
        for kind, bound in others + [limit for limit in limits if limit[1] != "*"]:
            if bound != "0" or kind != "introduced":
                compare(bound, bound)
        compare(text, text)
        if limits and not any(bound == "*" or compare(text, bound) < 0 for _, bound in limits):
            return CLEAN
        vulnerable = evaluated(text, fixed_first)
        if vulnerable != evaluated(text, introduced_first):
            return UNSURE
        # A range with such events may be unclear as a whole.
        open_to_order = any(evaluated(bound, fixed_first) != evaluated(bound, introduced_first) for _, bound in others)
        return (UNSURE if open_to_order else VULNERABLE) if vulnerable else (MAYBE if open_to_order else CLEAN)
    except LookupError:
        return UNSURE


def left_out(verdict):
    """What to expect of a record that could not be read: its packages are unclear."""
    return {VULNERABLE: UNSURE, CLEAN: MAYBE}.get(verdict, verdict)


def of_affected(orders, ecosystem, text, affected):
    verdict = CLEAN
    told = False
    for item in affected.get("ranges") or []:
        if item["type"] == "GIT":
            continue
        if item["type"] not in ("SEMVER", "ECOSYSTEM"):
            raise Refused("a type of range")
        told = True
        if item["type"] == "SEMVER" and ecosystem not in SEMVER:
            verdict = max(verdict, UNSURE)
            continue
        verdict = max(verdict, in_range(orders, ecosystem, text or "", item["events"]))
    for listed in affected.get("versions") or []:
        if not isinstance(listed, str) or not listed:
            raise Refused("a version")
        told = True
        if listed == text:
            verdict = VULNERABLE
        elif text is None or (found := orders.compare(ecosystem, text, listed)) is None:
            verdict = max(verdict, MAYBE)
        elif found == 0:
            # Another text for the same version. PyPI takes them for one; of others their records list both.
            verdict = max(verdict, VULNERABLE if ecosystem == "PyPI" else MAYBE)
    if not told:
        return UNSURE
    return UNSURE if text is None else verdict


def spelled(ecosystem):
    """An ecosystem as the schema spells it."""
    family, colon, release = ecosystem.partition(":")
    return KNOWN.get(family.lower(), family) + colon + release


def parse(records):
    """The records that Python and the schema take, and for each whether they do."""
    read = []
    for content in records:
        try:
            value = json.loads(content.decode("utf-8-sig"))
            if not isinstance(value, dict) or not value.get("id") or not value.get("modified"):
                raise Refused("no id")
            for affected in value.get("affected") or []:
                package = affected.get("package")
                if package is not None and package["ecosystem"].partition(":")[0].lower() in KNOWN and not isinstance(package["name"], str):
                    raise Refused("a package")
                # Without a package they are about commits.
                for item in (package and affected.get("ranges")) or []:
                    if item["type"] != "GIT":
                        item["events"][0].items()
            for name in ("aliases", "affected"):
                if not isinstance(value.get(name) or [], list):
                    raise Refused(name)
            read.append(value)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, Refused):
            read.append(None)
    return read


def judge(orders, records, odd, ecosystem, name, version):
    """The verdict of every record that is about the package: id -> verdict. Records are those of `parse`; of those with an id in
    `odd` ours has left one out."""
    copies = {}
    for value in records:
        if value is not None:
            copies.setdefault(value["id"], []).append(value)
    found = {}
    for record_id, values in copies.items():
        values.sort(key=lambda value: value["modified"])
        newest = values[-1]
        verdicts = [of_record(orders, value, ecosystem, name, version) for value in values]
        if TIME.fullmatch(str(newest.get("withdrawn"))) or all(verdict is None for verdict in verdicts):
            continue
        found[record_id] = max(verdicts[-1] or CLEAN, MAYBE if max(verdict or CLEAN for verdict in verdicts) > CLEAN else CLEAN)
        if record_id in odd:
            found[record_id] = left_out(found[record_id])
    return found


def of_record(orders, record, ecosystem, name, version):
    """The verdict of one record, or None if it is about other packages."""
    found = None
    for affected in record.get("affected") or []:
        package = affected.get("package")
        if not package:
            continue
        # The versions of Ubuntu Pro are those of the release, with later fixes.
        named = spelled(package["ecosystem"])
        of_release = named.replace("Ubuntu:Pro:", "Ubuntu:")
        if key(of_release, package["name"]) != key(ecosystem, name):
            continue
        try:
            verdict = of_affected(orders, ecosystem, version, affected)
        except (Refused, KeyError, TypeError, AttributeError):
            verdict = UNSURE
        if of_release != named and verdict == VULNERABLE:
            verdict = MAYBE
        found = max(found or CLEAN, verdict)
    return found
