#!/usr/bin/env bash
# A lookup over a relay of Oblivious HTTP, through a door that wants tokens, in front of a chain of three parties. The
# client's side is on another implementation of HPKE, and written from the RFCs. The relay sees no content, the door no address.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../../.deps/venv/bin/python"
ohttp="$here/../../.deps/ohttp/release/shoal-ohttp"
export PRIVACYPASS="$here/../../.deps/privacypass"
if [ ! -x "$python" ] || [ ! -d "$PRIVACYPASS/node_modules" ] || [ ! -x "$ohttp" ]; then
  echo "no libraries, or no shoal-ohttp, in $here/../../.deps; run: scripts/setup --test" >&2
  exit 1
fi
export SHOAL_BIN=$PWD/src
chain=$TEST_TMPDIR/chain
running=()
cleanup() {
  if [ ${#running[@]} -gt 0 ]; then kill "${running[@]}" 2>/dev/null || true; fi
  scripts/local-chain stop "$chain" || true
  rm -rf "$short"
}
short=$(mktemp -d)  # the path of a socket has at most 107 characters
trap cleanup EXIT
fail() { echo "ohttp_test: $*" >&2; tail -n 20 "$chain"/party-?.log "$chain"/*.out >&2; exit 1; }

source scripts/free-ports.sh
free_ports 4

for i in $(seq 50); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$TEST_TMPDIR/records.tsv"
scripts/local-chain create "$chain" --parties 3 --port "$port" --protect lookup --pad 8 \
  --rounds 'onions_window_s: 30 onions_count: 8 queries_window_s: 20 queries_count: 8 answers_window_s: 30' \
  -- --tsv "$TEST_TMPDIR/records.tsv" --name squares --row-bytes 128 >/dev/null
scripts/local-chain start "$chain"
node scripts/privacypass/issuer.mjs key "$chain/issuer"
node scripts/privacypass/issuer.mjs tokens "$chain/issuer" issuer.example door.example 1 >"$TEST_TMPDIR/token"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=door \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$chain/door.key" -out "$chain/door.pem" 2>/dev/null

"$ohttp" --make-key "$chain/ohttp-1.key" --id 1
"$ohttp" --make-key "$chain/ohttp-2.key" --id 2
if "$ohttp" --make-key "$chain/ohttp-1.key" --id 1 2>/dev/null; then fail "a key was overwritten"; fi
[ "$(stat -c %a "$chain/ohttp-1.key")" = 600 ] || fail "others may read the key"
code=0
"$ohttp" --socket 2>/dev/null || code=$?
[ "$code" = 2 ] || fail "wrong usage ends with $code"

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
ohttp_socket: "$short/ohttp"
END
door=(src/door/shoal-door --config "$chain/door.textproto")
"${door[@]}" --begin-keys >/dev/null
if "${door[@]}" --check 2>"$TEST_TMPDIR/said"; then fail "--check passes without shoal-ohttp"; fi
grep -q 'shoal-ohttp must run' "$TEST_TMPDIR/said" || fail "refused for another reason: $(cat "$TEST_TMPDIR/said")"
"$ohttp" --socket "$short/ohttp" --key "$chain/ohttp-2.key" --key "$chain/ohttp-1.key" >"$chain/ohttp.out" 2>&1 &
running+=($!)
until grep -q 'listens at' "$chain/ohttp.out"; do kill -0 "${running[0]}" || fail "shoal-ohttp does not start"; sleep 0.1; done
"${door[@]}" --check || fail "--check refuses"
"${door[@]}" >"$chain/door.out" 2>&1 &
running+=($!)
until grep -q 'listens on' "$chain/door.out"; do kill -0 "${running[1]}" || fail "the door does not start"; sleep 0.1; done

want=$(printf 'key-7\tvalue 49\nno-such-key\t(absent)')
got=$(timeout 100 "$python" "$here/ohttp.py" --pinned "$chain/pinned.textproto" --authority "$chain/door.pem" --tokens "$TEST_TMPDIR/token" \
  127.0.0.1:"$((port + 3))" key-7 no-such-key) || fail "the lookup failed"
[ "$got" = "$want" ] || fail "another answer: $got"
if grep -Eq '127\.0\.0\.[2-9]' "$chain/door.out" "$chain/ohttp.out" "$chain"/party-?.log; then fail "a log names the relay or a client"; fi
