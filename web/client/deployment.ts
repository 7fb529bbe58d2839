// Whom a client trusts: the roster, the table's manifest and a round's header (docs/protocol.md,
// section 4). Whatever these functions return has been verified.
import type { GetDeploymentResponse, RoundInfo } from "../gen/src/wire/client_pb.ts";
import type { Manifest } from "../gen/src/wire/manifest_pb.ts";
import type { KeyRenewal, NoiseParameters, Roster } from "../gen/src/wire/roster_pb.ts";
import type { RoundHeader } from "../gen/src/wire/round_pb.ts";
import * as bls from "./bls.ts";
import { equal, fromHex, hex, Refused, require, Transcript, utf8 } from "./bytes.ts";
import { verifyPrivacy } from "./noise.ts";

export const ONION_SUITE = "hpke-x25519-sha256-chacha20poly1305";

const MAX_TIME_S = 1n << 40n;
const DAY_S = 86400n;
// How far above the time of its announcement a round's counter may be: src/round/header.h has it, and
// a test compares the two.
const MAX_COUNTER_LEAD_S = 86_400n;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const ADDRESS = /^(\[[A-Za-z0-9.\-_:%]{2,}\]|[A-Za-z0-9.\-_]+):(\d{1,5})$/;

/** The parties that a client trusts, from its own configuration and never from the frontend. */
export interface Pins {
  deployment: string;
  blsPublicKeysHex: string[];
  minimumRosterEpoch: bigint;
  minimumTableEpoch: bigint;
}

/** Reads the text format of shoal.wire.PinnedParties, as `shoal roster pins` writes it. */
export function parsePins(text: string): Pins {
  const pins: Pins = {
    deployment: "",
    blsPublicKeysHex: [],
    minimumRosterEpoch: 0n,
    minimumTableEpoch: 0n,
  };
  for (const raw of text.split("\n")) {
    const line = raw.replace(/#.*/, "").trim();
    if (line === "") continue;
    const match = /^(\w+): *(?:"([^"\\]*)"|(\d+))$/.exec(line);
    require(match, `pins: a line that is no field: ${line}`);
    const [, field, quoted, number] = match;
    if (field === "deployment" && quoted !== undefined) pins.deployment = quoted;
    else if (field === "bls_public_keys_hex" && quoted !== undefined)
      pins.blsPublicKeysHex.push(quoted.toLowerCase());
    else if (field === "minimum_roster_epoch" && number !== undefined)
      pins.minimumRosterEpoch = BigInt(number);
    else if (field === "minimum_table_epoch" && number !== undefined)
      pins.minimumTableEpoch = BigInt(number);
    else require(false, `pins: unknown field ${field}`);
  }
  require(NAME.test(pins.deployment), "pins: no deployment");
  const parties = pins.blsPublicKeysHex.length;
  require(parties >= 2 && parties <= 8, "pins: not 2 to 8 keys");
  return pins;
}

/** What all people who trust the same pins can compare (docs/protocol.md, "Fingerprints"). */
export function fingerprintOfPins(pins: Pins): string {
  const digest = new Transcript("shoal pins v1")
    .blob(pins.deployment)
    .u64(pins.blsPublicKeysHex.length);
  for (const key of pins.blsPublicKeysHex) digest.blob(fromHex(key));
  const h = new Transcript("shoal fingerprint v1").blob("pins").blob(digest.finish()).finish();
  const groups: string[] = [];
  for (let i = 0; i < 30; i += 3) {
    const number = (h[i]! << 16) | (h[i + 1]! << 8) | h[i + 2]!;
    groups.push(String(number % 100000).padStart(5, "0"));
  }
  return groups.join(" ");
}

function appendNoise(noise: NoiseParameters | undefined, to: Transcript): Transcript {
  return to
    .u64(noise?.mechanism ?? 0)
    .double(noise?.epsilon ?? 0)
    .double(noise?.delta ?? 0)
    .u64(noise?.phi ?? 0)
    .u64(noise?.mode ?? 0)
    .double(noise?.leftScale ?? 0)
    .double(noise?.rightScale ?? 0);
}

