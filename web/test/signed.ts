// Deployments, rounds and tables that all parties signed, and that a client must refuse all the same:
// this test has the parties' keys. Altered ones without a signature are in refusals.ts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { bls12_381 } from "@noble/curves/bls12-381.js";
import { clone, create } from "@bufbuild/protobuf";
import * as wire from "../gen/src/wire/client_pb.ts";
import { KeyRenewalSchema, Mechanism } from "../gen/src/wire/roster_pb.ts";
import type { KeyRenewal } from "../gen/src/wire/roster_pb.ts";
import { hex, Refused, Transcript } from "../client/bytes.ts";
import {
  checkTimes, manifestDigest, ONION_SUITE, rosterDigest, roundIdOf, SeenEpochs, verifyDeployment, verifyRound,
} from "../client/deployment.ts";
import type { Pins } from "../client/deployment.ts";
import { listDigest } from "../client/row_versions.ts";

const NOW = 1_800_000_000n;
const G1 = bls12_381.G1;
const secrets = [11n, 22n, 33n];
const publicKeys = secrets.map((secret) => bls12_381.G2.Point.BASE.multiply(secret).toBytes());

function sign(secret: bigint, message: Uint8Array, kind = "SIG"): Uint8Array {
  const domain = `BLS_${kind}_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_`;
  return G1.hashToCurve(message, { DST: domain }).multiply(secret).toBytes();
}
/** By all parties, aggregated. */
const signAll = (digest: Uint8Array) => sign(secrets.reduce((a, b) => a + b, 0n), digest);

const pins: Pins = {
  deployment: "signed",
  blsPublicKeysHex: publicKeys.map(hex),
  minimumRosterEpoch: 1n,
  minimumTableEpoch: 1n,
};
const empty = Uint8Array.of(0, 0);

const good = create(wire.GetDeploymentResponseSchema, {
  roster: {
    roster: {
      deployment: "signed",
      epoch: 1n,
      parties: publicKeys.map((key, i) => ({
        number: i + 1,
        name: `party-${i + 1}`,
        peerAddress: i === 0 ? "" : `10.0.0.${i}:7300`,
        clientAddress: i === 0 ? "front.example:7300" : "",
        blsPublicKey: key,
        proofOfPossession: sign(secrets[i]!, key, "POP"),
        tlsCertificateSha256: new Uint8Array(32).fill(i + 1),
        machines: 1,
      })),
      noise: { mechanism: Mechanism.GEOMETRIC, epsilon: 1, delta: 1e-6, phi: 1, mode: 15, leftScale: 1.25, rightScale: 5 },
      validFromS: NOW - 1000n,
      expiresS: NOW + 100_000n,
      clockToleranceS: 60,
      maxSlots: 1000,
      onionSuite: ONION_SUITE,
    },
  },
  manifest: {
    manifest: {
      name: "table",
      tableId: new Uint8Array(32).fill(5),
      epoch: 1n,
      createdS: NOW - 1000n,
      expiresS: NOW + 100_000n,
      records: 8n,
      rows: 10n,
      rowBytes: 64,
      layout: { case: "hashed", value: { hashSeed: new Uint8Array(16), buckets: 4, placementDigest: new Uint8Array(32) } },
      rowsDigest: new Uint8Array(32).fill(6),
      deployment: "signed",
      rowVersions: { baseRows: 0n, baseBytes: 2n, baseDigest: listDigest(empty), previousBytes: 2n, previousDigest: listDigest(empty), recentBytes: 40n, recentDigest: new Uint8Array(32) },
    },
  },
});

type Roster = NonNullable<NonNullable<typeof good.roster>["roster"]>;
type Manifest = NonNullable<NonNullable<typeof good.manifest>["manifest"]>;

