#!/usr/bin/env bash
# Chains of parties of several machines, each machine in a network namespace of its own, killed and cut off.
set -euo pipefail
# Short names: Open MPI puts sockets there.
TMPDIR=$(mktemp -d /tmp/pm.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
/usr/bin/python3 -B scripts/machines_chain_network_test.py "$@"
