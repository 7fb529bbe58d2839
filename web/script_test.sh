#!/usr/bin/env bash
# scripts/web starts a chain and the page, says where it is, and leaves nothing behind.
set -euo pipefail
fail() { echo "script_test: $*" >&2; cat "$TEST_TMPDIR/said" >&2 2>/dev/null || true; exit 1; }
export SHOAL_BIN=$PWD/src TMPDIR=$TEST_TMPDIR/tmp PYTHONDONTWRITEBYTECODE=1
mkdir "$TMPDIR"
source scripts/free-ports.sh
free_ports 5

scripts/web --help | grep -q -- '--devices N' || fail "no help"
for wrong in '--devices' '--devices x' '--window 2' '--tsv /no/such/file' '--what'; do
  # shellcheck disable=SC2086  # an option and its value
  if scripts/web $wrong 2>"$TEST_TMPDIR/said"; then fail "takes $wrong"; fi
  [ "$(wc -l <"$TEST_TMPDIR/said")" = 1 ] || fail "$wrong: says other than one line"
done

for i in $(seq 100); do printf 'key-%d\tvalue %d\n' "$i" "$i"; done >"$TEST_TMPDIR/squares.tsv"
: >"$TEST_TMPDIR/out"  # there before it is read
scripts/web --port 0 --chain-port "$port" --tsv "$TEST_TMPDIR/squares.tsv" --row-bytes 64 --devices 0 \
  --protect lookup >"$TEST_TMPDIR/out" 2>"$TEST_TMPDIR/said" &
web=$!
trap 'kill "$web" 2>/dev/null && wait "$web" || true' EXIT
for _ in $(seq 600); do
  url=$(sed -n 's|^the page is at \(http://localhost:[0-9]*/\)$|\1|p' "$TEST_TMPDIR/out")
  [ -z "$url" ] || break
  kill -0 "$web" || fail "it ended"
  sleep 0.1
done
[ -n "$url" ] || fail "no page after a minute"
python3 - "$url" <<'E2' || fail "another page"
import json, sys, urllib.error, urllib.request
url = sys.argv[1]
def get(path):
    with urllib.request.urlopen(url + path, timeout=20) as answer:
        return answer.headers, answer.read()
headers, page = get("")
assert b"Look it up without telling" in page
assert "script-src 'self'" in headers["Content-Security-Policy"]
about = json.loads(get("about.json")[1])
assert about["keys"][:2] == ["key-1", "key-2"] and about["canSpoil"], about
assert get("pinned.textproto")[1].startswith(b'deployment: "local"')
for path in ("../BUILD", "shoal.js/", "chain/party-1/bls.key", "%2e%2e/serve.py"):
    try:
        get(path)
    except urllib.error.HTTPError as error:
        assert error.code == 404, path
    else:
        raise AssertionError(path)
def post(path, body):
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data=body), timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
# The door takes a frame of a client; this server takes none.
import struct
frame = struct.pack("<4sHHIQ", b"SHL3", 18, 0, 0, 0)
with urllib.request.urlopen(urllib.request.Request(about["door"], data=frame), timeout=20) as answer:
    assert answer.status == 200 and answer.read()[:6] == frame[:6]
assert about["door"].split("/v1/")[0] in headers["Content-Security-Policy"]
assert post("v1/call", frame) in (400, 404)
for bad in (b"", b"[]", b"{}", b'{"row": -1}', b'{"row": "1"}', b'{"row": true}'):
    assert post("play/spoil", bad) == 400, bad
assert post("play/query", b'{"key": ""}') == 400
assert post("play/query", b"{" + b" " * 5000) == 413
E2
parties=$(cat "$TMPDIR"/*/chain/party-?.pid)
[ "$(wc -w <<<"$parties")" = 3 ] || fail "not three parties: $parties"
kill "$web"
wait "$web" || fail "ends with $?"
for pid in $parties; do
  [ ! -e "/proc/$pid" ] || [ "$(sed 's/.*) //' "/proc/$pid/stat" | cut -c1)" = Z ] || fail "party $pid is still there"
done
[ -z "$(ls "$TMPDIR")" ] || fail "left behind: $(ls "$TMPDIR")"
