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

out=$TEST_TMPDIR/out
printed=$("$study" table-size --tiny --out "$out" --work "$work") || fail "the study failed"
[ "$printed" = "$out/index.html" ] || fail "printed: $printed"
for file in points.csv table-size.png table-size.svg index.html; do
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

# A study of exact numbers, without processes.
"$study" noise --tiny --out "$TEST_TMPDIR/noise" --work "$work" >/dev/null || fail "noise failed"
grep -q '^1,1e-06,1,28,27\.5.*,geometric,18\.6' "$TEST_TMPDIR/noise/points.csv" ||
  fail "noise: $(cat "$TEST_TMPDIR/noise/points.csv")"

# All other studies at their smallest. Those of engines have programs of their own, which compare
# every record.
for name in $("$study" --list | cut -d ' ' -f 1); do
  case $name in table-size | noise) continue ;; esac
  "$study" "$name" --tiny --out "$TEST_TMPDIR/$name" --work "$work" >/dev/null 2>"$work/words" ||
    fail "$name failed: $(cat "$work/words")"
  [ -s "$TEST_TMPDIR/$name/index.html" ] || fail "$name has no page"
done
grep -q '^shoal,hashed,.*,1,1e-06,20,1,list,' "$TEST_TMPDIR/app-store/points.csv" ||
  fail "app-store does not protect whole lists: $(cat "$TEST_TMPDIR/app-store/points.csv")"
grep -q '^watch,hashed,2000,.*,4,5,' "$TEST_TMPDIR/app-store/points.csv" &&
  [ "$(grep -c '^watch-crowd,' "$TEST_TMPDIR/app-store/points.csv")" -ge 10 ] ||
  fail "app-store does not compare the ways to follow a list: $(cat "$TEST_TMPDIR/app-store/points.csv")"
grep -q '>whole lists<' "$TEST_TMPDIR/app-store/index.html" || fail "app-store does not say what it protects"
grep -q '^rates,,0,4,64,50,.*' "$TEST_TMPDIR/set-membership/points.csv" ||
  fail "set-membership: $(cat "$TEST_TMPDIR/set-membership/points.csv")"
grep -q '^tiny,piano,4096,8,64,3,0,1,1,1,.*,3,' "$TEST_TMPDIR/piano/points.csv" &&
  grep -q '^tiny larger,piano,1048576,8,64,3,2097152,4,1,1,.*,3,' "$TEST_TMPDIR/piano/points.csv" ||
  fail "piano: $(cat "$TEST_TMPDIR/piano/points.csv")"
grep -q 'rows a function of their number, preparation extrapolated<' "$TEST_TMPDIR/piano/index.html" ||
  fail "piano does not say what is extrapolated"
grep -q '^figure8,treepir,4096,16,0,3,0,1,1,2,.*,3,' "$TEST_TMPDIR/treepir/points.csv" &&
  grep -q '^figure8,permuted,4096,16,32,3,0,1,1,2,.*,3,' "$TEST_TMPDIR/treepir/points.csv" ||
  fail "treepir: $(cat "$TEST_TMPDIR/treepir/points.csv")"
grep -q '^1,2048,1,[a-z0-9]*,512,2048,54,1,1,256,1,.*,4,[0-9.e-]*,[0-9.e-]*,["A-Z]' "$TEST_TMPDIR/smallpir/points.csv" &&
  grep -q '^1,16384,1,[a-z0-9]*,64,2048,54,1,8,64,0,.*,4,[0-9.e-]*,[0-9.e-]*,["A-Z]' "$TEST_TMPDIR/smallpir/points.csv" ||
  fail "smallpir: $(cat "$TEST_TMPDIR/smallpir/points.csv")"
code=0; "$SHOAL_BIN/pir/rlwe/small_benchmark" --mibs 1 >/dev/null 2>"$work/words" || code=$?
[ "$code" = 2 ] && grep -q -- --record-bytes "$work/words" || fail "small_benchmark with an unknown option: code $code"
for cell in 1gb-b 232 278; do
  grep -q "<td>$cell</td>" "$TEST_TMPDIR/smallpir/index.html" || fail "smallpir does not show what the paper's tables say of 1gb-b: $cell"
done
grep -q '^measured,online,1,20,192,2,1,1,4,20,.*,192,' "$TEST_TMPDIR/machines/points.csv" &&
  grep -q '^modelled,both,1,100000,1000000,8,' "$TEST_TMPDIR/machines/points.csv" ||
  fail "machines: $(cat "$TEST_TMPDIR/machines/points.csv")"
grep -q '>online, modelled<' "$TEST_TMPDIR/machines/index.html" || fail "machines does not say what is modelled"

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
