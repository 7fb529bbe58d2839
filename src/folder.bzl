"""The macro that every package of C++ calls at the end of its BUILD file."""

def folder():
    """Adds the tests of the package's sources and rules (scripts/checks)."""
    rules = native.existing_rules()
    sources = native.glob(["**/*.cc", "**/*.h"])

    # All rules of the package, for the query of scripts/checks.
    native.filegroup(
        name = "rules",
        testonly = True,
        srcs = [":" + name for name in rules],
        tags = ["manual"],
        visibility = ["//scripts/checks:__pkg__"],
    )
    native.filegroup(
        name = "sources",
        srcs = sources,
        visibility = ["//scripts/checks:__pkg__"],
    )
    if sources:
        native.sh_test(
            name = "clang_format_test",
            size = "small",
            srcs = ["//scripts/checks:clang_format_test.sh"],
            args = ["$(locations :sources)"],
            data = [
                ":sources",
                "//:.clang-format",
            ],
        )
