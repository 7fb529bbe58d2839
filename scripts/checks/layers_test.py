"""Tests layers.py: each test makes one mistake in a small tree that is right otherwise."""

import unittest

import layers
from layers import Target

LAYERS = {"base": [], "wire": ["base"], "server": ["base", "wire"], "client": ["base", "wire"], "shoal": ["client"], "sim": ["server"]}
APART = [["client", "server"]]


def library(label, **fields):
    return Target(label=label, kind="cc_library", **fields)


def house():
    """One library in every folder, with a header that the folders above include."""
    targets, texts = [], {}
    for folder, row in LAYERS.items():
        deps = [f"//src/{other}:{other}" for other in row]
        target = library(f"//src/{folder}:{folder}", inputs=list(deps), deps=deps, headers=[f"src/{folder}/{folder}.h"],
                         visibility=["//src:__subpackages__"], testonly=folder == "sim")
        texts[target.headers[0]] = "".join(f'#include "src/{other}/{other}.h"\n' for other in row)
        targets.append(target)
    # Nobody is above these.
    targets[-1].visibility = targets[-2].visibility = ["//visibility:private"]
    return targets, texts


class LayersTest(unittest.TestCase):

    def setUp(self):
        self.targets, self.texts = house()

    def target(self, folder):
        return next(t for t in self.targets if t.label == f"//src/{folder}:{folder}")

    def add(self, target, *labels):
        target.inputs.extend(labels)
        target.deps.extend(labels)
        self.targets.append(target)

    def folders(self):
        return layers.folders(self.targets, LAYERS, APART, ["sim"])

    def includes(self):
        return layers.includes(self.targets, self.texts.__getitem__)

    def headers(self):
        return layers.headers(self.targets, self.texts.__getitem__)

    def programs(self):
        return layers.programs(self.targets, ["shoal"], self.texts.__getitem__)

    def assert_finds(self, found, *parts):
        self.assertEqual(len(found), len(parts), found)
        for sentence, part in zip(found, parts):
            self.assertIn(part, sentence)

    def test_finds_nothing_in_a_house_that_is_right(self):
        for found in (layers.table(LAYERS), layers.apart(LAYERS, APART), self.folders(), self.includes(), self.headers(),
                      self.programs(), layers.system(self.targets, self.texts.__getitem__)):
            self.assertEqual(found, [])

    def test_finds_an_arrow_up_in_the_table(self):
        self.assert_finds(layers.table({"base": ["wire"], "wire": []}), "base may include wire")

    def test_finds_a_circle_in_the_table(self):
        self.assert_finds(layers.table({"base": [], "wire": ["net"], "net": ["wire"]}), "wire may include net")

    def test_finds_an_arrow_up_between_targets(self):
        self.target("base").inputs.append("//src/wire:wire")
        self.assert_finds(self.folders(), "//src/base:base depends on //src/wire:wire")

    def test_finds_a_circle_through_another_target(self):
        # wire's second library uses client, which uses wire.
        self.add(library("//src/wire:second"), "//src/client:client")
        self.assert_finds(self.folders(), "//src/wire:second depends on //src/client:client")

    def test_finds_folders_that_are_kept_apart_in_tests_too(self):
        self.add(Target(label="//src/client:client_test", kind="cc_test", testonly=True), "//src/server:server")
        self.assert_finds(self.folders(), "client and server are kept apart")
        self.assert_finds(layers.apart({"client": ["server"]}, APART), "client may include server")

    def test_lets_tests_use_what_is_below_and_not_what_is_above(self):
        test = Target(label="//src/wire:wire_test", kind="cc_test", testonly=True)
        self.add(test, "//src/base/testing:testing", "//src/base:base", "//src/wire/testing:testing")
        self.assertEqual(self.folders(), [])
        test.inputs.append("//src/sim:sim")
        self.assert_finds(self.folders(), "sim is above wire")

    def test_finds_a_library_that_uses_what_is_for_tests(self):
        self.target("wire").inputs.append("//src/base/testing:testing")
        self.assert_finds(self.folders(), "which is for tests")

    def test_finds_a_testing_folder_that_uses_what_is_above(self):
        self.add(library("//src/wire/testing:fake", testonly=True), "//src/client/testing:fake")
        self.assert_finds(self.folders(), "client is above wire")

    def test_finds_who_includes_experiments(self):
        self.target("shoal").inputs.append("//experiments/engines:measure")
        self.assert_finds(self.folders(), "nobody includes experiments")

    def test_finds_rows_of_the_table_that_are_not_used(self):
        self.target("sim").inputs.clear()
        self.assert_finds(self.folders(), "sim may include server and does not")

    def test_finds_production_code_in_folders_for_tests(self):
        self.target("sim").testonly = False
        self.assert_finds(self.folders(), "sim is for tests alone")

    def test_finds_folders_that_the_table_does_not_have(self):
        self.add(library("//src/attic:attic"))
        self.assert_finds(self.folders(), "no folder attic")

    def test_finds_includes_of_what_is_not_a_direct_dependency(self):
        self.texts["src/shoal/shoal.h"] += '#include "src/base/base.h"\n'
        self.assert_finds(self.includes(), "does not depend on //src/base:base")

    def test_finds_dependencies_of_which_nothing_is_included(self):
        self.texts["src/shoal/shoal.h"] = ""
        self.assert_finds(self.includes(), "includes nothing of it")

    def test_finds_includes_of_private_headers(self):
        self.target("wire").sources.append("src/wire/private.h")
        self.texts["src/wire/private.h"] = ""
        self.texts["src/wire/wire_test.cc"] = '#include "src/wire/private.h"\n'
        self.add(Target(label="//src/wire:wire_test", kind="cc_test", sources=["src/wire/wire_test.cc"]), "//src/wire:wire")
        self.assertEqual(self.includes(), [])
        self.texts["src/client/client.h"] += '#include "src/wire/private.h"\n'
        self.assert_finds(self.includes(), "private to //src/wire:wire")

    def test_finds_headers_that_only_their_own_folder_includes(self):
        wire = self.target("wire")
        for name, text in (("used.h", ""), ("own.h", "")):
            wire.headers.append("src/wire/" + name)
            self.texts["src/wire/" + name] = text
        # This header is included by a header that others include.
        self.texts["src/wire/wire.h"] += '#include "src/wire/used.h"\n'
        self.assert_finds(self.headers(), "src/wire/own.h")
        wire.visibility = ["//visibility:private"]
        self.assertEqual(self.headers(), [])

    def test_finds_libraries_that_print_parse_flags_or_initialise(self):
        for line in ("#include <iostream>", 'std::printf("x");', "  std::cerr << 1;", "fprintf(stderr, x);", "exit(1);",
                     "std::exit(1);", "sodium_init();", "#include <boost/program_options.hpp>", 'puts("x");'):
            self.texts["src/wire/wire.h"] = line
            self.assert_finds(self.programs(), "src/wire/wire.h:1")
        for line in ("std::snprintf(buffer, 9, x);", "on_exit_(1);", "int x;  // exit() is not called", "session.exit(1);",
                     "Abort();"):
            self.texts["src/wire/wire.h"] = line
            self.assertEqual(self.programs(), [], line)
        self.texts["src/wire/wire.h"] = ""
        self.texts["src/shoal/shoal.h"] = "std::cout << 1;"
        self.assertEqual(self.programs(), [])

    def test_finds_who_includes_mpi(self):
        self.texts["src/wire/wire.h"] = "#include <mpi/mpi.h>\n"
        self.assert_finds(layers.system(self.targets, self.texts.__getitem__), "src/wire/wire.h includes mpi.h")
        self.texts["src/wire/wire.h"] = '#include "mpi.h"\n'
        self.assert_finds(layers.system(self.targets, self.texts.__getitem__), "src/wire/wire.h includes mpi.h")
        own = library("//src/machines/mpi:mpi", sources=["src/machines/mpi/job.cc"])
        self.assertEqual(layers.system([own], lambda _: "#include <mpi/mpi.h>\n"), [])

    def test_compares_with_the_documentation(self):
        text = "| src/base | bytes | |\n| src/wire | frames | |\n| src/net | sockets | wire, table |\n"
        self.assertEqual(layers.documentation(text, {"base": [], "wire": ["base"], "net": ["base", "table", "wire"]}), [])
        self.assert_finds(layers.documentation(text, {"base": [], "wire": ["base"], "net": ["wire"]}), "src/net may include wire")
        self.assert_finds(layers.documentation(text, {"base": [], "wire": []}), "there is no src/net")
        self.assert_finds(layers.documentation("", {"base": []}), "has no src/base")

    def test_reads_what_bazel_says(self):
        text = """<query version="2">
          <rule class="cc_library" name="//src/wire:wire">
            <list name="srcs"><label value="//src/wire:wire.cc"/></list>
            <list name="hdrs"><label value="//src/wire:wire.h"/></list>
            <list name="deps"><label value="//src/base:base"/></list>
            <rule-input name="//src/base:base"/><rule-input name="//src/wire:wire.cc"/>
          </rule>
          <rule class="filegroup" name="//src/wire:rules"/>
          <rule class="cc_test" name="//src/wire:wire_test">
            <list name="visibility"><label value="//visibility:private"/></list>
          </rule></query>"""
        wire, test = layers.read_targets(text, lambda package: (False, ["//src:__subpackages__"]))
        self.assertEqual(
            wire,
            Target(label="//src/wire:wire", kind="cc_library", inputs=["//src/base:base", "//src/wire:wire.cc"],
                   sources=["src/wire/wire.cc"], headers=["src/wire/wire.h"], deps=["//src/base:base"],
                   visibility=["//src:__subpackages__"], testonly=False))
        self.assertEqual((test.label, test.testonly, test.visibility), ("//src/wire:wire_test", True, ["//visibility:private"]))

    def test_reads_the_defaults_of_a_package(self):
        self.assertEqual(layers.package_defaults('load("x", "package")\ncc_library(name = "x")\n'), (False, []))
        self.assertEqual(
            layers.package_defaults('package(\n    default_testonly = True,\n    default_visibility = [\n'
                                    '        "//src:__subpackages__",\n        "//x:__pkg__",\n    ],\n)\n'),
            (True, ["//src:__subpackages__", "//x:__pkg__"]))


if __name__ == "__main__":
    unittest.main()