/** Altered, and then signed by all parties. */
function signed(alter: (roster: Roster, manifest: Manifest) => void): wire.GetDeploymentResponse {
  const response = clone(wire.GetDeploymentResponseSchema, good);
  alter(response.roster!.roster!, response.manifest!.manifest!);
  response.roster!.signature = signAll(rosterDigest(response.roster!.roster!));
  response.manifest!.signature = signAll(manifestDigest(response.manifest!.manifest!));
  return response;
}
const check = (response: wire.GetDeploymentResponse, now = NOW) => verifyDeployment(response, pins, new SeenEpochs(), now);

test("what all parties signed is taken", () => {
  const deployment = check(signed(() => {}));
  assert.equal(deployment.rows, 10);
  checkTimes(deployment, NOW + 100_059n); // the tolerance
  assert.throws(() => checkTimes(deployment, NOW + 100_060n), /expired/);
  check(signed((r) => (r.maxSlots = 1 << 30)));
});

test("keys that were renewed are followed, others are not", () => {
  const next = 44n;
  const nextKey = bls12_381.G2.Point.BASE.multiply(next).toBytes();
  const digest = (from: Uint8Array, to: Uint8Array) => new Transcript("shoal key renewal v1").blob(from).blob(to).finish();
  const renewal = (from: Uint8Array, to: Uint8Array, by: bigint) =>
    create(KeyRenewalSchema, { oldKey: from, newKey: to, signature: sign(by, digest(from, to)) });
  const pinned = publicKeys[1]!;
  const renewed = (renewals: KeyRenewal[]) => {
    const response = clone(wire.GetDeploymentResponseSchema, good);
    const roster = response.roster!.roster!;
    Object.assign(roster.parties[1]!, { blsPublicKey: nextKey, proofOfPossession: sign(next, nextKey, "POP") });
    roster.epoch = 2n;
    const all = secrets[0]! + next + secrets[2]!;
    response.roster!.signature = sign(all, rosterDigest(roster));
    response.roster!.renewals = renewals;
    response.manifest!.signature = sign(all, manifestDigest(response.manifest!.manifest!));
    return response;
  };
  const right = renewal(pinned, nextKey, secrets[1]!);
  assert.deepEqual(check(renewed([right])).renewed, [2]);
  // A false one first does not hide it, and a longer way leads there too.
  assert.deepEqual(check(renewed([renewal(pinned, nextKey, next), right])).renewed, [2]);
  const between = bls12_381.G2.Point.BASE.multiply(55n).toBytes();
  check(renewed([renewal(pinned, between, secrets[1]!), renewal(between, nextKey, 55n)]));
  for (const renewals of [
    [],
    [renewal(pinned, nextKey, next)],
    [renewal(publicKeys[0]!, nextKey, secrets[0]!)],
    [renewal(between, nextKey, 55n), renewal(pinned, between, secrets[1]!)],
  ]) {
    assert.throws(() => check(renewed(renewals)), /not the pinned ones: party 2 has another key/);
  }
  assert.throws(() => check(renewed([renewal(pinned, pinned, secrets[1]!), right])), /malformed renewal/);
  assert.throws(() => check(renewed(Array(129).fill(right) as KeyRenewal[])), /too many renewals/);
  // Within a visit the key that was left is never trusted again, whatever the epoch.
  const seen = new SeenEpochs();
  verifyDeployment(renewed([right]), pins, seen, NOW);
  assert.throws(() => verifyDeployment(signed((r) => (r.epoch = 3n)), pins, seen, NOW), /party 2 has another key/);
});

