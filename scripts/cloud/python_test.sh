#!/usr/bin/env bash
# python_test.sh NAME: runs NAME.py of this folder with the Python libraries that scripts/setup --test installs beside the sources.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
python=$here/../../.deps/venv/bin/python
if [ ! -x "$python" ]; then
  echo "no Python libraries in $here/../../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
SHOAL_BIN=${SHOAL_BIN:-$PWD/src} exec "$python" -B "$here/$1.py"
