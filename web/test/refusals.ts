// What the client refuses, against a frontend that plays all parties in one process:
// `node refusals.mjs FAKE_FRONTEND DIRECTORY`. Each test alters one thing on its way.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import * as readline from "node:readline";
import { test } from "node:test";
import { clone, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import * as wire from "../gen/src/wire/client_pb.ts";
import { TermLimitSchema } from "../gen/src/wire/roster_pb.ts";
import { equal, randomBelow, Refused, systemRandom } from "../client/bytes.ts";
import { parsePins, SeenEpochs, verifyDeployment, verifyRound } from "../client/deployment.ts";
import type { Pins } from "../client/deployment.ts";
import { decodeFrame, encodeFrame, Frontend, FrontendError, methods } from "../client/frame.ts";
import type { Transport } from "../client/frame.ts";
import { Client, NoRound, RoundLost } from "../client/lookup.ts";
import { TlsTransport } from "./tls_transport.ts";

const [program, directory] = process.argv.slice(2);
let count = 0;

interface Fake {
  pins: Pins;
  transport: TlsTransport;
  stop(): void;
}

async function start(refreshes: number): Promise<Fake> {
  const path = `${directory}/pins-${++count}.textproto`;
  const child = spawn(program!, [path, String(refreshes)], { stdio: ["pipe", "pipe", "inherit"] });
  const address = await new Promise<string>((resolve) =>
    readline.createInterface(child.stdout).once("line", resolve),
  );
  const transport = new TlsTransport("127.0.0.1", Number(address.split(":")[1]));
  return {
    pins: parsePins(fs.readFileSync(path, "utf8")),
    transport,
    stop: () => {
      transport.close();
      child.stdin.end();
    },
  };
}

/** With refreshes, its round has a term. */
async function withFake(use: (fake: Fake) => Promise<void>, refreshes = 0): Promise<void> {
  const fake = await start(refreshes);
  try {
    await use(fake);
  } finally {
    fake.stop();
  }
}

const nowS = () => BigInt(Math.floor(Date.now() / 1000));
const keys = ["key-7", "no-such-key", "key-299"];

function clientOf(fake: Fake, transport: Transport = fake.transport, padTo = 8, ahead = () => 0): Client {
  return new Client({
    pins: fake.pins,
    transport,
    random: systemRandom,
    now: () => Date.now() / 1000 + ahead(),
    padTo,
    maxLookups: 1,
  });
}

type Alter<T extends DescMessage> = (message: MessageShape<T>) => void;

/** A transport that alters the answers to one request. */
function altering<T extends DescMessage>(
  fake: Fake,
  method: { type: number; response: T },
  alter: Alter<T>,
): Transport {
  return {
    async exchange(frame) {
      const answer = await fake.transport.exchange(frame);
      const { type, control } = decodeFrame(answer);
      if (type !== method.type) return answer;
      const message = fromBinary(method.response, control);
      alter(message);
      return encodeFrame(type, toBinary(method.response, message));
    },
  };
}

test("looks keys up: present, absent, and over TLS that the roster pins", () =>
  withFake(async (fake) => {
    const client = clientOf(fake);
    const { roster } = await client.open();
    assert.ok(equal(await fake.transport.certificate(), roster.parties[0]!.tlsCertificateSha256));
    const { answers, slots } = await client.lookUp(keys);
    const text = answers.map((a) => (a.kind === "value" ? new TextDecoder().decode(a.value) : a.kind));
    assert.deepEqual(text, ["value of key-7", "absent", "value of key-299"]);
    assert.equal(slots.length, 8);
    assert.equal(new Set(slots.map((slot) => slot.row)).size, 8);
  }));

test("a roster or a table that anybody altered", () =>
  withFake(async (fake) => {
    const frontend = new Frontend(fake.transport);
    const good = await frontend.call(methods.getDeployment, {});
    const check = (response: wire.GetDeploymentResponse, pins = fake.pins, now = nowS()) =>
      verifyDeployment(response, pins, new SeenEpochs(), now);
    check(good);
    const flip = (bytes: Uint8Array) => {
      const out = bytes.slice();
      out[out.length - 1]! ^= 1;
      return out;
    };
    const alterations: Alter<typeof wire.GetDeploymentResponseSchema>[] = [
      (d) => (d.roster = undefined),
      (d) => (d.manifest = undefined),
      (d) => (d.roster!.signature = flip(d.roster!.signature)),
      (d) => (d.roster!.signature = d.manifest!.signature),
      (d) => (d.roster!.roster!.deployment += "x"),
      (d) => (d.roster!.roster!.epoch += 1n),
      (d) => d.roster!.roster!.parties.reverse(),
      (d) => d.roster!.roster!.parties.pop(),
      (d) => (d.roster!.roster!.parties[1]!.name += "x"),
      (d) => (d.roster!.roster!.parties[1]!.peerAddress = "other:1"),
      (d) => (d.roster!.roster!.parties[0]!.clientAddress = "other:1"),
      (d) => (d.roster!.roster!.parties[0]!.tlsCertificateSha256 = new Uint8Array(32)),
      (d) => (d.roster!.roster!.parties[2]!.machines = 2),
      (d) => {
        const parties = d.roster!.roster!.parties;
        parties[1]!.proofOfPossession = parties[2]!.proofOfPossession;
      },
      (d) => (d.roster!.roster!.noise!.epsilon *= 2),
      (d) => (d.roster!.roster!.noise!.mode += 1),
      (d) => (d.roster!.roster!.expiresS += 1n),
      (d) => (d.roster!.roster!.validFromS -= 1n),
      (d) => (d.roster!.roster!.clockToleranceS += 1),
      (d) => (d.roster!.roster!.maxSlots -= 1),
      (d) => (d.roster!.roster!.onionSuite = ""),
      (d) => {
        d.roster!.roster!.termLimit = create(TermLimitSchema, { days: 3, refreshes: 4 });
      },
      (d) => (d.manifest!.signature = flip(d.manifest!.signature)),
      (d) => (d.manifest!.manifest!.epoch += 1n),
      (d) => (d.manifest!.manifest!.rows -= 1n),
      (d) => (d.manifest!.manifest!.records -= 1n),
      (d) => (d.manifest!.manifest!.expiresS += 1n),
      (d) => (d.manifest!.manifest!.rowsDigest = flip(d.manifest!.manifest!.rowsDigest)),
      (d) => (d.manifest!.manifest!.tableId = flip(d.manifest!.manifest!.tableId)),
      (d) => (d.manifest!.manifest!.incompleteRows = 1n),
      (d) => (d.manifest!.manifest!.queryBuckets = 2),
      (d) => (d.roster!.roster!.mostInBucket = 2),
      (d) => (d.manifest!.manifest!.rowVersions = undefined),
      (d) => (d.manifest!.manifest!.rowVersions!.baseDigest = new Uint8Array(32)),
      (d) => {
        const layout = d.manifest!.manifest!.layout;
        assert.equal(layout.case, "hashed");
        if (layout.case === "hashed") layout.value.hashSeed = flip(layout.value.hashSeed);
      },
    ];
    alterations.forEach((alter, i) => {
      const bad = clone(wire.GetDeploymentResponseSchema, good);
      alter(bad);
      assert.throws(() => check(bad), Refused, `alteration ${i}`);
    });
    // Nothing was altered, and it is too early, too late, pinned otherwise, or older than what was seen.
    assert.throws(() => check(good, fake.pins, 1n), /not yet valid/);
    assert.throws(() => check(good, fake.pins, 1n << 39n), /expired/);
    const { blsPublicKeysHex } = fake.pins;
    assert.throws(
      () => check(good, { ...fake.pins, blsPublicKeysHex: [...blsPublicKeysHex].reverse() }),
      /not the pinned ones/,
    );
    assert.throws(() => check(good, { ...fake.pins, minimumRosterEpoch: 1000n }), /pinned minimum/);
    assert.throws(() => check(good, { ...fake.pins, minimumTableEpoch: 1000n }), /pinned minimum/);
    const seen = new SeenEpochs();
    seen.accept("table", 1000n, new Uint8Array(32));
    assert.throws(() => verifyDeployment(good, fake.pins, seen, nowS()), /older epoch/);
    const forked = new SeenEpochs();
    forked.accept("table", good.manifest!.manifest!.epoch, new Uint8Array(32));
    assert.throws(() => verifyDeployment(good, fake.pins, forked, nowS()), /another content/);
  }));

test("a frontend or a door of an earlier version, by its name", () =>
  withFake(async (fake) => {
    const good = await fake.transport.exchange(encodeFrame(methods.getDeployment.type, new Uint8Array()));
    for (const digit of ["1", "2"]) {
      const earlier = good.slice();
      earlier[3] = digit.charCodeAt(0);
      const frontend = new Frontend({ exchange: async () => earlier });
      await assert.rejects(
        frontend.call(methods.getDeployment, {}),
        new RegExp(`Shoal 0\\.${digit} came to a client of Shoal 0\\.3, and these do not understand each other`),
      );
    }
  }));

test("mutated bytes are refused, or mean the same", () =>
  withFake(async (fake) => {
    const good = await fake.transport.exchange(encodeFrame(methods.getDeployment.type, new Uint8Array()));
    const answering = (frame: Uint8Array) => new Frontend({ exchange: async () => frame });
    const check = async (frame: Uint8Array) =>
      verifyDeployment(await answering(frame).call(methods.getDeployment, {}), fake.pins, new SeenEpochs(), nowS());
    const { rosterDigest, manifestDigest } = await check(good);
    const draw = (bound: number) => randomBelow(systemRandom, bound);
    let refused = 0;
    for (let i = 0; i < 150; ++i) {
      let bad = good.slice();
      if (i % 3 === 0) bad[draw(bad.length)]! ^= 1 << draw(8);
      if (i % 3 === 1) bad = bad.subarray(0, draw(bad.length));
      if (i % 3 === 2) bad.copyWithin(draw(bad.length), draw(bad.length), bad.length);
      try {
        const taken = await check(bad);
        assert.ok(equal(taken.rosterDigest, rosterDigest) && equal(taken.manifestDigest, manifestDigest));
      } catch (error) {
        if (error instanceof FrontendError) continue; // the type became that of an error
        assert.ok(error instanceof Refused, String(error));
        ++refused;
      }
    }
    assert.ok(refused > 120, `${refused} refused`);
  }));

test("a round that not all parties signed for this table", () =>
  withFake(async (fake) => {
    const frontend = new Frontend(fake.transport);
    const deployment = verifyDeployment(
      await frontend.call(methods.getDeployment, {}),
      fake.pins,
      new SeenEpochs(),
      nowS(),
    );
    const [good] = (await frontend.call(methods.listRounds, {})).rounds;
    verifyRound(good!, deployment, nowS());
    const alterations: ((info: wire.RoundInfo) => void)[] = [
      (r) => (r.header = undefined),
      (r) => (r.header!.header!.counter += 1n),
      (r) => (r.header!.header!.counter = 0n),
      (r) => (r.header!.header!.onionKeys[1] = r.header!.header!.onionKeys[0]!),
      (r) => r.header!.header!.onionKeys.reverse(),
      (r) => r.header!.header!.onionKeys.pop(),
      (r) => (r.header!.header!.maxRows += 1n),
      (r) => (r.header!.header!.answerBytes += 1),
      (r) => (r.header!.header!.noise!.delta *= 2),
      (r) => (r.header!.header!.machines[0] = 2),
      (r) => (r.header!.header!.maxSlots -= 1),
      (r) => (r.header!.header!.onionsCloseS += 1n),
      (r) => (r.header!.header!.expiresS += 8n * 86400n),
      (r) => (r.header!.header!.onionSuite = "x"),
      (r) => (r.header!.header!.maxRefreshes = 1),
      (r) => (r.header!.header!.queryBuckets = 2),
      (r) => (r.header!.header!.rosterDigest = new Uint8Array(32)),
      (r) => (r.header!.header!.manifestDigest = new Uint8Array(32)),
      (r) => (r.header!.signature = new Uint8Array(48)),
    ];
    alterations.forEach((alter, i) => {
      const bad = clone(wire.RoundInfoSchema, good!);
      alter(bad);
      assert.throws(() => verifyRound(bad, deployment, nowS()), Refused, `alteration ${i}`);
    });
  }));

test("a placement or a list of epochs that is not the signed one", () =>
  withFake(async (fake) => {
    const flip = (m: { data: Uint8Array }) => (m.data[0]! ^= 1);
    await assert.rejects(clientOf(fake, altering(fake, methods.getPlacement, flip)).open(), /placement/);
    await assert.rejects(clientOf(fake, altering(fake, methods.getRowVersions, flip)).open(), /list/);
    // A server that sends nothing, for ever.
    const nothing = (m: { data: Uint8Array }) => (m.data = new Uint8Array());
    await assert.rejects(clientOf(fake, altering(fake, methods.getPlacement, nothing)).open(), /empty/);
  }));

test("slots that do not exist", () =>
  withFake(async (fake) => {
    const alter: Alter<typeof wire.SubmitOnionsResponseSchema> = (m) => (m.firstSlots = [0xfffffff0]);
    const client = clientOf(fake, altering(fake, methods.submitOnions, alter));
    await assert.rejects(client.lookUp(keys), /slots that do not exist/);
  }));

test("a spoiled answer is not shown, nothing is sent after it, and no other answer suffers", () =>
  withFake(async (fake) => {
    const sent: number[] = [];
    const tampered = altering(fake, methods.fetchAnswers, (m) => (m.answers[0]! ^= 1));
    const transport: Transport = {
      exchange(frame) {
        sent.push(frame[4]!);
        return tampered.exchange(frame);
      },
    };
    // Two rows and no padding: the first slot is that of one of the two.
    const client = clientOf(fake, transport, 2);
    await client.open();
    assert.notEqual(client.rowOf("key-7"), client.rowOf("key-299"));
    const { answers, slots } = await client.lookUp(["key-7", "key-299"]);
    assert.equal(slots.length, 2);
    const spoiled = slots[0]!.row === client.rowOf("key-7") ? 0 : 1;
    assert.deepEqual(answers[spoiled], {
      kind: "refused",
      why: "the answer was altered on its way: its tag is wrong",
    });
    const other = answers[1 - spoiled]!;
    assert.equal(other.kind, "value");
    assert.equal(sent.at(-1), methods.fetchAnswers.type);
    assert.equal(sent.filter((type) => type === methods.fetchAnswers.type).length, 1);
  }));

test("what else is to be asked goes before any answer is looked at", () =>
  withFake(async (fake) => {
    const order: string[] = [];
    const transport: Transport = {
      async exchange(frame) {
        order.push(`request ${frame[4]}`);
        return fake.transport.exchange(frame);
      },
    };
    const client = clientOf(fake, transport);
    await client.lookUp(
      keys,
      ({ step }) => order.push(step),
      async () => {
        // Not started alone, but waited for.
        await client.status();
        await new Promise((resolve) => setTimeout(resolve, 50));
        await client.status();
      },
    );
    const { fetchAnswers, getStatus } = methods;
    assert.deepEqual(order.slice(-5), [
      `request ${fetchAnswers.type}`,
      "answered",
      `request ${getStatus.type}`,
      `request ${getStatus.type}`,
      "verified",
    ]);
  }));

test("the same bytes are sent again after silence, and only then", () =>
  withFake(async (fake) => {
    const submissions: Uint8Array[] = [];
    const transport: Transport = {
      async exchange(frame) {
        if (frame[4] !== methods.submitOnions.type) return fake.transport.exchange(frame);
        submissions.push(frame.slice());
        const answer = await fake.transport.exchange(frame);
        if (submissions.length === 1) throw new Error("the response was lost");
        return answer;
      },
    };
    await clientOf(fake, transport).lookUp(keys);
    assert.equal(submissions.length, 2);
    assert.deepEqual(submissions[0], submissions[1]);
  }));

test("a refusal ends the lookup: nothing is submitted twice", () =>
  withFake(async (fake) => {
    let submitted = 0;
    const transport: Transport = {
      async exchange(frame) {
        if (frame[4] !== methods.submitOnions.type) return fake.transport.exchange(frame);
        ++submitted;
        const error = create(wire.ErrorSchema, { code: 8, message: "full" });
        return encodeFrame(1, toBinary(wire.ErrorSchema, error));
      },
    };
    await assert.rejects(clientOf(fake, transport).lookUp(keys), RoundLost);
    assert.equal(submitted, 1);
  }));

test("a round with a term is entered after a minute without another, and no round is waited for for ever", () =>
  withFake(async (fake) => {
    // Its clock goes on by so many seconds at the third time that the client looks at the rounds.
    const lookUpAfter = async (seconds: number, transport: Transport) => {
      let polls = 0;
      const counting: Transport = {
        exchange(frame) {
          if (frame[4] === methods.listRounds.type) ++polls;
          return transport.exchange(frame);
        },
      };
      const client = clientOf(fake, counting, 8, () => (polls < 3 ? -30 : seconds - 30));
      try {
        const { answers } = await client.lookUp(keys);
        return { polls, answers };
      } catch (error) {
        assert.deepEqual(client.spent, { epsilon: 0, delta: 0 });
        throw error;
      }
    };
    const none = altering(fake, methods.listRounds, (m) => (m.rounds = []));
    await assert.rejects(lookUpAfter(600, none), (error) => error instanceof NoRound);
    const { polls, answers } = await lookUpAfter(60, fake.transport);
    assert.ok(polls >= 3, "entered at once");
    assert.equal(answers[0]!.kind, "value");
  }, 5));

test("a lookup that waits for a round can be stopped, and one that has a round cannot", () =>
  withFake(async (fake) => {
    const none = altering(fake, methods.listRounds, (m) => (m.rounds = []));
    const stopped = new AbortController();
    const waits = clientOf(fake, none).lookUp(
      keys,
      ({ step }) => step === "looking-for-round" && stopped.abort(),
      undefined,
      stopped.signal,
    );
    await assert.rejects(waits, (error) => error instanceof NoRound && /stopped/.test(error.message));
    const late = new AbortController();
    const goes = clientOf(fake).lookUp(keys, ({ step }) => step === "sealing" && late.abort(), undefined, late.signal);
    assert.equal((await goes).answers[0]!.kind, "value");
  }));

test("no more lookups are sent than are allowed", () =>
  withFake(async (fake) => {
    let sent = 0;
    const transport: Transport = {
      exchange(frame) {
        ++sent;
        return fake.transport.exchange(frame);
      },
    };
    const client = clientOf(fake, transport);
    await client.lookUp(keys);
    const before = sent;
    const over = client.lookUp(keys, undefined, undefined, AbortSignal.abort());
    await assert.rejects(over, /the limit of 1 lookups is reached; nothing was asked/);
    assert.equal(sent, before);
  }));

test("more queries than the noise protects together are not sent, and rounds are charged", () =>
  withFake(async (fake) => {
    const sent: number[] = [];
    const transport: Transport = {
      exchange(frame) {
        sent.push(frame[4]!);
        return fake.transport.exchange(frame);
      },
    };
    const client = clientOf(fake, transport, 4);
    await client.open();
    assert.deepEqual(client.spent, { epsilon: 0, delta: 0 });
    const together = client.open.bind(client);
    client.open = async () => {
      const deployment = await together();
      deployment.noise.phi = 2; // as if all parties had signed it
      return deployment;
    };
    await assert.rejects(client.lookUp(keys), /protects 2 together; nothing was sent/);
    assert.ok(!sent.includes(methods.listRounds.type) && !sent.includes(methods.submitOnions.type));
    client.open = together;
    await client.lookUp(keys);
    // Four queries under noise that protects one.
    const { epsilon, delta } = (await client.open()).noise;
    assert.deepEqual(client.spent, { epsilon: 4 * epsilon, delta: 4 * delta });
    // Another roster's noise does not make what was given away less.
    client.deployment!.noise.epsilon /= 2;
    assert.deepEqual(client.spent, { epsilon: 4 * epsilon, delta: 4 * delta });
  }));

test("a frontend's error says its code", () =>
  withFake(async (fake) => {
    const frontend = new Frontend(fake.transport);
    await assert.rejects(
      frontend.call(methods.getPlacement, { manifestDigest: new Uint8Array(32), maxBytes: 1 }),
      (error) => error instanceof FrontendError && error.code > 0,
    );
  }));
