#!/usr/bin/env bash
# The header, the library and the example as users compile them, against a deployment of two real
# parties: by the chain and by every engine that the library names, with the results of `shoal query`
# and its charges; what misuse.c does wrong; and what a foreign deployment is told.
set -euo pipefail
export SHOAL_BIN=$PWD/src
unset HOME XDG_CONFIG_HOME SHOAL_CONFIG
work=$TEST_TMPDIR/work
chain=$TEST_TMPDIR/chain
mkdir -p "$work/include" "$work/lib"
pids=()
cleanup() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait || true; }
trap cleanup EXIT
fail() {
  echo "example_test: $*" >&2
  tail -n 20 "$chain"/party-?.log "$work"/said >&2 2>/dev/null || true
  exit 1
}

# As packages install them.
cp src/libshoal/shoal.h "$work/include"
cp src/libshoal/libshoal.so "$work/lib/libshoal.so.1"
ln -s libshoal.so.1 "$work/lib/libshoal.so"
sed "s,@PREFIX@,$work,; s,@LIBDIR@,$work/lib,; s,@INCLUDEDIR@,$work/include,; s,@VERSION@,1," \
  src/libshoal/shoal.pc.in >"$work/shoal.pc"
grep -q @ "$work/shoal.pc" && fail "shoal.pc.in has other names to fill in: $(cat "$work/shoal.pc")"

# The header alone, in every language that it is for.
echo '#include <shoal.h>
shoal_options options = SHOAL_OPTIONS;' >"$work/alone.c"
cp "$work/alone.c" "$work/alone.cc"
warnings=(-Wall -Wextra -pedantic -Werror -I "$work/include")
for standard in c99 c11 gnu17; do
  cc -std=$standard "${warnings[@]}" -Wc++-compat -Wstrict-prototypes -c "$work/alone.c" -o "$work/alone.o" || fail "$standard"
done
for standard in c++11 c++14 c++20; do
  c++ -std=$standard "${warnings[@]}" -c "$work/alone.cc" -o "$work/alone.o" || fail "$standard"
done
link=(-I "$work/include" -L "$work/lib" -Wl,-rpath,"$work/lib" -lshoal)
cc -std=c99 -Wall -Wextra -pedantic -Werror src/libshoal/example.c -o "$work/example" "${link[@]}"
cc -std=gnu99 -Wall -Wextra -Werror src/libshoal/misuse.c -o "$work/misuse" "${link[@]}" -pthread

source scripts/free-ports.sh
free_ports 3

for i in $(seq 200); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$work/records.tsv"
scripts/local-chain create "$chain" --parties 2 --port "$port" --protect lookup --pad 8 \
  --rounds 'onions_window_s: 60 onions_count: 8 queries_window_s: 60 queries_count: 8 answers_window_s: 60' \
  -- --tsv "$work/records.tsv" --name squares --row-bytes 64 >/dev/null
cat >>"$chain/client.textproto" <<'EOF'
offline_party: 2
online_party: 1
EOF

# start PARTY OPTION..: runs it until stop_all.
start() {
  local party=$1
  shift
  : >"$chain/party-$party.log"
  src/shoald/shoald --config "$chain/party-$party.textproto" "$@" >>"$chain/party-$party.log" 2>&1 &
  pids+=($!)
  until grep -q 'listens on' "$chain/party-$party.log"; do
    kill -0 "${pids[-1]}" 2>/dev/null || fail "party $party did not start"
    sleep 0.1
  done
}
stop_all() {
  kill "${pids[@]}"
  wait "${pids[@]}" || true
  pids=()
}
new_client() { # NAME: a configuration with a state of its own
  sed "s/client.state/$1.state/" "$chain/client.textproto" >"$chain/$1.textproto"
}

