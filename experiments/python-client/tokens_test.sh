#!/usr/bin/env bash
# Lookups through a door that wants tokens, in front of a chain of three parties. Another implementation issues the
# tokens (scripts/privacypass); nobody can link one to its issuance; each is taken once, also after restarts.
set -euo pipefail
source experiments/python-client/chain.sh
use_issuer

squares
create_chain 4 --pad 8 --rounds "$rounds" -- --name squares --row-bytes 128
scripts/local-chain start "$chain"

issuer key "$chain/issuer"
issuer unlinkable "$chain/issuer" issuer.example door.example 4 || fail "a token can be linked to its issuance"
issuer tokens "$chain/issuer" issuer.example door.example 3 >"$TEST_TMPDIR/tokens"
issuer tokens "$chain/issuer" issuer.example another.example 1 >"$TEST_TMPDIR/elsewhere"
issuer key "$TEST_TMPDIR/stranger"
issuer tokens "$TEST_TMPDIR/stranger" issuer.example door.example 1 >"$TEST_TMPDIR/foreign"
for i in 1 2 3; do sed -n "${i}p" "$TEST_TMPDIR/tokens" >"$TEST_TMPDIR/token-$i"; done

configure_door "$tokens"
stop() {
  kill "$1" "$started"
  wait "$started" 2>/dev/null || true
}

refused 'begin-keys'
[ "$("${door[@]}" --begin-keys | grep -c begun)" = 1 ] || fail "--begin-keys"
start_door
want=$(printf 'key-7\tvalue 49\nno-such-key\t(absent)')
# ask OPTIONS
ask() { through_door door.py "$@" 127.0.0.1:"$((port + 3))" key-7 no-such-key; }
served() { [ "$(ask "$@")" = "$want" ] || fail "not served: $*"; }
denied() {
  local why=$1
  shift
  if ask --probe "$@" 2>"$TEST_TMPDIR/said"; then fail "served: $*"; fi
  grep -q "error 7: .*$why" "$TEST_TMPDIR/said" || fail "denied for another reason: $(cat "$TEST_TMPDIR/said")"
}
served --tokens "$TEST_TMPDIR/token-1"
served --tokens "$TEST_TMPDIR/token-2" --post
denied 'onions need a token'
denied 'onions need a token' --post
denied 'spent before' --tokens "$TEST_TMPDIR/token-1"
denied 'spent before' --tokens "$TEST_TMPDIR/token-1" --post
denied 'another challenge' --tokens "$TEST_TMPDIR/elsewhere"
denied 'not taken' --tokens "$TEST_TMPDIR/foreign" --post

# A door that is killed has forgotten nothing.
stop -KILL
start_door
denied 'spent before' --tokens "$TEST_TMPDIR/token-2"
served --tokens "$TEST_TMPDIR/token-3"
stop -TERM

# A record that is put back, or is lost, is not believed.
record=("$chain"/door.state/spent-*)
cp "${record[0]}" "$TEST_TMPDIR/backup"
mv "$TEST_TMPDIR/backup" "${record[0]}"
refused 'this is a copy'
rm "${record[0]}"
refused 'the issuer must change its key'
