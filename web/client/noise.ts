// Whether noise gives the privacy that a roster claims (docs/privacy.md): the delta that holds at
// epsilon for phi changed queries of one client in one round. src/noise computes it from exact tables;
// here it is computed in double precision, with every error bounded and counted on the safe side.
import type { NoiseParameters } from "../gen/src/wire/roster_pb.ts";
import { Mechanism } from "../gen/src/wire/roster_pb.ts";
import { require } from "./bytes.ts";

// Tables hold integers over 2^128: what is less likely than that does not happen.
const LEAST = 2 ** -129;
const CUT = { geometric: 72.1, gaussian: 12.1 }; // of the right side, in scales
const MAX_MODE = 1 << 19;
const ULP = 2 ** -53;

function within(value: number, low: number, high: number, name: string): void {
  require(value >= low && value <= high, `roster, noise: ${name} is out of range`);
}

/** Refuses parameters that are outside the limits of src/noise/noise.h. */
export function checkParameters(noise: NoiseParameters): void {
  const { mechanism, epsilon, delta, phi, mode, leftScale, rightScale } = noise;
  within(epsilon, 1e-6, 50, "epsilon");
  within(delta, 1e-15, 1 - ULP, "delta");
  within(phi, 1, 1_000_000, "phi");
  within(mode, mechanism === Mechanism.CLAMPED_LAPLACE ? 1 : 0, MAX_MODE, "mode");
  const [least, most] = {
    [Mechanism.CLAMPED_LAPLACE]: [0, 0] as const,
    [Mechanism.GEOMETRIC]: [0.1, 7_000] as const,
    [Mechanism.SPLIT_GAUSSIAN]: [0.1, 40_000] as const,
    [Mechanism.MECHANISM_UNSPECIFIED]: [1, 0] as const, // nothing is within
  }[mechanism] ?? [1, 0];
  within(leftScale, least, most, "left_scale");
  within(rightScale, least, most, "right_scale");
}

/** How likely a party makes 0, 1, 2, .. noise queries for a row. */
export function distribution(noise: NoiseParameters): Float64Array {
  const { mechanism, epsilon, phi, mode, leftScale, rightScale } = noise;
  let weights: Float64Array;
  if (mechanism === Mechanism.CLAMPED_LAPLACE) {
    const fall = (d: number) => Math.exp((-d * epsilon) / (2 * phi));
    weights = new Float64Array(2 * mode + 1);
    weights[0] = fall(mode - 1);
    for (let k = 1; k < mode; ++k) weights[k] = fall(mode - k - 1) - fall(mode - k);
    for (let d = 0; d < mode; ++d) weights[mode + d] = fall(d) - fall(d + 1);
    weights[2 * mode] = fall(mode);
  } else {
    const gaussian = mechanism === Mechanism.SPLIT_GAUSSIAN;
    const reach = Math.ceil((gaussian ? CUT.gaussian : CUT.geometric) * rightScale);
    const fall = (d: number, scale: number) =>
      Math.exp(gaussian ? -(d * d) / (2 * scale * scale) : -d / scale);
    weights = new Float64Array(mode + reach + 1).map((_, k) =>
      k < mode ? fall(mode - k, leftScale) : fall(k - mode, rightScale),
    );
  }
  const total = weights.reduce((a, b) => a + b, 0);
  return weights.map((w) => (w / total < LEAST ? 0 : w / total));
}

/** How the counts of the two rows that a changed query moves tell the two worlds apart: how likely an
 *  observation is in the one, and the logarithm of how much likelier than in the other. */
interface Losses {
  mass: number[];
  loss: number[];
  /** Of observations that the other world does not have. */
  certain: number;
}

