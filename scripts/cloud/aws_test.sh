#!/usr/bin/env bash
# Runs aws_test.py with the Python libraries that scripts/setup --test installs beside the sources.
set -euo pipefail
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
python=$here/../../.deps/venv/bin/python
if [ ! -x "$python" ]; then
  echo "no Python libraries in $here/../../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
export PYTHONPATH=$here
# What `bazel test --test_filter` asks for.
[ -z "${TESTBRIDGE_TEST_ONLY:-}" ] || set -- "$TESTBRIDGE_TEST_ONLY"
exec "$python" -B -c 'import sys, unittest; unittest.main("aws_test", argv=["aws_test"] + sys.argv[1:])' "$@"
