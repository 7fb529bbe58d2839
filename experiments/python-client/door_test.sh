#!/usr/bin/env bash
# The Python client looks keys up through a door, over WebSocket and over HTTPS, in front of a chain of three parties; once
# more while a stranger does everything to the door that it can think of, and the chain goes on.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../../.deps/venv/bin/python"
if [ ! -x "$python" ]; then
  echo "no Python libraries in $here/../../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
export SHOAL_BIN=$PWD/src
chain=$TEST_TMPDIR/chain
door=
cleanup() {
  if [ -n "$door" ]; then kill "$door" 2>/dev/null || true; fi
  scripts/local-chain stop "$chain" || true
}
trap cleanup EXIT
fail() { echo "door_test: $*" >&2; tail -n 20 "$chain"/party-?.log "$chain/door.log" >&2; exit 1; }

source scripts/free-ports.sh
free_ports 5

for i in $(seq 200); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$TEST_TMPDIR/records.tsv"
scripts/local-chain create "$chain" --parties 3 --port "$port" --protect lookup --pad 64 \
  --rounds 'onions_window_s: 30 onions_count: 8 queries_window_s: 20 queries_count: 8 answers_window_s: 30' \
  -- --tsv "$TEST_TMPDIR/records.tsv" --name squares --row-bytes 128 >/dev/null
scripts/local-chain start "$chain"

# The command of docs/door.md.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=door \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$chain/door.key" -out "$chain/door.pem" 2>/dev/null
# A stranger on this machine has an address that counts: nothing is shared.
cat >"$chain/door.textproto" <<END
listen_address: "127.0.0.1:$((port + 3))"
certificate_file: "door.pem"
private_key_file: "door.key"
roster_file: "roster.textproto"
pinned_parties_file: "pinned.textproto"
allowed_origins: "https://page.example.org"
monitoring { port: $((port + 4)) }
END
src/door/shoal-door --config "$chain/door.textproto" --check || fail "--check refuses"
src/door/shoal-door --config "$chain/door.textproto" >"$chain/door.log" 2>&1 &
door=$!
until grep -q 'listens on' "$chain/door.log"; do kill -0 "$door" || fail "the door does not start"; sleep 0.1; done
if src/door/shoal-door --config "$chain/door.textproto" --check 2>"$TEST_TMPDIR/said"; then fail "--check passes beside a door that runs"; fi
grep -q 'the address is in use' "$TEST_TMPDIR/said" || fail "refused for another reason: $(cat "$TEST_TMPDIR/said")"

ask() {
  timeout 100 "$python" "$here/door.py" --pinned "$chain/pinned.textproto" --authority "$chain/door.pem" --pad 8 "$@" \
    127.0.0.1:"$((port + 3))" key-7 no-such-key key-200
}
want=$(printf 'key-7\tvalue 49\nno-such-key\t(absent)\nkey-200\tvalue 40000')
for how in "" --post --attack; do
  # shellcheck disable=SC2086  # several words
  got=$(ask $how) || fail "the lookup failed ($how)"
  [ "$got" = "$want" ] || fail "another answer ($how): $got"
done

# A phone's lookup: 64 slots are less than 10 kB up, with everything that a client asks.
got=$(ask --pad 64 --bytes) || fail "the lookup of 64 slots failed"
sent=$(sed -n 's/^sent\t//p' <<<"$got")
[ "$sent" -lt 10000 ] || fail "a lookup of 64 slots sends $sent bytes"

# Who does not trust the door's certificate asks nothing.
if ask --authority /etc/ssl/certs/ca-certificates.crt >/dev/null 2>&1; then fail "a foreign certificate was taken"; fi

# What the operator sees, without anybody's address.
get() { "$python" -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())' "http://127.0.0.1:$((port + 4))/$1"; }
get metrics >"$TEST_TMPDIR/metrics"
grep -q '^shoal_door_requests_total [1-9]' "$TEST_TMPDIR/metrics" || fail "no figures: $(cat "$TEST_TMPDIR/metrics")"
grep -q 'shoal_door_refused_total{reason="foreign_origin"} [1-9]' "$TEST_TMPDIR/metrics" || fail "no refusals: $(cat "$TEST_TMPDIR/metrics")"
[ "$(get healthz)" = ok ] || fail "not well: $(get healthz)"
if grep -q '127\.0\.0\.2' "$chain/door.log" "$TEST_TMPDIR/metrics"; then fail "the door names a client"; fi

# It takes a new certificate without a pause, and ends in good order.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=next \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$chain/next.key" -out "$chain/next.pem" 2>/dev/null
mv "$chain/next.key" "$chain/door.key" && mv "$chain/next.pem" "$chain/door.pem"
kill -HUP "$door"
for _ in $(seq 100); do grep -q 'another certificate' "$chain/door.log" && break; sleep 0.1; done
if ask --probe 2>"$TEST_TMPDIR/said"; then fail "a request without onions is taken"; fi
grep -q 'error 3: ' "$TEST_TMPDIR/said" || fail "no answer with the new certificate: $(cat "$TEST_TMPDIR/said")"
kill "$door"
wait "$door" || fail "the door ended with code $?"
door=
