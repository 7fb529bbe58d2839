#!/usr/bin/env bash
# The dashboard for Grafana, against the figures that three real parties and a door show after a lookup, a refresh of
# a term and refused requests: dashboard_test.py. Its Python libraries are beside the sources, in .deps, which Bazel does not
# know: the way there is this script's real path.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
python="$here/../.deps/venv/bin/python"
if ! "$python" -c 'import grafana_foundation_sdk, promql_parser' 2>/dev/null; then
  echo "no grafana_foundation_sdk or promql_parser in $here/../.deps/venv; run: scripts/setup --test" >&2
  exit 1
fi
export SHOAL_BIN=$PWD/src
chain=$TEST_TMPDIR/chain
trap 'scripts/local-chain stop "$chain" || true' EXIT
fail() { echo "dashboard_test: $*" >&2; tail -n 20 "$chain"/party-?.log >&2; exit 1; }
source scripts/free-ports.sh
free_ports 10

records() { for i in $(seq 40); do printf 'key-%d\tvalue %d of epoch %d\n' "$i" "$i" "$1"; done >"$TEST_TMPDIR/records.tsv"; }
records 1
scripts/local-chain create "$chain" --parties 3 --port "$port" --protect lookup --pad 8 --term-limit 'days: 2 refreshes: 9' \
  --rounds 'onions_window_s: 60 onions_count: 8 queries_window_s: 20 queries_count: 8 answers_window_s: 30
            terms { refreshes: 5 days: 1 every_hours: 1 open_minutes: 60 }' \
  -- --tsv "$TEST_TMPDIR/records.tsv" --name watched --row-bytes 256 --room-percent 40 >/dev/null
for j in 1 2 3; do echo "monitoring { port: $((port + 4 + j)) }" >>"$chain/party-$j.textproto"; done
scripts/local-chain start "$chain"

shoal() { src/shoal/shoal "$@" >/dev/null 2>>"$TEST_TMPDIR/shoal.log" || fail "shoal $1: $(tail -n 3 "$TEST_TMPDIR/shoal.log")"; }
shoal watch --config "$chain/client.textproto" --wait 300 key-7
trust=(--roster "$chain/roster.textproto" --pinned "$chain/pinned.textproto")
records 2
shoal table build --tsv "$TEST_TMPDIR/records.tsv" --previous "$chain/table" --keep-rows --deployment local --out "$chain/table-2"
for j in 1 2 3; do shoal table sign "$chain/table-2" --previous "$chain/table" --keys "$chain/party-$j" "${trust[@]}"; done
shoal table aggregate "$chain/table-2" "${trust[@]}"
mv "$chain/table" "$chain/table-1" && mv "$chain/table-2" "$chain/table"
for j in 1 2 3; do kill -HUP "$(cat "$chain/party-$j.pid")"; done

# The door with a certificate, whose days it counts.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=localhost \
  -keyout "$chain/door.key" -out "$chain/door.crt" 2>/dev/null
chmod 600 "$chain/door.key"
cat >"$chain/door.textproto" <<E2
listen_address: "127.0.0.1:$((port + 8))"
certificate_file: "door.crt"
private_key_file: "door.key"
roster_file: "roster.textproto"
pinned_parties_file: "pinned.textproto"
monitoring { port: $((port + 9)) }
E2
src/door/shoal-door --config "$chain/door.textproto" >"$chain/party-d.log" 2>&1 &
door=$!
trap 'kill "$door" 2>/dev/null; wait "$door" || true; scripts/local-chain stop "$chain" || true' EXIT
until grep -q 'listens on' "$chain/party-d.log"; do kill -0 "$door" 2>/dev/null || fail "no door"; sleep 0.1; done

"$python" "$1" "$2" "$port" "$((port + 8))" "$((port + 5))" "$((port + 6))" "$((port + 7))" "$((port + 9))" || fail "the dashboard"
