"""What documents and comments name must exist: files, Bazel targets, headings, tests.

Checked are Markdown pages and the comments of sources. Needs only Python's standard library.
"""

import glob
import os
import re
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_FOLDERS = ("src", "docs", "scripts", "experiments", "configs", "packaging", "third_party")
_SKIPPED = {"results", "__pycache__", "study-results", "packages"}
# Files of languages with "//" comments and with "#" comments.
_SLASHES = (".cc", ".h", ".proto", ".rs")
_HASHES = (".py", ".sh", ".textproto", ".bzl", "BUILD")

# "src/base/hash.h", "src/wire/*.proto"; not the end of a longer path, nor a part of a label or of a word.
_PATH = re.compile(r"(?<![\w/.:$}{-])(?:%s)/[\w.*/-]*[\w*]" % "|".join(_FOLDERS))
# "//docs:links_test", "//src/base", "//src/..."; not the end of a URL.
_LABEL = re.compile(r"(?<![\w:/])//(?:%s)(?:/[\w-]+)*(?:/\.\.\.|:[\w.-]*\w)?" % "|".join(_FOLDERS))
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TEST = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\(\s*(\w+),\s*(\w+)\)")
_CODE = re.compile(r"`([^`]+)`")


def sources(root):
    """Paths of Markdown pages and sources below `root`, relative to it."""
    found = []
    for directory, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in _SKIPPED and not f.startswith((".", "bazel-")))
        found += (os.path.relpath(os.path.join(directory, name), root) for name in sorted(files))
    return found


def comments(path, text):
    """(line number, text) of the lines of a page, or of the comments of a source."""
    lines = list(enumerate(text.split("\n"), 1))
    if path.endswith(".md"):
        return lines
    if path.endswith(_SLASHES):
        mark = re.compile(r"(?:^|\s)//(.*)")
    elif path.endswith(_HASHES) or text.startswith("#!"):
        mark = re.compile(r"(?:^|\s)#(.*)")
    else:
        return []
    return [(number, found[1]) for number, line in lines if (found := mark.search(line))]


class Tree:
    """A source tree, and what is wrong in it."""

    def __init__(self, root):
        self._root = root
        self._tests = {}
        self.problems = []
        paths = sources(root)
        texts = {}
        for path in paths:
            if "/testdata/" in path:
                continue  # what programs have written
            if path.endswith((".md",) + _SLASHES + _HASHES) or "." not in os.path.basename(path):
                with open(os.path.join(root, path), encoding="utf-8") as file:
                    texts[path] = file.read()
        for path, text in texts.items():
            if path.endswith(".cc"):
                for suite, name in _TEST.findall(text):
                    self._tests.setdefault(suite, set()).add(name)
        for path, text in texts.items():
            for number, line in comments(path, text):
                self._check_line(f"{path}:{number}", line)
            if path.endswith(".md"):
                self._check_links(path, text)
                self._check_tests(path, text)

    def _exists(self, path):
        full = os.path.join(self._root, path)
        return bool(glob.glob(full)) if "*" in path else os.path.exists(full)

    def _check_line(self, where, line):
        for path in _PATH.findall(line):
            if not self._exists(path):
                self.problems.append(f"{where}: no file {path}")
        for label in _LABEL.findall(line):
            if not self._has_target(label[2:]):
                self.problems.append(f"{where}: no target {label}")

    def _has_target(self, label):
        if label.endswith("/..."):
            return self._exists(label[:-4])
        package, _, name = label.partition(":")
        build = os.path.join(self._root, package, "BUILD")
        if not os.path.exists(build):
            return False
        if name == "all":
            return True
        with open(build, encoding="utf-8") as file:
            return f'"{name or os.path.basename(package)}"' in file.read()

    def _check_links(self, path, text):
        for target in _LINK.findall(text):
            if re.match(r"\w+:", target):
                continue
            file, _, heading = target.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            if not self._exists(there):
                self.problems.append(f"{path}: broken link {target}")
            elif heading and heading not in self._headings(there):
                self.problems.append(f"{path}: no heading for the link {target}")

    def _headings(self, path):
        with open(os.path.join(self._root, path), encoding="utf-8") as file:
            lines = re.findall(r"^#+ (.*)$", file.read(), flags=re.MULTILINE)
        return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}

    def _check_tests(self, path, text):
        """`Suite.Name`, and in a list of tests also `Name`, which is of the suite named last."""
        for paragraph in re.split(r"\n\s*\n", text):
            in_list = paragraph.find("*Tests:*")
            suite = None
            for code in _CODE.finditer(paragraph):
                word = code[1]
                full = re.fullmatch(r"([A-Z]\w+)\.([A-Z]\w+)", word)
                if full:
                    suite, name = full.groups()
                elif in_list >= 0 and code.start() > in_list and re.fullmatch(r"[A-Z][a-z]*[A-Z]\w+", word):
                    if word in self._tests:
                        suite = word
                        continue
                    name = word
                else:
                    continue
                if name not in self._tests.get(suite, ()):
                    self.problems.append(f"{path}: no test {suite}.{name}")


