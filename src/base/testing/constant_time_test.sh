#!/usr/bin/env bash
# No branch and no address of a program depends on a secret: valgrind, with secrets marked
# uninitialised, stays silent; and it does complain where the program, given --leak, branches on a
# secret on purpose.
#
#   constant_time_test.sh PROGRAM
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

memcheck() { valgrind --quiet --error-exitcode=9 --track-origins=no "$@"; }

memcheck "$program" --leak >/dev/null 2>&1
if [ $? -ne 9 ]; then
  echo "the check is blind: a deliberate leak went unnoticed" >&2
  exit 1
fi
memcheck "$program"
