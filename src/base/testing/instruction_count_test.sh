#!/usr/bin/env bash
# A function executes the same number of instructions whatever it is given; callgrind counts them.
#
#   instruction_count_test.sh PROGRAM FUNCTION CASES...
#
# FUNCTION is a pattern of callgrind. CASES are those that must take equally many, separated by commas:
# each is what follows `PROGRAM --count`, which then calls the function.
set -uo pipefail
program="$1"
function="$2"
shift 2

if grep -q __asan_init "$program" || grep -q __tsan_init "$program"; then
  echo "skipped: valgrind cannot run a program built with a sanitizer"
  exit 0
fi
if ! command -v valgrind >/dev/null; then
  echo "valgrind is missing: run scripts/setup --test" >&2
  exit 1
fi

count() {  # WORDS OF A CASE
  valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect="$function" \
    "$program" --count "$@" 2>&1 | sed -n 's/^==[0-9]*== Collected *: *//p'
}

failed=0
for group in "$@"; do
  IFS=, read -ra cases <<<"$group"
  expected=
  for case in "${cases[@]}"; do
    got=$(count $case)  # several words
    if ! [ "${got:-0}" -gt 100000 ]; then
      echo "the check is blind: callgrind counted '$got' instructions of $case" >&2
      exit 1
    fi
    expected="${expected:-$got}"
    echo "$case: $got instructions"
    if [ "$got" != "$expected" ]; then
      echo "$case: $got instructions, where ${cases[0]} takes $expected" >&2
      failed=1
    fi
  done
done
exit $failed
