"""Tests that clang's thread-safety analysis finds nothing wrong with the locks of whole programs."""

_LocksInfo = provider(fields = {
    "reports": "depset of what check_target says of this target and those below",
})

def _checks_impl(target, ctx):
    reports = []
    below = [dep[_LocksInfo].reports for dep in getattr(ctx.rule.attr, "deps", []) if _LocksInfo in dep]
    label = target.label
    ours = CcInfo in target and not label.workspace_name and (
        label.package.startswith("src/") or label.package == "scripts/checks/locks"
    )
    if ours:
        context = target[CcInfo].compilation_context
        files = [
            file
            for attribute in ["hdrs", "srcs"]
            for dep in getattr(ctx.rule.attr, attribute, [])
            for file in dep.files.to_list()
            # A unit (//src:cc.bzl) holds the sources of its library.
            if file.extension in ["cc", "h"] and (file.is_source or file.basename == label.name + "_unit.cc")
        ]
        flags = ["-std=c++20", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror"]
        flags += ["-D" + define for define in context.defines.to_list() + context.local_defines.to_list()]
        flags += ["-iquote" + path for path in context.quote_includes.to_list()]
        flags += ["-I" + path for path in context.includes.to_list()]
        flags += ["-isystem" + path for path in context.system_includes.to_list()]
        if files:
            report = ctx.actions.declare_file(label.name + ".locks.txt")
            reports.append(report)
            ctx.actions.run(
                outputs = [report],
                inputs = depset(files, transitive = [context.headers]),
                executable = ctx.executable._check,
                tools = [ctx.file._clang],
                arguments = [report.path] + [file.path for file in files] + ["--", ctx.file._clang.path] + flags,
                mnemonic = "CheckLocks",
                progress_message = "Checking the locks of %s" % label,
            )
    return [_LocksInfo(reports = depset(reports, transitive = below))]

_checks = aspect(
    implementation = _checks_impl,
    attr_aspects = ["deps"],
    attrs = {
        "_check": attr.label(
            default = "//scripts/checks/locks:check_target",
            allow_single_file = True,
            executable = True,
            cfg = "host",
        ),
        "_clang": attr.label(default = "@clang//:clang++", allow_single_file = True),
    },
)

def _reports_of(targets):
    return depset(transitive = [target[_LocksInfo].reports for target in targets]).to_list()

def _locks_test_impl(ctx):
    clean = _reports_of(ctx.attr.programs)
    refused = {}
    for target, words in ctx.attr.refused.items():
        for report in target[_LocksInfo].reports.to_list():
            if report.basename == target.label.name + ".locks.txt":
                refused[report] = words
    script = ctx.actions.declare_file(ctx.label.name + ".sh")
    lines = ["#!/usr/bin/env bash", "failed=0"]
    for report in clean:
        lines.append("[ ! -s '%s' ] || { cat '%s'; failed=1; }" % (report.short_path, report.short_path))
    for report, words in refused.items():
        lines.append("grep -q '%s' '%s' || { echo 'not found in %s: %s'; cat '%s'; failed=1; }" %
                     (words, report.short_path, report.short_path, words, report.short_path))
    lines.append("echo '%d targets looked at, %d more that must be refused'" % (len(clean), len(refused)))
    lines.append("exit $failed")
    ctx.actions.write(script, "\n".join(lines) + "\n", is_executable = True)
    return [DefaultInfo(
        executable = script,
        runfiles = ctx.runfiles(files = clean + refused.keys()),
    )]

locks_test = rule(
    doc = "Fails if a target of `programs`, or of what they are made of in src, breaks a rule of check_target.",
    implementation = _locks_test_impl,
    test = True,
    attrs = {
        "programs": attr.label_list(aspects = [_checks]),
        "refused": attr.label_keyed_string_dict(
            aspects = [_checks],
            doc = "Targets with a mistake, and words of the report that it must be found with.",
        ),
    },
)
