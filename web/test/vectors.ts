// Known answers: those of references, and those of this project's own programs, whose paths are the
// arguments: pyhpke_peer (seals and opens submissions) and bls_vectors (keys and signatures).
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { Chacha20Poly1305 } from "@hpke/chacha20poly1305";
import { CipherSuite, ExportOnly, HkdfSha256 } from "@hpke/core";
import { DhkemX25519HkdfSha256 } from "@hpke/dhkem-x25519";
import { create } from "@bufbuild/protobuf";
import { x25519 } from "@noble/curves/ed25519.js";
import { ManifestSchema } from "../gen/src/wire/manifest_pb.ts";
import * as bls from "../client/bls.ts";
import { concat, distinctRows, fromHex, hex, le32, randomBelow, Refused, systemRandom, Transcript, utf8 } from "../client/bytes.ts";
import { parsePins } from "../client/deployment.ts";
import { decodeFrame, encodeFrame, plainText } from "../client/frame.ts";
import { buildSubmission, expand, maskByAll, P, talliesOf, unmask } from "../client/onions.ts";
import { decodeList } from "../client/row_versions.ts";
import { findInRow, rowOf, sipHash128 } from "../client/rows.ts";

const [peer, blsVectors] = process.argv.slice(2);

function lines(program: string, args: string[], input = ""): string[][] {
  const out = execFileSync(program, args, { input, encoding: "utf8" });
  return out.trimEnd().split("\n").map((line) => line.trim().split(" "));
}

function suite(seals: boolean): CipherSuite {
  return new CipherSuite({
    kem: new DhkemX25519HkdfSha256(),
    kdf: new HkdfSha256(),
    aead: seals ? new Chacha20Poly1305() : new ExportOnly(),
  });
}
const buffer = (bytes: Uint8Array) => bytes.slice().buffer as ArrayBuffer;

// What a party does, which no client does: opens its layer.
async function receive(secret: Uint8Array, roundId: Uint8Array, party: number, layer: Uint8Array) {
  const seals = layer.length > 32;
  const hpke = suite(seals);
  const context = await hpke.createRecipientContext({
    recipientKey: await hpke.kem.deserializePrivateKey(buffer(secret)),
    enc: buffer(layer.subarray(0, 32)),
    info: buffer(concat(utf8("shoal onion v2"), roundId, Uint8Array.of(party))),
  });
  const inner = seals ? new Uint8Array(await context.open(buffer(layer.subarray(32)))) : new Uint8Array();
  const seed = async (text: Uint8Array) => new Uint8Array(await context.export(buffer(text), 32));
  return { inner, seed };
}

test("submissions of the C++ code open here, with the same seeds", async () => {
  const sets = lines(peer!, ["seal"]);
  assert.ok(sets.length > 0);
  for (const line of sets) {
    const [roundId, s1, s2, s3, submission, ...expected] = line.map(fromHex) as [
      Uint8Array, Uint8Array, Uint8Array, Uint8Array, Uint8Array, ...Uint8Array[]
    ];
    const outer = await receive(s1, roundId, 1, submission);
    const seeds: Uint8Array[][] = [[], [], []];
    for (let i = 0; 80 * i < outer.inner.length; ++i) {
      const middle = await receive(s2, roundId, 2, outer.inner.subarray(80 * i, 80 * (i + 1)));
      const last = await receive(s3, roundId, 3, middle.inner);
      seeds[0]!.push(await outer.seed(concat(utf8("slot"), le32(i))));
      seeds[1]!.push(await middle.seed(utf8("seed")));
      seeds[2]!.push(await last.seed(utf8("seed")));
    }
    assert.deepEqual(seeds.map((own) => hex(concat(...own))), expected.map(hex));
  }
});

test("submissions made here open in the C++ code, with the same seeds; a spoiled one does not", async () => {
  const requests: string[] = [];
  const expected: string[] = [];
  for (const count of [1, 2, 8, 17]) {
    const roundId = new Uint8Array(32);
    systemRandom(roundId);
    const secrets = [1, 2, 3].map(() => x25519.utils.randomSecretKey());
    const keys = secrets.map((secret) => x25519.getPublicKey(secret));
    const { bytes, seeds } = await buildSubmission(keys, roundId, count, systemRandom);
    const spoiled = bytes.slice();
    spoiled[spoiled.length - 1]! ^= 1;
    for (const sent of [bytes, spoiled]) {
      requests.push([roundId, ...secrets, sent].map(hex).join(" "));
      expected.push(
        sent === spoiled
          ? "refused"
          : [0, 1, 2].map((party) => hex(concat(...seeds.map((own) => own[party]!)))).join(" "),
      );
    }
  }
  const answers = lines(peer!, ["open"], requests.join("\n") + "\n").map((line) => line.join(" "));
  const sets = answers.length / expected.length;
  assert.ok(Number.isInteger(sets) && sets >= 1);
  assert.deepEqual(answers, expected.flatMap((line) => Array(sets).fill(line) as string[]));
});

