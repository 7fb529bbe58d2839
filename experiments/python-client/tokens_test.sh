#!/usr/bin/env bash
# Lookups through a door that wants tokens, in front of a chain of three parties. Another implementation issues the
# tokens (scripts/privacypass); nobody can link one to its issuance; each is taken once, also after restarts.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../../.deps/venv/bin/python"
export PRIVACYPASS="$here/../../.deps/privacypass"
if [ ! -x "$python" ] || [ ! -d "$PRIVACYPASS/node_modules" ]; then
  echo "no libraries in $here/../../.deps; run: scripts/setup --test" >&2
  exit 1
fi
export SHOAL_BIN=$PWD/src
chain=$TEST_TMPDIR/chain
running=
cleanup() {
  if [ -n "$running" ]; then kill "$running" 2>/dev/null || true; fi
  scripts/local-chain stop "$chain" || true
}
trap cleanup EXIT
fail() { echo "tokens_test: $*" >&2; tail -n 20 "$chain"/party-?.log "$chain/door.log" >&2; exit 1; }

source scripts/free-ports.sh
free_ports 4

for i in $(seq 50); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$TEST_TMPDIR/records.tsv"
scripts/local-chain create "$chain" --parties 3 --port "$port" --protect lookup --pad 8 \
  --rounds 'onions_window_s: 30 onions_count: 8 queries_window_s: 20 queries_count: 8 answers_window_s: 30' \
  -- --tsv "$TEST_TMPDIR/records.tsv" --name squares --row-bytes 128 >/dev/null
scripts/local-chain start "$chain"

issuer() { node scripts/privacypass/issuer.mjs "$@"; }
issuer key "$chain/issuer"
issuer unlinkable "$chain/issuer" issuer.example door.example 4 || fail "a token can be linked to its issuance"
issuer tokens "$chain/issuer" issuer.example door.example 3 >"$TEST_TMPDIR/tokens"
issuer tokens "$chain/issuer" issuer.example another.example 1 >"$TEST_TMPDIR/elsewhere"
issuer key "$TEST_TMPDIR/stranger"
issuer tokens "$TEST_TMPDIR/stranger" issuer.example door.example 1 >"$TEST_TMPDIR/foreign"
for i in 1 2 3; do sed -n "${i}p" "$TEST_TMPDIR/tokens" >"$TEST_TMPDIR/token-$i"; done

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=door \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$chain/door.key" -out "$chain/door.pem" 2>/dev/null
cat >"$chain/door.textproto" <<END
listen_address: "127.0.0.1:$((port + 3))"
certificate_file: "door.pem"
private_key_file: "door.key"
roster_file: "roster.textproto"
pinned_parties_file: "pinned.textproto"
tokens {
  issuers { name: "issuer.example" public_key_file: "issuer/public.der" }
  origin: "door.example"
  state_directory: "door.state"
}
END
door=(src/door/shoal-door --config "$chain/door.textproto")
refused() {
  local code=0
  "${door[@]}" --check 2>"$TEST_TMPDIR/said" || code=$?
  [ "$code" = 1 ] || fail "--check ends with $code"
  grep -q "$1" "$TEST_TMPDIR/said" || fail "refused for another reason: $(cat "$TEST_TMPDIR/said")"
}
start() {
  "${door[@]}" >"$chain/door.log" 2>&1 &
  running=$!
  until grep -q 'listens on' "$chain/door.log"; do kill -0 "$running" || fail "the door does not start"; sleep 0.1; done
}
stop() { kill "$1" "$running"; wait "$running" 2>/dev/null || true; running=; }

refused 'begin-keys'
[ "$("${door[@]}" --begin-keys | grep -c begun)" = 1 ] || fail "--begin-keys"
start
want=$(printf 'key-7\tvalue 49\nno-such-key\t(absent)')
# ask OPTIONS
ask() {
  timeout 100 "$python" "$here/door.py" --pinned "$chain/pinned.textproto" --authority "$chain/door.pem" --pad 8 "$@" \
    127.0.0.1:"$((port + 3))" key-7 no-such-key
}
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
start
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
