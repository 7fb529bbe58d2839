#!/usr/bin/env bash
# SelectFromBuckets executes the same number of instructions for any selections and whichever
# buckets are asked, although buckets have unequal numbers of rows; callgrind counts them. A malicious
# head of a chain knows all noise, so that a tail's time could tell it exact counts of buckets.
#
#   instruction_count_test.sh PROGRAM
set -uo pipefail
program="$1"

if grep -q __asan_init "$program" || grep -q __tsan_init "$program"; then
  echo "skipped: valgrind cannot run a program built with a sanitizer"
  exit 0
fi
if ! command -v valgrind >/dev/null; then
  echo "valgrind is missing: run scripts/setup --test" >&2
  exit 1
fi

count() {  # SELECTIONS BUCKETS LAYOUT
  valgrind --tool=callgrind --callgrind-out-file=/dev/null \
    --toggle-collect='shoal::select::SelectFromBuckets*' "$program" --count "$@" 2>&1 |
    sed -n 's/^==[0-9]*== Collected *: *//p'
}

failed=0
for layout in strided spans; do
  expected=$(count zeros spread $layout)
  echo "$layout: $expected instructions"
  if ! [ "${expected:-0}" -gt 100000 ]; then
    echo "the check is blind: callgrind counted '$expected' instructions" >&2
    exit 1
  fi
  for asked in "ones spread" "random spread" "zeros first" "ones last" "random ends"; do
    got=$(count $asked $layout)  # two words
    if [ "$got" != "$expected" ]; then
      echo "$layout, selections and buckets $asked: $got instructions" >&2
      failed=1
    fi
  done
done
exit $failed
