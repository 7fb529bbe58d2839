#!/usr/bin/env bash
# The Python client looks keys up through a door, over WebSocket and over HTTPS, in front of a chain of three parties; once
# more while a stranger does everything to the door that it can think of, and the chain goes on.
set -euo pipefail
source experiments/python-client/chain.sh

squares
create_chain 5 --pad 64 --rounds "$rounds" -- --name squares --row-bytes 128
scripts/local-chain start "$chain"
configure_door "monitoring { port: $((port + 3)) }"
refused "This program is to listen on 127.0.0.1:$((port + 3)), too: see monitoring"
# A stranger on this machine has an address that counts: nothing is shared.
configure_door "allowed_origins: \"https://page.example.org\"
monitoring { port: $((port + 4)) }"
"${door[@]}" --check || fail "--check refuses"
start_door
refused 'the address is in use'

ask() { through_door door.py "$@" 127.0.0.1:"$((port + 3))" key-7 no-such-key key-200; }
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
make_certificate next
mv "$chain/next.key" "$chain/door.key" && mv "$chain/next.pem" "$chain/door.pem"
kill -HUP "$started"
for _ in $(seq 100); do grep -q 'another certificate' "$chain/door.log" && break; sleep 0.1; done
if ask --probe 2>"$TEST_TMPDIR/said"; then fail "a request without onions is taken"; fi
grep -q 'error 3: ' "$TEST_TMPDIR/said" || fail "no answer with the new certificate: $(cat "$TEST_TMPDIR/said")"
kill "$started"
wait "$started" || fail "the door ended with code $?"
