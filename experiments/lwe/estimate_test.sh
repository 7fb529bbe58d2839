#!/usr/bin/env bash
# The estimate reproduces what others published, and puts Shoal's parameters above 128 bits.
set -euo pipefail
python3 "$1" --check
