"""One version everywhere: src/base/version.h, CHANGELOG.md and the README."""

import os
import re
import tempfile
import unittest

import version

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def tree_of(folder, number, changelog):
    os.makedirs(f"{folder}/src/base")
    with open(f"{folder}/src/base/version.h", "w", encoding="utf-8") as file:
        file.write(f'inline constexpr char kVersion[] = "{number}";\n')
    with open(f"{folder}/CHANGELOG.md", "w", encoding="utf-8") as file:
        file.write(changelog)
    return folder


class VersionTest(unittest.TestCase):
    def test_all_name_the_version_of_the_programs(self):
        number = version.program_version(TREE)
        version.is_released(TREE)  # raises if CHANGELOG.md has another one
        with open(f"{TREE}/README.md", encoding="utf-8") as file:
            self.assertEqual(re.findall(r"This is version ([0-9.]+)\.", file.read()), [number])

    def test_what_is_not_released_comes_before_the_release(self):
        with tempfile.TemporaryDirectory() as folder:
            tree_of(folder, "1.2.0", "# Changelog\n\n## Unreleased\n\nThe next version is 1.2.0. It is new.\n\n## 1.1.0\n")
            self.assertEqual(version.package_version(folder, "0123456789abcdef", "2026-11-26"), "1.2.0~git20261126.01234567")
        with tempfile.TemporaryDirectory() as folder:
            tree_of(folder, "1.2.0", "# Changelog\n\n## 1.2.0 (2026-12-01)\n\nIt is new.\n\n## 1.1.0\n")
            self.assertEqual(version.package_version(folder, "0123456789abcdef", "2026-11-26"), "1.2.0")

    def test_versions_that_contradict_each_other_are_refused(self):
        for changelog in ("## Unreleased\n\nThe next version is 1.3.0.\n", "## Unreleased\n\n### Added\n", "## 1.1.0\n\nOld.\n"):
            with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, "version.h says 1.2.0"):
                version.is_released(tree_of(folder, "1.2.0", "# Changelog\n\n" + changelog))


if __name__ == "__main__":
    unittest.main()
