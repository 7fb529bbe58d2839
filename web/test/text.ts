// What the client makes of text from outside, and which text it takes for a key: `node text.mjs`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { keyProblem, visible } from "../client/bytes.ts";

test("what a terminal or a page would obey, or nobody would see, is shown", () => {
  assert.equal(visible("a\x1b[31m\u009b\u202eb\u200b\ufeff\u{e0061}\n"),
    "a\\x1b[31m\\xc2\\x9b\\xe2\\x80\\xaeb\\xe2\\x80\\x8b\\xef\\xbb\\xbf\\xf3\\xa0\\x81\\xa1\\x0a");
  for (const text of ["", "libc6 2.36-9+deb12u10", "Grüße 漢字 עברית 😀", "a\\x1b"]) assert.equal(visible(text), text);
});

test("a key with what nobody sees is refused", () => {
  for (const key of ["bash", "Müller", "a b", "漢字", "❤\ufe0f", "می\u200cخ"]) assert.equal(keyProblem(key), undefined);
  for (const key of ["bash ", "\u00a0bash", "bash\r", "b\0a\0", "\ufeffbash", "ba\u200bsh", "bash\u202c", "ba\u00adsh", "a\tb", "\ud800"]) {
    assert.notEqual(keyProblem(key), undefined, JSON.stringify(key));
  }
});