/** Of a row whose count is one more in the one world (shift 1), or in the other (shift -1). */
function lossesOf(p: Float64Array, shift: 1 | -1): Losses {
  const at = (k: number) => (k >= 0 && k < p.length ? p[k]! : 0);
  const out: Losses = { mass: [], loss: [], certain: 0 };
  for (let k = 0; k <= p.length; ++k) {
    const [here, there] = shift === 1 ? [at(k - 1), at(k)] : [at(k), at(k - 1)];
    if (here === 0) continue;
    if (there === 0) {
      out.certain += here;
    } else {
      out.mass.push(here);
      out.loss.push(Math.log(here / there));
    }
  }
  return out;
}

/** For one changed query: the sum over all pairs of observations, in order of their losses. */
function deltaOfOne(a: Losses, b: Losses, epsilon: number): number {
  const order = b.loss.map((_, i) => i).sort((i, j) => b.loss[j]! - b.loss[i]!);
  const byA = a.loss.map((_, i) => i).sort((i, j) => a.loss[i]! - a.loss[j]!);
  // The larger the loss of a, the more losses of b take the sum above epsilon: the first ones in `order`.
  let next = 0;
  let here = 0;
  let there = 0;
  let delta = 1 - (1 - a.certain) * (1 - b.certain);
  for (const i of byA) {
    while (next < order.length && a.loss[i]! + b.loss[order[next]!]! > epsilon) {
      const j = order[next++]!;
      here += b.mass[j]!;
      there += b.mass[j]! * Math.exp(-b.loss[j]!);
    }
    delta += Math.max(0, a.mass[i]! * (here - Math.exp(epsilon - a.loss[i]!) * there));
  }
  return delta + 1e4 * ULP * delta + a.loss.length * ULP;
}

/** The discrete Fourier transform in place, of 2^k complex numbers. */
function transform(re: Float64Array, im: Float64Array, inverse: boolean): void {
  const n = re.length;
  for (let i = 1, j = 0; i < n; ++i) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      [re[i], re[j]] = [re[j]!, re[i]!];
      [im[i], im[j]] = [im[j]!, im[i]!];
    }
  }
  const cos = new Float64Array(n / 2);
  const sin = new Float64Array(n / 2);
  for (let k = 0; k < n / 2; ++k) {
    cos[k] = Math.cos((2 * Math.PI * k) / n);
    sin[k] = (inverse ? 1 : -1) * Math.sin((2 * Math.PI * k) / n);
  }
  for (let size = 2; size <= n; size *= 2) {
    const half = size / 2;
    for (let from = 0; from < n; from += size) {
      for (let k = 0; k < half; ++k) {
        const c = cos[(k * n) / size]!;
        const s = sin[(k * n) / size]!;
        const low = from + k;
        const high = low + half;
        const x = re[high]! * c - im[high]! * s;
        const y = re[high]! * s + im[high]! * c;
        re[high] = re[low]! - x;
        im[high] = im[low]! - y;
        re[low] = re[low]! + x;
        im[low] = im[low]! + y;
      }
    }
  }
}

const POINTS = 1 << 17;

/** For several changed queries: losses on a grid, split between neighbours so that the observer only
 *  gets better ("Connect the Dots", Doroshenko and others 2022), and convolved. */
