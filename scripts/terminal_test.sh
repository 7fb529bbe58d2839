#!/usr/bin/env bash
# Starts terminal_test.py on a port that is free.
set -euo pipefail
source scripts/free-ports.sh
free_ports 3
exec python3 -B scripts/terminal_test.py "$port"
