"""The version of what is packed: src/base/version.h says it, and CHANGELOG.md whether it is released."""

import re
import subprocess
import time


def program_version(tree):
    """What every program answers to --version."""
    with open(f"{tree}/src/base/version.h", encoding="utf-8") as file:
        return re.search(r'kVersion\[\] = "([0-9.]+(?:-dev)?)"', file.read())[1]


def release_of(version):
    """The version that is released, or will be: without "-dev"."""
    return version.removesuffix("-dev")


def is_released(tree):
    """Whether CHANGELOG.md has a heading for the version. Before, it is "-dev" of the next version that it names.

    Raises ValueError if the two files contradict each other.
    """
    version = program_version(tree)
    with open(f"{tree}/CHANGELOG.md", encoding="utf-8") as file:
        text = file.read()
    newest, body = re.search(r"^## (\S+).*\n([^#]*)", text, flags=re.MULTILINE).groups()
    if newest == version:
        return True
    if newest == "Unreleased" and version.endswith("-dev") and f"The next version is {release_of(version)}." in body:
        return False
    raise ValueError(f"src/base/version.h says {version}, and CHANGELOG.md begins with {newest}: {body.strip()[:60]}")


def package_version(tree, commit, seconds, commits):
    """Debian's version. What is not released yet comes before what will be, in the order of time and commits.

    `seconds` and `commits` are those of commit_of: the version of a commit is above those of all its ancestors, and
    where neither of two comes from the other, the later one is above. The hash only says which commit it is.
    """
    version = program_version(tree)
    if is_released(tree):
        return version
    return f"{release_of(version)}~git{time.strftime('%Y%m%d%H%M%S', time.gmtime(seconds))}.{commits}.{commit[:8]}"


def commit_of(tree):
    """(the commit, its time in seconds since 1970, the number of commits up to it) of the checkout in `tree`.

    Clocks of committers differ: the time is the latest of the commit and all its ancestors, so that it never falls on
    the way from one to the next. Raises RuntimeError for a clone that lacks ancestors, whose number would be wrong.
    """
    def git(*arguments):
        done = subprocess.run(["git", *arguments], cwd=tree, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    if git("rev-parse", "--is-shallow-repository") != "false":
        raise RuntimeError(f"{tree} is a shallow clone, which does not say how many commits there are: git fetch --unshallow")
    times = [int(line) for line in git("log", "--format=%ct").split()]
    return git("rev-parse", "HEAD"), max(times), len(times)
