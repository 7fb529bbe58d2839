#!/usr/bin/env bash
# The Python client looks keys up in a running chain of three parties: present ones, absent ones and
# one of several words. It refuses a chain whose parties are not the pinned ones.
set -euo pipefail
source experiments/python-client/chain.sh

# The client stays small enough to be read in one sitting.
[ "$(cat "$here"/{client,row_versions}.py | wc -l)" -le 460 ] || fail "the client has more than 460 lines"

squares
printf 'a key of several words\tfound\n' >>"$TEST_TMPDIR/records.tsv"
create_chain 3 --rounds "$rounds" -- --name squares --row-bytes 128 --room-percent 10

# The next epoch keeps every key's row. Some of the new keys, whose records are the longest, have no room.
for i in $(seq 60); do printf 'new-%d\ta value of many more bytes\n' "$i"; done >>"$TEST_TMPDIR/records.tsv"
shoal() { src/shoal/shoal "$@" >/dev/null 2>>"$TEST_TMPDIR/shoal.log" || fail "$(tail -n 1 "$TEST_TMPDIR/shoal.log")"; }
trust=(--roster "$chain/roster.textproto" --pinned "$chain/pinned.textproto")
shoal table build --tsv "$TEST_TMPDIR/records.tsv" --previous "$chain/table" --keep-rows \
  --displaced "$TEST_TMPDIR/displaced.tsv" --deployment local --out "$chain/table-2"
for j in 1 2 3; do shoal table sign "$chain/table-2" --previous "$chain/table" --keys "$chain/party-$j" "${trust[@]}"; done
shoal table aggregate "$chain/table-2" "${trust[@]}"
mv "$chain/table" "$chain/table-1" && mv "$chain/table-2" "$chain/table"
displaced=$(cut -f 1 "$TEST_TMPDIR/displaced.tsv" | grep -m 1 new-) || fail "no key is without room"
scripts/local-chain start "$chain"

ask() { timeout 60 "$python" "$here/client.py" --pad 8 "$@" 127.0.0.1:"$port" key-7 no-such-key 'a key of several words' key-200 "$displaced"; }
want=$(printf 'key-7\tvalue 49\nno-such-key\t(absent)\na key of several words\tfound\nkey-200\tvalue 40000\n%s\t(not known until the next term)' "$displaced")
got=$(ask --pinned "$chain/pinned.textproto") || fail "the lookup failed"
[ "$got" = "$want" ] || fail "another answer: $got"

# The same parties in another order are another chain.
sed '2{h;d};3{G}' "$chain/pinned.textproto" >"$chain/other.textproto"
cmp -s "$chain/pinned.textproto" "$chain/other.textproto" && fail "nothing was changed"
if ask --pinned "$chain/other.textproto" 2>"$TEST_TMPDIR/refusal"; then fail "foreign parties were believed"; fi
grep -q 'not the pinned ones' "$TEST_TMPDIR/refusal" || fail "refused for another reason: $(cat "$TEST_TMPDIR/refusal")"
