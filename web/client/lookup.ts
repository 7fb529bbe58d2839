// One private lookup: the class draws this, from left to right, and each step verifies what it got.
//
//   open()      GetDeployment, GetPlacement, GetRowVersions     what is trusted, and where keys are
//   lookUp()    ListRounds        a round that takes onions
//               SubmitOnions      one submission of n slots, 48 + n (48 (m - 2) + 32) bytes
//               WaitRound         until the parties have mixed the onions
//               SubmitQueries     24 bytes a slot
//               WaitRound         until the last party has answered
//               FetchAnswers      row and signature of every slot, under all parties' masks
//               then nothing is sent, and the answers are unmasked and verified. That takes longer for a row that
//               verifies than for one that does not: who sends anything by itself when lookUp() returns tells
//               the parties which it was. What else is to be asked goes before it: `beforeOpening`
//
// It keeps nothing beyond the page: no secret is used twice because none outlives its lookup, and a
// round in which anything went wrong is given up. docs/web.md says what that loses.
import type { GetStatusResponse, RoundInfo } from "../gen/src/wire/client_pb.ts";
import { RowVersionList } from "../gen/src/wire/client_pb.ts";
import { RoundState } from "../gen/src/wire/round_pb.ts";
import * as bls from "./bls.ts";
import { concat, distinctRows, equal, hex, keyProblem, le32, Refused, require, utf8, viewOf, visible } from "./bytes.ts";
import type { RandomSource } from "./bytes.ts";
import { checkTimes, SeenEpochs, verifyDeployment, verifyRound } from "./deployment.ts";
import type { Deployment, Pins, Round } from "./deployment.ts";
import { Frontend, FrontendError, methods, plainText, UNAVAILABLE } from "./frame.ts";
import type { Exchange, Transport } from "./frame.ts";
import { ANSWER_TAG_BYTES, buildSubmission, expand, talliesOf, unmask } from "./onions.ts";
import { combine } from "./row_versions.ts";
import type { RowVersion } from "./row_versions.ts";
import { findInRow, placementDigest, rowMessage, rowOf } from "./rows.ts";
import type { Found } from "./rows.ts";

/** The round ended without answers for this client. Nobody's fault that can be told from here. */
export class RoundLost extends Error {
  override name = "RoundLost";
}

/** No round took the lookup. Nothing was asked. */
export class NoRound extends Error {
  override name = "NoRound";
}

export type Answer =
  | Found
  /** What came back does not verify. It is not shown, and nothing depends on it. */
  | { kind: "refused"; why: string };

/** What the parties get of one slot, as the client that made it knows. */
export interface SlotView {
  slot: number;
  row: number;
  wanted: boolean; // or drawn at random to hide how many are
  onions: Uint8Array[]; // onions[j - 2] is what party j gets, from 2 on
  tallies: number[]; // tallies[j - 1] is what party j gets; the last one is the row
  token: Uint8Array; // for party 1
  answer: Uint8Array; // as the frontend gave it, masked by all parties, with its tag
}

export type Event =
  /** Told whenever the rounds were looked at, and none would do; `waitedS` seconds after the first time. */
  | { step: "looking-for-round"; waitedS: number }
  | { step: "sealing"; round: Round }
  | { step: "submitted"; round: Round; submission: Uint8Array; firstSlot: number }
  | { step: "round"; info: RoundInfo }
  | { step: "queried"; round: Round; sentBytes: number }
  | { step: "answered"; round: Round; receivedBytes: number }
  | { step: "verified" };

export interface Options {
  pins: Pins;
  transport: Transport;
  random: RandomSource;
  /** Seconds since 1970. */
  now: () => number;
  /** Submissions have a multiple of so many queries, so that their number tells little. */
  padTo: number;
  /** How many lookups are sent at most: each gives a little away, and costs all parties a round. */
  maxLookups: number;
  watch?: (exchange: Exchange) => void;
}

export interface Result {
  answers: Answer[]; // one for each key, in order
  round: Round;
  slots: SlotView[];
  submission: Uint8Array;
}

