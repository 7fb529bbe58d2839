#!/usr/bin/env bash
# Follows docs/operations.md with the commands that stand there: three parties are set up, each in a
# folder that stands for its host; the table and the roster change; keys and certificates are renewed; a
# party and its state are lost and come back. With SHOAL_BEFORE, a folder with the programs of an earlier
# version (scripts/upgrade-test), the parties are set up and begin with these. From 0.2 all change on one day
# (scripts/flag-day.sh); from a version of the same protocol they are updated one at a time while clients of
# both ask.
set -euo pipefail
present=$PWD/src/shoal:$PWD/src/shoald:$PATH
before=${SHOAL_BEFORE:-}
doc=$PWD/docs/operations.md
flag_day=$PWD/scripts/flag-day.sh
sample=$PWD/configs/roster.settings.textproto
source scripts/free-ports.sh
cd "$TEST_TMPDIR"
parties=(alice bob carol)
declare -A pid=() options=() number=([alice]=1 [bob]=2 [carol]=3)
fail() {
  echo "operations_test: $*" >&2
  tail -n 15 {alice,bob,carol}/log >&2 2>/dev/null
  exit 1
}
cleanup() { kill -9 "${pid[@]}" 2>/dev/null || true; }
trap cleanup EXIT

# From now on the page is read from this heading on.
at() {
  section=$1
  grep -q -F -x -- "$section" "$doc" || fail "docs/operations.md has no heading '$section'"
  echo "operations_test: $section"
}
page() { awk -v heading="$section" '$0 == heading { on = 1 } on' "$doc"; }
# The command on the page that begins with $1: continued lines as one, without the remark after it.
command_of() {
  local found
  found=$(page | awk -v want="$1" '
    found { next }
    /^    / { here = substr($0, 5)
              if (line != "") sub(/^ +/, "", here)
              line = line here
              if (sub(/\\$/, "", line)) next
              if (index(line, want) == 1) { sub(/   +[^ ].*$/, "", line); print line; found = 1 } }
    { line = "" }')
  [ -n "$found" ] || fail "docs/operations.md has no command '$1' after '$section'"
  echo "$found"
}
# On the host $1: the page's command that begins with $2, changed by the sed script $3.
on() {
  local line
  line=$(command_of "$2" | sed "${3:-}")
  (cd "$1" && eval "$line" >said 2>words) || fail "$1: $line: $(tail -n 3 "$1/words")"
}
# The page's block of lines that begins with the line $1.
block() {
  page | awk -v want="    $1" 'index($0, want) == 1 { on = 1 } on && !/^    / { on = 0; want = "\n" } on { print substr($0, 5) }'
}
says() { grep -q -F -- "$1" <<<"$(page)" || fail "docs/operations.md does not say '$1' after '$section'"; }
# Waits until the command succeeds; only what hangs reaches the limit.
soon() {
  for _ in $(seq 2000); do
    if "$@" >last 2>&1; then return; fi
    sleep 0.1
  done
  fail "'$*' did not succeed: $(cat last)"
}
start() {
  # shellcheck disable=SC2086  # options are words
  (cd "$1" && exec shoald --config party.textproto ${options[$1]:-} >>log 2>&1) &
  pid[$1]=$!
  soon grep -q 'listens on' "$1/log"
}
stop() {
  kill "${pid[$1]}"
  wait "${pid[$1]}" || fail "$1 did not end in good order"
  : >"$1/log"
}
# The value of the key $1 must be $2 for the client in the folder $3.
ask() {
  local got client=${3:-client}
  got=$(cd "$client" && shoal query --config client.textproto "$1" 2>words) ||
    fail "$client: query: $(tail -n 5 "$client/words")"
  [ "$got" = "$1"$'\tfound\t'"$2"$'\tyes' ] || fail "$client: '$got' is not $2"
}
# With SHOAL_KEEP, a folder that is not there yet: copies there what alice and a client have written, but for the files of
# engines, which are large.
keep() {
  [ -n "${SHOAL_KEEP:-}" ] || return 0
  mkdir "$SHOAL_KEEP"
  cp -r alice client "$SHOAL_KEEP"
  (
    cd "$SHOAL_KEEP"
    rm -f */{log,said,words,roster.unsigned} client/keys alice/{state,keys/signed}/lock client/client.state.lock \
      alice/state/*.product alice/table/*.setup.textproto alice/keys/signed/engine-* client/client.state.*.{hint,setup,session*}
  )
}
healthy() { (cd "${1:-client}" && shoal status --config client.textproto --parties); }

free_ports 4

mkdir anybody client "${parties[@]}"

# The roster, as the file $1.
sign_roster() {
  for party in "${parties[@]}"; do
    cp anybody/roster.unsigned "$party"
    on "$party" 'shoal roster sign' "s/alice/$party/g; ${change[$party]:-}"
    cp "$party/$party.roster-share" anybody
  done
  on anybody 'shoal roster aggregate'
  for host in "${parties[@]}" client; do cp anybody/"$1" "$host"; done
}
# The table in the folder $1, which commands name as they name it on the page. Parties change their
# command by the sed script in `change`, if they have one.
declare -A change=()
sign_table() {
  mkdir "anybody/$1/shares"
  for party in "${parties[@]}"; do
    cp -r "anybody/$1" "$party"
    on "$party" "shoal table sign $1" "${change[$party]:-}"
    cp "$party/$1"/shares/* "anybody/$1/shares"
  done
  on anybody "shoal table aggregate $1"
  for party in "${parties[@]}"; do
    rm -r "${party:?}/$1"
    cp -r "anybody/$1" "$party"
  done
}
squares() { for i in $(seq 100); do printf 'key-%d\tvalue %d\n' "$i" $((i * i + $1)); done >anybody/records.tsv; }

# 1. to 4. Keys and roster.
at '## Setting up'
export PATH=${before:+$before:}$present
for party in "${parties[@]}"; do
  on "$party" 'shoal keys generate' "s/alice/$party/g"
  cp "$party/$party.announcement" anybody
done
sed -e '/name: "bob"/s/ }/ client_address: "127.0.0.1:7303" }/' -e "s/:730\([0-3]\)\"/:$((port / 10))\1\"/g" -e 's/clock_tolerance_s: .*/clock_tolerance_s: 2/' \
  -e '/^noise {/,/^}/{/^noise/!{/^}/!d}}' -e '/^noise {/a mechanism: GEOMETRIC epsilon: 1 delta: 1e-6 phi: 1 mode: 15 left_scale: 1.25 right_scale: 5' \
  "$sample" >anybody/demo.textproto
[ -z "$before" ] || echo 'term_limit { days: 3 refreshes: 9 }' >>anybody/demo.textproto
on anybody 'shoal roster assemble'
sign_roster roster.textproto
on anybody 'shoal roster pins'
for host in "${parties[@]}" client; do cp anybody/pinned.textproto "$host"; done

# 5. The table.
squares 0
from_file='s/--packages/--tsv records.tsv --name squares --row-bytes 128/'
on anybody 'shoal table build --packages --deployment demo --out table' "$from_file"
sign_table table
on anybody 'shoal table verify'

# 6. and 7. The parties, from the back, and a client.
for party in carol bob alice; do
  block 'party: 1' | sed -e "s/^party: 1/party: ${number[$party]}/" \
    -e 's/{ onions_window_s.*}/{ onions_window_s: 600 onions_count: 1 queries_window_s: 600 queries_count: 8 answers_window_s: 60 }/' \
    >"$party/party.textproto"
  [ "$party" = alice ] || sed -i '/^rounds/d' "$party/party.textproto"
  on "$party" 'shoald --config party.textproto --check'
  start "$party"
done
block 'frontend: ' | sed -e "s/alice.example:7300/127.0.0.1:$port/" >client/client.textproto
echo 'pad_to: 8' >>client/client.textproto
ask key-7 'value 49'

case "$before" in
  '') ;;
  *) case "$("$before/shoal" --version)" in 'shoal 0.2.'*) source "$flag_day" ;; *) rolling=yes ;; esac ;;
