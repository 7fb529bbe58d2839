// Seeds, onions, queries and masks (docs/protocol.md, sections 6 and 7).
//
//   party m, the last        enc                                  32 bytes
//   party j, 1 < j < m       enc | Seal(onion for party j + 1)    48 (m - j) + 32
//   party 1, a submission    enc | Seal(n onions for party 2)     48 + n (48 (m - 2) + 32)
//
// No seed is sent: client and party export it from the HPKE context of the party's layer.
import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { CipherSuite, ExportOnly, HkdfSha256 } from "@hpke/core";
import type { SenderContext } from "@hpke/core";
import { DhkemX25519HkdfSha256 } from "@hpke/dhkem-x25519";
import { poly1305 } from "@noble/ciphers/_poly1305.js";
import { chacha20 } from "@noble/ciphers/chacha.js";
import { concat, le32, require, utf8, viewOf } from "./bytes.ts";
import type { RandomSource } from "./bytes.ts";

export const P = 2 ** 31 - 1;
export const MAX_SUBMISSION_BYTES = 1 << 20;
const SEAL_BYTES = 48;
const ENC_BYTES = 32;

/** Of an onion with a layer for each of so many parties. */
export function onionBytes(layers: number): number {
  return layers === 0 ? 0 : ENC_BYTES + SEAL_BYTES * (layers - 1);
}

export function submissionBytes(parties: number, slots: number): number {
  return SEAL_BYTES + slots * onionBytes(parties - 1);
}

const sealing = new CipherSuite({
  kem: new DhkemX25519HkdfSha256(),
  kdf: new HkdfSha256(),
  aead: new Chacha20Poly1305(),
});
const exporting = new CipherSuite({
  kem: new DhkemX25519HkdfSha256(),
  kdf: new HkdfSha256(),
  aead: new ExportOnly(),
});

// The library takes and gives ArrayBuffers.
function buffer(bytes: Uint8Array): ArrayBuffer {
  return bytes.slice().buffer as ArrayBuffer;
}

export interface Layer {
  bytes: Uint8Array;
  context: SenderContext;
}

/** One layer for party `party`, around `inner`; the last party's has nothing in it. Every layer has
 *  an ephemeral key of its own. */
export async function sealLayer(
  onionKey: Uint8Array,
  roundId: Uint8Array,
  party: number,
  inner: Uint8Array | undefined,
  random: RandomSource,
): Promise<Layer> {
  const suite = inner ? sealing : exporting;
  const material = new Uint8Array(32);
  random(material);
  const context = await suite.createSenderContext({
    recipientPublicKey: await suite.kem.deserializePublicKey(buffer(onionKey)),
    info: buffer(concat(utf8("shoal onion v2"), roundId, Uint8Array.of(party))),
    ekm: await suite.kem.deriveKeyPair(buffer(material)),
  });
  material.fill(0);
  const enc = new Uint8Array(context.enc);
  require(enc.length === ENC_BYTES, "an encapsulated key of another length");
  if (!inner) return { bytes: enc, context };
  return { bytes: concat(enc, new Uint8Array(await context.seal(buffer(inner)))), context };
}

async function exportSeed(context: SenderContext, text: Uint8Array): Promise<Uint8Array> {
  return new Uint8Array(await context.export(buffer(text), 32));
}

export interface Submission {
  bytes: Uint8Array;
  /** Of slot i: the onion that party j gets is onions[i][j - 2], for j from 2 on. */
  onions: Uint8Array[][];
  /** Of slot i: the seed that is shared with party j is seeds[i][j - 1]. */
  seeds: Uint8Array[][];
}

