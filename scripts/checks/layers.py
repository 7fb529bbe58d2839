"""Checks which folder includes which, against the table in src/layers.bzl.

What is checked, each by the function of that name:
  table         no arrow of the table points up, so that no folder can be in a circle
  folders       every target's dependencies are in its folder's row, and every row is used
  includes      a file includes headers of direct dependencies alone, and public ones;
                its own folder's private ones too
  headers       a header that other folders can include is one that they do include, or that such a header includes
  system        what only one folder of src includes: mpi.h
  programs      libraries do not print, parse flags or initialise the process
  packages      every package of the source tree is in the table
  documentation docs/architecture.md has the same table

Each returns a list of sentences, one for each mistake. What Bazel knows about targets comes as the XML of
`bazel query --output=xml`.
"""

import dataclasses
import json
import os
import re
import sys
import xml.etree.ElementTree


@dataclasses.dataclass
class Target:
    label: str
    kind: str  # cc_library, cc_test, genrule, ...
    inputs: list = dataclasses.field(default_factory=list)  # labels of all that it depends on
    sources: list = dataclasses.field(default_factory=list)  # paths
    headers: list = dataclasses.field(default_factory=list)  # public ones, paths
    deps: list = dataclasses.field(default_factory=list)  # labels of libraries
    visibility: list = dataclasses.field(default_factory=list)
    testonly: bool = False

    @property
    def package(self):
        return package_of(self.label)

    @property
    def files(self):
        return self.sources + self.headers


def package_of(label):
    """"//src/base/testing:x" is in src/base/testing."""
    return label[2:].split(":")[0]


def path_of(label):
    return label[2:].replace(":", "/").lstrip("/")


def folder_of(package):
    """The folder of a package of src, in the table's words: None for what is not in src."""
    return package[len("src/"):] if package.startswith("src/") else None


def is_testing(folder):
    return folder.endswith("/testing")


def row_of(folder, layers):
    """The row that a folder belongs to: its own, or that of the folder that it lies in. None if there is no row."""
    while folder and folder not in layers:
        folder = folder.rpartition("/")[0]
    return folder or None


def package_defaults(build):
    """default_testonly and default_visibility of the package with this BUILD file, which the XML does not have."""
    package = re.search(r"^package\((.*?)\)$", build, re.MULTILINE | re.DOTALL)
    package = package.group(1) if package else ""
    visibility = re.search(r"default_visibility = \[(.*?)\]", package, re.DOTALL)
    return "default_testonly = True" in package, re.findall(r'"([^"]+)"', visibility.group(1)) if visibility else []


def read_targets(text, defaults_of):
    targets, defaults = [], {}
    for rule in xml.etree.ElementTree.fromstring(text).iter("rule"):
        lists = {e.get("name"): [label.get("value") for label in e] for e in rule.iter("list")}
        target = Target(label=rule.get("name"), kind=rule.get("class"))
        target.inputs = [e.get("name") for e in rule.iter("rule-input")]
        target.sources = [path_of(label) for label in lists.get("srcs", [])]
        target.headers = [path_of(label) for label in lists.get("hdrs", [])]
        target.deps = lists.get("deps", [])
        if target.package not in defaults:
            defaults[target.package] = defaults_of(target.package)
        testonly, visibility = defaults[target.package]
        target.visibility = lists.get("visibility", visibility)
        target.testonly = testonly or target.kind.endswith("_test") or any(
            e.get("name") == "testonly" and e.get("value") == "true" for e in rule.iter("boolean"))
        # The filegroups that folder() adds are left out, as they name every rule of the package.
        if target.kind != "filegroup" or not target.label.endswith((":rules", ":sources")):
            targets.append(target)
    return targets


def table(layers):
    wrong, below = [], []
    for folder, row in layers.items():
        for other in row:
            if other not in below:
                wrong.append(f"src/layers.bzl: {folder} may include {other}, which does not stand above it")
        below.append(folder)
    return wrong


def apart(layers, groups):
    return [
        f"src/layers.bzl: {a} may include {b}, from which it is kept apart" for group in groups
        for a in group for b in group if b in layers.get(a, [])
    ]


