"""Compares `shoal audit` with another tool on real advisories and hundreds of versions.

    scripts/audit-truth safety [--versions N] [--engine NAME] [--keep DIR]
    scripts/audit-truth safety --osv DIR      only writes the OSV records, into DIR

Fetches safety-db (PyPI's package of advisories, of July 2021) and safety 1.10.3, which matches versions with
packaging's specifiers and works off line. Converts the advisories to OSV records, builds and signs a table of them,
and starts two parties on loopback. Then asks for N versions (default 600) privately, through the chain or through an
engine of party 1, and compares every package's verdict and every advisory with what safety says about the same list.

The versions are those that the advisories name, drawn with a fixed seed: at the borders of ranges an order that is
wrong shows. Left out are pre-releases, as safety never finds anything for one; packages of which an advisory names
something that is no version; and names with dots, which safety takes for other packages than PyPI does (safety-db has
web.py and web-py). The Python packages of .deps/venv, if there are any, are asked for as well.

Exit code 0: both say the same.
"""

import argparse
import collections
import contextlib
import glob
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SAFETY = ["safety==1.10.3", "safety-db==2021.7.17", "packaging==21.3", "setuptools==70.3.0"]
SHOAL = os.path.join(ROOT, "bazel-bin/src/shoal/shoal")
SHOALD = os.path.join(ROOT, "bazel-bin/src/shoald/shoald")
REASONS = {"odd": "an advisory names what is no version", "several": "safety-db has two names for it"}
SEED = 22


def fail(text):
    sys.exit(f"audit-truth: {text}")


def run(command, codes=(0,), **options):
    """The finished process; ends the program if its code is not one of `codes`."""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **options)
    if done.returncode not in codes:
        fail(f"{' '.join(command[:4])} .. ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done


def install():
    """The Python of a virtual environment with safety, in .deps."""
    place = os.path.join(ROOT, ".deps/safety")
    python = os.path.join(place, "bin/python")
    wanted = "\n".join(SAFETY)
    mark = os.path.join(place, "requirements")
    if not os.path.exists(mark) or open(mark, encoding="utf-8").read() != wanted:
        print("fetching " + ", ".join(SAFETY), file=sys.stderr)
        shutil.rmtree(place, ignore_errors=True)
        run([sys.executable, "-m", "venv", place])
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *SAFETY])
        with open(mark, "w", encoding="utf-8") as file:
            file.write(wanted)
    return python, glob.glob(os.path.join(place, "lib/python*/site-packages/safety_db"))[0]


CONVERT = r'''
import json, re, sys
from packaging.version import InvalidVersion, Version

database, out = sys.argv[1:]
advisories = json.load(open(database + "/insecure_full.json", encoding="utf-8"))
named, odd, empty, records = {}, set(), [], 0


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def events(spec, package):
    """OSV's events for one set of specifiers; none if no version fits."""
    low, high = None, None  # a version, and whether it is affected
    for clause in spec.split(","):
        sign, text = re.fullmatch(r"\s*(<=|>=|==|<|>)\s*(.+?)\s*", clause).groups()
        try:
            version = Version(text)
        except InvalidVersion:
            odd.add(package)
            return [{"introduced": "0"}, {"fixed": text}]
        named.setdefault(package, set()).add(text)
        if sign in (">=", ">", "==") and (low is None or (version, sign == ">") > (low[0], not low[2])):
            # ">1.0" does not take 1.0.post1 either.
            low = (version, text if sign != ">" else text + ".post2147483647", sign != ">")
        if sign in ("<=", "<", "==") and (high is None or (version, sign != "<") < (high[0], high[2])):
            # "<2.0" takes no pre-release of 2.0, unless it names one.
            high = (version, text if sign != "<" or version.is_prerelease else text + ".dev0", sign != "<")
    # Also ">=2.4.0rc0,<2.4.0": the first is a pre-release of the second, which "<" leaves out.
    if low and high:
        first, last = Version(low[1]), Version(high[1])
        if first > last or (first == last and not (low[2] and high[2])):
            return []
    start = [{"introduced": low[1] if low else "0"}]
    return start + ([{"last_affected" if high[2] else "fixed": high[1]}] if high else [])


for package, entries in advisories.items():
    if package.startswith("$"):
        continue
    for entry in entries:
        ranges = [found for spec in entry["specs"] if (found := events(spec, package))]
        if not ranges:
            empty.append(entry["id"])
            continue
        record = {
            "id": entry["id"],
            "modified": "2021-07-01T00:00:00Z",
            "aliases": re.findall(r"CVE-\d+-\d+", entry["cve"] or ""),
            "affected": [{
                "package": {"ecosystem": "PyPI", "name": package},
                "ranges": [{"type": "ECOSYSTEM", "events": found} for found in ranges],
            }],
        }
        with open(f"{out}/{normal(package)}-{entry['id']}.json", "w", encoding="utf-8") as file:
            json.dump(record, file)
        records += 1
names = {}
for package in named:
    names.setdefault(normal(package), []).append(package)
versions = [[package, text] for package in sorted(named) for text in sorted(named[package])
            if names[normal(package)] == [package] and package == normal(package) and package not in odd
            and not Version(text).is_prerelease]
several = sorted(name for name in names if len(names[name]) > 1)
json.dump({"versions": versions, "records": records, "empty": empty, "odd": sorted(odd), "several": several}, sys.stdout)
'''