test("no ephemeral key comes twice, and the injected generator alone decides", async () => {
  const keys = [1, 2, 3].map(() => x25519.getPublicKey(x25519.utils.randomSecretKey()));
  const counter = () => {
    let n = 0;
    return (out: Uint8Array) => out.fill(++n);
  };
  const a = await buildSubmission(keys, new Uint8Array(32), 4, counter());
  const b = await buildSubmission(keys, new Uint8Array(32), 4, counter());
  assert.deepEqual(a.bytes, b.bytes);
  const encs = [a.bytes, ...a.onions.flat()].map((layer) => hex(layer.subarray(0, 32)));
  assert.equal(new Set(encs).size, 9);
});

test("signatures of the C++ code verify, and altered ones do not", () => {
  const material = lines(blsVectors!, []);
  const keys: bls.PublicKey[] = [];
  for (const [first, , , proof, message, signature] of material) {
    if (first === "aggregate") continue;
    const bytes = fromHex(material[keys.length]![2]!);
    const key = bls.publicKey("key", bytes);
    bls.verifyPossession("proof", key, bytes, fromHex(proof!));
    const text = message === "-" ? new Uint8Array() : fromHex(message!);
    bls.verify("signature", key, text, fromHex(signature!));
    assert.throws(() => bls.verify("s", key, concat(text, text, utf8("x")), fromHex(signature!)), /match/);
    // A signature is no proof of possession.
    assert.throws(() => bls.verifyPossession("p", key, text, fromHex(signature!)), /match/);
    keys.push(key);
  }
  assert.equal(keys.length, 4);
  const [, key, signature] = material.at(-1)!;
  assert.equal(hex(bls.sum(keys).toBytes()), key);
  bls.verify("aggregate", bls.sum(keys), utf8("all"), fromHex(signature!));
});

test("points outside the group are refused", () => {
  const infinity = (length: number) => Uint8Array.of(0xc0, ...new Uint8Array(length - 1));
  assert.throws(() => bls.publicKey("key", infinity(96)), /infinity|not a point/);
  assert.throws(() => bls.publicKey("key", new Uint8Array(96).fill(7)), /not a point/);
  assert.throws(() => bls.publicKey("key", new Uint8Array(48)), /96 bytes/);
  const key = bls.publicKey("key", fromHex(lines(blsVectors!, [])[0]![2]!));
  assert.throws(() => bls.verify("s", key, utf8("m"), infinity(48)), /infinity|not a point/);
  // Small x are not on the curve, or of points outside the subgroup.
  for (let x = 1; x < 40; ++x) {
    const bytes = new Uint8Array(48);
    bytes[0] = 0x80;
    bytes[47] = x;
    assert.throws(() => bls.verify("s", key, utf8("m"), bytes), /not a point/);
  }
});

test("transcripts", () => {
  // BLAKE2b-256 of "\1\0..a" by another library (Python's hashlib).
  assert.equal(
    hex(new Transcript("a").finish()),
    "b7c00384720b8fef71c7ba07ab6ca7fc4c6bdeaff9cc792621f8c62c9de6edbe",
  );
});

test("SipHash and rows: the vectors of docs/protocol.md", () => {
  const key = Uint8Array.from({ length: 16 }, (_, i) => i);
  assert.deepEqual(sipHash128(key, new Uint8Array()), [0xe6a825ba047f81a3n, 0x930255c71472f66dn]);
  assert.deepEqual(sipHash128(key, Uint8Array.of(0)), [0x44af996bd8c187dan, 0x45fc229b11597634n]);
});

