"""One version everywhere: src/base/version.h, CHANGELOG.md and whatever else names it."""

import glob
import json
import os
import re
import subprocess
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
            self.assertEqual(re.findall(r"This is version ([0-9.]+(?:-dev)?)\.", file.read()), [number])
        with open(f"{TREE}/SECURITY.md", encoding="utf-8") as file:
            self.assertEqual(re.findall(r"Shoal is at version ([0-9.]+(?:-dev)?)\.", file.read()), [number])
        for path in ("web/package.json", "scripts/privacypass/package.json"):
            with open(f"{TREE}/{path}", encoding="utf-8") as file:
                self.assertEqual(json.load(file)["version"], number, path)
        with open(f"{TREE}/ohttp/Cargo.toml", encoding="utf-8") as file:
            self.assertIn(f'\nversion = "{number}"\n', file.read())
        # As PEP 440 writes it.
        with open(f"{TREE}/python/shoal/_version.py", encoding="utf-8") as file:
            self.assertIn(f'VERSION = "{number.replace("-dev", ".dev0")}"\n', file.read())
        # The images that these files name are made of the same tree.
        for path in glob.glob(f"{TREE}/configs/kubernetes/*.yaml"):
            with open(path, encoding="utf-8") as file:
                for tag in re.findall(r"image: registry\.example/shoal[a-z-]*:(\S+)", file.read()):
                    self.assertEqual(tag, number, path)

    def test_what_is_not_released_comes_before_the_release(self):
        with tempfile.TemporaryDirectory() as folder:
            tree_of(folder, "1.2.0-dev", "# Changelog\n\n## Unreleased\n\nThe next version is 1.2.0. It is new.\n\n## 1.1.0\n")
            self.assertEqual(version.package_version(folder, "0123456789abcdef", 1_795_700_000, 12),
                             "1.2.0~git20261126133320.12.01234567")
        with tempfile.TemporaryDirectory() as folder:
            tree_of(folder, "1.2.0", "# Changelog\n\n## 1.2.0 (2026-12-01)\n\nIt is new.\n\n## 1.1.0\n")
            self.assertEqual(version.package_version(folder, "0123456789abcdef", 1_795_700_000, 12), "1.2.0")

    def test_versions_are_in_the_order_of_time_and_commits(self):
        with tempfile.TemporaryDirectory() as folder:
            tree_of(folder, "1.2.0-dev", "# Changelog\n\n## Unreleased\n\nThe next version is 1.2.0. It is new.\n\n## 1.1.0\n")
            # Of one second, of one day, over a new hour, day and year; hashes of which each is below the one before.
            second = 1_795_700_000
            rising = ["1.1.0", "1.2.0~git20261126.ffffffff"] + [
                version.package_version(folder, f"{15 - number:x}" * 40, seconds, commits) for number, (seconds, commits) in enumerate([
                    (second, 9), (second, 10), (second, 100), (second + 1, 101), (second + 4000, 102), (second + 86400, 99),
                    (second + 90 * 86400, 999), (second + 90 * 86400, 1000)])] + ["1.2.0"]
            for below, above in zip(rising, rising[1:]):
                self.assertEqual(subprocess.run(["dpkg", "--compare-versions", below, "lt", above], check=False).returncode, 0,
                                 f"{below} is not below {above}")

    def test_a_commit_is_above_its_ancestors_whatever_its_clock_says(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = f"{folder}/tree"
            tree_of(tree, "1.2.0-dev", "# Changelog\n\n## Unreleased\n\nThe next version is 1.2.0. It is new.\n\n## 1.1.0\n")

            def git(*arguments, **environment):
                subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments], cwd=tree, check=True,
                               env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

            git("init")
            versions = []
            # The second is of the same second as the first, the third's clock is a day behind.
            for seconds in (1_795_700_000, 1_795_700_000, 1_795_613_600, 1_795_700_001):
                git("commit", "--allow-empty", "-m", "x", GIT_COMMITTER_DATE=f"@{seconds}", GIT_AUTHOR_DATE=f"@{seconds}")
                versions.append(version.package_version(tree, *version.commit_of(tree)))
            for below, above in zip(versions, versions[1:]):
                self.assertEqual(subprocess.run(["dpkg", "--compare-versions", below, "lt", above], check=False).returncode, 0,
                                 f"{below} is not below {above}")
            subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{tree}", f"{folder}/shallow"], check=True)
            with self.assertRaisesRegex(RuntimeError, "shallow clone"):
                version.commit_of(f"{folder}/shallow")

    def test_versions_that_contradict_each_other_are_refused(self):
        contradictions = [
            ("1.2.0-dev", "## Unreleased\n\nThe next version is 1.3.0.\n"),
            ("1.2.0-dev", "## Unreleased\n\n### Added\n"),
            ("1.2.0-dev", "## 1.2.0\n\nNew.\n"),
            ("1.2.0", "## Unreleased\n\nThe next version is 1.2.0.\n"),
            ("1.2.0", "## 1.1.0\n\nOld.\n"),
        ]
        for number, changelog in contradictions:
            with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(ValueError, f"version.h says {number}"):
                version.is_released(tree_of(folder, number, "# Changelog\n\n" + changelog))


if __name__ == "__main__":
    unittest.main()
