// The shape of the noise, for a picture: how likely a party makes k noise queries for a row. Parties
// and the accountant use exact tables (src/noise/noise.h); nothing that is claimed comes from here.
import type { NoiseParameters } from "../gen/src/wire/roster_pb.ts";
import { Mechanism } from "../gen/src/wire/roster_pb.ts";

/** Probabilities of 0, 1, 2, .. noise queries. */
export function shapeOf(noise: NoiseParameters): number[] {
  const { mechanism, mode, leftScale, rightScale, epsilon, phi } = noise;
  const laplaceScale = (2 * phi) / epsilon;
  const reach = { left: leftScale, right: rightScale };
  if (mechanism === Mechanism.CLAMPED_LAPLACE) reach.left = reach.right = laplaceScale;
  const weight = (k: number): number => {
    const distance = Math.abs(k - mode) / (k < mode ? reach.left : reach.right);
    return Math.exp(mechanism === Mechanism.SPLIT_GAUSSIAN ? (-distance * distance) / 2 : -distance);
  };
  const most =
    mechanism === Mechanism.CLAMPED_LAPLACE
      ? 2 * mode
      : mode + Math.ceil((mechanism === Mechanism.SPLIT_GAUSSIAN ? 5 : 14) * reach.right);
  const weights = Array.from({ length: most + 1 }, (_, k) => weight(k));
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => w / total);
}

export function meanOf(shape: number[]): number {
  return shape.reduce((sum, p, k) => sum + p * k, 0);
}

/** The best that anybody can guess between two lists that are equally likely, in percent, rounded up:
 *  what (epsilon, delta) allows. */
export function bestGuessPercent(noise: NoiseParameters): number {
  const odds = Math.exp(noise.epsilon);
  return Math.ceil(((1000 * (odds + noise.delta)) / (1 + odds))) / 10;
}