# The chain alone.
start 2
start 1
new_client c
keys=(key-7 no-such-key key-200 'key of words' key-7)
want=$'key-7\tfound\tvalue 49\nno-such-key\tabsent\nkey-200\tfound\tvalue 40000\nkey of words\tabsent\nkey-7\tfound\tvalue 49'
got=$("$work/example" --config "$chain/c.textproto" "${keys[@]}" 2>"$work/said") || fail "the example failed"
[ "$got" = "$want" ] || fail "the example printed: $got"
grep -q 'this lookup sends 8 queries, padding included, in 1 round' "$work/said" || fail "no progress"
[ "$(stat -c %a "$chain/c.state")" = 600 ] || fail "others may read the state"
# The program and the library share a state, and its ledger has both lookups.
src/shoal/shoal query --config "$chain/c.textproto" key-9 >"$work/tsv" 2>"$work/said" || fail "shoal query failed"
grep -q 'all 16 queries in 2 submissions of this device so far' "$work/said" || fail "charged otherwise"
# The user's own configuration.
mkdir -p "$work/home/.config/shoal"
cp "$chain/c.textproto" "$work/home/.config/shoal/client.textproto"
cp "$chain/pinned.textproto" "$work/home/.config/shoal/"
[ "$(HOME=$work/home "$work/example" key-3 2>"$work/said")" = $'key-3\tfound\tvalue 9' ] || fail "not found at home"

# Misuse, in silence.
cp "$chain/client.textproto" "$chain/m.textproto"
sed 's/client.state/other.state/' "$chain/client.textproto" >"$chain/m.textproto.other"
sed "s/client.state/nobody.state/; s/^frontend: .*/frontend: \"127.0.0.1:1\"/" "$chain/client.textproto" >"$chain/m.textproto.nobody"
said=$(timeout 300 "$work/misuse" "$chain/m.textproto" key-7 'value 49' 2>&1) || fail "misuse: $said"
[ -z "$said" ] || fail "the library printed: $said"
# Five lookups were answered, and this is the sixth: what was cancelled twice is charged once.
src/shoal/shoal query --config "$chain/m.textproto" key-9 >"$work/tsv" 2>"$work/said" || fail "shoal query failed"
grep -qE 'all 48 queries in 6 submissions .*of this device so far' "$work/said" || fail "charged otherwise after misuse"

# A deployment of others.
scripts/local-chain create "$TEST_TMPDIR/foreign" --parties 2 --port "$port" -- --tsv "$work/records.tsv" --name squares >/dev/null
sed "s,pinned.textproto,$TEST_TMPDIR/foreign/pinned.textproto," "$chain/client.textproto" >"$chain/foreign.textproto"
code=0
"$work/example" --config "$chain/foreign.textproto" key-7 >"$work/tsv" 2>"$work/said" || code=$?
[ "$code" = 3 ] && grep -q '^UNAUTHENTICATED: ' "$work/said" || fail "foreign parties: code $code"
[ ! -s "$work/tsv" ] || fail "foreign parties were believed"
stop_all

# Every engine that the library names.
engines=$(/usr/bin/python3 -c '
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.shoal_engines.restype = ctypes.POINTER(ctypes.c_char_p)
names = library.shoal_engines()
at = 0
while names[at]:
    print(names[at].decode())
    at += 1' "$work/lib/libshoal.so.1")
[ "$(wc -l <<<"$engines")" -ge 8 ] || fail "few engines: $engines"
options=()
for engine in $engines; do
  options+=(--engine "$engine")
  [ "$engine" = chain ] || scripts/local-chain engine "$chain" "$engine" >/dev/null
done
start 2 --engine chain --engine treepir --engine permuted --engine pair
start 1 "${options[@]}"
new_client e
for engine in $engines; do
  [ "$engine" = chain ] && continue
  case $engine in
    piano | treepir | permuted)
      got=$("$work/example" --config "$chain/e.textproto" --engine "$engine" --prepare 2>"$work/said") || fail "$engine: not prepared"
      [[ $got =~ ^queries.(unlimited|[1-9][0-9]*)$ ]] || fail "$engine: prepared $got"
      ;;
  esac
  got=$("$work/example" --config "$chain/e.textproto" --engine "$engine" "${keys[@]}" 2>"$work/said") || fail "$engine failed"
  [ "$got" = "$want" ] || fail "$engine printed: $got"
done
# What is made of signed files alone is everybody's: placement, setups and hints.
for file in "$chain"/e.state "$chain"/e.state.guard "$chain"/e.state*.session*; do
  [ "$(stat -c %a "$file")" = 600 ] || fail "others may read $file"
done
