"""Compares the orders of versions with the real tools': packaging (in pip), dpkg and, where there is one, npm's semver.

    version_check.py PEER DPKG_PAIRS OTHER_PAIRS
"""

import glob
import json
import random
import subprocess
import sys

from pip._vendor.packaging.version import InvalidVersion, Version

SEED = 20


def ask(peer, order, pairs):
    text = "".join(f"{order}\t{a}\t{b}\n" for a, b in pairs)
    answers = subprocess.run([peer], input=text, capture_output=True, text=True, check=True).stdout.split("\n")
    return answers[: len(pairs)]


def pairs_of(make, count):
    """Half of them of two texts that differ in one place, as most of independent ones differ in the first number."""
    pairs = []
    while len(pairs) < count:
        a = make()
        b = make() if len(pairs) % 2 else "".join(random.choice((c, c, c, c, c, random.choice("019ab.-~+"), "")) for c in a)
        if a and b:
            pairs.append((a, b))
    return pairs


def number():
    return random.choice(["0", "1", "2", "9", "10", "01", "11", "100", "20190101"])


def pep440():
    text = random.choice(["", "", "", "v", "1!", "0!"]) + ".".join(number() for _ in range(random.randint(1, 4)))
    separator = lambda: random.choice(["", "", ".", "-", "_"])  # noqa: E731
    if random.random() < 0.4:
        word = random.choice(["a", "b", "c", "rc", "alpha", "beta", "pre", "preview", "RC"])
        text += separator() + word + separator() + random.choice(["", number()])
    if random.random() < 0.3:
        text += random.choice(["-" + number(), separator() + random.choice(["post", "rev", "r"]) + separator() + random.choice(["", number()])])
    if random.random() < 0.3:
        text += separator() + "dev" + separator() + random.choice(["", number()])
    if random.random() < 0.2:
        text += "+" + random.choice(["abc", "1", "abc.1", "1.abc", "ubuntu-2", "10"])
    return text


def of_packaging(pair):
    try:
        a, b = Version(pair[0]), Version(pair[1])
    except InvalidVersion:
        return "none"
    return "<" if a < b else ">" if a > b else "="


def debian():
    part = lambda: "".join(random.choice(["0", "1", "9", "10", ".", "~", "+", "a", "z", "dfsg", "rc"]) for _ in range(random.randint(1, 6)))  # noqa: E731
    text = random.choice(["", "", "0:", "1:"]) + random.choice("0129") + part()
    return text + random.choice(["", "-" + part(), "-1", "-1+b1", "-1~deb12u1", "-1-1"])


def of_dpkg(pair):
    if subprocess.run(["dpkg", "--validate-version", pair[0]], capture_output=True).returncode or \
            subprocess.run(["dpkg", "--validate-version", pair[1]], capture_output=True).returncode:
        return "none"
    for sign, word in (("<", "lt"), ("=", "eq")):
        if subprocess.run(["dpkg", "--compare-versions", pair[0], word, pair[1]]).returncode == 0:
            return sign
    return ">"


def semver():
    text = ".".join(random.choice(["0", "1", "2", "10", "01"][: 4 + (random.random() < 0.05)]) for _ in range(3))
    if random.random() < 0.6:
        text += "-" + ".".join(random.choice(["0", "1", "10", "alpha", "beta", "a-b", "-", "1a", "rc1", "20190101000000-abcdef"]) for _ in range(random.randint(1, 3)))
    if random.random() < 0.2:
        text += "+" + random.choice(["abc", "001", "a.b"])
    return text


NODE = """
const semver = require(process.argv[1]);
const pairs = JSON.parse(require('fs').readFileSync(0));
console.log(JSON.stringify(pairs.map(([a, b]) => {
  // npm takes blanks and "=" in front, which no registry has.
  if (!semver.valid(a) || !semver.valid(b)) return 'none';
  return { '-1': '<', 0: '=', 1: '>' }[semver.compare(a, b)];
})));
"""


def of_npm(pairs):
    found = glob.glob("/usr/lib/node_modules/npm/node_modules/semver") + glob.glob("/usr/share/nodejs/semver")
    if not found:
        return None
    run = subprocess.run(["node", "-e", NODE, found[0]], input=json.dumps(pairs), capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def compare(name, pairs, ours, theirs, strict=True):
    """Returns the number of pairs on which both say the same; all must. Unless strict, what only we take is left out."""
    wrong = [(p, a, b) for p, a, b in zip(pairs, ours, theirs, strict=True) if a != b and (strict or b != "none")]
    for pair, a, b in wrong[:20]:
        print(f"{name}: {pair[0]!r} {pair[1]!r}: ours {a}, theirs {b}", file=sys.stderr)
    counts = {sign: theirs.count(sign) for sign in ("<", "=", ">", "none")}
    print(f"{name}: {len(pairs)} pairs, {counts}, {len(wrong)} differ")
    if wrong or min(counts.values()) < len(pairs) // 1000:
        sys.exit(f"{name}: they differ, or a case hardly comes up")


def main():
    peer, dpkg_pairs, others = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    random.seed(SEED)
    pairs = pairs_of(pep440, others)
    compare("packaging", pairs, ask(peer, "pep440", pairs), [of_packaging(pair) for pair in pairs])
    pairs = pairs_of(debian, dpkg_pairs)
    compare("dpkg", pairs, ask(peer, "debian", pairs), [of_dpkg(pair) for pair in pairs])
    pairs = pairs_of(semver, others)
    theirs = of_npm(pairs)
    if theirs is None:
        print("npm: none here")
    else:
        # "1.2" is a version for us alone.
        compare("npm", pairs, ask(peer, "semver", pairs), theirs, strict=False)


if __name__ == "__main__":
    main()
