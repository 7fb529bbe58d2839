#!/usr/bin/env bash
# The accountant against dp-accounting (PyPI). The Python libraries are beside the sources, in .deps,
# which Bazel does not know: the way there is this script's real path. Tagged local for that reason.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../../.deps/venv/bin/python"
if [ ! -x "$python" ]; then
  echo "no Python libraries in $here/../../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
"$1" | "$python" "$2"
