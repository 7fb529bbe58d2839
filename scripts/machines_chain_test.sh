#!/usr/bin/env bash
# Chains with parties of several machines, each a process of shoald-machines that scripts/party-machines starts over
# Open MPI on this host: every answer of `shoal query` is right, the jobs end in good order, and a party whose machine is
# killed ends, starts again and serves.
#
#   machines_chain_test.sh [CHAIN]...    "1 2", "2 1" and so on: machines a party, and "killed 2 2" for one whose machines
#                                        are killed, the first of them after a slow start; without arguments those below
set -euo pipefail
fail() { echo "machines_chain_test: $*" >&2; exit 1; }
export SHOAL_BIN=${SHOAL_BIN:-$PWD/src}
readonly keys=40

# Open MPI's folders of a job have a place with a short name.
TMPDIR=$(mktemp -d /tmp/mc.XXXXXX)
export TMPDIR
# Other tests of this kind, and shards of this one, may run at the same time.
port=$((10000 + $$ % 14 * 1600 + ${TEST_SHARD_INDEX:-0} * 400))
began=()
end() {
  for dir in "${began[@]}"; do scripts/local-chain stop "$dir" || true; done
  rm -rf "$TMPDIR"
}
trap end EXIT
for i in $(seq "$keys"); do printf 'key-%d\tvalue %d\n' "$i" "$((i * i))"; done >"$TMPDIR/records.tsv"

# await WHAT COMMAND...: until it succeeds, for three minutes.
await() {
  local until=$((SECONDS + 180)) what=$1
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$until" ] || fail "waited in vain: $what"
    sleep 0.2
  done
}

