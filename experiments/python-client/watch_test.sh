#!/usr/bin/env bash
# A list of keys is asked once in a chain of three parties, and answered at two more epochs of the table: by
# `shoal watch`, one process for each step, and by the Python client, which stays. Each party is killed in between.
set -euo pipefail
source experiments/python-client/chain.sh

records() { for i in $(seq 100); do printf 'key-%d\tvalue %d of epoch %d\n' "$i" "$i" $((i % 10 == 7 ? $1 : 1)); done; }
records 1 >"$TEST_TMPDIR/records.tsv"
create_chain 3 --pad 8 --term-limit 'days: 2 refreshes: 9' \
  --rounds 'onions_window_s: 4 queries_window_s: 20 queries_count: 8 answers_window_s: 30
            terms { refreshes: 5 days: 1 every_hours: 1 open_minutes: 60 }' \
  -- --name watched --row-bytes 256 --room-percent 40
scripts/local-chain start "$chain" >/dev/null

shoal() { src/shoal/shoal "$@" 2>>"$TEST_TMPDIR/shoal.log" || fail "shoal $1: $(tail -n 3 "$TEST_TMPDIR/shoal.log")"; }
trust=(--roster "$chain/roster.textproto" --pinned "$chain/pinned.textproto")
# next_epoch N: every tenth value is a new one, and all parties take it.
next_epoch() {
  records "$1" >"$TEST_TMPDIR/records.tsv"
  shoal table build --tsv "$TEST_TMPDIR/records.tsv" --previous "$chain/table" --keep-rows --deployment local \
    --out "$chain/table-$1" >/dev/null
  for j in 1 2 3; do
    shoal table sign "$chain/table-$1" --previous "$chain/table" --keys "$chain/party-$j" "${trust[@]}" >/dev/null
  done
  shoal table aggregate "$chain/table-$1" "${trust[@]}" >/dev/null
  mv "$chain/table" "$chain/table-before-$1" && mv "$chain/table-$1" "$chain/table"
  for j in 1 2 3; do kill -HUP "$(cat "$chain/party-$j.pid")"; done
}
step() { shoal watch --config "$chain/client.textproto" --wait 300 key-7 key-8 key-77 no-such-key; }
# Steps until there is news, as the parties need a moment for a refresh.
until_news() {
  local got=
  for _ in $(seq 120); do
    got=$(step) || fail "a step failed"
    [ -z "$got" ] || break
    sleep 1
  done
  printf '%s' "$got"
}

timeout 500 "$python" "$here/watch.py" --pinned "$chain/pinned.textproto" --pad 8 --refreshes 2 127.0.0.1:"$port" \
  key-7 key-8 no-such-key >"$TEST_TMPDIR/python.out" 2>"$TEST_TMPDIR/python.err" &
watcher=$!

got=$(step) || fail "the enrolment failed"
want=$(printf 'key-7\tfound\tvalue 7 of epoch 1\tfirst\nkey-8\tfound\tvalue 8 of epoch 1\tfirst\nkey-77\tfound\tvalue 77 of epoch 1\tfirst\nno-such-key\tabsent\t\tfirst')
[ "$got" = "$want" ] || fail "another first answer: $got"
[ -z "$(step)" ] || fail "news without an epoch"
[ "$(stat -c %a "$chain"/client.state.term)" = 600 ] || fail "others can read the term"
for _ in $(seq 100); do [ "$(wc -l <"$TEST_TMPDIR/python.out")" -ge 3 ] && break; sleep 1; done

next_epoch 2
want=$(printf 'key-7\tfound\tvalue 7 of epoch 2\tchanged\nkey-77\tfound\tvalue 77 of epoch 2\tchanged')
got=$(until_news)
[ "$got" = "$want" ] || fail "another answer at epoch 2: $got"
for _ in $(seq 60); do [ "$(wc -l <"$TEST_TMPDIR/python.out")" -ge 4 ] && break; sleep 1; done

# All parties die, and come back.
for j in 1 2 3; do kill -KILL "$(cat "$chain/party-$j.pid")"; done
scripts/local-chain stop "$chain" >/dev/null || true
kill "$watcher" 2>/dev/null || true
scripts/local-chain start "$chain" >/dev/null
next_epoch 3
got=$(until_news)
[ "$got" = "${want//epoch 2/epoch 3}" ] || fail "another answer at epoch 3: $got"
[ -z "$(step)" ] || fail "the same news twice"

# What the Python client saw until its frontend died.
want=$(printf 'key-7\tvalue 7 of epoch 1\nkey-8\tvalue 8 of epoch 1\nno-such-key\t(absent)\nkey-7\tvalue 7 of epoch 2')
got=$(head -n 4 "$TEST_TMPDIR/python.out")
[ "$got" = "$want" ] || fail "the Python client saw: $got; $(cat "$TEST_TMPDIR/python.err")"

# One submission was charged, whatever was answered since.
src/shoal/shoal status --config "$chain/client.textproto" 2>/dev/null >"$TEST_TMPDIR/status" || fail "no status"
grep -q '1 submission' "$TEST_TMPDIR/status" || fail "the ledger has: $(cat "$TEST_TMPDIR/status")"