export function rosterDigest(roster: Roster): Uint8Array {
  const t = new Transcript("shoal roster v2").blob(roster.deployment).u64(roster.epoch);
  t.u64(roster.parties.length);
  for (const party of roster.parties) {
    t.u64(party.number).blob(party.name).blob(party.peerAddress).blob(party.clientAddress);
    t.blob(party.blsPublicKey).blob(party.proofOfPossession).blob(party.tlsCertificateSha256);
    t.u64(party.machines);
    for (const machine of party.otherMachines) t.blob(machine.peerAddress).blob(machine.clientAddress);
  }
  appendNoise(roster.noise, t).u64(roster.validFromS).u64(roster.expiresS);
  t.u64(roster.clockToleranceS).u64(roster.maxSlots).blob(roster.onionSuite);
  // What is missing is 0 where something follows.
  const { termLimit, mostInBucket } = roster;
  if (termLimit || mostInBucket !== 0) t.u64(termLimit?.days ?? 0).u64(termLimit?.refreshes ?? 0);
  if (mostInBucket !== 0) t.u64(mostInBucket);
  return t.finish();
}

export function manifestDigest(m: Manifest): Uint8Array {
  const t = new Transcript("shoal manifest v2").blob(m.name).blob(m.tableId).u64(m.epoch);
  t.u64(m.createdS).u64(m.expiresS).u64(m.records).u64(m.rows).u64(m.rowBytes);
  if (m.layout.case === "dense") {
    const dense = m.layout.value;
    t.u64(1).u64(dense.recordsPerRow).u64(dense.valueBytes).u64(dense.lengthBytes);
  } else {
    require(m.layout.case === "hashed", "manifest: no layout");
    const hashed = m.layout.value;
    t.u64(2).blob(hashed.hashSeed).u64(hashed.buckets).blob(hashed.placementDigest);
  }
  const lists = m.rowVersions;
  require(lists, "manifest: no lists of rows' epochs, as in version 0.1");
  t.blob(m.rowsDigest).blob(m.deployment).u64(lists.baseRows).u64(lists.baseBytes);
  t.blob(lists.baseDigest).u64(lists.previousBytes).blob(lists.previousDigest);
  t.u64(lists.recentBytes).blob(lists.recentDigest);
  if (m.incompleteRows !== 0n || m.queryBuckets !== 0) t.u64(m.incompleteRows);
  if (m.queryBuckets !== 0) t.u64(m.queryBuckets);
  return t.finish();
}

export function roundIdOf(h: RoundHeader): Uint8Array {
  const t = new Transcript("shoal round v3").u64(h.counter).blob(h.rosterDigest);
  t.blob(h.manifestDigest).u64(h.onionKeys.length);
  for (const key of h.onionKeys) t.blob(key);
  t.u64(h.maxRows).u64(h.answerBytes);
  appendNoise(h.noise, t).u64(h.machines.length);
  for (const machines of h.machines) t.u64(machines);
  t.u64(h.maxSlots).u64(h.announcedS).u64(h.onionsCloseS).u64(h.queriesCloseS).u64(h.expiresS);
  t.blob(h.onionSuite);
  if (h.maxRefreshes !== 0 || h.termExpiresS !== 0n || h.queryBuckets !== 0) {
    t.u64(h.maxRefreshes).u64(h.termExpiresS);
  }
  if (h.queryBuckets !== 0) t.u64(h.queryBuckets);
  return t.finish();
}

function checkTime(what: string, from: bigint, until: bigint, roster: Roster, nowS: bigint): void {
  const slack = BigInt(roster.clockToleranceS);
  require(
    from <= nowS + slack,
    `${what}: not yet valid; is this device's clock right?`,
  );
  require(nowS < until + slack, `${what}: has expired; is this device's clock right?`);
}

function checkAddress(what: string, address: string): void {
  const match = ADDRESS.exec(address);
  require(
    match && utf8(address).length <= 260 && Number(match[2]) >= 1 && Number(match[2]) <= 65535,
    `${what}: not an address`,
  );
}

