#!/usr/bin/env bash
# The orders of versions against dpkg, packaging and npm. pip, which has packaging, is beside the
# sources, in .deps, which Bazel does not know: the way there is this script's real path. Tagged local
# for that reason.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../../.deps/venv/bin/python"
if ! "$python" -c 'import pip._vendor.packaging' 2>/dev/null; then
  echo "no pip in $here/../../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
"$python" "$2" "$1" 1000 20000
