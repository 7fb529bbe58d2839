// From a key to its row, and from a row's bytes to the value (docs/protocol.md, section 5).
import type { Manifest } from "../gen/src/wire/manifest_pb.ts";
import { concat, equal, le32, require, Transcript, viewOf } from "./bytes.ts";
import type { RowVersion } from "./row_versions.ts";

const MASK = (1n << 64n) - 1n;

/** SipHash-2-4 with 128 bits of output, as two words. */
export function sipHash128(key: Uint8Array, data: Uint8Array): [bigint, bigint] {
  const k0 = viewOf(key).getBigUint64(0, true);
  const k1 = viewOf(key).getBigUint64(8, true);
  const v: [bigint, bigint, bigint, bigint] = [
    k0 ^ 0x736f6d6570736575n,
    k1 ^ 0x646f72616e646f6dn ^ 0xeen,
    k0 ^ 0x6c7967656e657261n,
    k1 ^ 0x7465646279746573n,
  ];
  const rotate = (x: bigint, bits: bigint) => ((x << bits) | (x >> (64n - bits))) & MASK;
  const step = (a: 0 | 2, b: 1 | 3, bits: bigint) => {
    v[a] = (v[a] + v[b]) & MASK;
    v[b] = rotate(v[b], bits) ^ v[a];
  };
  const rounds = (count: number) => {
    for (let i = 0; i < count; ++i) {
      step(0, 1, 13n);
      v[0] = rotate(v[0], 32n);
      step(2, 3, 16n);
      step(0, 3, 21n);
      step(2, 1, 17n);
      v[2] = rotate(v[2], 32n);
    }
  };
  const padded = concat(
    data,
    new Uint8Array(7 - (data.length % 8)),
    Uint8Array.of(data.length % 256),
  );
  for (let at = 0; at < padded.length; at += 8) {
    const word = viewOf(padded).getBigUint64(at, true);
    v[3] ^= word;
    rounds(2);
    v[0] ^= word;
  }
  v[2] ^= 0xeen;
  rounds(4);
  const first = v[0] ^ v[1] ^ v[2] ^ v[3];
  v[1] ^= 0xddn;
  rounds(4);
  return [first, v[0] ^ v[1] ^ v[2] ^ v[3]];
}

export function placementDigest(placement: Uint8Array): Uint8Array {
  return new Transcript("shoal placement v1").blob(placement).finish();
}

/** The number of a key's row; undefined for a key that no row can hold (dense layout). */
export function rowOf(
  manifest: Manifest,
  placement: Uint8Array,
  key: Uint8Array,
): number | undefined {
  if (manifest.layout.case === "dense") {
    const index = denseIndex(manifest, key);
    return index === undefined ? undefined : Number(index / manifest.layout.value.recordsPerRow);
  }
  require(manifest.layout.case === "hashed", "table: no layout");
  const { hashSeed, buckets } = manifest.layout.value;
  const [h0, h1] = sipHash128(hashSeed, key);
  const bucket = Number((h0 * BigInt(buckets)) >> 64n);
  let z = (h1 + BigInt(placement[bucket]!) * 0x9e3779b97f4a7c15n) & MASK;
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return Number(((z ^ (z >> 31n)) * manifest.rows) >> 64n);
}

function denseIndex(manifest: Manifest, key: Uint8Array): bigint | undefined {
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(key);
  if (!/^(0|[1-9][0-9]{0,18})$/.test(text)) return undefined;
  const index = BigInt(text);
  return index < manifest.records ? index : undefined;
}

export type Found =
  | { kind: "value"; value: Uint8Array }
  | { kind: "absent" }
  /** The row has no room for all of its keys: nothing is known until the next table. */
  | { kind: "unknown" };

/** What all parties sign for a row. */
export function rowMessage(
  manifest: Manifest,
  row: number,
  version: RowVersion,
  bytes: Uint8Array,
): Uint8Array {
  return new Transcript("shoal row v2")
    .blob(manifest.tableId)
    .u64(row)
    .u64(version.epoch)
    .blob(version.rowsDigest)
    .blob(bytes)
    .finish();
}

