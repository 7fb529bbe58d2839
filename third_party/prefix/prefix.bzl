"""A precompiled header: gcc parses it once, and reads the result wherever `-include` names it."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # Its options have to be those of the sources that read it, but for warnings and defines that it does not look at.
    output = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    command = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = "c++-compile",
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            source_file = ctx.file.header.path,
            output_file = output.path,
            quote_include_directories = depset(["."]),
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + ["-x", "c++-header"],
            use_pic = True,
        ),
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = "c++-compile"),
        arguments = command,
        inputs = depset([ctx.file.header] + ctx.files.includes, transitive = [toolchain.all_files]),
        outputs = [output],
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = "c++-compile",
            variables = cc_common.empty_variables(),
        ),
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.file.header.short_path,
    )
    return [
        DefaultInfo(files = depset([output])),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset([output]))),
    ]

precompiled_header = rule(
    doc = "NAME.h.gch from `header`, for sources that say `-include third_party/prefix/NAME.h`.",
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "includes": attr.label_list(allow_files = [".h"], doc = "Headers of this workspace that it includes."),
        "copts": attr.string_list(doc = "What sources that read it add to the options of the way to build."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