function deltaOfSeveral(kinds: Losses[], changes: number, epsilon: number, goal: number): number {
  let widthFound: { width: number; outside: number; grids: { re: Float64Array; norm: number }[] };
  for (let width = Math.max(1, 2 * epsilon); ; width *= 2) {
    const step = (2 * width) / POINTS;
    const logOutside = { above: Infinity, below: Infinity };
    const dots = kinds.map(({ mass, loss }) => {
      const index: number[] = [];
      const weight: number[] = [];
      mass.forEach((p, i) => {
        const low = Math.floor(loss[i]! / step);
        const upper = (p * Math.expm1(-(loss[i]! - low * step))) / Math.expm1(-step);
        index.push(low, low + 1);
        weight.push(p - upper, upper);
      });
      return { index, weight };
    });
    // Of the sum, what lies beyond the width: Markov's inequality for e^(t sum), at the best of some t.
    for (let t = 2 ** -4; t <= 2 ** 12; t *= 1.3) {
      for (const side of ["above", "below"] as const) {
        const sign = side === "above" ? 1 : -1;
        let log = -t * width;
        for (const { index, weight } of dots) {
          let moment = 0;
          index.forEach((at, i) => (moment += weight[i]! * Math.exp(sign * t * at * step)));
          log += changes * Math.log(moment);
        }
        if (log < logOutside[side]) logOutside[side] = log;
      }
    }
    const outside = Math.exp(logOutside.above) + Math.exp(logOutside.below);
    if (outside > goal * 1e-5 && width < 1e4) continue;
    const grids = dots.map(({ index, weight }) => {
      const re = new Float64Array(POINTS);
      index.forEach((at, i) => (re[((at % POINTS) + POINTS) % POINTS]! += weight[i]!));
      return { re, norm: Math.sqrt(re.reduce((sum, w) => sum + w * w, 0)) };
    });
    widthFound = { width, outside, grids };
    break;
  }
  const { width, outside, grids } = widthFound;
  const step = (2 * width) / POINTS;
  const re = new Float64Array(POINTS).fill(1);
  const im = new Float64Array(POINTS);
  for (const grid of grids) {
    const x = grid.re;
    const y = new Float64Array(POINTS);
    transform(x, y, false);
    for (let k = 0; k < POINTS; ++k) {
      // (x + iy)^changes by squaring.
      let [a, b] = [x[k]!, y[k]!];
      for (let power = changes; power > 0; power = Math.floor(power / 2)) {
        if (power % 2 === 1) [re[k], im[k]] = [re[k]! * a - im[k]! * b, re[k]! * b + im[k]! * a];
        [a, b] = [a * a - b * b, 2 * a * b];
      }
    }
  }
  transform(re, im, true);
  const certain = kinds.reduce((rest, kind) => rest * (1 - kind.certain) ** changes, 1);
  let delta = 1 - certain + outside;
  for (let k = 0; k < POINTS / 2; ++k) {
    const loss = k * step;
    if (loss > epsilon) delta += (Math.max(0, re[k]!) / POINTS) * -Math.expm1(epsilon - loss);
  }
  // A transform of 2^k numbers errs by less than 8 k ULP of their 2-norm (Higham 2002, theorem 24.2);
  // powers multiply that, and a sum over half of the points has at most the root of their number.
  const norm = Math.max(...grids.map((grid) => grid.norm));
  const error = Math.sqrt(POINTS / 2) * 8 * Math.log2(POINTS) * ULP * norm;
  return delta + (2 * changes + 1) * error;
}

/** A delta that holds at the parameters' epsilon for phi changed queries: no less than the exact one,
 *  and for the usual parameters hardly more. */
export function deltaThatHolds(noise: NoiseParameters): number {
  const p = distribution(noise);
  const [a, b] = [lossesOf(p, 1), lossesOf(p, -1)];
  return noise.phi === 1
    ? deltaOfOne(a, b, noise.epsilon)
    : deltaOfSeveral([a, b], noise.phi, noise.epsilon, noise.delta);
}

let verified = "";

/** Refuses noise that does not give the (epsilon, delta) that it claims. Takes a fraction of a second,
 *  once for the same parameters. */
export function verifyPrivacy(noise: NoiseParameters): void {
  const { mechanism, epsilon, delta, phi, mode, leftScale, rightScale } = noise;
  const name = [mechanism, epsilon, delta, phi, mode, leftScale, rightScale].join();
  if (name === verified) return;
  checkParameters(noise);
  const holds = deltaThatHolds(noise);
  require(
    holds <= delta,
    `roster, noise: gives delta ${holds.toPrecision(4)} at epsilon ${epsilon} for phi = ${phi}, not the claimed ${delta}`,
  );
  verified = name;
}