export async function buildSubmission(
  onionKeys: Uint8Array[],
  roundId: Uint8Array,
  slots: number,
  random: RandomSource,
): Promise<Submission> {
  const parties = onionKeys.length;
  require(
    slots >= 1 && submissionBytes(parties, slots) <= MAX_SUBMISSION_BYTES,
    "too many slots for one submission",
  );
  const onions: Uint8Array[][] = [];
  const seeds: Uint8Array[][] = [];
  for (let slot = 0; slot < slots; ++slot) {
    const layers: Uint8Array[] = [];
    const own: Uint8Array[] = [];
    let inner: Uint8Array | undefined;
    for (let party = parties; party >= 2; --party) {
      const layer = await sealLayer(onionKeys[party - 1]!, roundId, party, inner, random);
      inner = layer.bytes;
      layers.unshift(layer.bytes);
      own.unshift(await exportSeed(layer.context, utf8("seed")));
    }
    onions.push(layers);
    seeds.push(own);
  }
  const plaintext = concat(...onions.map((layers) => layers[0]!));
  const outer = await sealLayer(onionKeys[0]!, roundId, 1, plaintext, random);
  for (let slot = 0; slot < slots; ++slot) {
    seeds[slot]!.unshift(await exportSeed(outer.context, concat(utf8("slot"), le32(slot))));
  }
  require(outer.bytes.length === submissionBytes(parties, slots), "a submission of another length");
  return { bytes: outer.bytes, onions, seeds };
}

export interface Expanded {
  token: Uint8Array;
  x: number;
  y: number;
}

/** Token, x and y of a seed: block 0 of its stream. */
export function expand(seed: Uint8Array, roundId: Uint8Array): Expanded {
  const block = chacha20(seed, roundId.subarray(0, 12), new Uint8Array(64), undefined, 0);
  const words: number[] = [];
  for (let at = 16; at < 64; at += 4) words.push(viewOf(block).getUint32(at, true) & P);
  const xAt = words.findIndex((word) => word < P);
  const y = xAt < 0 ? undefined : words.slice(xAt + 1).find((word) => word > 0 && word < P);
  // Seeds without them come with a probability below 2^-300.
  if (y === undefined) return { token: block.slice(0, 16), x: 0, y: 1 };
  return { token: block.slice(0, 16), x: words[xAt]!, y };
}

const BIG_P = BigInt(P);

function multiply(a: number, b: number): number {
  return Number((BigInt(a) * BigInt(b)) % BIG_P);
}

function invert(a: number): number {
  let result = 1;
  let power = a;
  for (let exponent = P - 2; exponent > 0; exponent = Math.floor(exponent / 2)) {
    if (exponent % 2 === 1) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

/** The numbers that stand for a query on its way: tallies[0] is what the client sends, tallies[j]
 *  what party j makes of it, and the last one is the row. */
export function talliesOf(seeds: Uint8Array[], roundId: Uint8Array, row: number): number[] {
  const tallies = [row];
  for (let party = seeds.length; party >= 1; --party) {
    const { x, y } = expand(seeds[party - 1]!, roundId);
    tallies.unshift(multiply((tallies[0]! - x + P) % P, invert(y)));
  }
  return tallies;
}

export const ANSWER_TAG_BYTES = 16;

function stream(seed: Uint8Array, roundId: Uint8Array, block: number, bytes: Uint8Array): Uint8Array {
  return chacha20(seed, roundId.subarray(0, 12), bytes, undefined, block);
}

/** What the parties, the last one first, make of a row and its signature: the answer under all masks,
 *  and party 1's tag, which covers those of the others. */
export function maskByAll(answer: Uint8Array, seeds: Uint8Array[], roundId: Uint8Array): Uint8Array {
  const keyBlock = 1 + Math.ceil(answer.length / 64);
  return seeds.reduceRight<Uint8Array>((sent, seed) => {
    const masked = stream(seed, roundId, 1, sent.subarray(0, answer.length));
    const covered = concat(masked, sent.subarray(answer.length));
    const key = stream(seed, roundId, keyBlock, new Uint8Array(32));
    return concat(masked, poly1305(covered, key));
  }, answer);
}

/** Takes all parties' masks off an answer, and its tag. Throws Refused if the tag is not the one that
 *  the parties make of it: then somebody has altered the answer on its way, and whoever is to learn
 *  whether it verified must not learn it of the row. */
export function unmask(tagged: Uint8Array, seeds: Uint8Array[], roundId: Uint8Array): Uint8Array {
  const bytes = tagged.length - ANSWER_TAG_BYTES;
  require(bytes > 0, "an answer without a tag");
  const plain = seeds.reduce(
    (masked, seed) => stream(seed, roundId, 1, masked),
    tagged.subarray(0, bytes),
  );
  const again = maskByAll(plain, seeds, roundId);
  let differ = 0;
  for (let i = 0; i < tagged.length; ++i) differ |= tagged[i]! ^ again[i]!;
  require(differ === 0, "the answer was altered on its way: its tag is wrong");
  return plain;
}
