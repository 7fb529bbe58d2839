# For //scripts:operations_test, which sources it when SHOAL_BEFORE has programs of version 0.2: the flag day of
# docs/operations.md, "From version 0.2 to 0.3". Clients of 0.2 hold slots, answers that they have not fetched, an
# enrolment and sessions of engines when all parties change; every mixture of versions refuses itself; and all go back
# and forward once more. Leaves a chain of the present version, and $PATH with it.
at '## From version 0.2 to 0.3'
refusal='a message of Shoal 0.2 came to one of Shoal 0.3, and these do not understand each other'
says '"its term has ended, erased: of Shoal 0.2, whose'
says '"was written by Shoal 0.2, whose rounds are over, and so are the 2 that it held"'
says 'refused the party before this one'
of_02=$before:$present
tell() { echo "operations_test: $*"; }

# In the folder $1: a command of the version that PATH $2 finds, which must succeed.
run() {
  local folder=$1 path=$2
  shift 2
  (cd "$folder" && PATH=$path "$@" >said 2>words) || fail "$folder: $*: $(tail -n 5 "$folder/words")"
}
# The same, which must fail and say $3.
refused() {
  local folder=$1 path=$2 want=$3
  shift 3
  if (cd "$folder" && PATH=$path "$@" >said 2>words); then fail "$folder: $* went well: $(cat "$folder/said")"; fi
  grep -q -F -- "$want" "$folder/words" || fail "$folder: $*: '$want' is not in: $(cat "$folder/words")"
}
logged() { grep -q -F -- "$2" "$1/log"; }
# Whether the present client in the folder $1 is told of a party that is missing for the reason $2.
missing_for() {
  ! (cd "$1" && PATH=$present shoal status --config client.textproto --parties >said 2>words) && grep -q "party 2: missing: .*: frame: $2" "$1/words"
}
# Whether the client in the folder $1 has just prepared a session.
prepared() { grep -q -E 'nothing is prepared yet|prepared anew|: preparing ' "$1/words"; }
# The party $1 with the programs that PATH $2 finds.
change() {
  stop "$1"
  PATH=$2 start "$1"
}
stop_all() { for party in alice bob carol; do stop "$party"; done; }
start_all() { for party in carol bob alice; do PATH=$1 start "$party"; done; }
# What the ledger of the client in folder $1 has, as the present program reads its state: $2 submissions, $3 rounds
# with slots alone.
ledger() {
  run "$1" "$present" shoal status --config client.textproto --format json
  grep -q "\"submissions\":$2,.*\"idle_rounds\":$3,\"doubts\":0," "$1/said" || fail "$1: not $2 and $3: $(grep -o '"ledger":{[^}]*}' "$1/said")"
}
# Has alice hold rounds that take queries once $1 slots are taken, and answer them once all of these have queries.
rounds() { sed -i "s/^rounds .*/rounds { onions_window_s: 600 onions_count: $1 queries_window_s: 600 answers_window_s: 60 $2 }/" alice/party.textproto; }
terms='terms { refreshes: 9 days: 2 every_hours: 1 open_minutes: 60 }'

# So that clients of one address can fill a round.
echo 'shares { slots: 100 }' >>alice/party.textproto

# Engines, with setups that all parties sign.
engines=(simplepir piano treepir permuted)
for engine in "${engines[@]}"; do
  for party in "${parties[@]}"; do
    run anybody "$of_02" shoal table sign-engine table --engine "$engine" --keys "../$party/keys" --roster roster.textproto --pinned pinned.textproto
  done
  run anybody "$of_02" shoal table aggregate-engine table --engine "$engine" --roster roster.textproto --pinned pinned.textproto
  for party in "${parties[@]}"; do cp "anybody/table/$engine.setup.textproto" "$party/table"; done
done
for party in alice bob; do options[$party]="--engine chain$(printf -- ' --engine %s' "${engines[@]}")"; done

