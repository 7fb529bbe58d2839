#!/usr/bin/env bash
# The characters that src/base/printable.cc shows as \xHH are those of Unicode's tables that Node.js has.
set -euo pipefail
command -v node >/dev/null || { echo 'printable_unicode_test: there is no node: run scripts/setup --test' >&2; exit 1; }
diff <(src/base/printable_ranges) <(node -e '
  const unseen = /^[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]$/u;
  let first = -1;
  for (let code = 0; code <= 0x110000; ++code) {
    const is = code < 0x110000 && (code < 0xd800 || code > 0xdfff) && unseen.test(String.fromCodePoint(code));
    if (is && first < 0) first = code;
    if (!is && first >= 0) { console.log(`${first} ${code - 1}`); first = -1; }
  }')