/** Structure and limits, as `src/roster/roster.cc` checks them before any signature. */
function checkRoster(roster: Roster): void {
  require(NAME.test(roster.deployment), "roster, deployment: not a name");
  require(roster.epoch >= 1n, "roster, epoch: begins at 1");
  const count = roster.parties.length;
  require(count >= 2 && count <= 8, "roster: not 2 to 8 parties");
  require(
    roster.expiresS <= MAX_TIME_S && roster.validFromS < roster.expiresS,
    "roster: its times are out of order",
  );
  require(roster.expiresS - roster.validFromS <= 3660n * DAY_S, "roster: valid for too long");
  require(roster.clockToleranceS <= 3600, "roster, clock_tolerance_s: too large");
  require(roster.maxSlots >= 1 && roster.maxSlots <= 1 << 30, "roster, max_slots: out of range");
  require(
    roster.onionSuite === ONION_SUITE,
    `roster, onion_suite: "${roster.onionSuite}" is unknown here`,
  );
  if (roster.termLimit) {
    const { days, refreshes } = roster.termLimit;
    require(days >= 1 && days <= 92, "roster, term_limit: days");
    require(refreshes >= 1 && refreshes <= 10_000, "roster, term_limit: refreshes");
    require(roster.parties.every((p) => p.machines === 1), "roster, term_limit: several machines");
  }
  const seen = new Set<string>();
  const once = (what: string, value: string) => {
    require(!seen.has(what + value), `roster: ${what} comes twice`);
    seen.add(what + value);
  };
  roster.parties.forEach((party, i) => {
    const what = `roster, party ${i + 1}`;
    require(party.number === i + 1, `${what}: another number`);
    require(NAME.test(party.name), `${what}: not a name`);
    if (i === 0) {
      checkAddress(what, party.clientAddress);
      require(party.peerAddress === "", `${what}: a peer_address`);
    } else {
      checkAddress(what, party.peerAddress);
      if (party.clientAddress !== "") checkAddress(what, party.clientAddress);
    }
    require(party.tlsCertificateSha256.length === 32, `${what}: tls_certificate_sha256`);
    require(party.machines >= 1 && party.machines <= 64, `${what}: machines`);
    require(party.otherMachines.length === party.machines - 1, `${what}: other_machines`);
    for (const machine of party.otherMachines) {
      checkAddress(what, i === 0 ? machine.clientAddress : machine.peerAddress);
      require(
        (i === 0 ? machine.peerAddress : machine.clientAddress) === "",
        `${what}: an address too many`,
      );
    }
    once("a name", party.name);
    once("a certificate", hex(party.tlsCertificateSha256));
    once("a key", hex(party.blsPublicKey));
  });
}

/** As `src/table/manifest.cc`, CheckManifest. */
function checkManifest(m: Manifest): void {
  const bad = (field: string) => `table, ${field}: out of range`;
  require(!/[\x00-\x1f\x7f]/.test(m.name), bad("name"));
  require(utf8(m.name).length >= 1 && utf8(m.name).length <= 128, bad("name"));
  require(m.tableId.length === 32 && m.rowsDigest.length === 32, bad("a digest"));
  require(m.epoch >= 1n, bad("epoch"));
  require(m.expiresS <= MAX_TIME_S && m.createdS < m.expiresS, bad("created_s"));
  require(m.expiresS - m.createdS <= 400n * DAY_S, bad("expires_s"));
  require(m.rows >= 1n && m.rows <= (1n << 31n) - 2n, bad("rows"));
  require(m.rowBytes >= 1 && m.rowBytes <= 1 << 20, bad("row_bytes"));
  require(m.rows * BigInt(m.rowBytes) <= 1n << 40n, bad("rows"));
  const lists = m.rowVersions;
  require(lists, "table: no lists of rows' epochs, as in version 0.1");
  for (const digest of [lists.baseDigest, lists.previousDigest, lists.recentDigest]) {
    require(digest.length === 32, bad("row_versions"));
  }
  const longest = (rows: bigint) => 5n * rows + (1n << 18n);
  require(
    lists.baseRows <= (1n << 31n) - 2n &&
      lists.baseBytes <= longest(lists.baseRows) &&
      lists.previousBytes <= longest(lists.baseRows) &&
      lists.recentBytes <= longest(m.rows),
    bad("row_versions"),
  );
  require(m.incompleteRows <= m.rows, bad("incomplete_rows"));
  if (m.layout.case === "dense") {
    const { recordsPerRow, valueBytes, lengthBytes } = m.layout.value;
    const slot = valueBytes + lengthBytes;
    require(lengthBytes <= 2 && valueBytes <= m.rowBytes && slot > 0, bad("value_bytes"));
    require(lengthBytes === 0 || valueBytes < 2 ** (8 * lengthBytes), bad("value_bytes"));
    require(
      recordsPerRow >= 1n && recordsPerRow * BigInt(slot) <= BigInt(m.rowBytes),
      bad("records_per_row"),
    );
    require(m.records >= 1n && (m.records - 1n) / recordsPerRow + 1n === m.rows, bad("records"));
  } else {
    require(m.layout.case === "hashed", "table: no layout");
    const { hashSeed, buckets, placementDigest } = m.layout.value;
    require(hashSeed.length === 16 && placementDigest.length === 32, bad("layout"));
    require(buckets >= 1 && buckets <= 1 << 30, bad("buckets"));
    require(m.records * 2n <= m.rows * BigInt(m.rowBytes), bad("records"));
  }
}

const MAX_RENEWALS = 16; // for one party; and so many for each of eight in a roster

function renewalDigest(renewal: KeyRenewal): Uint8Array {
  return new Transcript("shoal key renewal v1").blob(renewal.oldKey).blob(renewal.newKey).finish();
}

