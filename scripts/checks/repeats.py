#!/usr/bin/env python3
"""No two folders share more than 40 equal lines, outside of a list of exceptions that only shrinks.

Lines count if they stand in a run of at least three that is in both folders. Compared are lines of code without white space around,
comments and texts of licences; left out are blank lines, lone brackets, includes, imports and `using`. What is alike but for names is
not found.

  scripts/checks/repeats.py             what is wrong, a line each; exit code 1 if anything is
  scripts/checks/repeats.py --pairs     all pairs of folders that share lines, the most first
  scripts/checks/repeats.py A B         the runs that two folders share
"""

import collections
import os
import re
import sys

MOST, RUN = 40, 3
LIST = "scripts/checks/repeats.txt"
# What begins a comment, by the ending of a file's name.
COMMENTS = {".cc": "//", ".h": "//", ".ts": "//", ".mjs": "//", ".rs": "//", ".py": "#", ".sh": "#"}
# Not ours, or made from other files.
_SKIPPED = {"third_party", "node_modules", "dist", "gen", "target", "testdata", "results", "packages", "study-results", "__pycache__"}
_IMPORT = re.compile(r"(?:#include|#pragma|#if|#endif|#define \w+_H_$|using|import|from|use|set -|load\()\b|\}?\s*// namespace|namespace\b")


def lines_of(text, comment):
    """(number, line) of the lines that count."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        line = " ".join(line.split())
        if line.startswith(comment) or line.startswith("#!"):
            continue
        line = line.split(" " + comment + " ")[0].rstrip()
        if re.search(r"\w\w", line) and not _IMPORT.match(line):
            found.append((number, line))
    return found


def sources(root):
    """{folder: {path: lines}} of the tree below `root`."""
    tree = collections.defaultdict(dict)
    for directory, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith((".", "bazel-")))
        for name in sorted(files):
            comment = COMMENTS.get(os.path.splitext(name)[1])
            path = os.path.join(directory, name)
            if comment is not None and not os.path.islink(path):
                with open(path, encoding="utf-8") as file:
                    tree[os.path.relpath(directory, root)][os.path.relpath(path, root)] = lines_of(file.read(), comment)
    return tree


def shared(tree):
    """{(folder, folder): {(path, line number)}}: the places in the first folder that stand in the second, too."""
    places = collections.defaultdict(list)
    for folder, files in tree.items():
        for path, lines in files.items():
            for at in range(len(lines) - RUN + 1):
                run = tuple(line for _, line in lines[at:at + RUN])
                places[run].append((folder, path, [number for number, _ in lines[at:at + RUN]]))
    found = collections.defaultdict(set)
    for where in places.values():
        folders = {folder for folder, _, _ in where}
        if len(folders) < 2:
            continue
        for folder, path, numbers in where:
            for other in folders - {folder}:
                found[folder, other].update((path, number) for number in numbers)
    return found


def counts(found):
    """{(folder, folder): lines}, the names in order: as many as one of the two could do without."""
    return {pair: min(len(places), len(found[pair[1], pair[0]])) for pair, places in found.items() if pair[0] < pair[1]}


def read_list(text):
    """{(folder, folder): how many lines they may share}. A line is "LINES FOLDER FOLDER: why they are equal"."""
    exceptions = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            entry = re.fullmatch(r"(\d+) (\S+) ([^\s:]+): \S.*", line)
            if entry is None:
                raise ValueError(f"{LIST}: not LINES FOLDER FOLDER: REASON: {line}")
            exceptions[entry[2], entry[3]] = int(entry[1])
    return exceptions


def problems(pairs, exceptions):
    """What is wrong with these counts by this list."""
    wrong = []
    for (one, other), lines in sorted(pairs.items()):
        most = exceptions.get((one, other), MOST)
        if lines > most:
            wrong.append(f"{one} and {other} share {lines} lines, {most} at the most: give them one place "
                         f"(scripts/checks/repeats.py {one} {other} shows them)")
    for pair in sorted(exceptions):
        if pairs.get(pair, 0) <= MOST:
            wrong.append(f"{LIST}: {pair[0]} and {pair[1]} share {pairs.get(pair, 0)} lines now: take them off the list")
    return wrong


def show(found, one, other):
    for folder, against in ((one, other), (other, one)):
        runs = []
        for path, number in sorted(found[folder, against]):
            if runs and runs[-1][0] == path and number <= runs[-1][2] + 4:
                runs[-1][2] = number
            else:
                runs.append([path, number, number])
        for path, first, last in runs:
            print(f"{path}:{first}-{last}")


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    found = shared(sources(root))
    pairs = counts(found)
    arguments = sys.argv[1:]
    if arguments == ["--pairs"]:
        for (one, other), lines in sorted(pairs.items(), key=lambda pair: -pair[1]):
            print(lines, one, other)
        return 0
    if len(arguments) == 2:
        show(found, *(folder.rstrip("/") for folder in arguments))
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    with open(os.path.join(root, LIST), encoding="utf-8") as file:
        wrong = problems(pairs, read_list(file.read()))
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
