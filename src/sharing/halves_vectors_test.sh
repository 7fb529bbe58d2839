#!/usr/bin/env bash
# The known answers of two tiers are what a program says that was written from docs/protocol.md alone,
# and the page has those of its example. The Python libraries are beside the sources, in .deps, which
# Bazel does not know: the way there is this script's real path. Tagged local for that reason.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../../.deps/venv/bin/python"
if ! "$python" -c 'import cryptography' 2>/dev/null; then
  echo "no cryptography in $here/../../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
"$python" "$1" | diff - "$2" || {
  echo "write them again: python $1 > $2" >&2
  exit 1
}
numbers=$(sed -n '/^### Vectors$/,$p' docs/protocol.md | grep -oE '[0-9a-f]{16,}')
[ "$(wc -w <<<"$numbers")" -ge 19 ] || { echo "the page has few vectors" >&2; exit 1; }
for number in $numbers; do
  grep -qF "$number" "$2" || { echo "docs/protocol.md has $number, which nothing gives" >&2; exit 1; }
done