// What a page has memory for: a number for every row, and a byte for every bucket.
const MAX_ROWS = 1 << 24;
const MAX_BUCKETS = 1 << 26;
const PIECE_BYTES = 1 << 20;
const TRIES = 5;
// As the client in C++: so long a lookup keeps out of rounds with a term, of which parties keep until its
// end what links clients to rows; and so long it waits for a round at all.
const OUT_OF_TERMS_S = 60;
const PATIENCE_S = 600;
// How often it looks for one, in the first minute and later, and for another epoch meanwhile.
const POLL_MS = 250;
const SELDOM_POLL_MS = 1000;
const OFTEN_S = 60;
const EPOCH_CHECK_S = 5;

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export class Client {
  readonly #options: Options;
  readonly #frontend: Frontend;
  readonly #seen = new SeenEpochs();
  readonly #roundIds = new Map<bigint, string>();
  #table?: { deployment: Deployment; placement: Uint8Array; versions: RowVersion[] };
  #busy = false;
  readonly #spent = { epsilon: 0, delta: 0 };
  #lookups = 0; // that were sealed

  constructor(options: Options) {
    this.#options = options;
    this.#frontend = new Frontend(options.transport, options.watch);
  }

  get deployment(): Deployment | undefined {
    return this.#table?.deployment;
  }

  #now(): bigint {
    return BigInt(Math.floor(this.#options.now()));
  }

  /** Fetches and verifies what is trusted: again, too, where a newer epoch is served. */
  async open(): Promise<Deployment> {
    const response = await this.#frontend.call(methods.getDeployment, {});
    const deployment = verifyDeployment(response, this.#options.pins, this.#seen, this.#now());
    if (this.#table && equal(this.#table.deployment.manifestDigest, deployment.manifestDigest)) {
      this.#table = { ...this.#table, deployment };
      return deployment;
    }
    const { manifest, manifestDigest } = deployment;
    const buckets = manifest.layout.case === "hashed" ? manifest.layout.value.buckets : 0;
    require(
      manifest.rows <= BigInt(MAX_ROWS) &&
        manifest.rowVersions!.baseRows <= BigInt(MAX_ROWS) &&
        buckets <= MAX_BUCKETS,
      "the table is too large for this client",
    );
    const whole = async (
      size: bigint,
      piece: (offset: bigint) => Promise<{ data: Uint8Array }>,
    ): Promise<Uint8Array> => {
      const parts: Uint8Array[] = [];
      let length = 0n;
      while (length < size) {
        const { data } = await piece(length);
        require(data.length > 0, "the frontend sent an empty piece");
        parts.push(data);
        length += BigInt(data.length);
      }
      require(length === size, "the frontend sent more than the table has");
      return concat(...parts);
    };
    let placement: Uint8Array = new Uint8Array();
    if (manifest.layout.case === "hashed") {
      placement = await whole(BigInt(buckets), (offset) =>
        this.#frontend.call(methods.getPlacement, {
          manifestDigest,
          offset,
          maxBytes: PIECE_BYTES,
        }),
      );
      require(
        equal(placementDigest(placement), manifest.layout.value.placementDigest),
        "table: another placement than the signed one",
      );
    }
    const lists = manifest.rowVersions!;
    const list = (list: RowVersionList, size: bigint) =>
      whole(size, (offset) =>
        this.#frontend.call(methods.getRowVersions, {
          manifestDigest,
          list,
          offset,
          maxBytes: PIECE_BYTES,
        }),
      );
    const versions = combine(manifest, {
      base: await list(RowVersionList.BASE, lists.baseBytes),
      previous: await list(RowVersionList.PREVIOUS, lists.previousBytes),
      recent: await list(RowVersionList.RECENT, lists.recentBytes),
    });
    this.#table = { deployment, placement, versions };
    return deployment;
  }

  /** What all lookups of this client give away together, at most: epsilons and deltas may be added up
   *  over rounds. A round is charged when its submission is sealed, whatever becomes of it. */
  get spent(): { epsilon: number; delta: number } {
    return { ...this.#spent };
  }

  /** For people: nobody has signed it. */
  status(): Promise<GetStatusResponse> {
    return this.#frontend.call(methods.getStatus, {});
  }

  /** The row of a key, for people who want to see where it goes. Sends nothing. */
  rowOf(key: string): number | undefined {
    require(this.#table, "open() comes first");
    return rowOf(this.#table.deployment.manifest, this.#table.placement, utf8(key));
  }

  /** How many queries a lookup of so many rows sends. */
  queriesFor(wantedRows: number): number {
    require(this.#table, "open() comes first");
    const { padTo } = this.#options;
    const steps = Math.max(1, Math.ceil(wantedRows / padTo));
    return Math.min(steps * padTo, this.#table.deployment.rows);
  }

  /** Asks for the keys in one round. RoundLost: the round ended without answers. NoRound: none took the
   *  lookup within ten minutes, or before `stop`, which ends nothing later. Refused: something did not
   *  verify before anything depended on it, or `maxLookups` were sent. Throws as well where the frontend
   *  is silent. It never asks again by itself. `beforeOpening` is waited for when all answers are there
   *  and none of them was looked at: the last moment at which requests tell nothing of them. */
  async lookUp(
    keys: string[],
    tell: (event: Event) => void = () => {},
    beforeOpening: (round: Round) => Promise<void> = async () => {},
    stop?: AbortSignal,
  ): Promise<Result> {
    require(!this.#busy, "one lookup at a time");
    this.#busy = true;
    try {
      return await this.#lookUp(keys, tell, beforeOpening, stop);
    } finally {
      this.#busy = false;
    }
  }

  async #lookUp(
    keys: string[],
    tell: (event: Event) => void,
    beforeOpening: (round: Round) => Promise<void>,
    stop?: AbortSignal,
  ): Promise<Result> {
    const { random, maxLookups } = this.#options;
    for (const key of keys) {
      const problem = keyProblem(key);
      if (problem !== undefined) throw new Error(`the key “${visible(key)}” ${problem}: remove it; nothing was asked`);
    }
    require(this.#lookups < maxLookups, `the limit of ${maxLookups} lookups is reached; nothing was asked`);
    await this.open();
    const { deployment, placement, versions } = this.#table!;
    const { manifest, rows } = deployment;
    const rowsOfKeys = keys.map((key) => rowOf(manifest, placement, utf8(key)));
    const wanted = new Set(rowsOfKeys.filter((row) => row !== undefined));
    const count = this.queriesFor(wanted.size);
    // Noise for phi queries together is none for more of them. With phi 1 it protects each query by
    // itself, and a list so many times less: `spent` says so.
    const { phi, epsilon, delta } = deployment.noise;
    require(
      phi === 1 || count <= phi,
      `a lookup of ${count} queries, where the noise protects ${phi} together; nothing was sent`,
    );
    const asked = distinctRows(random, wanted, count, rows);

    const round = await this.#pickRound(deployment, count, tell, stop);
    tell({ step: "sealing", round });
    ++this.#lookups;
    const submission = await buildSubmission(round.header.onionKeys, round.id, count, random);
    this.#spent.epsilon += Math.ceil(count / phi) * epsilon;
    this.#spent.delta += Math.ceil(count / phi) * delta;
    const { firstSlots } = await this.#again(round, () =>
      this.#frontend.call(methods.submitOnions, {
        roundId: round.id,
        submissions: [submission.bytes],
      }),
    );
    const firstSlot = firstSlots[0];
    require(
      firstSlots.length === 1 &&
        firstSlot !== undefined &&
        firstSlot + count <= round.header.maxSlots,
      "the frontend gave slots that do not exist",
    );
    tell({ step: "submitted", round, submission: submission.bytes, firstSlot });
    await this.#waitFor(round, RoundState.OPEN_FOR_QUERIES, deployment, tell);

    const tallies = asked.map((row, i) => talliesOf(submission.seeds[i]!, round.id, row));
    const tokens = submission.seeds.map((seeds) => expand(seeds[0]!, round.id).token);
    const slots = asked.map((_, i) => firstSlot + i);
    const used = { roundId: round.id, slots: le32(...slots), tokens: concat(...tokens) };
    const { accepted } = await this.#again(round, () =>
      this.#frontend.call(methods.submitQueries, {
        ...used,
        tallies: le32(...tallies.map((numbers) => numbers[0]!)),
      }),
    );
    require(accepted === count, "the frontend took another number of queries");
    tell({ step: "queried", round, sentBytes: 24 * count });
    await this.#waitFor(round, RoundState.ANSWERED, deployment, tell);

    // All answers are fetched, in requests whose number depends on nothing but their size.
    const size = round.header.answerBytes + ANSWER_TAG_BYTES;
    const perRequest = Math.max(1, Math.floor((2 << 20) / size));
    const parts: Uint8Array[] = [];
    for (let at = 0; at < count; at += perRequest) {
      const n = Math.min(perRequest, count - at);
      const { answers } = await this.#again(round, () =>
        this.#frontend.call(methods.fetchAnswers, {
          roundId: round.id,
          slots: used.slots.slice(4 * at, 4 * (at + n)),
          tokens: used.tokens.slice(16 * at, 16 * (at + n)),
        }),
      );
      require(answers.length === n * size, "the frontend sent another number of answers");
      parts.push(answers);
    }
    const masked = concat(...parts);
    tell({ step: "answered", round, receivedBytes: masked.length });
    await beforeOpening(round);

    // From here on nothing is sent, whatever the answers are.
    checkTimes(deployment, this.#now());
    const views = asked.map(
      (row, i): SlotView => ({
        slot: slots[i]!,
        row,
        wanted: wanted.has(row),
        onions: submission.onions[i]!,
        tallies: tallies[i]!,
        token: tokens[i]!,
        answer: masked.subarray(i * size, (i + 1) * size),
      }),
    );
    const contents = new Map<number, Uint8Array | Refused>();
    asked.forEach((row, i) => {
      if (!wanted.has(row)) return;
      const open = () => unmask(views[i]!.answer, submission.seeds[i]!, round.id);
      contents.set(row, openRow(deployment, row, versions[row]!, open));
    });
    for (const seeds of submission.seeds) for (const seed of seeds) seed.fill(0);
    const answers = keys.map((key, i): Answer => {
      const row = rowsOfKeys[i];
      if (row === undefined) return { kind: "absent" };
      const content = contents.get(row)!;
      if (content instanceof Refused) return { kind: "refused", why: content.message };
      try {
        return findInRow(manifest, content, utf8(key));
      } catch (error) {
        if (error instanceof Refused) return { kind: "refused", why: error.message };
        throw error;
      }
    });
    tell({ step: "verified" });
    return { answers, round, slots: views, submission: submission.bytes };
  }

  async #pickRound(
    deployment: Deployment,
    count: number,
    tell: (event: Event) => void,
    stop?: AbortSignal,
  ): Promise<Round> {
    const begunS = this.#now();
    const waitedS = () => Number(this.#now() - begunS);
    let checkedS = 0;
    while (waitedS() < PATIENCE_S) {
      const { rounds } = await this.#again(undefined, () =>
        this.#frontend.call(methods.listRounds, {}),
      );
      for (const info of rounds) {
        const h = info.header?.header;
        if (!h || info.state !== RoundState.OPEN_FOR_ONIONS) continue;
        if (h.maxRefreshes > 0 && waitedS() < OUT_OF_TERMS_S) continue;
        if (!equal(h.manifestDigest, deployment.manifestDigest)) continue;
        if (!equal(h.rosterDigest, deployment.rosterDigest)) continue;
        if (info.onions + BigInt(count) > BigInt(h.maxSlots)) continue;
        // Sealing and sending take a moment.
        if (this.#now() + 3n >= h.onionsCloseS) continue;
        const round = verifyRound(info, deployment, this.#now());
        const known = this.#roundIds.get(h.counter) ?? hex(round.id);
        require(known === hex(round.id), "two rounds with one counter: the parties cannot be trusted");
        this.#roundIds.set(h.counter, known);
        tell({ step: "round", info });
        return round;
      }
      if (waitedS() >= checkedS + EPOCH_CHECK_S) {
        checkedS = waitedS();
        const before = deployment.manifestDigest;
        const now = await this.open();
        require(
          equal(now.manifestDigest, before) && equal(now.rosterDigest, deployment.rosterDigest),
          "the table or the roster has changed; look up again",
        );
      }
      tell({ step: "looking-for-round", waitedS: waitedS() });
      await pause(waitedS() < OFTEN_S ? POLL_MS : SELDOM_POLL_MS);
      if (stop?.aborted) throw new NoRound("it was stopped before a round took it; nothing was asked");
    }
    throw new NoRound(`no round took ${count} queries within ${PATIENCE_S} seconds; nothing was asked`);
  }

  /** Returns once the round is in `state`. */
  async #waitFor(
    round: Round,
    state: RoundState,
    deployment: Deployment,
    tell: (event: Event) => void,
  ): Promise<void> {
    for (;;) {
      // Short waits, so that a person sees the round fill.
      const { round: info } = await this.#again(round, () =>
        this.#frontend.call(methods.waitRound, { roundId: round.id, state, timeoutMs: 1000 }),
      );
      require(info, "the frontend sent no round");
      const counter = info.header?.header?.counter;
      require(counter === round.header.counter, "the frontend sent another round");
      tell({ step: "round", info });
      if (info.state === state) return;
      if (info.state === RoundState.ABORTED) {
        throw new RoundLost(`the round was aborted: ${plainText(info.abortReason)}`);
      }
      if (info.state > state) throw new RoundLost("the round went on without this client");
      const slack = BigInt(deployment.roster.clockToleranceS);
      if (this.#now() >= round.header.expiresS + slack) throw new RoundLost("the round expired");
    }
  }

  /** Sends the same bytes again where there was no answer, or UNAVAILABLE, and only then. */
  async #again<T>(round: Round | undefined, call: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; ++tries) {
      try {
        return await call();
      } catch (error) {
        if (error instanceof Refused) throw error;
        if (error instanceof FrontendError && error.code !== UNAVAILABLE) {
          throw round ? new RoundLost(`the frontend refused: ${error.message}`) : error;
        }
        if (tries >= TRIES) throw error;
        const word = new Uint8Array(4);
        this.#options.random(word);
        await pause(500 + (viewOf(word).getUint32(0, true) % 2000));
      }
    }
  }
}

/** The bytes of a row whose answer tag, and then whose signature, by all parties, is right. */
function openRow(
  deployment: Deployment,
  row: number,
  version: RowVersion,
  open: () => Uint8Array,
): Uint8Array | Refused {
  const { manifest, key } = deployment;
  try {
    const plain = open();
    const bytes = plain.subarray(0, manifest.rowBytes);
    const message = rowMessage(manifest, row, version, bytes);
    bls.verify(`row ${row}`, key, message, plain.subarray(manifest.rowBytes));
    return bytes;
  } catch (error) {
    if (error instanceof Refused) return error;
    throw error;
  }
}
