#!/usr/bin/env bash
set -euo pipefail
cd scripts/checks
exec /usr/bin/python3 -B -m unittest layers_test
