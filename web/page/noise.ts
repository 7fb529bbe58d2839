// What the noise looks like, and what it allows, for people.
import type { NoiseParameters } from "../gen/src/wire/roster_pb.ts";

export function meanOf(shape: Float64Array): number {
  return shape.reduce((sum, p, k) => sum + p * k, 0);
}

/** The best that anybody can guess between two lists that are equally likely, in percent, rounded up:
 *  what (epsilon, delta) allows. */
export function bestGuessPercent(noise: NoiseParameters): number {
  const odds = Math.exp(noise.epsilon);
  return Math.ceil(((1000 * (odds + noise.delta)) / (1 + odds))) / 10;
}
