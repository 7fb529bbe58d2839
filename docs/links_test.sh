#!/usr/bin/env bash
# Runs links_test.py on the source tree. In a test this file is a symbolic link into that tree.
set -euo pipefail
exec python3 "$(dirname "$(readlink -f "$0")")/links_test.py"