test("rosters that are signed and refused", () => {
  const cases: [RegExp, (roster: Roster) => void][] = [
    [/deployment/, (r) => (r.deployment = "-x")],
    [/another deployment/, (r) => (r.deployment = "other")],
    [/epoch/, (r) => (r.epoch = 0n)],
    [/2 to 8 parties|not the pinned/, (r) => r.parties.splice(1)],
    [/another number/, (r) => (r.parties[1]!.number = 3)],
    [/not a name/, (r) => (r.parties[1]!.name = "")],
    [/a name comes twice/, (r) => (r.parties[1]!.name = "party-1")],
    [/a certificate comes twice/, (r) => (r.parties[1]!.tlsCertificateSha256 = new Uint8Array(32).fill(1))],
    [/tls_certificate/, (r) => (r.parties[1]!.tlsCertificateSha256 = new Uint8Array(31))],
    [/a key comes twice/, (r) => (r.parties[1]!.blsPublicKey = publicKeys[0]!)],
    [/not an address/, (r) => (r.parties[0]!.clientAddress = "front.example")],
    [/not an address/, (r) => (r.parties[1]!.peerAddress = "host:0")],
    [/not an address/, (r) => (r.parties[1]!.peerAddress = "host:65536")],
    [/peer_address/, (r) => (r.parties[0]!.peerAddress = "host:1")],
    [/machines/, (r) => (r.parties[1]!.machines = 0)],
    [/other_machines/, (r) => (r.parties[1]!.machines = 2)],
    [/proof/, (r) => (r.parties[1]!.proofOfPossession = sign(secrets[1]!, publicKeys[1]!))],
    [/times/, (r) => (r.validFromS = r.expiresS)],
    [/too long/, (r) => (r.expiresS = NOW + 11n * 366n * 86400n)],
    [/not yet valid/, (r) => (r.validFromS = NOW + 61n)],
    [/expired/, (r) => (r.expiresS = NOW - 60n)],
    [/clock_tolerance/, (r) => (r.clockToleranceS = 3601)],
    [/max_slots/, (r) => (r.maxSlots = 0)],
    [/max_slots/, (r) => (r.maxSlots = (1 << 30) + 1)],
    [/onion_suite/, (r) => (r.onionSuite = "hpke-x25519-sha256-aes128gcm")],
    [/noise: missing/, (r) => (r.noise = undefined)],
    [/gives delta/, (r) => (r.noise!.delta = 9e-7)],
    [/gives delta/, (r) => (r.noise!.mode = 14)],
    [/gives delta/, (r) => (r.noise!.phi = 2)],
    [/out of range/, (r) => (r.noise!.epsilon = 51)],
    [/two tiers \(most_in_bucket 4 in the roster, query_buckets 0 in the table\) are not known to this page yet/, (r) => (r.mostInBucket = 4)],
    [/phi is above the rows/, (r) => Object.assign(r.noise!, { mechanism: Mechanism.SPLIT_GAUSSIAN, phi: 16, mode: 73, leftScale: 14.17, rightScale: 49.85 })],
  ];
  for (const [why, alter] of cases) {
    assert.throws(() => check(signed(alter)), (error) => error instanceof Refused && why.test(error.message), String(alter));
  }
});

test("tables that are signed and refused", () => {
  const hashed = (m: Manifest) => {
    assert.equal(m.layout.case, "hashed");
    return m.layout.value as Extract<Manifest["layout"], { case: "hashed" }>["value"];
  };
  const cases: [RegExp, (manifest: Manifest) => void][] = [
    [/another deployment/, (m) => (m.deployment = "other")],
    [/name/, (m) => (m.name = "")],
    [/name/, (m) => (m.name = "a\nb")],
    [/a digest/, (m) => (m.tableId = new Uint8Array(31))],
    [/epoch/, (m) => (m.epoch = 0n)],
    [/created_s/, (m) => (m.createdS = m.expiresS)],
    [/expires_s/, (m) => (m.expiresS = NOW + 401n * 86400n)],
    [/expired/, (m) => (m.expiresS = NOW - 60n)],
    [/not yet valid/, (m) => (m.createdS = NOW + 61n)],
    [/rows/, (m) => (m.rows = 0n)],
    [/rows/, (m) => (m.rows = (1n << 31n) - 1n)],
    [/row_bytes/, (m) => (m.rowBytes = 0)],
    [/row_bytes/, (m) => (m.rowBytes = (1 << 20) + 1)],
    [/records/, (m) => (m.records = 321n)],
    [/layout/, (m) => (hashed(m).hashSeed = new Uint8Array(15))],
    [/buckets/, (m) => (hashed(m).buckets = 0)],
    [/row_versions/, (m) => (m.rowVersions!.recentBytes = 1n << 40n)],
    [/incomplete_rows/, (m) => (m.incompleteRows = 11n)],
    [/two tiers \(most_in_bucket 0 in the roster, query_buckets 5 in the table\) are not known to this page yet/, (m) => (m.queryBuckets = 5)],
  ];
  for (const [why, alter] of cases) {
    const bad = signed((_, manifest) => alter(manifest));
    assert.throws(() => check(bad), (error) => error instanceof Refused && why.test(error.message), String(alter));
  }
});