test("seeds expand, and tallies step to the row", () => {
  const roundId = new Uint8Array(32).fill(9);
  const seeds = [1, 2, 3, 4].map((n) => new Uint8Array(32).fill(n));
  for (const row of [0, 1, 77, P - 1]) {
    const tallies = talliesOf(seeds, roundId, row);
    seeds.forEach((seed, i) => {
      const { x, y } = expand(seed, roundId);
      assert.equal((BigInt(y) * BigInt(tallies[i]!) + BigInt(x)) % BigInt(P), BigInt(tallies[i + 1]!));
    });
    assert.equal(tallies[4], row);
  }
  const answer = Uint8Array.from({ length: 190 }, (_, i) => i);
  const masked = maskByAll(answer, seeds, roundId);
  assert.equal(masked.length, answer.length + 16);
  assert.deepEqual(unmask(masked, seeds, roundId), answer);
  for (let i = 0; i < masked.length; ++i) {
    const altered = masked.slice();
    altered[i]! ^= 1 << i % 8;
    assert.throws(() => unmask(altered, seeds, roundId), /altered on its way/);
  }
  // docs/protocol.md, "Answers": the same as in //src/sharing:sharing_test.
  const two = [1, 2].map((n) => new Uint8Array(32).fill(n));
  const row = Uint8Array.from({ length: 80 }, (_, i) => i);
  assert.equal(hex(maskByAll(row, two.slice(1), roundId).subarray(80)), "015db810f1f37bfaf3380d4572647ff8");
  assert.equal(hex(maskByAll(row, two, roundId).subarray(80)), "96466963a3e7ae97fb65e71d139056ab");
});

test("lists of rows' epochs have one encoding", () => {
  const digest = new Uint8Array(32).fill(3);
  const list = (head: number[], tail: number[]) => Uint8Array.of(...head, ...digest, ...tail);
  const bounds = { after: 0n, upTo: 3n, complete: false };
  const good = decodeList(list([8, 2, 0, 0, 7, 3], [1, 0b110]), 8, bounds);
  assert.deepEqual(good.map((version) => Number(version?.epoch ?? 0)), [0, 0, 0, 0, 0, 3, 0, 0]);
  assert.deepEqual(decodeList(Uint8Array.of(0, 0), 0, bounds), []);
  for (const bad of [
    new Uint8Array(),
    Uint8Array.of(8),
    Uint8Array.of(8, 2, 0),
    list([8, 2, 0, 0, 7, 3], [1]),
    list([8, 2, 0, 0, 7, 3], [1, 0b110, 0]),
    list([8, 2, 0, 0, 7, 3], [1, 0b10110]),
    list([8, 2, 0, 0, 7, 3], [1, 0b10000]),
    list([8, 2, 0, 0, 7, 3], [1, 0]),
    list([0x88, 0, 2, 0, 0, 7, 3], [1, 0b110]),
    list([9, 2, 0, 0, 8, 3], [1, 0b110]),
    list([8, 3, 0, 0, 7, 3], [1, 0b110]),
    list([8, 2, 1, 0, 7, 3], [1, 0b110]),
    list([8, 2, 0, 0, 7, 4], [1, 0b110]),
    list([8, 2, 0, 0, 6, 3], [1, 0b110]),
  ]) {
    assert.throws(() => decodeList(bad, 8, bounds), /list/, hex(bad));
  }
  assert.throws(
    () => decodeList(list([8, 2, 0, 0, 7, 3], [1, 0b110]), 8, { ...bounds, complete: true }),
    /without an epoch/,
  );
});

function hashedTable(incompleteRows: bigint) {
  return create(ManifestSchema, {
    rows: 1n,
    rowBytes: 16,
    incompleteRows,
    layout: { case: "hashed", value: { hashSeed: new Uint8Array(16), buckets: 1 } },
  });
}

test("rows have one encoding", () => {
  const a = [2, 1, 0x61, 0x31]; // "a" -> "1"
  const b = [2, 2, 0x62, 0x32, 0x33]; // "b" -> "23"
  const row = (...bytes: number[]) => Uint8Array.of(...bytes, ...new Uint8Array(16 - bytes.length));
  const find = (bytes: Uint8Array, key: string, incomplete = 0n) =>
    findInRow(hashedTable(incomplete), bytes, utf8(key));
  assert.deepEqual(find(row(...a, ...b), "b"), { kind: "value", value: utf8("23") });
  assert.deepEqual(find(row(...a, ...b), "c"), { kind: "absent" });
  const mark = le32(Number(sipHash128(new Uint8Array(16), utf8("c"))[0] & 0xffffffffn));
  assert.deepEqual(find(row(...a, 0, 1, ...mark), "c", 1n), { kind: "unknown" });
  assert.deepEqual(find(row(...a, 0, 1, ...mark), "d", 1n), { kind: "absent" });
  assert.deepEqual(find(row(...a, 0, 255), "d", 1n), { kind: "unknown" });
  for (const bad of [
    row(...b, ...a), // out of order
    row(...a, ...a), // twice
    row(2, 100, 0x61), // no room
    row(0x82, 0, 1, 0x61, 0x31), // a long number
    row(...a, 0, 0, 0, 7), // leftovers
  ]) {
    assert.throws(() => find(bad, "a"), /row/, hex(bad));
  }
  assert.throws(() => find(row(...a, 0, 255), "d"), /incomplete/);
  assert.throws(() => find(row(...a, 0, 255, 1), "d", 1n), /zeros/);
});

