#!/usr/bin/env bash
# Runs the check that is named on the source tree. In a test this file is a symbolic link into that tree.
set -euo pipefail
exec /usr/bin/python3 -B "$(dirname "$(readlink -f "$0")")/$1.py"
