"""cc_library, cc_binary and cc_test as this project compiles them.

Sources read a precompiled header (//third_party/prefix), and the sources of a library are compiled as one unit, one after
the other: what they include is parsed, and what they use of templates is compiled, once. Names in their anonymous
namespaces must therefore differ. Targets with `copts` of their own are compiled as they are.

`--config=alone` leaves both away: every file compiles alone, with all that it includes.
"""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

# A test's own file is compiled with less effort. What it calls is not; under sanitizers the checks stay. A test that
# computes for seconds itself has COMPUTING_TEST_COPTS for its `copts`.
TEST_COPTS = select({
    "//src:optimized": ["-O0", "-U_FORTIFY_SOURCE"],
    "//src:sanitized": ["-O0"],
    "//conditions:default": [],
})

COMPUTING_TEST_COPTS = ["-O2"]

# gcc takes the parts of a unit for headers, whose classes must have no members of a type in an anonymous namespace.
_UNIT_COPTS = ["-Wno-subobject-linkage"]

def _unless_alone(values):
    return select({
        "//src:alone": [],
        "//conditions:default": values,
    })

def _prefixed(prefix, arguments, options = []):
    """Adds the precompiled header to a target's arguments."""
    sources = arguments.get("srcs", [])
    if arguments.get("copts") or (type(sources) == "list" and [source for source in sources if source.endswith(".c")]):
        return arguments
    arguments["copts"] = _unless_alone(["-include", "third_party/prefix/%s.h" % prefix, "-Winvalid-pch"] + options)
    arguments["deps"] = arguments.get("deps", []) + _unless_alone(["//third_party/prefix:" + prefix])
    return arguments

def cc_library(name, srcs = [], **kwargs):
    """As Bazel's. More than one source are compiled as one, NAME_unit.cc."""
    sources = [source for source in srcs if source.endswith(".cc")]
    if not sources:
        _cc_library(name = name, srcs = srcs, **kwargs)
        return
    options = []
    if len(sources) > 1 and not kwargs.get("copts"):
        native.genrule(
            name = name + "_unit",
            testonly = kwargs.get("testonly"),
            srcs = sources,
            outs = [name + "_unit.cc"],
            # Messages, SHOAL_CHECK and debuggers name the source.
            cmd = "for source in $(SRCS); do echo \"#line 1 \\\"$$source\\\"\"; cat $$source; done >$@",
            visibility = ["//visibility:private"],
        )
        srcs = [source for source in srcs if source not in sources] + select({
            "//src:alone": sources,
            "//conditions:default": [name + "_unit.cc"],
        })
        options = _UNIT_COPTS
    _cc_library(name = name, srcs = srcs, **_prefixed("library", kwargs, options))

def cc_binary(name, **kwargs):
    """As Bazel's."""
    _cc_binary(name = name, **_prefixed("library", kwargs))

def cc_test(name, **kwargs):
    """As Bazel's, with TEST_COPTS where a test has no others."""
    arguments = kwargs
    if not kwargs.get("copts"):
        arguments = _prefixed("test", kwargs)
        arguments["copts"] = arguments.get("copts", []) + TEST_COPTS
    _cc_test(name = name, **arguments)

def kernel_library(name, instructions = [], copts = [], sanitized = False, **kwargs):
    """What is compiled for more instructions than every machine of its kind has; a dispatcher chooses at run time.

    Optimised in every build: unoptimised such code is fifty times slower, and what it computes does not depend on it.
    Where sanitizers look into it, -O1 is as fast, as their checks take the time, and compiles in half of it.

    Args:
      name: of the library.
      instructions: options of gcc on x86-64. Elsewhere the sources are compiled without.
      copts: further ones.
      sanitized: whether sanitizers look into it where there are instructions, too.
      **kwargs: as those of cc_library.
    """
    options = ["-O3"]
    if instructions and not sanitized:
        options.append("-fno-sanitize=all")
    else:
        options = select({
            "//src:sanitized": ["-O1"],
            "//conditions:default": options,
        })
    if [option for option in instructions if option.startswith("-mavx512")]:
        # gcc's own headers initialise "undefined" vectors with themselves.
        options = options + ["-Wno-uninitialized", "-Wno-maybe-uninitialized"]
    cc_library(
        name = name,
        copts = options + copts + select({
            "//src:x86_64": instructions,
            "//conditions:default": [],
        }),
        **kwargs
    )