/** Refuses keys that are neither the trusted ones nor such to which signed renewals lead from these. */
function followRenewals(trusted: string[], keys: string[], renewals: KeyRenewal[]): void {
  const total = 8 * MAX_RENEWALS;
  require(renewals.length <= total, "roster: too many renewals of keys");
  for (const { oldKey, newKey, signature } of renewals) {
    require(
      oldKey.length === bls.PUBLIC_KEY_BYTES &&
        newKey.length === bls.PUBLIC_KEY_BYTES &&
        signature.length === bls.SIGNATURE_BYTES &&
        !equal(oldKey, newKey),
      "roster: a malformed renewal of a key",
    );
  }
  let verified = 0;
  require(keys.length === trusted.length, "roster: its parties are not the pinned ones");
  keys.forEach((wanted, i) => {
    if (wanted === trusted[i]) return;
    const reached = new Set([trusted[i]]);
    for (const renewal of renewals) {
      if (reached.has(wanted) || reached.size > MAX_RENEWALS) break;
      const [from, to] = [hex(renewal.oldKey), hex(renewal.newKey)];
      if (!reached.has(from) || reached.has(to)) continue;
      require(++verified <= total, "roster: renewals that lead to and fro");
      try {
        bls.verify("renewal", bls.publicKey("renewal", renewal.oldKey), renewalDigest(renewal), renewal.signature);
        reached.add(to);
      } catch (error) {
        // One that nobody signed does not hide the one that leads on.
        if (!(error instanceof Refused)) throw error;
      }
    }
    require(
      reached.has(wanted),
      `roster: its parties are not the pinned ones: party ${i + 1} has another key, which the pinned one did not sign`,
    );
  });
}

/** The newest epoch that was seen, and its digest: epochs never go back, and have one content. */
export class SeenEpochs {
  /** The parties' keys of the last roster: whoever has renewed a key is never known by the old one again. */
  keys?: string[];
  readonly #seen = new Map<string, { epoch: bigint; digest: Uint8Array }>();
  accept(what: string, epoch: bigint, digest: Uint8Array): void {
    const before = this.#seen.get(what);
    if (before) {
      require(epoch >= before.epoch, `${what}: an older epoch than was seen before`);
      require(
        epoch > before.epoch || equal(digest, before.digest),
        `${what}: another content for an epoch that was seen before`,
      );
    }
    this.#seen.set(what, { epoch, digest });
  }
}

// Keys whose proofs have been verified: a page asks for the deployment at every lookup.
const proven = new Map<string, bls.PublicKey>();

function provenKey(what: string, key: Uint8Array, proof: Uint8Array): bls.PublicKey {
  const name = hex(key) + hex(proof);
  const known = proven.get(name);
  if (known) return known;
  const point = bls.publicKey(`${what}, key`, key);
  bls.verifyPossession(`${what}, proof`, point, key, proof);
  if (proven.size >= 64) proven.clear();
  proven.set(name, point);
  return point;
}

export interface Deployment {
  roster: Roster;
  rosterDigest: Uint8Array;
  noise: NoiseParameters;
  manifest: Manifest;
  manifestDigest: Uint8Array;
  /** All parties' signatures verify under this key. */
  key: bls.PublicKey;
  /** The parties that have renewed their keys since the pins were made. */
  renewed: number[];
  /** The sizes that fit a JavaScript number, as the limits above make sure. */
  rows: number;
}

/** A client that knows half of two tiers would ask without their protection. */
function checkOneTier(mostInBucket: number, queryBuckets: number): void {
  require(
    mostInBucket === 0 && queryBuckets === 0,
    `two tiers (most_in_bucket ${mostInBucket} in the roster, query_buckets ${queryBuckets} in the table) ` +
      "are not known to this page yet: ask this deployment by `shoal` or libshoal",
  );
}

