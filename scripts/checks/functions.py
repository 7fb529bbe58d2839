#!/usr/bin/env python3
"""No function of C++ is longer than 100 lines, and those longer than 70 are on a list that only shrinks.

A function counts from the first line of its head to its last brace, with the lambdas in it. No compiler is needed: comments,
texts and directives are blanked, and what stands before a brace says whether it opens a function, a value, or a namespace or
class, which is looked into. Tests, benchmarks and `testing` folders do not count.

  scripts/checks/functions.py            what is wrong, a line each; exit code 1 if anything is
  scripts/checks/functions.py --shrink   takes what is short enough now off the list; adds nothing
"""

import os
import re
import sys

MOST, FITS = 100, 70
FOLDERS = ("src", "experiments")
LIST = "scripts/checks/long_functions.txt"

# Comments, texts (raw ones too), characters and directives. A quote within a number begins no character.
_NO_CODE = re.compile(
    r'//(?:\\\n|[^\n])*|/\*.*?\*/|\bR"(?P<mark>[^()\s\\]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'|^[ \t]*#(?:\\\n|[^\n])*", re.DOTALL | re.MULTILINE)
_LABELS = re.compile(r"(?:\s|(?:public|private|protected)\s*:(?!:))*")
_SCOPE = re.compile(r"(?:(?:inline|typedef|static)\s+)*(?:namespace|class|struct|union|enum|extern)\b")
_NAME = re.compile(r"((?:[\w:]*::)?operator\s*(?:\(\s*\))?[^(]*?(?=\s*\()|[\w:~]+(?=\s*\())")


def code(text):
    """The text with blanks for what is not code."""
    return _NO_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _flat(head):
    """What stands outside of all parentheses, which stay as "()", without the parameters of a template."""
    flat, depth = "", 0
    for char in head:
        depth -= char in ")]"
        if depth == 0:
            flat += char
        depth += char in "(["
    while (template := re.match(r"\s*template\s*<", flat)) is not None:
        depth = 1
        for end in range(template.end(), len(flat)):
            depth += (flat[end] == "<") - (flat[end] == ">")
            if depth == 0:
                break
        flat = flat[end + 1:]
    return flat.strip()


def kind(head):
    """What the brace behind `head` opens: "scope", "function" or "value"."""
    flat = _flat(head)
    if _SCOPE.match(flat) and not re.search(r"\)\s*(?:const|noexcept|override|final)*$", flat):
        return "scope"
    if not flat:
        return "scope"  # a block that nobody has asked for
    flat = re.sub(r"\boperator\s*[^\s\w(]+", "operator ", flat)
    if "(" not in flat or "=" in flat or re.search(r"\)[^:]*(?<!:):(?!:).*[\w>]$", flat, re.DOTALL):
        return "value"
    return "function"


def functions(text):
    """(name, first line, number of lines) of each function that a text of C++ defines."""
    text = code(text)
    found, scopes, start, depth, at = [], [], 0, 0, 0
    while at < len(text):
        char = text[at]
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == ";" and depth == 0:
            start = at + 1
        elif char == "}":
            start = at + 1
            if scopes:
                scopes.pop()
        elif char == "{":
            start = _LABELS.match(text, start).end()
            head = text[start:at]
            what = "value" if depth > 0 else kind(head)
            if what == "scope":
                words = [word for word in re.findall(r"\w+", re.split(r":(?!:)", head)[0]) if word != "final"]
                scopes.append(words[-1] if words and words[0] not in ("namespace", "inline", "extern") else "")
                start = at + 1
            else:
                end = _end(text, at)
                if what == "function":
                    name = "::".join([scope for scope in scopes if scope] + [_NAME.search(_flat(head))[1]])
                    first = text.count("\n", 0, start) + 1
                    found.append((name, first, text.count("\n", start, end) + 1))
                    start = end
                at = end - 1
        at += 1
    if scopes or depth:
        raise ValueError("its braces are not understood; scripts/checks/functions.py reads them")
    return found


def _end(text, brace):
    """Behind the brace that closes the one at `brace`."""
    depth = 0
    for found in re.compile("[{}]").finditer(text, brace):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    return len(text)


def sources(root):
    """The production code below `root`."""
    for folder in FOLDERS:
        for directory, folders, files in os.walk(os.path.join(root, folder)):
            folders[:] = sorted(name for name in folders if name not in ("testing", "testdata", "results"))
            for name in sorted(files):
                if name.endswith((".cc", ".h")) and not re.search(r"_(?:test|benchmark)\.\w+$", name):
                    yield os.path.relpath(os.path.join(directory, name), root)


def long_functions(root):
    """{"path name": lines} of those that do not fit."""
    found = {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        try:
            for name, _, lines in functions(text):
                if lines > FITS:
                    found[f"{path} {name}"] = max(lines, found.get(f"{path} {name}", 0))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    return found


def read_list(text):
    """{entry: the length that its part of the list is for}."""
    entries, most = {}, None
    for line in text.splitlines():
        if line.startswith("# Longer than "):
            most = int(line.split()[3])
        elif line and not line.startswith("#"):
            entries[line] = most
    return entries


def problems(long, listed):
    """What is wrong with functions of these lengths by this list, {entry: the length that its part is for}."""
    wrong = []
    for entry, lines in sorted(long.items()):
        if entry not in listed:
            wrong.append(f"{entry}: {lines} lines; a function has {FITS} at the most: divide it by what its parts do")
        elif lines > MOST and listed[entry] == FITS:
            wrong.append(f"{entry}: {lines} lines; it was let alone with {MOST} at the most: divide it")
    for entry, most in sorted(listed.items()):
        if long.get(entry, 0) <= most:
            wrong.append(f"{entry}: no longer longer than {most} lines: scripts/checks/functions.py --shrink takes it off the list")
    return wrong


def shrunk(text, long):
    """The list's text without what is short enough now. What has become shorter than MOST goes to the second part."""
    listed = read_list(text)
    head = text[:text.index("# Longer than ")]
    parts = {most: [entry for entry, part in listed.items()
                    if (long.get(entry, 0) > MOST and part == MOST) == (most == MOST) and long.get(entry, 0) > FITS]
             for most in (MOST, FITS)}
    return head + "\n".join(f"# Longer than {most} lines\n" + "".join(f"{entry}\n" for entry in sorted(entries))
                            for most, entries in parts.items())


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    path = os.path.join(root, LIST)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    long = long_functions(root)
    if sys.argv[1:] == ["--shrink"]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(shrunk(text, long))
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    wrong = problems(long, read_list(text))
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