test("rounds that are signed and refused", () => {
  const deployment = check(signed(() => {}));
  const info = create(wire.RoundInfoSchema, {
    header: {
      header: {
        counter: NOW * 1000n,
        rosterDigest: deployment.rosterDigest,
        manifestDigest: deployment.manifestDigest,
        onionKeys: [7, 8, 9].map((n) => new Uint8Array(32).fill(n)),
        maxRows: 10n,
        answerBytes: 64 + 48,
        noise: deployment.noise,
        machines: [1, 1, 1],
        maxSlots: 1000,
        announcedS: NOW - 10n,
        onionsCloseS: NOW + 10n,
        queriesCloseS: NOW + 20n,
        expiresS: NOW + 100n,
        onionSuite: ONION_SUITE,
      },
    },
  });
  type Header = NonNullable<NonNullable<typeof info.header>["header"]>;
  const round = (alter: (header: Header) => void) => {
    const altered = clone(wire.RoundInfoSchema, info);
    alter(altered.header!.header!);
    altered.header!.signature = signAll(roundIdOf(altered.header!.header!));
    return altered;
  };
  verifyRound(round(() => {}), deployment, NOW);
  const cases: [RegExp, (header: Header) => void][] = [
    [/counter/, (h) => (h.counter = 0n)],
    [/counter is above the time/, (h) => (h.counter = (NOW + 86_401n) * 1000n)],
    [/another roster/, (h) => (h.rosterDigest = new Uint8Array(32))],
    [/another table/, (h) => (h.manifestDigest = new Uint8Array(32))],
    [/its query_buckets are 5, and the table's 0/, (h) => (h.queryBuckets = 5)],
    [/onion keys/, (h) => (h.onionKeys[1] = h.onionKeys[0]!)],
    [/onion keys/, (h) => h.onionKeys.pop()],
    [/onion keys/, (h) => (h.onionKeys[1] = new Uint8Array(31))],
    [/other rows/, (h) => (h.maxRows = 9n)],
    [/other rows/, (h) => (h.answerBytes = 64)],
    [/noise/, (h) => (h.noise!.mode = 16)],
    [/machines/, (h) => (h.machines = [1, 2, 1])],
    [/slots/, (h) => (h.maxSlots = 1001)],
    [/times/, (h) => (h.onionsCloseS = h.queriesCloseS + 1n)],
    [/times/, (h) => (h.expiresS = h.announcedS + 7n * 86400n + 1n)],
    [/not yet valid/, (h) => Object.assign(h, { announcedS: NOW + 61n, onionsCloseS: NOW + 62n, queriesCloseS: NOW + 63n })],
    [/expired/, (h) => Object.assign(h, { announcedS: NOW - 90n, onionsCloseS: NOW - 80n, queriesCloseS: NOW - 70n, expiresS: NOW - 60n })],
    [/suite/, (h) => (h.onionSuite = "x")],
    [/term/, (h) => Object.assign(h, { maxRefreshes: 1, termExpiresS: h.expiresS + 1n })],
  ];
  for (const [why, alter] of cases) {
    assert.throws(() => verifyRound(round(alter), deployment, NOW), (error) => error instanceof Refused && why.test(error.message), String(alter));
  }
});
