#!/usr/bin/env bash
# One short incident of each kind that scripts/incidents knows: no client gets a wrong value, fails or hangs, no chain
# stands still, and no operator is needed. What incidents cost is too little to be judged by so few.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin  # mkfs.ext4
fail() { echo "incidents_test: $*" >&2; exit 1; }
code=0
SHOAL_BIN=$PWD/src scripts/incidents --incidents 7 --each-kind --longest 1.5 --deployments 2 --clients 1 --seed 3 \
  --keep "$TEST_TMPDIR/incidents" >"$TEST_TMPDIR/incidents.tsv" 2>"$TEST_TMPDIR/said" || code=$?
if [ "$code" -eq 3 ]; then
  scripts/left_out.py incidents_test 'incidents in network namespaces' "$(cat "$TEST_TMPDIR/said")"
  exit 0
fi
cat "$TEST_TMPDIR/said" >&2
[ "$code" -le 1 ] || fail "exit code $code"
awk -F'\t' '
  NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i; next }
  { ++incidents; kinds[$column["kind"]] = 1
    for (what in column) if (what ~ /^(failed|wrong|hung|wedged|operator)$/) bad[what] += $column[what] }
  END { for (what in bad) if (bad[what] > 0) { print what ": " bad[what]; wrong = 1 }
        exit wrong || incidents != 7 || length(kinds) != 7 }' "$TEST_TMPDIR/incidents.tsv" >&2 ||
  fail "$(cat "$TEST_TMPDIR/incidents.tsv")"
