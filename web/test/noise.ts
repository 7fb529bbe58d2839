// The accountant in TypeScript against exact deltas: those of src/noise/noise_test.cc, and the presets
// of scripts/local-chain, whose path is the argument.
import assert from "node:assert/strict";
import * as fs from "node:fs";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { Mechanism, NoiseParametersSchema } from "../gen/src/wire/roster_pb.ts";
import { checkParameters, deltaThatHolds, distribution, verifyPrivacy } from "../client/noise.ts";

const noise = (mechanism: Mechanism, epsilon: number, delta: number, phi: number, mode: number, leftScale = 0, rightScale = 0) =>
  create(NoiseParametersSchema, { mechanism, epsilon, delta, phi, mode, leftScale, rightScale });
const { CLAMPED_LAPLACE, GEOMETRIC, SPLIT_GAUSSIAN } = Mechanism;

test("holds exactly where the exact delta does", () => {
  for (const [parameters, mean, delta] of [
    [noise(CLAMPED_LAPLACE, 0.1, 1e-6, 1, 277), 276.5, 1.92558e-6],
    [noise(GEOMETRIC, 0.1, 1e-6, 1, 128, 13.06, 42.74), 157.678, 9.92708e-7],
    [noise(CLAMPED_LAPLACE, 1, 1e-6, 1, 28), 27.5, 1.10124e-6],
    [noise(GEOMETRIC, 1, 1e-6, 1, 15, 1.25, 5.0), 18.701, 9.70249e-7],
    [noise(CLAMPED_LAPLACE, 0.1, 1e-9, 1, 415), 414.5, 1.94058e-9],
    [noise(GEOMETRIC, 0.1, 1e-9, 1, 205, 12.38, 52.08), 244.695, 9.98127e-10],
    [noise(CLAMPED_LAPLACE, Math.log(3), 1e-4, 1, 17), 16.5, 1.20203e-4],
    [noise(GEOMETRIC, Math.log(3), 1e-4, 1, 9, 1.19, 3.89), 11.653, 1.00441e-4],
    [noise(CLAMPED_LAPLACE, 0.1, 1e-6, 100, 27631), 27630.5, 1.99977e-4],
    // The bounds of a grid of 2^22 points in numpy are 9.795e-7 and 1.0132e-6, and err alike.
    [noise(SPLIT_GAUSSIAN, 0.1, 1e-6, 100, 2612, 532, 532), 2612.0, 9.962e-7],
    [noise(SPLIT_GAUSSIAN, 0.1, 1e-6, 100, 1208, 243, 1177), 1953.224, 9.8347e-7],
  ] as const) {
    const made = distribution(parameters).reduce((sum, p, k) => sum + p * k, 0);
    assert.ok(Math.abs(made - mean) < 1e-5 * mean + 1e-3, `mean ${made}, not ${mean}`);
    const holds = deltaThatHolds(parameters);
    assert.ok(holds >= 0.9999 * delta && holds <= 1.002 * delta, `delta ${holds}, not ${delta}`);
    if (parameters.phi > 1) continue;
    verifyPrivacy({ ...parameters, delta: delta * 1.001 });
    assert.throws(() => verifyPrivacy({ ...parameters, delta: delta * 0.999 }), /gives delta/);
  }
});

test("takes the presets, and none that claims a little more", () => {
  const number = (line: string, field: string) => Number(new RegExp(`\\b${field}: ([0-9.e-]+)`).exec(line)![1]);
  const lines = fs.readFileSync(process.argv[2]!, "utf8").split("\n").filter((line) => line.startsWith("mechanism: "));
  assert.ok(lines.length >= 16);
  for (const line of lines) {
    const parameters = noise(
      Mechanism[/mechanism: (\w+)/.exec(line)![1] as "GEOMETRIC"],
      number(line, "epsilon"), number(line, "delta"), number(line, "phi"), number(line, "mode"),
      number(line, "left_scale"), number(line, "right_scale"),
    );
    verifyPrivacy(parameters);
    assert.throws(() => verifyPrivacy({ ...parameters, phi: 2 * parameters.phi }), /gives delta/, line);
  }
});

test("refuses parameters out of range", () => {
  const good = noise(GEOMETRIC, 1, 1e-6, 1, 15, 1.25, 5);
  checkParameters(good);
  for (const bad of [
    { mechanism: 0 }, { mechanism: 9 }, { epsilon: 0 }, { epsilon: 51 }, { epsilon: NaN }, { delta: 1 },
    { delta: 0 }, { phi: 0 }, { phi: 2e6 }, { mode: 1e6 }, { leftScale: 0 }, { rightScale: 8000 },
    { mechanism: CLAMPED_LAPLACE }, { mechanism: SPLIT_GAUSSIAN, rightScale: Infinity },
  ]) {
    assert.throws(() => checkParameters({ ...good, ...bad }), /out of range/, JSON.stringify(bad));
  }
});
