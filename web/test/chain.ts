// What the page says of chains of other lengths than those of the page's own test.
//   node chain.mjs
import assert from "node:assert/strict";
import { partySteps } from "../page/chain.ts";

for (let parties = 2; parties <= 8; ++parties) {
  const steps = partySteps(parties);
  assert.deepEqual(
    steps.map((step) => step.who),
    Array.from({ length: parties }, (_, i) => `Party ${i + 1}`),
  );
  assert.match(steps[0]!.does, /It knows you, and not the question/);
  assert.match(steps.at(-1)!.does, /opens the last layer, and answers/);
  assert.equal(steps.filter((step) => /the last layer/.test(step.does)).length, 1);
  assert.equal(new Set(steps.slice(0, 3).map((step) => step.does)).size, Math.min(parties, 3));
}
