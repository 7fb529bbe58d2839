"""Tests repeats.py."""

import os
import tempfile
import unittest

import repeats

CODE = [f"  call_{i}(first, second);" for i in range(60)]


class RepeatsTest(unittest.TestCase):

    def pairs(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, lines in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write("\n".join(lines) + "\n")
            return repeats.counts(repeats.shared(repeats.sources(root)))

    def test_equal_lines_of_two_folders_are_counted(self):
        self.assertEqual(self.pairs({"a/x.cc": CODE, "b/y.cc": CODE[10:55]}), {("a", "b"): 45})

    def test_white_space_comments_and_lone_brackets_do_not_hide_them(self):
        other = []
        for line in CODE:
            other += ["\t" + line.replace(", ", ",  "), "", "// Says why.", "}", "  }  // if"]
        self.assertEqual(self.pairs({"a/x.cc": CODE, "b/y.cc": other}), {("a", "b"): 60})
        self.assertEqual(self.pairs({"a/x.py": CODE, "b/y.py": [line + "  # why" for line in CODE]}), {("a", "b"): 60})

    def test_what_everybody_writes_does_not_count(self):
        heads = [f'#include "src/base/{i}.h"' for i in range(50)] + [f"using a::b{i};" for i in range(50)] + [
            f"import {{ a{i} }} from './b.js';" for i in range(50)] + ["namespace shoal::base {", "}", "// A licence."] * 20
        self.assertEqual(self.pairs({"a/x.cc": heads, "b/y.cc": heads}), {})

    def test_lines_that_stand_alone_do_not_count(self):
        apart = [line for i in range(60) for line in (CODE[i], f"  other_{i}();")]
        self.assertEqual(self.pairs({"a/x.cc": CODE, "b/y.cc": apart}), {})

    def test_many_copies_in_one_folder_count_once(self):
        self.assertEqual(self.pairs({"a/x.cc": CODE[:10], "a/y.cc": CODE[:10], "a/z.cc": CODE[:10], "b/x.cc": CODE[:10]}),
                         {("a", "b"): 10})

    def test_what_is_not_ours_does_not_count(self):
        self.assertEqual(self.pairs({"a/x.cc": CODE, "third_party/b/x.cc": CODE, "web/dist/x.mjs": CODE, "a/testdata/x.cc": CODE}), {})

    def test_exceptions_have_reasons_and_go(self):
        exceptions = repeats.read_list("# Why.\n\n45 src/a src/b: until they are one\n")
        self.assertEqual(exceptions, {("src/a", "src/b"): 45})
        pair = ("src/a", "src/b")
        self.assertEqual(repeats.problems({pair: 45, ("c", "d"): 40}, exceptions), [])
        for pairs, part in (({pair: 46}, "share 46 lines, 45 at the most"), ({pair: 45, ("c", "d"): 41}, "c and d share 41 lines, 40"),
                            ({pair: 40}, "take them off the list"), ({}, "take them off the list")):
            wrong = repeats.problems(pairs, exceptions)
            self.assertEqual(len(wrong), 1, wrong)
            self.assertIn(part, wrong[0])
        with self.assertRaises(ValueError):
            repeats.read_list("45 src/a src/b\n")


if __name__ == "__main__":
    unittest.main()
