#!/usr/bin/env bash
# The Python client looks keys up at a frontend that plays three parties: its submission, onions, seeds,
# tallies and masks are those of the C++ code, which stops if a layer does not open. A round with a term will do.
set -euo pipefail
source experiments/python-client/chain.sh

pins=$TEST_TMPDIR/pinned.textproto
want=$(printf 'key-7\tvalue of key-7\nno-such-key\t(absent)\nkey-299\tvalue of key-299')
# ask REFRESHES PYTHON..: looks keys up in a round that is answered again so many times.
ask() {
  local refreshes=$1 got
  shift
  coproc frontend { src/client/testing/fake_frontend_main "$pins" "$refreshes"; }
  read -r address <&"${frontend[0]}"
  got=$(timeout 60 "$python" "$@" --pad 8 --pinned "$pins" "$address" key-7 no-such-key key-299 2>&1) || true
  exec {frontend[1]}>&-
  wait
  [ "$got" = "$want" ] || fail "another answer ($refreshes refreshes): $got"
}
ask 0 "$here/client.py"

# Where every round has a term, a lookup enters one, and no earlier than it should; here after three seconds.
begun=$(date +%s%N)
PYTHONPATH=$here ask 5 -c 'import client; client.OUT_OF_TERMS_S = 3; client.main()'
[ $(($(date +%s%N) - begun)) -ge 3000000000 ] || fail "a round with a term was entered at once"

# Where none can have one, watching does not wait.
want='client: no round of this deployment has a term'
ask 0 "$here/watch.py"
