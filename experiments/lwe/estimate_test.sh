#!/usr/bin/env bash
# Checks that the estimate reproduces published figures and puts Shoal's parameters above 128 bits.
set -euo pipefail
python3 "$1" --check