function compare(a: Uint8Array, b: Uint8Array): number {
  for (let i = 0; i < a.length && i < b.length; ++i) {
    if (a[i] !== b[i]) return a[i]! - b[i]!;
  }
  return a.length - b.length;
}

/** What a verified row says of a key. Refuses every byte out of place: a row has one encoding. */
export function findInRow(manifest: Manifest, row: Uint8Array, key: Uint8Array): Found {
  return manifest.layout.case === "dense"
    ? findInDenseRow(manifest, row, key)
    : findInHashedRow(manifest, row, key);
}

function findInDenseRow(manifest: Manifest, row: Uint8Array, key: Uint8Array): Found {
  require(manifest.layout.case === "dense", "table: no dense layout");
  const { recordsPerRow, valueBytes, lengthBytes } = manifest.layout.value;
  const index = denseIndex(manifest, key);
  if (index === undefined) return { kind: "absent" };
  const at = Number(index % recordsPerRow) * (valueBytes + lengthBytes);
  const slot = row.subarray(at, at + valueBytes + lengthBytes);
  require(slot.length === valueBytes + lengthBytes, "row: too short");
  if (lengthBytes === 0) return { kind: "value", value: slot };
  const length = lengthBytes === 1 ? slot[0]! : slot[0]! + 256 * slot[1]!;
  const allOnes = 2 ** (8 * lengthBytes) - 1;
  const value = slot.subarray(lengthBytes);
  if (length === allOnes && length > valueBytes) {
    require(value.every((byte) => byte === 0), "row: bytes in place of zeros");
    require(manifest.incompleteRows > 0n, "row: incomplete, in a table without such rows");
    return { kind: "unknown" };
  }
  require(length <= valueBytes, "row: a length");
  require(value.subarray(length).every((byte) => byte === 0), "row: bytes in place of zeros");
  return { kind: "value", value: value.subarray(0, length) };
}

function findInHashedRow(manifest: Manifest, row: Uint8Array, key: Uint8Array): Found {
  require(manifest.layout.case === "hashed", "table: no hashed layout");
  let at = 0;
  const varint = (): number => {
    let value = 0;
    for (let i = 0; ; ++i) {
      require(i < 3 && at < row.length, "row: a number");
      const byte = row[at++]!;
      value += (byte & 127) * 128 ** i;
      if (byte < 128) {
        require(byte > 0 || i === 0, "row: a number");
        return value;
      }
    }
  };
  let found: Uint8Array | undefined;
  let before: Uint8Array | undefined;
  while (at < row.length) {
    if (row[at] === 0) break;
    const keyBytes = varint() - 1;
    const valueBytes = varint();
    require(at + keyBytes + valueBytes <= row.length, "row: a record that has no room");
    const recordKey = row.subarray(at, at + keyBytes);
    require(!before || compare(before, recordKey) < 0, "row: its records are out of order");
    before = recordKey;
    at += keyBytes;
    if (equal(recordKey, key)) found = row.subarray(at, at + valueBytes);
    at += valueBytes;
  }
  // Zeros to the end, or the marks of keys that have no room between two of them.
  let displaced = false;
  if (at + 1 < row.length && row[at + 1] !== 0) {
    require(manifest.incompleteRows > 0n, "row: incomplete, in a table without such rows");
    const count = row[at + 1]!;
    at += 2;
    if (count === 255) {
      displaced = true;
    } else {
      const mark = le32(Number(sipHash128(manifest.layout.value.hashSeed, key)[0] & 0xffffffffn));
      require(at + 4 * count <= row.length, "row: marks that have no room");
      for (let i = 0; i < count; ++i, at += 4) {
        const next = row.subarray(at, at + 4);
        require(i === 0 || compare(row.subarray(at - 4, at), next) < 0, "row: its marks");
        displaced ||= equal(next, mark);
      }
    }
  }
  require(row.subarray(at).every((byte) => byte === 0), "row: bytes in place of zeros");
  if (found) return { kind: "value", value: found };
  return displaced ? { kind: "unknown" } : { kind: "absent" };
}