def folders(targets, layers, groups, tests):
    order = list(layers)
    wrong, used = [], set()
    for target in targets:
        folder = folder_of(target.package)
        if folder is None:
            continue
        base = row_of(folder, layers)
        if base is None:
            wrong.append(f"{target.label}: src/layers.bzl has no folder {folder}")
            continue
        if base in tests and not target.testonly and target.kind.startswith("cc_"):
            wrong.append(f"{target.label}: {base} is for tests alone, so its targets are testonly")
        for label in target.inputs:
            package = package_of(label)
            if package == "experiments" or package.startswith("experiments/"):
                wrong.append(f"{target.label}: nobody includes experiments ({label})")
            other = folder_of(package)
            if other is None or other == folder:
                continue
            other_base = row_of(other, layers)
            if other_base is None:
                wrong.append(f"{target.label}: src/layers.bzl has no folder {other}")
                continue
            if any(base in group and other_base in group and base != other_base for group in groups):
                wrong.append(f"{target.label} depends on {label}: {base} and {other_base} are kept apart")
            if target.testonly and base not in tests or is_testing(folder):
                # A folder's tests and `testing` folder may use the folders below and their own
                # folder.
                if order.index(other_base) > order.index(base):
                    wrong.append(f"{target.label} depends on {label}: {other_base} is above {base}")
            elif is_testing(other):
                if base not in tests:
                    wrong.append(f"{target.label} depends on {label}, which is for tests")
            elif base == other_base:
                continue
            elif other_base not in layers[base]:
                wrong.append(f"{target.label} depends on {label}: src/layers.bzl does not let {base} include {other}")
            else:
                used.add((base, other_base))
    for folder, row in layers.items():
        for other in row:
            if (folder, other) not in used:
                wrong.append(f"src/layers.bzl: {folder} may include {other} and does not")
    return wrong


INCLUDE = re.compile(r'^\s*#\s*include "((?:src|experiments)/[^"]+)"', re.MULTILINE)


def includes(targets, read):
    owners = {}
    private = {}
    for target in targets:
        if target.kind == "cc_library":
            owners.update((header, target) for header in target.headers)
            private.update((source, target) for source in target.sources if source.endswith(".h"))
    wrong = []
    for target in targets:
        if not target.kind.startswith("cc_"):
            continue
        used = set()
        for path in target.files:
            for header in INCLUDE.findall(read(path)):
                owner = owners.get(header)
                if owner is None and header in private and private[header].package == target.package:
                    owner = private[header]
                if header in target.files:
                    continue
                if owner is None and header in private:
                    wrong.append(f"{path} includes {header}, which is private to {private[header].label}")
                elif owner is None:
                    wrong.append(f"{path} includes {header}, which no library exports")
                elif owner.label not in target.deps:
                    wrong.append(f"{path} includes {header}: {target.label} does not depend on {owner.label}")
                else:
                    used.add(owner.label)
        for other in targets:
            if (other.label in target.deps and other.headers and other.label not in used
                    and not other.headers[0].endswith(".pb.h")):
                wrong.append(f"{target.label} depends on {other.label} and includes nothing of it")
    return wrong


def seen_outside(target):
    own = (f"//{target.package}:__pkg__", "//visibility:private")
    return any(label not in own for label in target.visibility)


def headers(targets, read):
    public = {header: target for target in targets if target.kind == "cc_library" for header in target.headers}
    needed = set()
    for target in targets:
        for path in target.files if target.kind.startswith("cc_") else []:
            needed.update(h for h in INCLUDE.findall(read(path))
                          if h in public and public[h].package != target.package)
    todo = list(needed)
    while todo:
        for header in INCLUDE.findall(read(todo.pop())):
            if header in public and header not in needed:
                needed.add(header)
                todo.append(header)
    return [
        f"{header}: only its own folder includes it, so it belongs in the sources or in a private target, not in {target.label}"
        for header, target in public.items() if header not in needed and seen_outside(target)
    ]


