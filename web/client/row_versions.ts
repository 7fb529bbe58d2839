// Which epoch changed each row of a table last: three lists that the manifest commits to
// (docs/protocol.md, section 4). A row's signature is for the epoch and the digest that they name.
import type { Manifest } from "../gen/src/wire/manifest_pb.ts";
import { equal, hex, require, Transcript } from "./bytes.ts";

export interface RowVersion {
  epoch: bigint;
  rowsDigest: Uint8Array;
}

const BLOCK_EPOCHS = 8n;
const MAX_CLASSES = 4097;

interface Bounds {
  after: bigint; // epochs are above this
  upTo: bigint;
  complete: boolean; // whether every row is named
}

/** For every row its version; undefined for a row that the list does not name. */
export function decodeList(
  data: Uint8Array,
  rows: number,
  bounds: Bounds,
): (RowVersion | undefined)[] {
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      require(at < data.length && shift < 70n, "list: a number");
      const byte = data[at++]!;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) {
        require((byte > 0 || shift === 0n) && value < 1n << 64n, "list: a number");
        return value;
      }
    }
  };
  require(varint() === BigInt(rows), "list: another number of rows");
  const count = Number(varint());
  require(count <= Math.min(rows, MAX_CLASSES) && count > 0 === rows > 0, "list: its epochs");
  const unlisted = rows > 0 ? Number(varint()) : 0;
  const sizes: number[] = [];
  const versions: (RowVersion | undefined)[] = [];
  let epoch = 0n;
  for (let i = 0; i < count; ++i) {
    const step = varint();
    epoch += step;
    require(step > 0n || i === 0, "list: an epoch twice");
    if (epoch === 0n) {
      require(!bounds.complete, "list: a row without an epoch");
      versions.push(undefined);
    } else {
      require(bounds.after < epoch && epoch <= bounds.upTo, "list: an epoch out of its block");
      require(at + 32 <= data.length, "list: it ends too early");
      versions.push({ epoch, rowsDigest: data.slice(at, at + 32) });
      at += 32;
    }
    const size = varint();
    require(size >= 1n && size <= BigInt(rows), "list: an epoch without rows");
    sizes.push(Number(size));
  }
  require(sizes.reduce((a, b) => a + b, 0) === rows, "list: another number of rows");
  require(
    rows === 0 || unlisted === sizes.indexOf(Math.max(...sizes)),
    "list: the class that is not listed",
  );

  const of = new Int16Array(rows).fill(-1);
  let position = 8 * at;
  const end = 8 * data.length;
  const bit = (): number => {
    require(position < end, "list: it ends too early");
    const value = (data[position >> 3]! >> (position & 7)) & 1;
    ++position;
    return value;
  };
  sizes.forEach((size, i) => {
    if (i === unlisted) return;
    let k = 0;
    while (k < 31 && 128 * size * 2 ** (k + 1) <= 123 * rows) ++k;
    let row = -1;
    for (let n = 0; n < size; ++n) {
      let distance = 0;
      while (bit() === 0) distance += 2 ** k;
      for (let j = 0; j < k; ++j) distance += bit() * 2 ** j;
      row += 1 + distance;
      require(row < rows && of[row] === -1, "list: a row that is not there, or twice");
      of[row] = i;
    }
  });
  require(data.length === Math.floor((position + 7) / 8), "list: more bytes than it needs");
  while (position < end) require(bit() === 0, "list: more bits than it needs");
  return Array.from(of, (i) => versions[i < 0 ? unlisted : i]);
}

export function listDigest(list: Uint8Array): Uint8Array {
  return new Transcript("shoal row versions v1").blob(list).finish();
}

function same(a: RowVersion | undefined, b: RowVersion | undefined): boolean {
  return a === b || (!!a && !!b && a.epoch === b.epoch && equal(a.rowsDigest, b.rowsDigest));
}

/** The version of every row, from the bytes of the three lists. */
export function combine(
  manifest: Manifest,
  bytes: { base: Uint8Array; previous: Uint8Array; recent: Uint8Array },
): RowVersion[] {
  const lists = manifest.rowVersions!;
  const rows = Number(manifest.rows);
  const baseRows = Number(lists.baseRows);
  const last = ((manifest.epoch - 1n) / BLOCK_EPOCHS) * BLOCK_EPOCHS;
  const before = last > BLOCK_EPOCHS ? last - BLOCK_EPOCHS : 0n;
  require(equal(listDigest(bytes.base), lists.baseDigest), "list: not the manifest's");
  require(equal(listDigest(bytes.previous), lists.previousDigest), "list: not the manifest's");
  require(equal(listDigest(bytes.recent), lists.recentDigest), "list: not the manifest's");
  const base = decodeList(bytes.base, baseRows, { after: 0n, upTo: last, complete: true });
  const previous = decodeList(bytes.previous, baseRows, {
    after: before,
    upTo: last,
    complete: false,
  });
  const recent = decodeList(bytes.recent, rows, {
    after: last,
    upTo: manifest.epoch,
    complete: false,
  });
  previous.forEach((version, row) => {
    const old = base[row]!;
    require(
      version ? same(version, old) : old.epoch <= before,
      "lists of rows' epochs that contradict each other",
    );
  });
  const digests = new Map<bigint, string>();
  return recent.map((version, row) => {
    const now = version ?? base[row];
    require(now, "a row without an epoch");
    const digest = hex(now.rowsDigest);
    require(
      (digests.get(now.epoch) ?? digest) === digest,
      "lists of rows' epochs: two digests for one epoch",
    );
    digests.set(now.epoch, digest);
    require(manifest.epoch - now.epoch < 4096n, "a row of too old an epoch");
    require(
      now.epoch < manifest.epoch || equal(now.rowsDigest, manifest.rowsDigest),
      "a row of another epoch's content",
    );
    return now;
  });
}
