#!/usr/bin/env bash
# configs/*.service are units that systemd takes as they are written, and that may do little.
set -euo pipefail
fail() { echo "systemd_unit_test: $*" >&2; exit 1; }

# What the launcher of a party of several machines is told is what it takes.
words=$(sed -n '/^ExecStart=/,/[^\\]$/p' configs/shoald-machines.service | sed 's/^ExecStart=//; s/\\$//' | tr -d '\n')
read -ra command <<<"$words"
[ "${command[0]}" = /usr/local/bin/party-machines ] || fail "ExecStart is another"
said=$(scripts/party-machines --print "${command[@]:1}") || fail "the launcher does not take its arguments"
[[ $said == *" /usr/local/bin/shoald-machines --config "* ]] || fail "the launcher starts another program: $said"

if ! command -v systemd-analyze >/dev/null; then
  echo "systemd_unit_test: skipped: there is no systemd-analyze" >&2
  exit 0
fi
for unit in shoald shoald-machines shoal-door shoal-ohttp; do
  # systemd asks whether the programs are there.
  sed 's|^ExecStart=/usr/local/bin/[^ ]* |ExecStart=/bin/true |' "configs/$unit.service" >"$TEST_TMPDIR/$unit.service"
  grep -q '^ExecStart=/bin/true ' "$TEST_TMPDIR/$unit.service" || fail "ExecStart is another"
  said=$(systemd-analyze verify --man=no "$TEST_TMPDIR/$unit.service" 2>&1) || fail "$said"
  [ -z "$said" ] || fail "$said"
  # Of 10; a unit without any hardening has 9.6.
  said=$(systemd-analyze security --offline=true --threshold=20 --no-pager "$TEST_TMPDIR/$unit.service" 2>&1) ||
    fail "$said"
done

# The user that shoal-ohttp.service names is one that is made, and the door's is in its group.
if command -v systemd-sysusers >/dev/null; then
  mkdir -p "$TEST_TMPDIR/root/etc/sysusers.d"
  cp configs/shoal-ohttp.sysusers "$TEST_TMPDIR/root/etc/sysusers.d/shoal-ohttp.conf"
  systemd-sysusers --root="$TEST_TMPDIR/root" >/dev/null 2>"$TEST_TMPDIR/said" ||
    fail "systemd-sysusers: $(cat "$TEST_TMPDIR/said")"
  grep -q '^shoal-ohttp:' "$TEST_TMPDIR/root/etc/passwd" || fail "no user shoal-ohttp is made"
  grep -q '^shoal-ohttp:.*:/usr/sbin/nologin$' "$TEST_TMPDIR/root/etc/passwd" || fail "the user has a shell"
  grep -q '^shoal-ohttp:.*:shoal-door$' "$TEST_TMPDIR/root/etc/group" || fail "the door's user is not in its group"
fi