export function verifyDeployment(
  response: GetDeploymentResponse,
  pins: Pins,
  seen: SeenEpochs,
  nowS: bigint,
): Deployment {
  const roster = response.roster?.roster;
  const manifest = response.manifest?.manifest;
  require(roster && manifest, "the frontend sent no roster or no table");
  checkRoster(roster);
  require(roster.deployment === pins.deployment, "roster: of another deployment than the pinned one");
  const keys = roster.parties.map((party) => hex(party.blsPublicKey));
  followRenewals(seen.keys ?? pins.blsPublicKeysHex, keys, response.roster!.renewals);
  require(roster.epoch >= pins.minimumRosterEpoch, "roster: before the pinned minimum epoch");
  require(roster.noise, "roster, noise: missing");
  const key = bls.sum(
    roster.parties.map((party) =>
      provenKey(`party ${party.number}`, party.blsPublicKey, party.proofOfPossession),
    ),
  );
  const digest = rosterDigest(roster);
  bls.verify("roster", key, digest, response.roster!.signature);
  checkTime("roster", roster.validFromS, roster.expiresS, roster, nowS);
  // Its noise is for more than one query in a bucket, which verifyPrivacy does not know.
  checkOneTier(roster.mostInBucket, manifest.queryBuckets);
  verifyPrivacy(roster.noise);

  checkManifest(manifest);
  require(manifest.deployment === pins.deployment, "table: of another deployment");
  require(manifest.epoch >= pins.minimumTableEpoch, "table: before the pinned minimum epoch");
  const tableDigest = manifestDigest(manifest);
  bls.verify("table", key, tableDigest, response.manifest!.signature);
  checkTime("table", manifest.createdS, manifest.expiresS, roster, nowS);
  require(BigInt(roster.noise.phi) <= manifest.rows, "roster, noise: phi is above the rows");

  seen.accept("roster", roster.epoch, digest);
  seen.accept("table", manifest.epoch, tableDigest);
  seen.keys = keys;
  return {
    roster,
    rosterDigest: digest,
    noise: roster.noise,
    manifest,
    manifestDigest: tableDigest,
    key,
    renewed: keys.flatMap((own, i) => (own === pins.blsPublicKeysHex[i] ? [] : [i + 1])),
    rows: Number(manifest.rows),
  };
}

/** What is said above may have expired since. */
export function checkTimes(deployment: Deployment, nowS: bigint): void {
  const { roster, manifest } = deployment;
  checkTime("roster", roster.validFromS, roster.expiresS, roster, nowS);
  checkTime("table", manifest.createdS, manifest.expiresS, roster, nowS);
}

export interface Round {
  header: RoundHeader;
  id: Uint8Array;
}

/** The round of a header that names this roster and this table. */
export function verifyRound(info: RoundInfo, deployment: Deployment, nowS: bigint): Round {
  const h = info.header?.header;
  require(h, "round: no header");
  const { roster, manifest, noise } = deployment;
  require(h.counter > 0n && h.counter < (1n << 64n) - 1n, "round: its counter");
  require(equal(h.rosterDigest, deployment.rosterDigest), "round: of another roster");
  require(equal(h.manifestDigest, deployment.manifestDigest), "round: of another table");
  require(
    h.queryBuckets === manifest.queryBuckets,
    `round: its query_buckets are ${h.queryBuckets}, and the table's ${manifest.queryBuckets}`,
  );
  const keys = h.onionKeys.map(hex);
  require(
    keys.length === roster.parties.length &&
      new Set(keys).size === keys.length &&
      h.onionKeys.every((key) => key.length === 32),
    "round: its onion keys",
  );
  require(h.onionSuite === roster.onionSuite, "round: another onion suite than the roster's");
  require(
    h.maxRows === manifest.rows && h.answerBytes === manifest.rowBytes + bls.SIGNATURE_BYTES,
    "round: of other rows",
  );
  require(
    equal(
      appendNoise(h.noise, new Transcript("")).finish(),
      appendNoise(noise, new Transcript("")).finish(),
    ),
    "round: its noise is not the roster's",
  );
  require(
    h.machines.length === roster.parties.length &&
      h.machines.every((machines, i) => machines === roster.parties[i]!.machines),
    "round: its machines are not the roster's",
  );
  require(h.maxSlots >= 1 && h.maxSlots <= roster.maxSlots, "round: its slots");
  require(
    h.announcedS <= h.onionsCloseS &&
      h.onionsCloseS <= h.queriesCloseS &&
      h.queriesCloseS <= h.expiresS &&
      h.expiresS <= h.announcedS + 7n * DAY_S,
    "round: its times are out of order",
  );
  require(
    h.counter / 1000n <= h.announcedS + MAX_COUNTER_LEAD_S,
    "round: its counter is above the time",
  );
  if (h.maxRefreshes !== 0 || h.termExpiresS !== 0n) {
    const limit = roster.termLimit;
    require(
      limit &&
        h.maxRefreshes >= 1 &&
        h.maxRefreshes <= limit.refreshes &&
        h.termExpiresS >= h.expiresS &&
        h.termExpiresS - h.announcedS <= DAY_S * BigInt(limit.days),
      "round: its term",
    );
  }
  checkTime("round", h.announcedS, h.expiresS, roster, nowS);
  const id = roundIdOf(h);
  bls.verify("round", deployment.key, id, info.header!.signature);
  return { header: h, id };
}
