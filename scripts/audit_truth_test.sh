#!/usr/bin/env bash
# A part of what scripts/audit-truth compares in full: some inputs of every format whose other reader is here, in the Python
# environment of .deps or with dpkg and npm, and pairs of versions. Tagged local, as Bazel knows none of these: the way there is this
# script's real path.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../.deps/venv/bin/python"
peer=$1
if ! "$python" -c 'import cyclonedx, packageurl, pip' 2>/dev/null; then
  echo "no cyclonedx-python-lib in $here/../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
# npm brings the readers of its lock files and its order of versions. Debian's stand elsewhere.
for modules in "$(npm root --global 2>/dev/null || true)/npm/node_modules" /usr/share/nodejs; do
  [ -d "$modules/@npmcli/arborist" ] && [ -d "$modules/semver" ] && break
  modules=
done
if [ -z "$modules" ]; then
  echo "no npm here; run: scripts/setup --test" >&2
  exit 1
fi
# compare COUNT FORMAT..
compare() {
  local count=$1 format arguments=()
  shift
  for format in "$@"; do arguments+=(--only "$format"); done
  "$python" -B "$here/truth/command.py" --count "$count" --jobs 2 --peer "$peer" --modules "$modules" --keep "$TEST_TMPDIR/kept" "${arguments[@]}"
}
compare 200 purl osv cyclonedx requirements metadata poetry-lock package-lock cargo-lock go-sum dpkg-status
compare 20000 order-pypi order-npm
# Two to four processes a pair.
compare 1000 order-debian
