#!/usr/bin/env bash
# The Python client looks keys up at a frontend that plays three parties: its submission, onions, seeds,
# tallies and masks are those of the C++ code, which stops if a layer does not open.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../../.deps/venv/bin/python"
if [ ! -x "$python" ]; then
  echo "no Python libraries in $here/../../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
pins=$TEST_TMPDIR/pinned.textproto
coproc frontend { src/client/testing/fake_frontend_main "$pins"; }
read -r address <&"${frontend[0]}"
got=$(timeout 60 "$python" "$here/client.py" --pad 8 --pinned "$pins" "$address" key-7 no-such-key key-299)
want=$(printf 'key-7\tvalue of key-7\nno-such-key\t(absent)\nkey-299\tvalue of key-299')
[ "$got" = "$want" ] || { echo "onions_test: another answer: $got" >&2; exit 1; }
exec {frontend[1]}>&-
wait
