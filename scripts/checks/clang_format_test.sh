#!/usr/bin/env bash
# Fails if a C++ source is not as clang-format writes it, or has a line of more than 100 columns.
#   clang_format_test.sh FILE...    in a folder that has .clang-format
set -euo pipefail
export LC_ALL=C.UTF-8
if [ "$(wc -L "$@" | tail -n1 | awk '{print $1}')" -gt 100 ] && grep -nHE '^.{101,}' "$@"; then
  echo "lines of more than 100 columns: see above"
  wide=1
fi
unformatted=()
for file in "$@"; do
  clang-format-14 --style=file:.clang-format "$file" | cmp -s - "$file" || unformatted+=("$file")
done
if [ ${#unformatted[@]} -gt 0 ]; then
  echo "not formatted; in the repository's root, this mends it:"
  echo "  clang-format-14 -i ${unformatted[*]}"
fi
[ ${#unformatted[@]} -eq 0 ] && [ -z "${wide:-}" ]
