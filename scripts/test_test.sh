#!/usr/bin/env bash
# What scripts/test counts, with a stand-in for Bazel: failures, and tests that were left out.
set -euo pipefail
fail() { echo "test_test: $*" >&2; exit 1; }
tree=$TEST_TMPDIR/tree
mkdir -p "$tree/scripts" "$tree/bin" "$tree/logs/one" "$tree/logs/two"
cp -L scripts/test scripts/progress.sh "$tree/scripts/"
printf '#!/bin/sh\n' >"$tree/scripts/setup"
cat >"$tree/bin/bazel" <<'END'
#!/usr/bin/env bash
case $1 in
  info) case $2 in server_pid) echo 1 ;; *) echo "$LOGS" ;; esac ;;
  build) echo "[1,234 / 2,345] Compiling something"; printf 'build %s\n' "$*" ;;
  test) [ -z "${BAZEL_SAYS:-}" ] || printf '%s\n' "$BAZEL_SAYS" "$@"; echo "Executed 1 out of 9 tests: $WORDS."; exit "$BAZEL_CODE" ;;
esac
END
chmod +x "$tree/scripts/setup" "$tree/bin/bazel"

# ran EXPECTED-CODE [OPTION]...: runs it; what it says is in $said.
ran() {
  local expected=$1 code=0
  shift
  said=$(LOGS=$tree/logs WORDS=${words:-9 tests pass} BAZEL_CODE=${bazel_code:-0} PATH="$tree/bin:$PATH" \
    "$tree/scripts/test" "$@" 2>&1) || code=$?
  [ "$code" -eq "$expected" ] || fail "exit code $code instead of $expected: $said"
}
last() { [ "$(tail -n1 <<<"$said")" = "$1" ] || fail "the last line is not '$1': $said"; }
has() { grep -qxF -- "$1" <<<"$said" || fail "no line '$1': $said"; }

unset SHOAL_NAMESPACES
ran 0
last '27 passed, 0 failed'
# All is built before anything is tested, and what took how long is said.
[ "$(grep -c '^build build ' <<<"$said")" -eq 3 ] || fail "not three builds: $said"
for phase in 'installing' 'building (opt)' 'building (asan)' 'building (tsan)' 'testing (opt)' 'testing (asan)' 'testing (tsan)' 'all'; do
  grep -qE "^took: ${phase//[()]/.}: [0-9]+:[0-9][0-9]" <<<"$said" || fail "no time of $phase: $said"
done
# What Bazel says of its progress is told as such, and a line a minute at most.
! grep -q 1,234 <<<"$said" || fail "progress is passed on: $said"
words='7 tests pass, 1 fails to build and 1 fails locally' bazel_code=3 ran 3 --config=opt
last '7 passed, 2 failed'
words='' bazel_code=1 ran 1 --config=opt
last '9 passed, 1 failed'

# Second tries, which are for those who ask.
says='//a:b_test                                              FLAKY, failed in 1 out of 2 in 3.1s'
BAZEL_SAYS=$says SHOAL_TRIES=2 ran 0 --config=opt
has --flaky_test_attempts=2
has 'tests: passed at a second try only: //a:b_test (failed in 1 out of 2)'
last '9 passed, 0 failed'
BAZEL_SAYS=- ran 0 --config=opt
has --flaky_test_attempts=1
SHOAL_TRIES=many ran 2

# Two tests that were left out, for a reason with quotes, which may not end the message.
for test in one two; do
  XML_OUTPUT_FILE=$tree/logs/$test/test.xml scripts/left_out.py "$test" 'machines in network namespaces' \
    'open "x" & <y>: Permission denied' 2>"$tree/told"
  grep -qx "$test: skipped: open \"x\" & <y>: Permission denied" "$tree/told" || fail "$(cat "$tree/told")"
done
line='2 cases: machines in network namespaces: open &quot;x&quot; &amp; &lt;y&gt;: Permission denied'
ran 0
has "not run: $line"
last '27 passed, 0 failed'
SHOAL_NAMESPACES=required ran 3
has "failed, as network namespaces are required here: $line"
last '25 passed, 2 failed'

# What continuous integration runs requires them.
cp -L .ci/run "$tree/run" && mkdir "$tree/.ci" && mv "$tree/run" "$tree/.ci/run"
code=0
said=$(LOGS=$tree/logs WORDS='9 tests pass' BAZEL_CODE=0 PATH="$tree/bin:$PATH" "$tree/.ci/run" 2>&1) || code=$?
[ "$code" -eq 3 ] || fail "exit code $code: $said"
last '25 passed, 2 failed'

# Other reasons are told alone.
XML_OUTPUT_FILE=$tree/logs/one/test.xml scripts/left_out.py one 'loops' 'too slow' 2>/dev/null
rm "$tree/logs/two/test.xml"
SHOAL_NAMESPACES=required ran 0
has 'not run: 1 cases: loops: too slow'
last '27 passed, 0 failed'
