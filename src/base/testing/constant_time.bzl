"""A test that no branch and no address of a program depends on a secret."""

load("//src:cc.bzl", "cc_binary")

def constant_time_test(name, srcs, deps, tags = []):
    """A program, NAME with `main` for `test`, and the test that runs it under valgrind.

    Args:
      name: such as constant_time_test.
      srcs: the program, which calls ConstantTimeMain (constant_time.h).
      deps: its libraries.
      tags: of the test.
    """
    main = name.replace("_test", "_main")
    cc_binary(
        name = main,
        testonly = True,
        srcs = srcs,
        copts = ["-O2"],
        deps = deps + ["//src/base/testing:constant_time"],
    )
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["//src/base/testing:constant_time_test.sh"],
        args = ["$(location :%s)" % main],
        data = [":" + main],
        tags = tags,
    )