def figures_twice(root):
    """Figures that a tree has in two formats, by their paths without an ending."""
    found = {}
    for directory, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith((".", "bazel-")) and name not in ("node_modules", "study-results")]
        for name in files:
            base, ending = os.path.splitext(name)
            if ending in (".png", ".svg", ".pdf", ".jpg", ".webp"):
                found.setdefault(os.path.relpath(os.path.join(directory, base), root), set()).add(ending)
    return sorted(path for path, endings in found.items() if len(endings) > 1)


class LinksTest(unittest.TestCase):
    maxDiff = None

    def test_everything_that_is_named_exists(self):
        self.assertGreater(len(sources(ROOT)), 300)
        self.assertEqual(Tree(ROOT).problems, [])

    def test_figures_are_kept_once(self):
        self.assertEqual(figures_twice(ROOT), [])
        with tempfile.TemporaryDirectory() as root:
            for path in ("a/one.png", "a/one.svg", "a/two.png", "b/two.svg"):
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                open(os.path.join(root, path), "w", encoding="utf-8").close()
            self.assertEqual(figures_twice(root), ["a/one"])

    def test_what_does_not_exist_is_found(self):
        files = {
            "src/a/BUILD": 'cc_test(name = "a_test")',
            "src/a/a.h": "// See src/a/b.h, src/a/*.cc and src/a/*.rs, //src/a:a_test and //src/a:b_test.\n"
                         'const char kPath[] = "src/a/c.h";  // (docs/x.md)\n',
            "src/a/a_test.cc": "TEST(ATest, Holds) {}\nTEST_F(BTest, Holds) {}\n",
            "docs/x.md": "# One: heading\n[x](x.md#one-heading) [y](y.md) [x](#two) [a](../src/a)\n\n"
                         "`ATest.Holds`, `ATest.Breaks`; //src/..., //src/b/...\n\n"
                         "*Tests:* `ATest.Holds`, `HoldsNot`; `BTest.Holds`, `BTest`, `GoneTest.Holds`. `SomeClass`\n",
        }
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            self.assertCountEqual(Tree(root).problems, [
                "docs/x.md:4: no target //src/b/...",
                "docs/x.md: broken link y.md",
                "docs/x.md: no heading for the link #two",
                "docs/x.md: no test ATest.Breaks",
                "docs/x.md: no test ATest.HoldsNot",
                "docs/x.md: no test GoneTest.Holds",
                "docs/x.md: no test GoneTest.SomeClass",
                "src/a/a.h:1: no file src/a/*.rs",
                "src/a/a.h:1: no file src/a/b.h",
                "src/a/a.h:1: no target //src/a:b_test",
            ])


if __name__ == "__main__":
    unittest.main()
