# For the tests of this folder, which source it: where the Python libraries are, a chain of three parties, and a door in
# front of it. The libraries and the clients are beside the sources, which Bazel does not know: the way there is this
# file's real path. Whatever runs ends with the test.
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
deps=$here/../../.deps
python=$deps/venv/bin/python
need() {
  if [ ! -x "$1" ]; then
    echo "no $1; run: scripts/setup --test" >&2
    exit 1
  fi
}
need "$python"

chain=$TEST_TMPDIR/chain
fail() {
  echo "${TEST_TARGET##*:}: $*" >&2
  tail -n 20 "$chain"/*.log >&2 2>/dev/null || true
  exit 1
}

running=()  # processes that end with the test
end_all() {
  if [ ${#running[@]} -gt 0 ]; then kill "${running[@]}" 2>/dev/null || true; fi
  if [ -d "$chain" ]; then scripts/local-chain stop "$chain" || true; fi
}
trap end_all EXIT

# The records of a table, of more rows than a lookup of eight queries asks: else it would ask fewer, and not close a round.
squares() { for i in $(seq 200); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$TEST_TMPDIR/records.tsv"; }

# create_chain PORTS OPTION..: three parties with that table, at the first of so many free ports. The options are those of
# scripts/local-chain, and after -- those of the table.
create_chain() {
  source scripts/free-ports.sh
  free_ports "$1"
  shift
  export SHOAL_BIN=$PWD/src
  scripts/local-chain create "$chain" --parties 3 --port "$port" --protect lookup "$@" --tsv "$TEST_TMPDIR/records.tsv" >/dev/null
}
# Rounds that close with one lookup of eight queries.
rounds='onions_window_s: 30 onions_count: 8 queries_window_s: 20 queries_count: 8 answers_window_s: 30'

# make_certificate NAME: of a door on this machine, by the command of docs/door.md.
make_certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj "/CN=$1" \
    -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout "$chain/$1.key" -out "$chain/$1.pem" 2>/dev/null
}

# configure_door [FIELDS]: a door at the fourth port, with these fields in its configuration besides. `door` is its command.
configure_door() {
  make_certificate door
  cat >"$chain/door.textproto" <<END
listen_address: "127.0.0.1:$((port + 3))"
certificate_file: "door.pem"
private_key_file: "door.key"
roster_file: "roster.textproto"
pinned_parties_file: "pinned.textproto"
${1:-}
END
  door=(src/door/shoal-door --config "$chain/door.textproto")
}

# start NAME WORDS COMMAND..: starts it, with NAME.log, and waits until it says WORDS. `started` is its process.
start() {
  local log=$chain/$1.log words=$2
  shift 2
  "$@" >"$log" 2>&1 &
  started=$!
  running+=("$started")
  until grep -q "$words" "$log"; do
    kill -0 "$started" || fail "does not start: $*"
    sleep 0.1
  done
}
start_door() { start door 'listens on' "${door[@]}"; }

# refused WHY: --check refuses the door, and says so.
refused() {
  local code=0
  "${door[@]}" --check 2>"$TEST_TMPDIR/said" || code=$?
  [ "$code" = 1 ] || fail "--check ends with $code"
  grep -q "$1" "$TEST_TMPDIR/said" || fail "refused for another reason: $(cat "$TEST_TMPDIR/said")"
}

# Tokens of the door at door.example, by another implementation (scripts/privacypass).
tokens='tokens {
  issuers { name: "issuer.example" public_key_file: "issuer/public.der" }
  origin: "door.example"
  state_directory: "door.state"
}'
use_issuer() {
  export PRIVACYPASS=$deps/privacypass
  need "$PRIVACYPASS/node_modules"
}
issuer() { node scripts/privacypass/issuer.mjs "$@"; }

# through_door PROGRAM OPTION..: what one of the clients through a door prints.
through_door() {
  timeout 100 "$python" "$here/$1" --pinned "$chain/pinned.textproto" --authority "$chain/door.pem" --pad 8 "${@:2}"
}