def groups(database, empty):
    """For each package: advisory -> the first of those that share a CVE with it, also through others. Not those in `empty`."""
    with open(os.path.join(database, "insecure_full.json"), encoding="utf-8") as file:
        advisories = json.load(file)
    result = {}
    for package, entries in advisories.items():
        if package.startswith("$"):
            continue
        entries = [entry for entry in entries if entry["id"] not in empty]
        parent = {}

        def find(name, parent=parent):
            while parent.setdefault(name, name) != name:
                name = parent[name]
            return name

        for entry in entries:
            for cve in re.findall(r"CVE-\d+-\d+", entry["cve"] or ""):
                parent[find(cve)] = find(entry["id"])
        members = collections.defaultdict(list)
        for entry in entries:
            members[find(entry["id"])].append(entry["id"])
        result[package] = {name: min(names) for names in members.values() for name in names}
    return result


def truth(python, database, listed, group):
    """What safety says: (package, version) -> advisories."""
    done = run([python, "-m", "safety", "check", "--json", "--db", database, "-r", listed], codes=(0, 255, 64))
    found = collections.defaultdict(set)
    for package, _, version, _, number, *_ in json.loads(done.stdout):
        found[package, version].add(group[package]["pyup.io-" + number])
    return found


def free_port():
    """The first of ten free ports in a row."""
    for port in range(7400, 9000, 10):
        try:
            for offset in range(10):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port + offset))
            return port
        except OSError:
            continue
    return fail("no free ports")


@contextlib.contextmanager
def serving(local, chain, engine):
    """The parties of the chain, or party 1 with an engine, for as long as the caller needs them."""
    if not engine:
        # What the parties print goes to their logs: a pipe here would stay open as long as they run.
        subprocess.run([local, "start", chain], check=True)
        try:
            yield
        finally:
            subprocess.run([local, "stop", chain], check=False)
        return
    log = os.path.join(chain, "party-1.log")
    with open(log, "w", encoding="utf-8") as file:
        server = subprocess.Popen([SHOALD, "--config", os.path.join(chain, "party-1.textproto"), "--engine", engine],
                                  stdout=file, stderr=subprocess.STDOUT)
    try:
        while "listens on" not in open(log, encoding="utf-8").read():
            if server.poll() is not None:
                fail("shoald ended: " + open(log, encoding="utf-8").read())
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait()


def audit(config, listed, engine):
    """What `shoal audit` says: (package, version) -> advisories, and those of which some are not listed."""
    command = [SHOAL, "audit", "--config", config, "--format", "json", listed]
    done = run(command + (["--engine", engine] if engine else []), codes=(0, 1, 4))
    found, cut, unclear = collections.defaultdict(set), set(), set()
    for line in done.stdout.splitlines():
        finding = json.loads(line)
        place = finding["package"], finding["version"]
        if finding["status"] == "unclear":
            unclear.add(place)
        elif finding["status"] != "vulnerable":
            fail(f"not checked: {line}")
        else:
            found[place].update([finding["id"]] if finding["id"] else [])
            if not finding["id"]:
                cut.add(place)
    told = [line for line in done.stderr.splitlines() if "privacy:" in line or "packages audited" in line]
    return found, cut, unclear, told


