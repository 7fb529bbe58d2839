#!/usr/bin/env bash
# The page: what is shipped in web/dist is what the lock file and the sources give, byte for byte, and
# below 500 kB; and in headless Chromium three keys are looked up through three real parties, with every
# link captured, a row is spoiled and refused, on wide and narrow screens, by the keyboard (test/page.ts).
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
packages=$here/../.deps/web/node_modules
fail() { echo "page_test: $*" >&2; tail -n 20 "$TEST_TMPDIR"/chain/party-?.log >&2 2>/dev/null || true; exit 1; }
if [ ! -d "$packages" ] || [ ! -x /usr/bin/chromium ]; then
  fail "no Chromium, or no packages in $packages; run: scripts/setup --test"
fi
work=$TEST_TMPDIR/work
node "$here/build.mjs" "$work" --tests || fail "no build"
diff -r "$work/dist" web/dist ||
  fail "web/dist is not what the sources give; run: node web/build.mjs OUT && cp OUT/dist/* web/dist"
size=$(cat web/dist/* | gzip -9 | wc -c)
[ "$size" -lt 500000 ] || fail "the page has $size bytes, compressed"

export SHOAL_BIN=$PWD/src HOME=$TEST_TMPDIR PYTHONDONTWRITEBYTECODE=1
chain=$TEST_TMPDIR/chain
source scripts/free-ports.sh
free_ports 10
export PORT=$port
for i in $(seq 260); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$TEST_TMPDIR/records.tsv"
cut -f 1 "$TEST_TMPDIR/records.tsv" >"$TEST_TMPDIR/keys"
# One round at a time, which closes when a lookup is in it: what passes then is that round's.
scripts/local-chain create "$chain" --parties 3 --port "$port" --protect list --pad 64 \
  --rounds 'open_ahead: 1 max_rounds: 1 onions_window_s: 60 onions_count: 64 queries_window_s: 60 queries_count: 64 answers_window_s: 1' \
  -- --tsv "$TEST_TMPDIR/records.tsv" --name squares --row-bytes 64 >/dev/null
# The roster's addresses are those of the proxies that capture.
for j in 2 3; do echo "listen_address: \"127.0.0.1:$((port + j + 3))\"" >>"$chain/party-$j.textproto"; done
# Of a second door, over TLS.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost -keyout "$chain/door.key" -out "$chain/door.crt" 2>/dev/null
chmod 600 "$chain/door.key"
trap 'scripts/local-chain stop "$chain"' EXIT
shots=${TEST_UNDECLARED_OUTPUTS_DIR:-$TEST_TMPDIR}
# shellcheck disable=SC2016  # for the shell that is started
timeout 300 node "$work/tests/page.mjs" "$packages" "$TEST_TMPDIR/records.tsv" "$shots" "$chain" src/door/shoal-door \
  bash -c 'scripts/local-chain start "$0" && exec python3 web/serve.py --chain "$0" --local-chain "$PWD/scripts/local-chain" \
    --bin "$SHOAL_BIN" --dist web/dist --keys "$1" --pad 64 --devices 0 --port 0 \
    --door-port "$((PORT + 8))" --door-url "http://127.0.0.1:$((PORT + 7))"' \
  "$chain" "$TEST_TMPDIR/keys" || fail "the page"
for name in start wide dark narrow refused; do
  [ -s "$shots/$name.png" ] || fail "no screenshot $name.png"
done
echo "the page: $size bytes compressed; screenshots: $shots"
