// Bytes, and the canonical bytes that are hashed and signed (docs/protocol.md, section 1).
import { blake2b } from "@noble/hashes/blake2.js";

/** Something that did not verify, or that a server must not send. Nothing of it is used. */
export class Refused extends Error {
  override name = "Refused";
}

export function require(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Refused(message);
}

export function concat(...parts: Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

export function equal(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Uint8Array {
  require(/^([0-9a-fA-F]{2})*$/.test(text), "not hexadecimal digits");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** Text from outside as people may get it: controls, what turns the order of text around and what nobody sees are \xHH of
 *  their bytes, as every program of this project shows them (src/base/printable.h). */
export function visible(text: string): string {
  return text.replace(UNSEEN, (character) => hex(utf8(character)).replace(/../g, "\\x$&"));
}

/** Why text can be no key as somebody wrote it, or undefined. A key with what nobody sees would be proved to be absent, and somebody
 *  would believe it. Joiners and variation selectors are taken, which scripts and emoji need. */
export function keyProblem(key: string): string | undefined {
  if (/^\p{Z}|\p{Z}$/u.test(key)) return "begins or ends with a blank";
  const unseen = key.match(UNSEEN)?.find((character) => !/[\u200c\u200d\ufe0e\ufe0f]/.test(character));
  return unseen === undefined ? undefined : `has ${visible(unseen)}, which nobody sees`;
}

/** Numbers of 32 bits, little endian, one after the other. */
export function le32(...numbers: number[]): Uint8Array {
  const out = new Uint8Array(4 * numbers.length);
  const view = new DataView(out.buffer);
  numbers.forEach((number, i) => view.setUint32(4 * i, number, true));
  return out;
}

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A digest over fields that no other fields can have: BLAKE2b-256, integers as 8 bytes little
 *  endian, doubles by their bits, texts and bytes after their length. */
export class Transcript {
  readonly #hash = blake2b.create({ dkLen: 32 });

  constructor(domain: string) {
    this.blob(domain);
  }

  u64(value: number | bigint): this {
    const bytes = new Uint8Array(8);
    viewOf(bytes).setBigUint64(0, BigInt(value), true);
    this.#hash.update(bytes);
    return this;
  }

  double(value: number): this {
    const bytes = new Uint8Array(8);
    viewOf(bytes).setFloat64(0, value, true);
    this.#hash.update(bytes);
    return this;
  }

  blob(value: Uint8Array | string): this {
    const bytes = typeof value === "string" ? utf8(value) : value;
    this.u64(bytes.length);
    this.#hash.update(bytes);
    return this;
  }

  finish(): Uint8Array {
    return this.#hash.digest();
  }
}

/** Where randomness comes from: fills the array. Tests alone pass another one than this. */
export type RandomSource = (out: Uint8Array) => void;

export const systemRandom: RandomSource = (out) => {
  // getRandomValues gives at most 65,536 bytes at a time.
  for (let at = 0; at < out.length; at += 65536) {
    crypto.getRandomValues(out.subarray(at, at + 65536) as Uint8Array<ArrayBuffer>);
  }
};

/** Uniform below `bound`, which is at most 2^31: draws again what would favour small numbers. */
export function randomBelow(random: RandomSource, bound: number): number {
  const word = new Uint8Array(4);
  const limit = Math.floor(2 ** 32 / bound) * bound;
  for (;;) {
    random(word);
    const value = viewOf(word).getUint32(0, true);
    if (value < limit) return value % bound;
  }
}

/** `count` distinct numbers below `bound`, among them all of `wanted`, in random order. */
export function distinctRows(
  random: RandomSource,
  wanted: Iterable<number>,
  count: number,
  bound: number,
): number[] {
  const rows = new Set(wanted);
  require(rows.size <= count && count <= bound, "more rows than there are");
  while (rows.size < count) rows.add(randomBelow(random, bound));
  const order = [...rows];
  for (let i = order.length - 1; i > 0; --i) {
    const j = randomBelow(random, i + 1);
    [order[i], order[j]] = [order[j]!, order[i]!];
  }
  return order;
}
