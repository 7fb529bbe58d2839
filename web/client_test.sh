#!/usr/bin/env bash
# The client in TypeScript: its types; known answers of this project's C++ code; what it refuses, signed or not; and
# lookups through a real chain of three parties over pinned TLS, compared with the table. The npm
# packages are beside the sources, in .deps, which Bazel does not know: the way there is this script's
# real path.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
fail() { echo "client_test: $*" >&2; tail -n 20 "$TEST_TMPDIR"/chain/party-?.log >&2 2>/dev/null || true; exit 1; }
if ! command -v node >/dev/null || [ ! -d "$here/../.deps/web/node_modules" ]; then
  fail "no node, or no packages in $here/../.deps/web; run: scripts/setup --test"
fi
work=$TEST_TMPDIR/work
node "$here/build.mjs" "$work" --tests --check || fail "types or build"
# The check of types can fail.
echo 'export const n: number = "text";' >"$work/client/wrong.ts"
if (cd "$work" && node_modules/.bin/tsc -p . >"$TEST_TMPDIR/types" 2>&1); then fail "no types are checked"; fi
grep -q 'wrong.ts' "$TEST_TMPDIR/types" || fail "types: $(cat "$TEST_TMPDIR/types")"

node "$work/tests/vectors.mjs" src/onion/pyhpke_peer src/signature/bls_vectors || fail "vectors"
node "$work/tests/chain.mjs" || fail "chain"
node "$work/tests/noise.mjs" scripts/local-chain || fail "noise"
node "$work/tests/signed.mjs" || fail "signed"
node "$work/tests/text.mjs" || fail "text"
mkdir "$TEST_TMPDIR/fake"
node "$work/tests/refusals.mjs" src/client/testing/fake_frontend_main "$TEST_TMPDIR/fake" || fail "refusals"

export SHOAL_BIN=$PWD/src
chain=$TEST_TMPDIR/chain
source scripts/free-ports.sh
free_ports 3
for i in $(seq 200); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$TEST_TMPDIR/records.tsv"
scripts/local-chain create "$chain" --parties 3 --port "$port" --protect lookup \
  --rounds 'onions_window_s: 30 onions_count: 64 queries_window_s: 20 queries_count: 64 answers_window_s: 30' \
  -- --tsv "$TEST_TMPDIR/records.tsv" --name squares --row-bytes 64 >/dev/null
trap 'scripts/local-chain stop "$chain"' EXIT
scripts/local-chain start "$chain"
ask() { timeout 100 node "$work/tests/look_up.mjs" "$1" 127.0.0.1:"$port" 64 key-7 no-such-key key-200 2>"$TEST_TMPDIR/said"; }
got=$(ask "$chain/pinned.textproto") || fail "the lookup failed: $(cat "$TEST_TMPDIR/said")"
[ "$got" = "$(printf 'key-7\tvalue 49\nno-such-key\t(absent)\nkey-200\tvalue 40000')" ] || fail "another answer: $got"

# A lookup of 64 slots through three parties sends less than 10 kB.
sizes=$(cat "$TEST_TMPDIR/said")
[[ $sizes =~ slots\ 64,\ submission\ 5168,\ up\ ([0-9]+)\ bytes ]] || fail "sizes: $sizes"
[ "${BASH_REMATCH[1]}" -lt 10000 ] || fail "${BASH_REMATCH[1]} bytes up"

# The same parties in another order are another chain.
sed '2{h;d};3{G}' "$chain/pinned.textproto" >"$chain/other.textproto"
cmp -s "$chain/pinned.textproto" "$chain/other.textproto" && fail "nothing was changed"
if ask "$chain/other.textproto"; then fail "foreign parties were believed"; fi
grep -q 'not the pinned ones' "$TEST_TMPDIR/said" || fail "refused for another reason: $(cat "$TEST_TMPDIR/said")"