# Headers of the system that one folder alone includes, with it.
SYSTEM_HEADERS = {"mpi.h": "src/machines/mpi"}
SYSTEM_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](?:[^>"]*/)?([^/>"]+)[>"]', re.MULTILINE)


def system(targets, read):
    wrong = []
    for target in targets:
        for path in target.files if target.kind.startswith("cc_") else []:
            for header in SYSTEM_INCLUDE.findall(read(path)):
                folder = SYSTEM_HEADERS.get(header)
                if folder is not None and os.path.dirname(path) != folder:
                    wrong.append(f"{path} includes {header}, which {folder} alone may")
    return wrong


# Words that only programs may use. snprintf is allowed, as it writes to memory.
PROGRAM_WORDS = re.compile(
    r"std::c(?:out|err|in)\b|(?<![a-z_])(?:std::)?(?:f|v|vf|d)?printf\(|(?<![a-z_])(?:f|w)?puts\(|<iostream>|program_options"
    r"|\bsodium_init\(|(?<![a-z_:.>])(?:std::|::)?(?:_?exit|quick_exit|abort|atexit|signal|sigaction|setlocale)\(")
# Files that need such words all the same, with the reason.
ALLOWED_WORDS = {
    "src/base/base.cc": "the message of a broken invariant",
    "src/base/sodium_init.cc": "the one place that initialises libsodium, for every user",
    "src/machines/mpi/mpi_job.cc": "ends the process when nobody else can: after mpirun's death, or with a thread inside MPI",
}


def programs(targets, folders, read):
    wrong = []
    for target in targets:
        folder = folder_of(target.package)
        if target.kind != "cc_library" or target.testonly or folder is None or folder in folders:
            continue
        for path in target.files:
            if path in ALLOWED_WORDS or path.endswith((".pb.cc", ".pb.h")):
                continue
            for number, line in enumerate(read(path).splitlines(), 1):
                found = PROGRAM_WORDS.search(line.split("//")[0])
                if found:
                    wrong.append(f"{path}:{number}: {found.group()}: libraries do not print, parse flags or "
                                 "initialise the process")
    return wrong


def packages(root, known):
    wrong = []
    for path, _, files in os.walk(os.path.join(root, "src")):
        folder = os.path.relpath(path, os.path.join(root, "src"))
        if "BUILD" not in files or folder == ".":
            continue
        if folder not in known:
            wrong.append(f"src/{folder}: a package that src/layers.bzl does not name")
        with open(os.path.join(path, "BUILD")) as build:
            if not re.search(r"^folder\(\)$", build.read(), re.MULTILINE):
                wrong.append(f"src/{folder}/BUILD: does not end with folder() of src/folder.bzl")
    return wrong


def documentation(text, layers):
    """Rows of the form `| src/base | what it holds | what it may include besides base |`."""
    rows = re.findall(r"^\| src/(\S+) \|(?:[^|]*)\|([^|]*)\|$", text, re.MULTILINE)
    documented = {folder: re.findall(r"[a-z/]+", listed) for folder, listed in rows}
    wrong = []
    for folder, row in layers.items():
        want = sorted(set(row) - {"base"})
        if folder not in documented:
            wrong.append(f"docs/architecture.md: the table of folders has no src/{folder}")
        elif sorted(documented[folder]) != want:
            wrong.append(f"docs/architecture.md: src/{folder} may include {', '.join(want) or 'nothing'}, "
                         f"the table says {', '.join(documented[folder]) or 'nothing'}")
    wrong += [f"docs/architecture.md: there is no src/{folder}" for folder in documented if folder not in layers]
    return wrong


def main():
    root = os.path.dirname(os.path.dirname(os.path.realpath("src/layers.bzl")))

    def defaults_of(package):
        with open(os.path.join(root, package, "BUILD")) as build:
            return package_defaults(build.read())

    with open("scripts/checks/layers.json") as file:
        known = json.load(file)
    with open("scripts/checks/targets") as file:
        targets = read_targets(file.read(), defaults_of)
    texts = {}

    def read(path):
        if path not in texts:
            # Generated files have no includes that matter here.
            texts[path] = open(path).read() if os.path.exists(path) else ""
        return texts[path]

    layers = dict(known["layers"])
    wrong = table(layers) + apart(layers, known["apart"])
    wrong += folders(targets, layers, known["apart"], known["tests"])
    wrong += includes(targets, read)
    wrong += headers(targets, read)
    wrong += system(targets, read)
    wrong += programs(targets, known["programs"], read)
    wrong += packages(root, known["packages"])
    wrong += documentation(read("docs/architecture.md"), layers)
    print("\n".join(wrong) or f"{len(targets)} targets of {len(layers)} folders")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
