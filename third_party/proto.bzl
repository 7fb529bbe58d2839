"""C++ code from .proto files by the system's protoc."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def shoal_cc_proto(name, src, deps = [], visibility = None):
    """Compiles one .proto file into a cc_library.

    Args:
      name: the library's name.
      src: the .proto file.
      deps: shoal_cc_proto libraries in the same package that it imports.
      visibility: as for every rule.
    """
    stem = src[:-len(".proto")]
    native.genrule(
        name = name + "_gen",
        # Imports are found because every .proto of the package is an input.
        srcs = [src] + [dep.lstrip(":") + "_src" for dep in deps],
        outs = [stem + ".pb.h", stem + ".pb.cc"],
        cmd = "protoc --proto_path=. --cpp_out=$(GENDIR) $(location %s)" % src,
    )
    native.filegroup(name = name + "_src", srcs = [src] + [dep.lstrip(":") + "_src" for dep in deps], visibility = visibility)
    cc_library(
        name = name,
        srcs = [stem + ".pb.cc"],
        hdrs = [stem + ".pb.h"],
        visibility = visibility,
        deps = ["//third_party:protobuf"] + deps,
    )
