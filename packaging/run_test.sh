#!/usr/bin/env bash
# Runs the tests of packaging that are named, on the source tree, with the programs that Bazel has made. In a test this file
# is a symbolic link into that tree.
set -euo pipefail
export SHOAL_PROGRAMS=$PWD
cd "$(dirname "$(readlink -f "$0")")"
python=../.deps/venv/bin/python3
[ -x "$python" ] || { echo "run_test: run scripts/setup --test" >&2; exit 1; }
exec "$python" -B -m unittest "$@"
