#!/usr/bin/env bash
# A lookup over a relay of Oblivious HTTP, through a door that wants tokens, in front of a chain of three parties. The
# client's side is on another implementation of HPKE, and written from the RFCs. The relay sees no content, the door no address.
set -euo pipefail
source experiments/python-client/chain.sh
use_issuer
ohttp=$deps/ohttp/release/shoal-ohttp
need "$ohttp"
short=$(mktemp -d)  # the path of a socket has at most 107 characters
trap 'end_all; rm -rf "$short"' EXIT

squares
create_chain 4 --pad 8 --rounds "$rounds" -- --name squares --row-bytes 128
scripts/local-chain start "$chain"
issuer key "$chain/issuer"
issuer tokens "$chain/issuer" issuer.example door.example 1 >"$TEST_TMPDIR/token"

"$ohttp" --make-key "$chain/ohttp-1.key" --id 1
"$ohttp" --make-key "$chain/ohttp-2.key" --id 2
if "$ohttp" --make-key "$chain/ohttp-1.key" --id 1 2>/dev/null; then fail "a key was overwritten"; fi
[ "$(stat -c %a "$chain/ohttp-1.key")" = 600 ] || fail "others may read the key"
code=0
"$ohttp" --socket 2>/dev/null || code=$?
[ "$code" = 2 ] || fail "wrong usage ends with $code"

configure_door "$tokens
ohttp_socket: \"$short/ohttp\""
"${door[@]}" --begin-keys >/dev/null
refused 'shoal-ohttp must run'
start ohttp 'listens at' "$ohttp" --socket "$short/ohttp" --key "$chain/ohttp-2.key" --key "$chain/ohttp-1.key"
# It leaves no core file, and no other process of its user reads its memory: what is not dumpable is root's in /proc.
grep -q '^Max core file size  *0  *0 ' "/proc/$started/limits" || fail "it may leave a core file"
if [ "$(id -u)" = 0 ]; then
  chmod 711 "$short"
  mkdir "$short/private"
  cp "$ohttp" "$chain/ohttp-1.key" "$short/private"
  chown -R nobody "$short/private"
  setpriv --reuid nobody --clear-groups "$short/private/shoal-ohttp" --socket "$short/private/ohttp" --key "$short/private/ohttp-1.key" \
    2>"$TEST_TMPDIR/nobody" &
  running+=("$!")
  for _ in $(seq 100); do [ -S "$short/private/ohttp" ] && break; sleep 0.1; done
  owner=$(stat -c %U "/proc/$!/environ") || fail "as nobody it ends: $(cat "$TEST_TMPDIR/nobody")"
else
  owner=$(stat -c %U "/proc/$started/environ")
fi
[ "$owner" = root ] || fail "processes of $owner read its memory"
"${door[@]}" --check || fail "--check refuses"
start_door

want=$(printf 'key-7\tvalue 49\nno-such-key\t(absent)')
got=$(through_door ohttp.py --tokens "$TEST_TMPDIR/token" 127.0.0.1:"$((port + 3))" key-7 no-such-key) || fail "the lookup failed"
[ "$got" = "$want" ] || fail "another answer: $got"
if grep -Eq '127\.0\.0\.[2-9]' "$chain"/{door,ohttp,party-1,party-2,party-3}.log; then fail "a log names the relay or a client"; fi
