#!/usr/bin/env python3
"""Says that a test did not run on this machine: to people, and to Bazel, from whose test.xml scripts/test counts it.

  left_out.py TEST WHAT WHY      for example incidents_test "incidents in network namespaces" "need root"
"""
import os
import sys
from xml.sax.saxutils import escape


def leave_out(test, what, why):
    print(f"{test}: skipped: {why}", file=sys.stderr)
    if "XML_OUTPUT_FILE" in os.environ:
        # In these quotes, by which scripts/test finds it.
        message = escape(f"{what}: {why}".strip(), {'"': "&quot;", "\n": " "})
        with open(os.environ["XML_OUTPUT_FILE"], "w", encoding="utf-8") as file:
            file.write(f'<testsuites><testsuite name="{test}" tests="1" skipped="1"><testcase name="{test}">'
                       f'<skipped message="{message}"/></testcase></testsuite></testsuites>\n')


if __name__ == "__main__":
    leave_out(*sys.argv[1:])