# 1. What clients of 0.2 have when the day comes. A lookup, by `client` (above); slots whose round is lost; another lookup.
for folder in client-02 client-asked; do
  mkdir "$folder"
  cp client/*.textproto "$folder"
done
run client "$of_02" shoal query --config client.textproto --obtain 8
change bob "$of_02"
change alice "$of_02"
PATH=$of_02 ask key-8 'value 64'
PATH=$of_02 ask key-2 'value 4' client-02
# Sessions and hints of engines.
run client "$of_02" shoal query --config client.textproto --engine simplepir key-3
for engine in piano treepir permuted; do
  two=()
  [ "$engine" = piano ] || two=(--party 1 --party 2)
  run client "$of_02" shoal query --config client.textproto --engine "$engine" "${two[@]}" key-3
  [ "$(cat client/said)" = $'key-3\tfound\tvalue 9\tyes' ] || fail "$engine: $(cat client/said)"
  prepared client || fail "$engine: nothing was prepared: $(cat client/words)"
done
# An enrolment.
stop alice
rounds 1 "$terms"
PATH=$of_02 start alice
printf 'key-3\nkey-5\n' >client/keys
run client "$of_02" shoal watch --config client.textproto --file keys --wait 600
grep -q $'^key-5\tfound\tvalue 25\tfirst$' client/said || fail "watch: $(cat client/said)"
[ -s client/client.state.term ] || fail 'no term is stored'
# Slots, and queries whose round waits for what is asked in those.
stop alice
rounds 16 ''
PATH=$of_02 start alice
run client "$of_02" shoal query --config client.textproto --obtain 8
(cd client-asked && PATH=$of_02 exec shoal query --config client.textproto key-9 >said 2>words) &
asked=$!
soon grep -q 'waiting for the answers of round' client-asked/words
keep
tell 'clients of 0.2 hold slots, queries, an enrolment, sessions of engines'

# 2. Mixtures. The frontend alone is of 0.3: the client that waits for its answers ends, with the reason.
change alice "$present"
if wait "$asked"; then fail "a client of 0.2 has its answers from 0.3: $(cat client-asked/{words,said})"; fi
grep -q -F "$refusal" client-asked/words || fail "$(cat client-asked/words)"
soon logged alice "$refusal"
refused client "$of_02" "$refusal" shoal query --config client.textproto key-4
refused client-02 "$of_02" "$refusal" shoal status --config client.textproto
refused client-02 "$of_02" "$refusal" shoal query --config client.textproto --engine piano key-4
mkdir client-03
cp client-02/*.textproto client-03
soon missing_for client-03 "$refusal"
# The last party alone: the party before it is of 0.2, and says so; it itself says who asks.
change alice "$of_02"
change carol "$present"
soon logged carol "refused the party before this one: frame: $refusal"
soon logged alice "$refusal"
refused client-03 "$present" "$refusal" shoal query --config client.textproto key-4
refused client-03 "$present" "$refusal" shoal query --config client.textproto --engine simplepir key-4
# The middle one alone.
change carol "$of_02"
change bob "$present"
soon logged bob "refused the party before this one: frame: $refusal"
soon logged bob "$refusal"
tell 'every mixture of versions is refused by name'

# All parties run 0.2 again, and have a term: those of before ended when the party first ran 0.3.
stop_all
rounds 1 "$terms"
start_all "$of_02"
run client-02 "$of_02" shoal watch --config client.textproto --file ../client/keys --wait 600
for party in "${parties[@]}"; do [ -n "$(ls "$party/state/terms")" ] || fail "$party has no term"; done

# 3. The day, as the page says.
says 'stop party 1'
says 'Start the parties from the back'
stop_all
export PATH=$present
start_all "$present"
soon healthy client-03
for party in "${parties[@]}"; do
  logged "$party" 'its term has ended, erased: of Shoal 0.2, whose terms end with it' || fail "$party: $(cat "$party/log")"
  [ -z "$(ls "$party/state/terms")" ] || fail "$party keeps $(ls "$party/state/terms")"
done
tell 'all parties run 0.3'

# 4. What clients keep, and what they pay. Nothing is charged for what the old program tried in vain.
ledger client 3 2
refused client "$of_02" "$refusal" shoal query --config client.textproto key-4
stop alice
rounds 1 "$terms"
PATH=$present start alice
run client "$present" shoal watch --config client.textproto --file keys --wait 600
grep -q -F 'was written by Shoal 0.2, whose rounds are over, and so are the 1 that it held' client/words || fail "$(cat client/words)"
grep -q -F 'this device had enrolled in a term of Shoal 0.2, which is over' client/words || fail "$(cat client/words)"
[ ! -s client/said ] || fail "news of what is known: $(cat client/said)"
[ -s client/client.state.term ] || fail 'no term is stored'
ledger client 4 2
stop alice
rounds 1 ''
PATH=$present start alice
ledger client-asked 1 0
run client-asked "$present" shoal query --config client.textproto key-9
grep -q -F 'whose rounds are over, and so are the 1 that it held' client-asked/words || fail "$(cat client-asked/words)"
[ "$(cat client-asked/said)" = $'key-9\tfound\tvalue 81\tyes' ] || fail "$(cat client-asked/said)"
ledger client-asked 2 0
ask key-4 'value 16'
ledger client 5 2
for engine in piano treepir permuted; do
  two=()
  [ "$engine" = piano ] || two=(--party 1 --party 2)
  run client "$present" shoal query --config client.textproto --engine "$engine" "${two[@]}" key-6
  [ "$(cat client/said)" = $'key-6\tfound\tvalue 36\tyes' ] || fail "$engine: $(cat client/said)"
  ! prepared client || fail "$engine was prepared anew: $(cat client/words)"
done
run client "$present" shoal query --config client.textproto --engine simplepir key-6
grep -q '(0 B fetched)' client/words || fail "simplepir: $(cat client/words)"
tell 'clients of 0.3 go on with what 0.2 has written'

# 5. 0.2 reads no state of 0.3, and leaves it as it is.
says '0.2 calls it damaged'
cp client/client.state present.state
refused client "$of_02" 'state is damaged: its checksum does not fit' shoal query --config client.textproto key-4
cmp client/client.state present.state || fail '0.2 has changed a state of 0.3'

# 6. The way back, and forward again.
says 'All parties may go back together'
stop_all
start_all "$of_02"
PATH=$of_02 soon healthy client-02
PATH=$of_02 ask key-5 'value 25' client-02
for party in "${parties[@]}"; do
  logged "$party" 'its term has ended, erased: ' || fail "$party: $(cat "$party/log")"
done
refused client-03 "$present" "$refusal" shoal query --config client.textproto key-4
stop_all
options=()
start_all "$present"
ask key-5 'value 25' client-03
tell 'all parties went back to 0.2, and forward again'
