#!/usr/bin/env bash
# Runs every study at its smallest, end to end: real processes, results, figures, page. A second run
# must find everything done. A wrong answer and a missing program must end a study with the right
# codes.
set -euo pipefail
export SHOAL_BIN=$PWD/src
fail() { echo "study_test: $*" >&2; exit 1; }
study=$PWD/scripts/study
work=$TEST_TMPDIR/work
mkdir -p "$work"

list=$("$study" --list)
grep -q '^table-size  *Completion time' <<<"$list" || fail "--list: $list"
help=$("$study" queries --help)
grep -q -- --quick <<<"$help" || fail "queries --help: $help"
code=0; "$study" no-such-study 2>"$work/words" || code=$?
[ "$code" = 2 ] && grep -q 'table-size' "$work/words" || fail "an unknown name: code $code"
code=0; "$study" table-size --quickly 2>/dev/null || code=$?
[ "$code" = 2 ] || fail "an unknown option: code $code"

# What a study's results must have, beside a page.
check() {
  local points=$TEST_TMPDIR/$1/points.csv page=$TEST_TMPDIR/$1/index.html cell
  has() { grep -q "$1" "$points" || fail "$points: no line $1: $(cat "$points")"; }
  says() { grep -q "$1<" "$page" || fail "$page does not say: $1"; }
  [ -s "$page" ] || fail "$1 has no page"
  case $1 in
    noise) has '^1,1e-06,1,28,27\.5.*,geometric,18\.6' ;;
    app-store)
      has '^shoal,hashed,.*,1,1e-06,20,1,list,' # protects whole lists
      has '^watch,hashed,2000,.*,4,5,'
      [ "$(grep -c '^watch-crowd,' "$points")" -ge 10 ] || fail "app-store does not compare the ways to follow a list: $(cat "$points")"
      says '>whole lists'
      ;;
    set-membership) has '^rates,,0,4,64,50,.*' ;;
    piano)
      has '^tiny,piano,4096,8,64,3,0,1,1,1,.*,3,'
      has '^tiny larger,piano,1048576,8,64,3,2097152,4,1,1,.*,3,'
      says 'rows a function of their number, preparation extrapolated'
      ;;
    treepir)
      has '^figure8,treepir,4096,16,0,3,0,1,1,2,.*,3,'
      has '^figure8,permuted,4096,16,32,3,0,1,1,2,.*,3,'
      ;;
    smallpir)
      has '^1,2048,1,[a-z0-9]*,512,2048,54,1,1,256,1,.*,4,[0-9.e-]*,[0-9.e-]*,["A-Z]'
      has '^1,16384,1,[a-z0-9]*,64,2048,54,1,8,64,0,.*,4,[0-9.e-]*,[0-9.e-]*,["A-Z]'
      for cell in 1gb-b 232 278; do says "<td>$cell"; done # of the paper's tables
      ;;
    machines)
      has '^measured,online,1,20,192,2,1,1,4,20,.*,192,'
      has '^modelled,both,1,100000,1000000,8,'
      says '>online, modelled'
      ;;
  esac
}

# All studies but the one below, at their smallest, divided among the shards. Those of engines have programs of their own,
# which compare every record; the noise's has exact numbers and no processes.
[ -z "${TEST_SHARD_STATUS_FILE:-}" ] || touch "$TEST_SHARD_STATUS_FILE"
shards=${TEST_TOTAL_SHARDS:-1} shard=${TEST_SHARD_INDEX:-0} number=0
for name in $(cut -d ' ' -f 1 <<<"$list"); do
  [ "$name" != table-size ] || continue
  number=$((number + 1))
  [ $((number % shards)) = "$shard" ] || continue
  "$study" "$name" --tiny --out "$TEST_TMPDIR/$name" --work "$work" >/dev/null 2>"$work/words" ||
    fail "$name failed: $(cat "$work/words")"
  check "$name"
done
[ "$number" -gt "$shards" ] || fail "there are $number other studies"
[ "$shard" = 0 ] || exit 0

out=$TEST_TMPDIR/out
printed=$("$study" table-size --tiny --out "$out" --work "$work") || fail "the study failed"
[ "$printed" = "$out/index.html" ] || fail "printed: $printed"
for file in points.csv table-size.png index.html; do
  [ -s "$out/$file" ] || fail "$file is missing"
done
[ "$(wc -l <"$out/points.csv")" = 3 ] || fail "not one line for each of two points: $(cat "$out/points.csv")"
head -1 "$out/points.csv" | grep -q 'offline_s,online_s.*answers_checked.*cpu,cores,memory_gib,kernel,commit,date' ||
  fail "columns: $(head -1 "$out/points.csv")"
if grep -o '\(src\|href\)="[^"]\{0,30\}' "$out/index.html" | grep -v '="data:'; then fail "the page needs a network"; fi
[ -z "$(ls "$work" | grep '^study-')" ] || fail "scratch data is left: $(ls "$work")"

cp "$out/points.csv" "$work/before"
"$study" table-size --tiny --out "$out" --work "$work" >/dev/null 2>"$work/words" || fail "$(cat "$work/words")"
grep -q '2 points, 2 finished before' "$work/words" || fail "finished points were run again: $(cat "$work/words")"
cmp "$out/points.csv" "$work/before" || fail "the results changed"

code=0; "$SHOAL_BIN/pir/rlwe/small_benchmark" --mibs 1 >/dev/null 2>"$work/words" || code=$?
[ "$code" = 2 ] && grep -q -- --record-bytes "$work/words" || fail "small_benchmark with an unknown option: code $code"

# Stands in for `shoal` and reports that an answer was wrong.
bad=$TEST_TMPDIR/bad/src
mkdir -p "$bad/shoal" "$bad/shoald"
ln -s "$SHOAL_BIN/shoald/shoald" "$bad/shoald/shoald"
cat >"$bad/shoal/shoal" <<END
#!/usr/bin/env bash
set -o pipefail
if [ "\$1" = simulate ]; then
  "$SHOAL_BIN/shoal/shoal" "\$@" | sed 's/"answers_wrong":0/"answers_wrong":1/; s/"answers_correct":1/"answers_correct":0/'
else
  exec "$SHOAL_BIN/shoal/shoal" "\$@"
fi
END
chmod +x "$bad/shoal/shoal"
code=0
SHOAL_BIN=$bad "$study" table-size --tiny --out "$TEST_TMPDIR/wrong" --work "$work" 2>"$work/words" || code=$?
[ "$code" = 3 ] && grep -q 'WRONG ANSWERS' "$work/words" || fail "a wrong answer: code $code: $(cat "$work/words")"
[ ! -e "$TEST_TMPDIR/wrong/points.csv" ] || fail "a wrong answer was kept as a result"

rm "$bad/shoald/shoald"
code=0
SHOAL_BIN=$bad "$study" table-size --tiny --out "$TEST_TMPDIR/missing" --work "$work" 2>"$work/words" || code=$?
[ "$code" = 1 ] || fail "a missing program: code $code: $(cat "$work/words")"
grep -q 'Failed: 100 records, 16 a row' "$work/words" || fail "what failed is not said: $(cat "$work/words")"
