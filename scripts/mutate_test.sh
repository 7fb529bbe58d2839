#!/usr/bin/env bash
# Runs mutate_test.py on the source tree. In a test this file is a symbolic link into that tree.
set -euo pipefail
exec python3 -B "$(dirname "$(readlink -f "$0")")/mutate_test.py"
