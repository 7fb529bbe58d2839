#!/usr/bin/env bash
# Machines of a party in network namespaces, killed and cut off.
set -euo pipefail
# Short names: Open MPI puts sockets there.
TMPDIR=$(mktemp -d /tmp/pm.XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
/usr/bin/python3 -B scripts/party_machines_network_test.py "$@"
