#!/usr/bin/env bash
# Machines of a party as processes on this host that scripts/party-machines starts: the list of one machine whatever
# their number, lanes that do not delay each other, what waiting costs, exit codes, and which program links MPI.
set -euo pipefail
fail() { echo "party_machines_test: $*" >&2; exit 1; }
offline=$PWD/src/server/testing/offline_over_mpi
lanes=$PWD/src/machines/mpi/check_lanes

# Other tests of this kind may run at the same time.
first_port=$((10000 + $$ % 200 * 100))
on_this_host=(--network 127.0.0.0/8 --ports "$first_port-$((first_port + 39))")
beside_it=(--network 127.0.0.0/8 --ports "$((first_port + 40))-$((first_port + 59))")
beside_both=(--network 127.0.0.0/8 --ports "$((first_port + 60))-$((first_port + 79))")

# machines K PROGRAM...: K machines on this host. Open MPI's folders of a job have a place with a short name.
TMPDIR=$(mktemp -d /tmp/pm.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
machines() {
  local hosts=() count=$1 i
  shift
  for ((i = 0; i < count; ++i)); do hosts+=(--host localhost); done
  scripts/party-machines "${hosts[@]}" "${on_this_host[@]}" -- "$@"
}

# running WORDS: the processes in whose command line they stand. grep fails, too, when a process ends as it looks.
running() { grep -lsF -- "$1" /proc/[0-9]*/cmdline || true; }
# await COMMAND...: until it succeeds, for two minutes.
await() {
  local until=$((SECONDS + 120))
  until "$@"; do
    [ "$SECONDS" -lt "$until" ] || fail "waited in vain: $*"
    sleep 0.2
  done
}
gone() { [ -z "$(running "$1")" ]; }

# Machines that ignore signals. Looked at below: what ends them takes its time. One is told to end, with as much time
# after that as there is; of the other one the launcher is killed, and mpirun with it.
cp "$lanes" "$TMPDIR/orphan"
scripts/party-machines --host localhost "${beside_it[@]}" --end-within 1 --kill-after 10 -- \
  /bin/sh -c 'trap "" USR1 TERM; : >"$1"; while :; do sleep 1; done' sh "$TMPDIR/stubborn" 2>"$TMPDIR/stubborn-said" & stubborn=$!
scripts/party-machines --host localhost "${beside_both[@]}" -- /bin/sh -c 'trap "" TERM; exec "$@"' sh \
  "$TMPDIR/orphan" idle 600 2>"$TMPDIR/orphan-said" & orphan=$!
await [ -e "$TMPDIR/stubborn" ]
kill -TERM "$stubborn"
# The shell has become the program, and this one has begun to join the job: it has threads.
joined() {
  local process
  process=$(pgrep -f "^$TMPDIR/orphan idle") && [ "$(ls "/proc/$process/task" | wc -l)" -ge 3 ]
}
await joined
kill -KILL "$orphan"

for count in 1 2 3 4; do
  mkdir "$TMPDIR/$count"
  (umask 077 && head -c 32 /dev/urandom >"$TMPDIR/$count/secret")
  machines "$count" "$offline" "$TMPDIR/$count" 2500 once || fail "$count machines: exit code $?"
  for what in list seeds; do
    for ((i = 0; i < count; ++i)); do cat "$TMPDIR/$count/$what-$i"; done >"$TMPDIR/$what-of-$count"
    cmp "$TMPDIR/$what-of-1" "$TMPDIR/$what-of-$count" || fail "$count machines have another $what than one"
  done
done
[ -s "$TMPDIR/list-of-1" ] || fail "the list is empty"

for count in 2 3; do machines "$count" "$lanes" lanes || fail "lanes of $count machines: exit code $?"; done

# Processor time, so that other work does not count.
machines 3 "$lanes" idle 10 >"$TMPDIR/idle" || fail "idle: exit code $?"
cat "$TMPDIR/idle"
awk '{ ++n; if ($3 >= 3) bad = 1 } END { exit bad || n != 3 }' "$TMPDIR/idle" || fail "waiting costs 3 % of a core or more"

# expect CODE COMMAND...
expect() {
  local code=0 want=$1
  shift
  "$@" >"$TMPDIR/said" 2>&1 || code=$?
  [ "$code" -eq "$want" ] || fail "exit code $code, not $want: $*: $(cat "$TMPDIR/said")"
}
expect 0 scripts/party-machines --help
# A daemon that does not come up, for which mpirun waits for ever.
printf '#!/bin/sh\nexit 0\n' >"$TMPDIR/no-agent"
chmod +x "$TMPDIR/no-agent"
expect 1 timeout -k 1 60 scripts/party-machines --host localhost --host 127.0.0.3 "${on_this_host[@]}" \
  --agent "$TMPDIR/no-agent" --start-within 3 -- /bin/true
grep -q 'started no machine within 3 s' "$TMPDIR/said" || fail "a daemon that does not come up: $(cat "$TMPDIR/said")"
expect 2 scripts/party-machines
expect 2 scripts/party-machines --host a
expect 2 scripts/party-machines --host '-x' -- /bin/true
# mpirun takes what follows a colon for a number of processes.
expect 2 scripts/party-machines --host a:2 -- /bin/true
expect 2 scripts/party-machines --host a --host b --host a -- /bin/true
expect 2 scripts/party-machines --host a --ports 7400 -- /bin/true
expect 2 scripts/party-machines --host a --ports 7401-7400 -- /bin/true

# Ports that another job has: what Open MPI says of them is that there is no network.
exec 4< <(python3 -c '
import socket, sys, time
held = [socket.socket() for _ in range(2)]
for i, one in enumerate(held):
    one.bind(("", int(sys.argv[1]) + i))
    one.listen()
print("held", flush=True)
time.sleep(60)' "$((first_port + 80))")
read -r _ <&4
code=0
said=$(scripts/party-machines --host localhost --ports "$((first_port + 80))-$((first_port + 83))" -- /bin/true 2>&1) || code=$?
[ "$code" = 1 ] && grep -q 'are in use: another job' <<<"$said" || fail "ports in use: code $code: $said"
exec 4<&-
expect 2 scripts/party-machines --host a --kill-after 60 -- /bin/true
expect 2 scripts/party-machines --host a --end-within 0 -- /bin/true
expect 2 scripts/party-machines --host a -- /bin/true : /bin/true
expect 1 machines 2 /no/such/program
expect 1 machines 2 /bin/sh -c 'exit 4'
expect 2 machines 2 /bin/sh -c 'exit 2'
expect 3 machines 2 /bin/sh -c 'exit 3'
# A machine that leaves without a word.
expect 1 machines 2 /bin/sh -c "[ \$OMPI_COMM_WORLD_RANK = 0 ] && kill -KILL \$\$; exec $lanes lanes"
# Nothing of this environment reaches a machine, or Open MPI.
export OMPI_MCA_btl=vader SHOAL_TEST_SECRET=1
machines 1 /bin/sh -c '[ -z "${SHOAL_TEST_SECRET:-}" ] && [ "$OMPI_MCA_btl" = self,tcp ]' || fail "the environment was passed on"
# Nor do files of the user's: this one puts a machine's number before each line.
mkdir -p "$TMPDIR/home/.openmpi"
echo orte_tag_output = 1 >"$TMPDIR/home/.openmpi/mca-params.conf"
[ "$(HOME=$TMPDIR/home machines 1 /bin/echo hello)" = hello ] || fail "a file of the user's has changed settings"
# What follows -- is the program's.
[ "$(machines 1 /bin/echo --help -h)" = "--help -h" ] || fail "an argument of the program was taken for the launcher's"
# Each machine's output in a file of its own that others cannot read.
scripts/party-machines --host localhost "${on_this_host[@]}" --log "$TMPDIR/log" -- /bin/echo hello >"$TMPDIR/said" ||
  fail "with a log: exit code $?"
[ "$(cat "$TMPDIR/log")" = hello ] && [ ! -s "$TMPDIR/said" ] && [ "$(stat -c %a "$TMPDIR/log")" = 600 ] ||
  fail "the log is not what the machine wrote"
chmod 644 "$TMPDIR/log"
expect 0 scripts/party-machines --host localhost "${on_this_host[@]}" --log "$TMPDIR/log" -- /bin/echo again
[ "$(stat -c %a "$TMPDIR/log")" = 600 ] || fail "a log that was there can be read by others"
expect 1 scripts/party-machines --host localhost "${on_this_host[@]}" --log "$TMPDIR/no/log" -- /bin/true

# What the launcher is told, machines hear: SIGHUP ends nobody, and an end in good order is one.
scripts/party-machines --host localhost --host localhost "${on_this_host[@]}" -- /bin/sh -c '
  own=$1/$OMPI_COMM_WORLD_RANK
  trap ": >$own.reloads" USR2
  trap ": >$own.ends; exit 0" USR1
  : >"$own.began"
  while :; do sleep 0.1; done' sh "$TMPDIR/hears" & launcher=$!
all_have() { [ -e "$TMPDIR/hears/0.$1" ] && [ -e "$TMPDIR/hears/1.$1" ]; }
mkdir "$TMPDIR/hears"
await all_have began
kill -HUP "$launcher"
await all_have reloads
kill -TERM "$launcher"
wait "$launcher" || fail "an end in good order: exit code $?"
all_have ends || fail "the machines were not told to end"

# Told to end, a job whose machines do not know how ends all the same, and the launcher says so.
mkdir "$TMPDIR/told"
head -c 32 /dev/urandom >"$TMPDIR/told/secret"
scripts/party-machines --host localhost --host localhost "${on_this_host[@]}" -- \
  "$offline" "$TMPDIR/told" 100 on & launcher=$!
# Meanwhile nobody listens at a port that the firewall does not know, but for users of this host.
began() {
  kill -0 "$launcher" || fail "the job did not begin"
  [ -e "$TMPDIR/told/began-0" ] && [ -e "$TMPDIR/told/began-1" ]
}
await began
ours=$(running "$TMPDIR/told" | sed 's,/proc/\([0-9]*\)/.*,pid=\1\,,')
listening=$(ss -Hltnp | grep -F "$ours" | awk '$4 !~ /^127\.0\.0\.1:/ { sub(".*:", "", $4); print $4 }')
[ "$(wc -l <<<"$listening")" -ge 3 ] || fail "ss does not show who listens: $listening"
for port in $listening; do
  [ "$port" -ge "$first_port" ] && [ "$port" -le $((first_port + 39)) ] || fail "somebody listens at port $port"
done
kill -TERM "$launcher"
code=0
wait "$launcher" 2>"$TMPDIR/said" || code=$?
[ "$code" = 1 ] || fail "told to end: exit code $code"
gone "$TMPDIR/told" || fail "a process is left"

# Whoever ignored signals has ended all the same, and the first launcher has waited for it.
code=0
wait "$stubborn" || code=$?
[ "$code" = 1 ] && grep -q 'told to end, and not all' "$TMPDIR/stubborn-said" ||
  fail "a machine that ignores signals: exit code $code: $(cat "$TMPDIR/stubborn-said")"
gone "$TMPDIR/stubborn" || fail "a machine that ignores SIGTERM is left"
await gone "$TMPDIR/orphan"

# Only the program of a machine of several links MPI.
ldd "$offline" | grep libmpi >/dev/null || fail "ldd does not show the MPI that is there"
for program in src/shoald/shoald src/shoal/shoal; do
  ! ldd "$program" | grep -iE 'libmpi|open-?(rte|pal|mpi)|pmix' || fail "$program links MPI"
done
