"""The version of what is packed: src/base/version.h says it, and CHANGELOG.md whether it is released."""

import re


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


def package_version(tree, commit, day):
    """Debian's version. What is not released yet comes before what will be."""
    version = program_version(tree)
    return version if is_released(tree) else f"{release_of(version)}~git{day.replace('-', '')}.{commit[:8]}"