esac

# From the version before, one party at a time, from the back; then one goes back, and forward again.
# Clients of both versions ask after every step.
if [ -n "${rolling:-}" ]; then
  at '## What to back up, and what never to restore'
  says '**Updating the program, one party at a time.**'
  mkdir client-before
  cp client/*.textproto client-before
  keep
  changes=0
  # Starts the party $1 with the programs that PATH $2 finds, of the $3 version.
  change_to() {
    stop "$1"
    PATH=$2 start "$1"
    PATH=$before:$present soon healthy client-before
    PATH=$present soon healthy client
    changes=$((changes + 1))
    PATH=$before:$present ask "key-$changes" "value $((changes * changes))" client-before
    PATH=$present ask "key-$changes" "value $((changes * changes))" client
    echo "operations_test: $1 runs the $3 version: clients of both have their answers"
  }
  for party in carol bob alice; do change_to "$party" "$present" present; done
  for party in carol alice; do
    change_to "$party" "$before:$present" earlier
    change_to "$party" "$present" present
  done
  export PATH=$present
fi
soon healthy

# A new version of the table, without a restart.
at '## A new version of the table'
squares 1
on anybody 'shoal table build --packages --deployment demo --previous' "$from_file"
sign_table table-2
says 'mv table table-1 && mv table-2 table'
says "kill -HUP \"\$(pidof shoald)\""
for party in "${parties[@]}"; do
  (cd "$party" && mv table table-1 && mv table-2 table)
  kill -HUP "${pid[$party]}"
done
for party in "${parties[@]}"; do soon grep -q 'serves epoch 2 of the table' "$party/log"; done
ask key-7 'value 50'
soon healthy

restart() {
  for party in "${parties[@]}"; do stop "$party"; done
  for party in carol bob alice; do start "$party"; done
}

# A new roster: it is read at the start.
at '## A new roster'
says 'is assembled with a higher `epoch`'
sed -i 's/^epoch: 1/epoch: 2/' anybody/demo.textproto
on anybody 'shoal roster assemble'
sign_roster roster.textproto
for party in "${parties[@]}"; do
  on "$party" 'shoal roster inspect'
  grep -q 'verified.by all 3 pinned parties' "$party/said" || fail "$(cat "$party/said")"
done
restart
ask key-9 'value 82'
soon healthy
grep -q 'healthy' last || fail "$(cat last)"

# alice renews all of her keys, carol her certificate. The chain answers meanwhile. bob gives a renewal up.
at '## Renewing keys and certificates'
on bob 'shoal keys renew' 's/alice/bob/'
on bob 'mv keys/signed'
[ ! -e bob/keys-new ] && [ ! -e bob/keys/signed/signed ] || fail "$(ls -R bob/keys*)"
on alice 'shoal keys renew'
on carol 'shoal keys renew' 's/alice/carol/; s/renew/renew --only-tls/'
for party in alice carol; do cp "$party/$party.announcement" anybody; done
ask key-1 'value 2'
at '## A new roster'
sed -i 's/^epoch: 2/epoch: 3/' anybody/demo.textproto
on anybody 'shoal roster assemble'
at '## Renewing keys and certificates'
# Without --renewed nobody signs.
(cd bob && cp ../anybody/roster.unsigned . && ! shoal roster sign --roster roster.unsigned --pinned pinned.textproto \
  --keys keys >said 2>words) || fail 'bob signs a key that he has not asked for'
grep -q 'sign with --renewed alice' bob/words || fail "$(cat bob/words)"
change=([bob]='s/--renewed bob/--renewed alice/; s/keys-new/keys/' [carol]='s/--renewed carol/--renewed alice/')
sign_roster roster-new.textproto
on anybody 'shoal roster pins'
for party in "${parties[@]}"; do
  on "$party" 'shoal roster inspect'
  tail -n 1 "$party/said" | grep -q 'verified.by all 3 pinned parties' || fail "$(cat "$party/said")"
  grep -q '^party 1 has another key than the pinned one, which signed it: alice, ' "$party/words" &&
    [ "$(wc -l <"$party/words")" = 1 ] || fail "$(cat "$party/words")"
done
for party in "${parties[@]}"; do cp anybody/pinned-new.textproto "$party"; done
ask key-2 'value 5'
squares 2
for host in anybody "${parties[@]}"; do rm -rf "$host/table-1"; done
(cd anybody && mv table table-1 && mv table-2 table)
on anybody 'shoal table build' "$from_file"
sign_table table-2
change=()
ask key-3 'value 10'
for party in "${parties[@]}"; do
  (cd "$party" && rm -rf table-1 && eval "$(block 'mv roster-new.textproto' | grep -v 'mv keys')")
done
for party in alice carol; do (cd "$party" && eval "$(command_of 'mv keys keys-old')"); done
restart
# The client has the pins of before; a new one has the new pins.
ask key-4 'value 18'
mkdir client-new
cp client/client.textproto client-new
cp anybody/pinned-new.textproto client-new/pinned.textproto
ask key-5 'value 27' client-new
soon healthy
for party in alice carol; do rm -r "$party/keys-old"; done

# carol's host is lost, and her state with it. Her keys come back from the backup.
at '## What to back up, and what never to restore'
says 'start with an empty directory'
kill -9 "${pid[carol]}"
wait "${pid[carol]}" 2>/dev/null || true
: >carol/log
rm -r carol/state
missing() { ! healthy 2>words && grep -q 'party 3: missing' words; }
soon missing
sleep 3 # the clock tolerance and one second, as the page says
start carol
soon healthy
ask key-10 'value 102'

for party in "${parties[@]}"; do stop "$party"; done
