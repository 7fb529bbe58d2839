#!/usr/bin/env bash
# The Python client looks keys up through a door, over WebSocket and over HTTPS, in front of a chain of three parties; once
# more while a stranger does everything to the door that it can think of, and the chain goes on.
set -euo pipefail
source experiments/python-client/chain.sh

squares
create_chain 8 --pad 64 --rounds "$rounds" -- --name squares --row-bytes 128
scripts/local-chain start "$chain"
configure_door "monitoring { port: $((port + 3)) }"
refused "This program is to listen on 127.0.0.1:$((port + 3)), too: see monitoring"
# A stranger on this machine has an address that counts: nothing is shared.
configure_door "allowed_origins: \"https://page.example.org\"
monitoring { port: $((port + 4)) }"
"${door[@]}" --check || fail "--check refuses"
start_door
refused 'the address is in use'
# Its files alone can be looked at beside it.
"${door[@]}" --check-files || fail "--check-files refuses beside a door that runs"
sed 's/signature: "..../signature: "\\000/' "$chain/roster.textproto" >"$chain/roster.spoiled"
sed 's/"roster.textproto"/"roster.spoiled"/' "$chain/door.textproto" >"$chain/spoiled.textproto"
code=0
src/door/shoal-door --config "$chain/spoiled.textproto" --check-files 2>"$TEST_TMPDIR/said" || code=$?
[ "$code" = 3 ] || fail "--check-files ends with $code for a roster that nobody signed: $(cat "$TEST_TMPDIR/said")"

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

# Before a frontend that takes connections and says nothing, /metrics does not wait behind those who ask for /healthz.
of_first=$started
start silent ready "$python" -c 'import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1000)
print("ready", flush=True)
time.sleep(600)' "$((port + 7))"
sed "s/:$((port + 3))\"/:$((port + 5))\"/; s/port: $((port + 4))/port: $((port + 6))/" "$chain/door.textproto" >"$chain/deaf.textproto"
echo "frontend_address: \"127.0.0.1:$((port + 7))\"" >>"$chain/deaf.textproto"
start deaf 'listens on' src/door/shoal-door --config "$chain/deaf.textproto"
get_of_deaf() { "$python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=30).read()' "http://127.0.0.1:$((port + 6))/$1" 2>/dev/null; }
for _ in 1 2 3; do
  for _ in 1 2 3 4; do get_of_deaf healthz & asking=$!; done
  took=$(date +%s%N)
  get_of_deaf metrics || fail "no figures before a frontend that says nothing"
  took=$((($(date +%s%N) - took) / 1000000))
  [ "$took" -lt 2500 ] || fail "/metrics waited $took ms behind /healthz"
done
if wait "$asking"; then fail "/healthz is well before a frontend that says nothing"; fi
started=$of_first

# SIGHUP takes the next roster, and no older one, nor what nobody signed.
settings=$(sed 's/^epoch: .*//' "$chain/settings.textproto")
cp "$chain/roster.textproto" "$chain/roster.before"
printf 'epoch: 2\n%s\n' "$settings" >"$chain/settings.next"
shares=() announcements=()
for j in 1 2 3; do announcements+=(--announcement "$chain/party-$j.announcement"); done
shoal=src/shoal/shoal
"$shoal" roster assemble --settings "$chain/settings.next" "${announcements[@]}" --out "$chain/next.unsigned" >/dev/null
for j in 1 2 3; do
  "$shoal" roster sign --roster "$chain/next.unsigned" --keys "$chain/party-$j" --out "$chain/next.share-$j" >/dev/null
  shares+=(--share "$chain/next.share-$j")
done
"$shoal" roster aggregate --roster "$chain/next.unsigned" "${shares[@]}" --out "$chain/roster.next" >/dev/null
# hup ROSTER WORDS: it reads this roster, and says so.
hup() {
  cp "$chain/$1" "$chain/roster.part" && mv "$chain/roster.part" "$chain/roster.textproto"
  kill -HUP "$started"
  for _ in $(seq 100); do grep -q "$2" "$chain/door.log" && return; sleep 0.1; done
  fail "the door does not say '$2'"
}
hup roster.next 'the roster of epoch 2 is in force'
hup roster.before 'an older one was put back'
hup roster.spoiled 'the roster in force stays: '
[ "$(ask)" = "$want" ] || fail "another answer after SIGHUP"
cp "$chain/roster.next" "$chain/roster.textproto"

# It takes a new certificate without a pause, and ends in good order.
make_certificate next
mv "$chain/next.key" "$chain/door.key" && mv "$chain/next.pem" "$chain/door.pem"
kill -HUP "$started"
for _ in $(seq 100); do grep -q 'another certificate' "$chain/door.log" && break; sleep 0.1; done
if ask --probe 2>"$TEST_TMPDIR/said"; then fail "a request without onions is taken"; fi
grep -q 'error 3: ' "$TEST_TMPDIR/said" || fail "no answer with the new certificate: $(cat "$TEST_TMPDIR/said")"
kill "$started"
wait "$started" || fail "the door ended with code $?"
