"""The clang of the system, which checks the locks; gcc builds. Not needed to build."""

def _clang_repository_impl(repository):
    # clang 14, Debian 12's default, does not know the coroutines of gcc 12's library.
    clang = repository.which("clang++-16")
    if clang:
        repository.symlink(clang, "clang++")
    else:
        # So that whoever only builds needs no clang. Whoever runs the test is told.
        repository.file(
            "clang++",
            "#!/bin/sh\necho 'clang++-16 was not there when Bazel started: run scripts/setup --test, then bazel shutdown' >&2\nexit 1\n",
            executable = True,
        )
    repository.file("BUILD", "exports_files([\"clang++\"])\n")

# `local`: looked for again whenever Bazel starts.
clang_repository = repository_rule(implementation = _clang_repository_impl, local = True)