test("random bytes end in Refused, and in nothing else", () => {
  const digest = new Uint8Array(32).fill(3);
  const list = Uint8Array.of(8, 2, 0, 0, 7, 3, ...digest, 1, 0b110);
  const row = Uint8Array.of(2, 1, 0x61, 0x31, 0, 1, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0);
  const bounds = { after: 0n, upTo: 3n, complete: false };
  const parsers: [Uint8Array, (bytes: Uint8Array) => unknown][] = [
    [list, (bytes) => decodeList(bytes, 8, bounds)],
    [row, (bytes) => findInRow(hashedTable(1n), bytes, utf8("a"))],
    [encodeFrame(18, utf8("abc")), (bytes) => decodeFrame(bytes)],
  ];
  for (const [good, parse] of parsers) {
    let refused = 0;
    for (let i = 0; i < 3000; ++i) {
      const bad = good.slice(0, i % 5 === 0 ? randomBelow(systemRandom, good.length) : good.length);
      for (let n = randomBelow(systemRandom, 3); n >= 0 && bad.length > 0; --n) {
        bad[randomBelow(systemRandom, bad.length)] = randomBelow(systemRandom, 256);
      }
      try {
        parse(bad);
      } catch (error) {
        assert.ok(error instanceof Refused, `${String(error)} for ${hex(bad)}`);
        ++refused;
      }
    }
    assert.ok(refused > 1000);
  }
});

test("dense rows", () => {
  const manifest = create(ManifestSchema, {
    rows: 2n,
    records: 3n,
    rowBytes: 8,
    layout: { case: "dense", value: { recordsPerRow: 2n, valueBytes: 3, lengthBytes: 1 } },
  });
  const none = new Uint8Array();
  assert.equal(rowOf(manifest, none, utf8("2")), 1);
  for (const key of ["3", "02", "-1", "x", "", "\ufeff2"]) assert.equal(rowOf(manifest, none, utf8(key)), undefined);
  const row = Uint8Array.of(2, 0x61, 0x62, 0, 0, 0, 0, 0);
  assert.deepEqual(findInRow(manifest, row, utf8("0")), { kind: "value", value: utf8("ab") });
  assert.throws(() => findInRow(manifest, Uint8Array.of(2, 1, 1, 1, 0, 0, 0, 0), utf8("0")), /zeros/);
  assert.throws(() => findInRow(manifest, Uint8Array.of(4, 1, 1, 1, 0, 0, 0, 0), utf8("0")), /length/);
});

test("a frontend's text stays in its place", () => {
  assert.equal(plainText("full\u202e\u0000\n\n\u200bof \ud800 it"), "full of it");
  assert.equal(plainText("x".repeat(4000)).length, 200);
});

test("frames refuse what no frontend sends", () => {
  const frame = encodeFrame(18, utf8("abc"));
  assert.deepEqual(decodeFrame(frame), { type: 18, control: utf8("abc") });
  const altered = (at: number, value: number) => {
    const bad = frame.slice();
    bad[at] = value;
    return bad;
  };
  for (const bad of [altered(3, 0x31), altered(6, 1), altered(8, 4), altered(12, 1), altered(11, 1), frame.subarray(0, 22)]) {
    assert.throws(() => decodeFrame(bad), /frame/);
  }
});

test("queries ask distinct rows in an order that tells nothing", () => {
  const places = new Array<number>(8).fill(0);
  for (let i = 0; i < 4000; ++i) {
    const rows = distinctRows(systemRandom, [5], 8, 10);
    assert.equal(new Set(rows).size, 8);
    places[rows.indexOf(5)]! += 1;
  }
  // Chi-squared with 7 degrees of freedom is above 40.5 once in a million runs.
  const chi = places.reduce((sum, n) => sum + (n - 500) ** 2 / 500, 0);
  assert.ok(chi < 40.5, `places ${places}`);
});

test("pins are read strictly", () => {
  const key = "ab".repeat(96);
  const text = `deployment: "local"\nbls_public_keys_hex: "${key}"\nbls_public_keys_hex: "${key.toUpperCase()}"\nminimum_roster_epoch: 1\n`;
  assert.equal(parsePins(text).blsPublicKeysHex[1], key);
  assert.throws(() => parsePins(text + "other: 1\n"), /unknown field/);
  assert.throws(() => parsePins(text + "what\n"), /no field/);
  assert.throws(() => parsePins(`deployment: "local"\n`), /2 to 8 keys/);
});
