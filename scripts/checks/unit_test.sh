#!/usr/bin/env bash
# Runs the unit tests of the check that is named.
set -euo pipefail
cd scripts/checks
exec /usr/bin/python3 -B -m unittest "$1_test"