# create MACHINES: a chain in $dir.
create() {
  local parties
  parties=$(wc -w <<<"$1")
  dir=$TMPDIR/${1// /-}
  scripts/local-chain create "$dir" --parties "$parties" --port "$port" --machines "$1" --protect lookup --pad 4 \
    --rounds 'open_ahead: 1 onions_window_s: 4 queries_window_s: 8 answers_window_s: 30' -- \
    --tsv "$TMPDIR/records.tsv" --name squares --row-bytes 128 >"$TMPDIR/said" 2>&1 || fail "create: $(cat "$TMPDIR/said")"
  port=$((port + 400))
  began+=("$dir")
}
# begin_late: a chain of 2 2, in which a machine of party 2 takes long to read its table. So long no machine's head serves:
# it would sign rounds that its other machine cannot take.
begin_late() {
  local table=$TMPDIR/late-table log starting
  create "2 2"
  log=$dir/party-2.log
  cp -r "$dir/table" "$table"
  mv "$table/manifest.textproto" "$TMPDIR/manifest"
  mkfifo "$table/manifest.textproto"
  sed -i "s,^table_directory: .*,table_directory: \"$table\"," "$dir/party-2.machine-1.textproto"
  scripts/local-chain start-party "$dir" 2 & starting=$!
  exec 3>"$table/manifest.textproto"  # returns when the machine reads it
  await "the head does not wait" grep -qs "waits for the party's other machines" "$log"
  sleep 1
  ! grep 'listens on' "$log" || fail "a machine serves before all can"
  # The machine reads it twice.
  mv "$TMPDIR/manifest" "$table/manifest.textproto"
  cat "$table/manifest.textproto" >&3
  exec 3>&-
  wait "$starting" || fail "party 2 does not start"
  scripts/local-chain start-party "$dir" 1 || fail "party 1 does not start"
}
# wrong_key: the other machine of party 1 has another machines.key than the head. The launcher ends with an exit code after
# which a service manager does not start the party again, and says which file is wrong.
wrong_key() {
  local key=$dir/party-1.machines/machines.key code=0
  cp -p "$key" "$TMPDIR/machines.key"
  head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \n' >"$key"
  # shellcheck disable=SC2016  # for the machine's own shell
  scripts/party-machines --network 127.0.0.0/8 --ports "$(cat "$dir/party-1.mpi-ports")" --host localhost --host localhost -- \
    /bin/sh -c 'exec "$1" --config "$2$([ "$OMPI_COMM_WORLD_RANK" = 0 ] || echo .machine-1).textproto"' sh \
    "$SHOAL_BIN/shoald/machines/shoald-machines" "$dir/party-1" >"$TMPDIR/said" 2>&1 || code=$?
  [ "$code" = 3 ] || fail "a wrong machines.key: exit code $code, not 3: $(cat "$TMPDIR/said")"
  grep -qE 'machines.key: .*machine [01] has another secret than this machine' "$TMPDIR/said" ||
    fail "a wrong machines.key: nothing is said of it: $(cat "$TMPDIR/said")"
  cp -p "$TMPDIR/machines.key" "$key"
}
# Ends it: all machines in good order.
finish() {
  scripts/local-chain stop "$dir" 2>"$TMPDIR/said" || fail "stop: $(cat "$TMPDIR/said")"
  [ ! -s "$TMPDIR/said" ] || fail "$dir: $(cat "$TMPDIR/said")"
  local log machines ended
  for log in "$dir"/party-?.log; do
    [ -e "${log%.log}.mpi-ports" ] || continue
    machines=$(grep -c 'listens on' "$log")
    ended=$(grep -c 'all machines end in good order' "$log" || true)
    [ "$ended" = "$machines" ] || fail "$ended of $machines machines ended in good order: $(tail -n 60 "$log")"
  done
}

# ask CLIENT KEY...: what a client with a state of its own is answered goes to CLIENT.out.
ask() {
  local client=$dir/$1
  shift
  [ -e "$client.textproto" ] || sed "s,client.state,$(basename "$client").state," "$dir/client.textproto" >"$client.textproto"
  echo 'timeout_s: 170' >>"$client.textproto"
  "$SHOAL_BIN/shoal/shoal" query --config "$client.textproto" "$@" >"$client.out" 2>"$client.err"
}
# expect CLIENT KEY...: the answers are right.
expect() {
  local client=$dir/$1 i
  shift
  for i in "$@"; do
    grep -qFx "key-$i"$'\tfound\tvalue '"$((i * i))"$'\tyes' "$client.out" ||
      fail "$client: no right answer to key-$i: $(cat "$client.out" "$client.err")"
  done
  grep -qFx $'no-such-key\tabsent\t\tyes' "$client.out" || fail "$client: $(cat "$client.out" "$client.err")"
}
# ask_all CLIENTS NAME: so many clients at once, three keys each; every answer is right.
ask_all() {
  local running=() i
  for ((i = 0; i < $1; ++i)); do
    ask "$2-$i" "key-$((3 * i + 1))" "key-$((3 * i + 2))" "key-$((3 * i + 3))" no-such-key & running+=($!)
  done
  for ((i = 0; i < $1; ++i)); do
    wait "${running[i]}" || fail "$2-$i: exit code $?: $(cat "$dir/$2-$i.err"); $(tail -n 40 "$dir"/party-?.log)"
    expect "$2-$i" $((3 * i + 1)) $((3 * i + 2)) $((3 * i + 3))
  done
}

# Whether a machine of the frontend that is not its head has taken onions.
others_took() { compgen -G "$dir/party-1.machine-*.state/round-*.submissions" >/dev/null; }
# serve NAME: twelve clients at once. At a frontend of several machines they choose one of them each: that none chooses
# another than the head happens once in 4,096 runs.
serve() {
  local watch=
  if [ -e "$dir/party-1.machine-1.textproto" ]; then
    await "no client of another machine than the head" others_took & watch=$!
  fi
  ask_all 12 "$1"
  [ -z "$watch" ] || wait "$watch" || fail "$dir: all clients chose the head"
}

# processes_of PARTY [MACHINE]: those of its machines. The brackets keep grep from finding itself.
processes_of() {
  local which=
  case "${2:-}" in
    '') ;;
    0) which=textproto ;;
    *) which=machine-$2.textproto ;;
  esac
  grep -ls -- "[/]${dir#/}/party-$1[.]$which" /proc/[0-9]*/cmdline | cut -d / -f 3 || true
}
# Also a process that has ended and that nobody has waited for is none.
runs() { [[ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null)" = [!Z]* ]]; }
gone() { [ -z "$(processes_of "$1")" ] && ! runs "$(cat "$dir/party-$1.pid")"; }

# A machine is killed while a client waits: the party ends on all machines, starts again, and the client that was on its
# way gets its answers, as does a new one.
kill_machine() {
  local party=$1 machine=$2 client=killed-$1-$2 began victim log=$dir/party-$1.log
  ask "$client" key-5 key-6 no-such-key & local asking=$!
  await "$client has no slots" grep -qs 'waiting for round' "$dir/$client.err"
  victim=$(processes_of "$party" "$machine")
  [ "$(wc -w <<<"$victim")" = 1 ] || fail "machine $machine of party $party has the processes '$victim'"
  kill -KILL "$victim"
  began=$SECONDS
  await "party $party has not ended: $(processes_of "$party")" gone "$party"
  echo "party $party had ended $((SECONDS - began)) s after its machine $machine was killed"
  grep -q 'the job has ended' "$log" || fail "the launcher does not say so: $(cat "$log")"
  cp "$log" "$dir/before"
  scripts/local-chain start-party "$dir" "$party" || fail "party $party does not start again"
  wait "$asking" || fail "$client: exit code $?: $(cat "$dir/$client.err"); $(tail -n 40 "$dir"/party-?.log)"
  expect "$client" 5 6
  ask_all 2 "after-$party-$machine"
  # The head has its journal, by which what was signed before stays refused.
  ! grep -q 'no round is in the journal' "$log" || fail "party $party has lost its journal"
}

# A machine of the frontend cannot read what its clients submitted: the round ends at once, and no machine waits for that
# one until it gives up. The client asks in another round.
spoil() {
  local log=$dir/party-1.log aborted='aborted: offline stage' file
  ask spoiled key-8 no-such-key & local asking=$!
  await "the client has no slots" grep -qs 'waiting for round' "$dir/spoiled.err"
  for file in "$dir"/party-1*.state/round-*.submissions; do : >"$file"; done
  await "the round goes on" grep -q "$aborted" "$log"
  ! grep "$aborted" "$log" | grep -qE 'nothing went (to|from) machine|no sign of life' || fail "the others waited for the machine: $(grep "$aborted" "$log")"
  wait "$asking" || fail "spoiled: exit code $?: $(cat "$dir/spoiled.err"); $(tail -n 40 "$log")"
  expect spoiled 8
}

# Party 2, whose head signs rounds, is killed and starts again. Party 1 loses its state, and its clock goes back to before the
# rounds that party 2 has signed: party 2 refuses the counters, which it knows from its journal alone.
refuse_old() {
  kill_all 2
  kill_all 1
  rm -r "$dir/party-1.state"
  scripts/local-chain start-party "$dir" 2 || fail "party 2 does not start again"
  python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("=qq", -int(sys.argv[1]) * 10**9, 0))' \
    "$((SECONDS - chain_began + 20))" >"$TMPDIR/faults"
  SHOAL_FAULTS=$TMPDIR/faults LD_PRELOAD=$PWD/src/sim/libfaults.so scripts/local-chain start-party "$dir" 1 ||
    fail "party 1 does not start again"
  await "nothing is refused" grep -qE 'party 2: round [0-9]+: counters only rise, and [0-9]+ was used' "$dir/party-1.log"
}
kill_all() {
  local pids
  pids=$(processes_of "$1")
  # shellcheck disable=SC2086  # numbers
  kill -KILL $pids
  await "party $1 has not ended" gone "$1"
}

# What a start would need, while nothing runs; and that what no machine can take is refused.
check_start() {
  local program=$SHOAL_BIN/shoald/machines/shoald-machines which
  for which in party-1 party-1.machine-1; do
    "$program" --config "$dir/$which.textproto" --check >"$TMPDIR/said" 2>&1 && grep -q 'state and ports are in order' "$TMPDIR/said" ||
      fail "$which: --check: $(cat "$TMPDIR/said")"
  done
  { cat "$dir/party-1.textproto" && echo 'machines_progress_limit_s: 14'; } >"$dir/hasty.textproto"
  ! "$program" --config "$dir/hasty.textproto" --check >"$TMPDIR/said" 2>&1 &&
    grep -q 'machines_progress_limit_s: 15 to 600' "$TMPDIR/said" || fail "a limit of 14 s: $(cat "$TMPDIR/said")"
}
# What the program checks without the others.
check() {
  local program=$SHOAL_BIN/shoald/machines/shoald-machines
  "$program" --config "$dir/party-1.textproto" --check-files >"$TMPDIR/said" 2>&1 && grep -q "has the party's signing key" "$TMPDIR/said" ||
    fail "--check-files: $(cat "$TMPDIR/said")"
  "$program" --config "$dir/party-1.machine-1.textproto" --check-files >"$TMPDIR/said" 2>&1 && grep -q 'has no signing key' "$TMPDIR/said" ||
    fail "--check-files at another machine: $(cat "$TMPDIR/said")"
  # A signing key that is no key.
  cp -r "$dir/party-1" "$TMPDIR/keys"
  : >"$TMPDIR/keys/bls.key"
  sed "s,^keys_directory: .*,keys_directory: \"$TMPDIR/keys\"," "$dir/party-1.textproto" >"$dir/no-key.textproto"
  ! "$program" --config "$dir/no-key.textproto" --check-files >"$TMPDIR/said" 2>&1 && grep -q bls.key "$TMPDIR/said" ||
    fail "--check-files with a broken signing key: $(cat "$TMPDIR/said")"
  ! "$program" --config "$dir/party-2.textproto" --check-files >"$TMPDIR/said" 2>&1 && grep -q 'its program is shoald' "$TMPDIR/said" ||
    fail "a party of one machine: $(cat "$TMPDIR/said")"
  ! "$SHOAL_BIN/shoald/shoald" --config "$dir/party-1.textproto" --check-files >"$TMPDIR/said" 2>&1 &&
    grep -q shoald-machines "$TMPDIR/said" || fail "shoald for a party of two: $(cat "$TMPDIR/said")"
}

chains=("$@")
if [ "$#" = 0 ]; then
  chains=("1 2" "2 1" "2 3 1" "killed 2 2")
  if [ -n "${TEST_SHARD_STATUS_FILE:-}" ]; then
    touch "$TEST_SHARD_STATUS_FILE"
    [ "$TEST_TOTAL_SHARDS" = "${#chains[@]}" ] || fail "$TEST_TOTAL_SHARDS shards for ${#chains[@]} chains"
    chains=("${chains[TEST_SHARD_INDEX]}")
  fi
fi
for chain in "${chains[@]}"; do
  if [ "$chain" = "${chain#killed }" ]; then
    chain_began=$SECONDS
    create "$chain"
    if [ "$chain" = "2 1" ]; then
      check_start
      wrong_key
    fi
    scripts/local-chain start "$dir" || fail "$chain: does not start"
    serve first
    [ "$chain" != "1 2" ] || refuse_old
    if [ "$chain" = "2 1" ]; then
      check
      spoil
    fi
  else
    begin_late
    kill_machine 2 1
    kill_machine 1 0
    kill_machine 1 1
  fi
  finish
  echo "$chain: done in $SECONDS s"
done
