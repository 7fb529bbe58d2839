#!/usr/bin/env bash
# The first hour with Shoal, with real programs: three parties set a deployment up by `shoal ceremony`, each in
# a directory of its own; shoald starts from what comes out; a user runs `shoal init` and asks. Then the
# mistakes that people make, each of which must be answered with what was found and what to do.
set -euo pipefail
export PATH=$PWD/src/shoal:$PWD/src/shoald:$PATH
source scripts/free-ports.sh
cd "$TEST_TMPDIR"
parties=(alice bob carol)
declare -A pid=()
fail() {
  echo "first_use_test: $*" >&2
  tail -n 15 {alice,bob,carol}/log >&2 2>/dev/null
  exit 1
}
cleanup() { kill -9 "${pid[@]}" 2>/dev/null || true; }
trap cleanup EXIT
# The command fails, and its words have $1.
says() {
  local want=$1 code=0
  shift
  "$@" >said 2>&1 || code=$?
  [ "$code" != 0 ] || fail "'$*' did not fail: $(cat said)"
  grep -q -F -- "$want" said || fail "'$*' does not say '$want': $(cat said)"
}

free_ports 4

# --- the ceremony ---
cat >settings.textproto <<SETTINGS
deployment: "demo"
parties { name: "alice" client_address: "127.0.0.1:$port" }
parties { name: "bob" peer_address: "127.0.0.1:$((port + 1))" client_address: "127.0.0.1:$((port + 3))" }
parties { name: "carol" peer_address: "127.0.0.1:$((port + 2))" }
noise { mechanism: GEOMETRIC epsilon: 1 delta: 1e-6 phi: 1 mode: 15 left_scale: 1.25 right_scale: 5 }
clock_tolerance_s: 60
max_slots: 1000
SETTINGS
# Runs the ceremony of one party until it is not killed any more: the first time after no time, then a little later.
patient() {
  local wait
  # In the foreground `timeout` waits for what it has killed, whose lock is gone only then.
  for wait in 0.001 0.003 0.01 0.03; do (timeout --foreground -s KILL "$wait" shoal ceremony "$@" >said 2>&1 || true) 2>/dev/null; done
  shoal ceremony "$@" >said 2>&1 || fail "ceremony $*: $(cat said)"
}
for party in "${parties[@]}"; do
  mkdir "$party"
  patient "$party" --name "$party"
  cp settings.textproto "$party"
