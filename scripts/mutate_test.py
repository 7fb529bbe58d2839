"""The list of mutations fits the tree, and scripts/mutate says what is wrong with a bad one."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
COMMAND = os.path.join(ROOT, "scripts", "mutate")


def load_command():
    loader = importlib.machinery.SourceFileLoader("mutate", COMMAND)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    loader.exec_module(module)
    return module


mutate = load_command()

GOOD = """# A comment.
[no-lock]
file: src/door/door.cc
test: //src/door:door_test DoorTest.IsLocked
test: //src/door:door_test
opens: everybody comes in
-  if (!key.fits()) return Refused();
-  Open();
+  Open();
"""
DOOR = """void Door(Key key) {
  if (!key.fits()) return Refused();
  Open();
}
"""
BUILD = """cc_test(
    name = "door_test",
    srcs = ["door_test.cc"],
)
"""
TEST = "TEST_P(DoorTest, IsLocked) {}\n"


class MutateTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("scripts/mutations/doors.txt", GOOD)
        self.write("src/door/door.cc", DOOR)
        self.write("src/door/BUILD", BUILD)
        self.write("src/door/door_test.cc", TEST)

    def write(self, name, text):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def problems(self, mutations=GOOD):
        self.write("scripts/mutations/doors.txt", mutations)
        return mutate.check(self.root, mutate.load(self.root))

    def test_the_list_fits_the_tree(self):
        self.assertEqual(mutate.check(ROOT, mutate.load(ROOT)), [])

    def test_lines_are_replaced(self):
        (mutation,) = mutate.load(self.root)
        self.assertEqual(mutation.path, "doors/no-lock")
        self.assertEqual(mutation.tests, [("//src/door:door_test", "DoorTest.IsLocked"), ("//src/door:door_test", "")])
        self.assertEqual(mutation.apply(self.root), "void Door(Key key) {\n  Open();\n}\n")
        self.assertEqual(self.problems(), [])
        # The name of a test with parameters.
        self.assertEqual(self.problems(GOOD.replace("DoorTest.IsLocked", "All/DoorTest.IsLocked/*")), [])

    def test_a_stale_mutation_is_an_error(self):
        self.write("src/door/door.cc", DOOR.replace("fits", "matches"))
        self.assertIn("stand 0 times", self.problems()[0])
        self.write("src/door/door.cc", DOOR + DOOR)
        self.assertIn("stand 2 times", self.problems()[0])
        self.write("src/door/door.cc", DOOR.replace("  if", "    if"))  # also by its indentation
        self.assertIn("stand 0 times", self.problems()[0])
        os.unlink(os.path.join(self.root, "src/door/door.cc"))
        self.assertIn("no-lock", self.problems()[0])

    def test_tests_must_exist(self):
        self.assertIn("no test DoorTest.IsOpen", self.problems(GOOD.replace("IsLocked", "IsOpen"))[0])
        self.assertIn("no test target", self.problems(GOOD.replace(":door_test", ":gate_test"))[0])
        self.assertIn("no target", self.problems(GOOD.replace("//src/door:", "//src/gate:"))[0])

    def test_bad_lists_are_refused(self):
        for bad, why in [
            (GOOD + GOOD, "as well"),
            (GOOD.replace("opens", "opened"), "neither"),
            (GOOD.replace("opens: everybody comes in\n", ""), "lacks its file"),
            (GOOD.replace("-  if (!key.fits()) return Refused();\n", ""), "changes nothing"),
            (GOOD + "opens: again\n", "after the lines"),
            ("file: x\n" + GOOD, "before the first"),
            (GOOD.replace("[no-lock]\n", "[no-lock]\nfile: x\n"), "a second file"),
        ]:
            with self.assertRaisesRegex(mutate.BadList, why):
                self.problems(bad)

    def run_command(self, *arguments):
        return subprocess.run([sys.executable, "-B", COMMAND, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)

    def test_options(self):
        listed = self.run_command("--list")
        self.assertEqual(listed.returncode, 0)
        self.assertIn("privacy/middle-does-not-shuffle\t", listed.stdout)
        one = self.run_command("--list", "--only", "bounds/calls-at-a-time")
        self.assertEqual(len(one.stdout.splitlines()), 1)
        self.assertIn("Examples:", self.run_command("--help").stdout)
        self.assertEqual(self.run_command("--only", "nothing-of-this-name").returncode, 2)
        self.assertEqual(self.run_command("--frobnicate").returncode, 2)
        self.assertEqual(self.run_command("--check").returncode, 0)


if __name__ == "__main__":
    unittest.main()
