#!/usr/bin/env bash
# scripts/local-chain protects a client's whole padded list unless it is told otherwise, and says what
# it protects.
set -euo pipefail
export SHOAL_BIN=$PWD/src
fail() { echo "local_chain_test: $*" >&2; exit 1; }
for i in $(seq 300); do printf 'key-%d\tvalue %d\n' "$i" "$i"; done >"$TEST_TMPDIR/records.tsv"

# create DIR ROW-BYTES OPTIONS..: makes a deployment in DIR; its last line of output is in $said.
create() {
  local dir=$TEST_TMPDIR/$1 row_bytes=$2
  shift 2
  said=$(scripts/local-chain create "$dir" --parties 2 "$@" -- \
    --tsv "$TEST_TMPDIR/records.tsv" --name numbers --row-bytes "$row_bytes" 2>"$TEST_TMPDIR/words") ||
    fail "create $*: $(cat "$TEST_TMPDIR/words")"
  said=${said##*$'\n'}
}
# expect DIR FILE TEXT: FILE of DIR contains TEXT.
expect() { grep -q -F -- "$3" "$TEST_TMPDIR/$1/$2" || fail "$1/$2 has no '$3': $(cat "$TEST_TMPDIR/$1/$2")"; }
expect_said() { [[ $said == *"$1"* ]] || fail "printed '$said', not '$1'"; }

create default 64
expect default roster.textproto 'phi: 64'
expect default client.textproto 'pad_to: 64'
expect_said "a client's whole list in a round, up to 64 queries with padding (epsilon 1, delta 1e-6, phi 64)"

# Noise for 128, which protects 100 as well.
create hundred 32 --pad 100
expect hundred roster.textproto 'phi: 100'
expect hundred roster.textproto 'mode: 166'
expect hundred client.textproto 'pad_to: 100'
expect_said 'up to 100 queries with padding'

# A client asks no row twice, so that no list is longer than the table.
create few-rows 1024 --pad 5000
rows=$(src/shoal/shoal table inspect "$TEST_TMPDIR/few-rows/table" | sed -n 's/^rows\t//p')
[ "$rows" -lt 64 ] || fail "$rows rows are not few"
expect few-rows roster.textproto "phi: $rows"
expect_said "up to $rows queries with padding"

create lookup 64 --protect lookup
expect lookup roster.textproto 'phi: 1'
expect lookup client.textproto 'pad_to: 64'
expect_said "single lookups, not a client's whole list (epsilon 1, delta 1e-6, phi 1)"

create own 64 --noise 'mechanism: GEOMETRIC epsilon: 2 delta: 1e-6 phi: 1 mode: 15 left_scale: 1.25 right_scale: 5'
expect own roster.textproto 'epsilon: 2'
expect_said 'what --noise says: mechanism: GEOMETRIC epsilon: 2'

# Two tiers: a list has as many queries at most as the buckets have places.
said=$(scripts/local-chain create "$TEST_TMPDIR/tiers" --parties 2 --most-in-bucket 1 -- \
  --tsv "$TEST_TMPDIR/records.tsv" --name numbers --row-bytes 64 --query-buckets 16 2>"$TEST_TMPDIR/words") ||
  fail "two tiers: $(cat "$TEST_TMPDIR/words")"
expect tiers roster.textproto 'most_in_bucket: 1'
expect tiers roster.textproto 'phi: 16'
expect_said 'up to 16 queries with padding'
scripts/local-chain create "$TEST_TMPDIR/wrong" --parties 2 --most-in-bucket 1 -- \
  --tsv "$TEST_TMPDIR/records.tsv" --name numbers >/dev/null 2>"$TEST_TMPDIR/words" && fail 'a table without buckets was taken'
grep -q -e '--most-in-bucket goes with --query-buckets' "$TEST_TMPDIR/words" || fail "$(cat "$TEST_TMPDIR/words")"

for wrong in '--most-in-bucket many' '--protect all' '--pad 0' '--pad many' '--protect'; do
  code=0
  # shellcheck disable=SC2086  # two words
  scripts/local-chain create "$TEST_TMPDIR/wrong" $wrong 2>"$TEST_TMPDIR/words" || code=$?
  [ "$code" = 2 ] && grep -q -e "${wrong%% *}" "$TEST_TMPDIR/words" || fail "$wrong: code $code: $(cat "$TEST_TMPDIR/words")"
  [ ! -e "$TEST_TMPDIR/wrong" ] || fail "$wrong left a directory"
done