done
for party in "${parties[@]}"; do cp "$party/$party.announcement" .; done
for party in "${parties[@]}"; do cp ./*.announcement "$party"; done
patient alice
cp alice/roster.unsigned bob
cp alice/roster.unsigned carol
patient bob
fingerprint=$(grep -Eo '([0-9]{5} ){9}[0-9]{5}' said | tail -n 1)
says 'Do not sign' shoal ceremony carol --compared "00000${fingerprint:5}"
for party in "${parties[@]}"; do patient "$party" --compared "$fingerprint"; done
for party in "${parties[@]}"; do cp "$party/$party.roster-share" .; done
for party in "${parties[@]}"; do
  cp ./*.roster-share "$party"
  patient "$party"
  grep -q 'The ceremony is complete' said || fail "$party: $(cat said)"
  cmp -s "$party/roster.textproto" alice/roster.textproto || fail "$party has another roster"
done
pins=$(grep -Eo '([0-9]{5} ){9}[0-9]{5}' said | tail -n 1)

# --- the table, and the parties ---
for i in $(seq 100); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >records.tsv
shoal table build --tsv records.tsv --name squares --row-bytes 128 --deployment demo --out table 2>/dev/null
for party in "${parties[@]}"; do
  shoal table sign table --keys "$party/keys" --roster alice/roster.textproto --pinned alice/pinned.textproto >/dev/null
done
shoal table aggregate table --roster alice/roster.textproto --pinned alice/pinned.textproto >/dev/null 2>&1
for party in "${parties[@]}"; do cp -r table "$party"; done
sed 's,"state","/proc/none",' alice/party.textproto >alice/bad.textproto
says 'state_directory: /proc/none' shoald --config alice/bad.textproto --check
# A table of two tiers under a roster for rows, which no party serves, neither by the chain nor by an engine.
shoal table build --tsv records.tsv --name tiers --row-bytes 128 --query-buckets 2 --deployment demo --out tiers 2>/dev/null
for party in "${parties[@]}"; do
  shoal table sign tiers --keys "$party/keys" --roster alice/roster.textproto --pinned alice/pinned.textproto >/dev/null
done
shoal table aggregate tiers --roster alice/roster.textproto --pinned alice/pinned.textproto >/dev/null 2>&1
shoal table verify tiers --roster alice/roster.textproto --pinned alice/pinned.textproto >/dev/null 2>&1 || fail 'a table of two tiers is not verified'
sed 's,"table","../tiers",' alice/party.textproto >alice/tiers.textproto
for how in '--check' '--engine simplepir --check'; do
  says 'its query_buckets are 2, and most_in_bucket is 0 in the roster of 3 parties' shoald --config alice/tiers.textproto $how
done
echo 'rounds { onions_window_s: 2 queries_window_s: 2 answers_window_s: 60 }' >>alice/party.textproto
for party in "${parties[@]}"; do
  shoald --config "$party/party.textproto" --check >said 2>&1 || fail "$party: --check: $(cat said)"
  grep -q 'state and ports are in order' said || fail "$party: --check says: $(cat said)"
  [ ! -e "$party/state" ] || fail "--check has made $party's state"
done
# What a start refuses, --check refuses: the keys of another party, and a port that is taken.
sed 's/party: 2/party: 3/' bob/party.textproto >bob/other.textproto
says 'but that of party 2 (bob)' shoald --config bob/other.textproto --check
for party in carol bob alice; do
  (exec shoald --config "$party/party.textproto" >>"$party/log" 2>&1) &
  pid[$party]=$!
  for _ in $(seq 600); do
    if grep -q 'listens on' "$party/log"; then break; fi
    sleep 0.1
  done
  grep -q 'listens on' "$party/log" || fail "$party does not start"
done
says 'for 2 reasons' shoald --config bob/party.textproto --check
grep -q 'another process uses this directory' said || fail "--check of a party that runs: $(cat said)"
grep -q "listening on 127.0.0.1:$((port + 1)): the address is in use" said || fail "--check: $(cat said)"
shoald --config bob/party.textproto --check-files >said 2>&1 || fail "--check-files: $(cat said)"

# --- a user ---
export HOME=$PWD/home XDG_CONFIG_HOME= XDG_STATE_HOME=
unset SHOAL_CONFIG
mkdir home
says 'shoal init FRONTEND --pins FILE' shoal status
# The port of a neighbour, no port, nobody, and something else that listens there.
says 'clients connect to a client_address' timeout 20 shoal init "127.0.0.1:$((port + 1))" --pins alice/pinned.textproto
says 'expected host:port' shoal init 127.0.0.1 --pins alice/pinned.textproto
says 'does that party run' shoal init "127.0.0.1:$((port + 4))" --pins alice/pinned.textproto
says 'is a roster, and no pins' shoal init "127.0.0.1:$port" --pins alice/roster.textproto
sed 's/"demo"/"other"/' alice/pinned.textproto >other.pins
says 'of another deployment, "demo", than the pins, which are of "other"' shoal init "127.0.0.1:$port" --pins other.pins
[ ! -e home/.config ] && [ ! -e home/.local ] || fail 'what was refused has left something behind'
shoal init "127.0.0.1:$port" --pins alice/pinned.textproto >said 2>words || fail "init: $(cat words)"
grep -q -F "$pins" said || fail "init shows another fingerprint than the ceremony: $(cat said), not $pins"
answer=$(shoal query key-7 2>words) || fail "query: $(cat words)"
[ "$answer" = $'key-7\tfound\tvalue 49\tyes' ] || fail "query says '$answer'"
# A table of seven rows: a list of 64 queries is more than all of it.
grep -q 'a copy of it from its publisher is the better idea' words || fail "query does not advise: $(cat words)"
# An engine that a party does not serve, and one that serves none.
says "party 1 at 127.0.0.1:$port: this party runs no engine beside the chain" shoal query --engine simplepir key-7
grep -q 'simplepir was asked for; another party may serve it' said || fail "the engine: $(cat said)"
says 'Nobody answers where the roster says that clients of party 2' shoal query --engine simplepir --party 2 key-7
# The port of a neighbour in a configuration that was right once: it does not wait ten minutes.
sed "s/:$port/:$((port + 1))/" home/.config/shoal/client.textproto >moved.textproto
says 'clients connect to a client_address' timeout 30 shoal query --config moved.textproto key-7
echo "first_use_test: done in $SECONDS s"