def compare(listed, theirs, ours, cut, unclear):
    """The number of differences, which are printed."""
    differences = 0
    for place in listed:
        verdicts = bool(theirs.get(place)), place in ours or place in cut
        # Where not all advisories fit into the table, those that are listed must be right.
        right = ours.get(place, set()) <= theirs.get(place, set()) if place in cut else \
            ours.get(place, set()) == theirs.get(place, set())
        if verdicts[0] != verdicts[1] or not right or place in unclear:
            differences += 1
            print(f"differ: {place}: safety {sorted(theirs.get(place, []))}, shoal {sorted(ours.get(place, []))}"
                  f"{' and more' if place in cut else ''}{' unclear' if place in unclear else ''}")
    return differences


def main():
    parser = argparse.ArgumentParser(prog="audit-truth safety", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--versions", type=int, default=600, help="how many (default 600)")
    parser.add_argument("--engine", help="ask this engine of party 1 and not the chain")
    parser.add_argument("--keep", help="work in this directory and leave everything there")
    parser.add_argument("--osv", help="only write the OSV records, into this directory")
    options = parser.parse_args()
    if options.osv:
        python, database = install()
        records = json.loads(run([python, "-c", CONVERT, database, options.osv]).stdout)["records"]
        print(f"{records} OSV records of safety-db in {options.osv}")
        return 0
    if not os.path.exists(SHOAL):
        fail("no programs; run: bazel build --config=opt //src/shoal //src/shoald")
    python, database = install()
    work = options.keep or tempfile.mkdtemp()
    chain = os.path.join(work, "chain")
    try:
        os.makedirs(os.path.join(work, "osv"))
        converted = json.loads(run([python, "-c", CONVERT, database, os.path.join(work, "osv")]).stdout)
        versions = [tuple(pair) for pair in converted["versions"]]
        random.seed(SEED)
        listed = random.sample(versions, min(options.versions, len(versions)))
        for path in glob.glob(os.path.join(ROOT, ".deps/venv/lib/python*/site-packages/*.dist-info")):
            name, version = os.path.basename(path)[: -len(".dist-info")].rsplit("-", 1)
            listed.append((re.sub(r"[-_.]+", "-", name).lower(), version))
        listed = sorted(set(listed))
        path = os.path.join(work, "requirements.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{name}=={version}\n" for name, version in listed)

        rounds = "open_ahead: 1 onions_window_s: 5 queries_window_s: 5"
        # All rows of the table: nobody can ask for more.
        local = os.path.join(ROOT, "scripts/local-chain")
        made = run([local, "create", chain, "--parties", "2", "--port", str(free_port()), "--pad", "1000", "--rounds",
                    rounds, "--", "--osv", os.path.join(work, "osv"), "--row-bytes", "2048"])
        if options.engine:
            run([local, "engine", chain, options.engine])
        with serving(local, chain, options.engine):
            ours, cut, unclear, told = audit(os.path.join(chain, "client.textproto"), path, options.engine)
        theirs = truth(python, database, path, groups(database, converted["empty"]))
    finally:
        if not options.keep:
            shutil.rmtree(work)
    print(f"advisories\t{converted['records']} of safety-db as OSV records; left out: {len(converted['empty'])} that name no version")
    for why in ("odd", "several"):
        print(f"left out\t{', '.join(converted[why])}: {REASONS[why]}")
    for line in (made.stdout + made.stderr).splitlines():
        if re.match(r"(rows|row bytes|fill)\t", line) or "OSV records" in line or "does not hold" in line:
            print(f"table\t{line}")
    for line in told:
        print(f"audit\t{line.removeprefix('shoal audit: ')}")
    differences = compare(listed, theirs, ours, cut, unclear)
    print(f"versions\t{len(listed)} of {len({name for name, _ in listed})} packages")
    print(f"vulnerable\tsafety {sum(bool(theirs.get(place)) for place in listed)}, shoal {len(set(ours) | cut)}")
    print(f"advisories found\tsafety {sum(len(found) for found in theirs.values())}, "
          f"shoal {sum(len(found) for found in ours.values())}"
          f"{f', and more for {len(cut)} versions' if cut else ''}")
    whole = [place for place in listed if place not in cut]
    print(f"compared in full\t{len(whole)} versions, {sum(len(ours.get(place, ())) for place in whole)} advisories; "
          f"of the other {len(cut)} ({', '.join(sorted({name for name, _ in cut})) or 'none'}) the verdict, and that what "
          "is listed is right")
    print(f"differences\t{differences}")
    if not any(theirs.values()) or all(theirs.get(place) for place in listed):
        fail("the list has no affected or no unaffected version: it compares nothing")
    return differences > 0


if __name__ == "__main__":
    sys.exit(main())
