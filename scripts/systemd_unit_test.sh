#!/usr/bin/env bash
# configs/shoald.service is a unit that systemd takes as it is written, and one that may do little.
set -euo pipefail
fail() { echo "systemd_unit_test: $*" >&2; exit 1; }
if ! command -v systemd-analyze >/dev/null; then
  echo "systemd_unit_test: skipped: there is no systemd-analyze" >&2
  exit 0
fi
# systemd asks whether the programs are there.
sed 's|^ExecStart=/usr/local/bin/shoald |ExecStart=/bin/true |' configs/shoald.service >"$TEST_TMPDIR/shoald.service"
grep -q '^ExecStart=/bin/true ' "$TEST_TMPDIR/shoald.service" || fail "ExecStart is another"
said=$(systemd-analyze verify --man=no "$TEST_TMPDIR/shoald.service" 2>&1) || fail "$said"
[ -z "$said" ] || fail "$said"
# Of 10; a unit without any hardening has 9.6.
said=$(systemd-analyze security --offline=true --threshold=20 --no-pager "$TEST_TMPDIR/shoald.service" 2>&1) ||
  fail "$said"
