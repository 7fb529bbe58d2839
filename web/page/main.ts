// The page: makes lookups with the client beside it, and shows what became of them. Everything about
// the visitor's own queries comes from the client; everything about the round from public messages.
import { hex, randomBelow, systemRandom, visible } from "../client/bytes.ts";
import { fingerprintOfPins, parsePins } from "../client/deployment.ts";
import { HttpTransport } from "../client/http_transport.ts";
import { Client, RoundLost } from "../client/lookup.ts";
import { WebSocketTransport } from "../client/web_socket_transport.ts";
import type { Answer, Event, Result, SlotView } from "../client/lookup.ts";
import type { Round } from "../client/deployment.ts";
import type { RoundReport } from "../gen/src/wire/client_pb.ts";
import type { NoiseParameters } from "../gen/src/wire/roster_pb.ts";
import { RoundState } from "../gen/src/wire/round_pb.ts";
import { partySteps } from "./chain.ts";
import { byId, count, el, fillBar, svg } from "./dom.ts";
import { distribution } from "../client/noise.ts";
import { bestGuessPercent, meanOf } from "./noise.ts";
import { partyReports, showParties, showStages } from "./seen.ts";
import * as server from "./server.ts";

const STEPS = [
  "Seal in layers",
  "Wait for others",
  "Parties mix, add noise",
  "Send the numbers",
  "Parties answer",
  "Check signatures",
];

let sent = 0;
let received = 0;

/** The chain, once the signed roster says how long it is. */
function showChain(parties: number): void {
  byId("party-count").textContent = `${count(parties)} parties`;
  byId("flow").append(
    ...partySteps(parties).map(({ who, does }) =>
      el("li", {}, el("strong", {}, who), ` ${does} `, el("span", { class: "stages" })),
    ),
  );
}

function showTraffic(): void {
  byId("traffic").textContent = `${count(sent)} bytes sent, ${count(received)} bytes received, without HTTP's own`;
}

function showSpent(client: Client): void {
  const { epsilon, delta } = client.spent;
  byId("spent").textContent =
    epsilon === 0
      ? "nothing yet"
      : `epsilon ${Number(epsilon.toPrecision(6))}, delta ${Number(delta.toPrecision(6))}, added up over its rounds`;
}

function say(text: string, bad = false): void {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

/** Steps before `at` are done, `at` is the present one; STEPS.length: all are done. */
function showStep(at: number): void {
  byId("steps").replaceChildren(
    ...STEPS.map((name, i) => {
      const state = i < at ? "done" : i === at ? "now" : "later";
      const item = el("li", { class: state }, name);
      if (state === "now") item.setAttribute("aria-current", "step");
      item.append(el("span", { class: "visually-hidden" }, state === "done" ? " (done)" : ""));
      return item;
    }),
  );
}

function messageOf(error: unknown): string {
  return visible(error instanceof Error ? error.message : String(error));
}

function showFill(onions: bigint, own: number): void {
  const others = Math.max(0, Number(onions) - own);
  const words = `In this round: ${count(own)} queries of yours, and, as party 1 says, ${count(others)} of others.`;
  byId("fill").hidden = false;
  byId("fill-text").textContent = words;
  fillBar(byId("fill-bar"), words, [
    { kind: "you", amount: own },
    { kind: "others", amount: others },
  ]);
}

/** `row` is undefined for a key that no row of the table can hold. */
function cells(key: string, row: number | undefined, answer: Answer): HTMLElement {
  const line = el("tr", {}, el("th", { scope: "row" }, key));
  if (answer.kind === "value") {
    line.append(
      el("td", {}, new TextDecoder().decode(answer.value)),
      el("td", { class: "good" }, "signed by all parties"),
    );
  } else if (answer.kind === "absent") {
    const proof = row === undefined ? "the signed table has no such key" : "proved by a signed row";
    line.append(el("td", {}, "not in the table"), el("td", { class: "good" }, proof));
  } else if (answer.kind === "unknown") {
    line.append(el("td", {}, "not known until the next table"), el("td", { class: "good" }, "says a signed row"));
  } else {
    line.append(el("td", { class: "bad" }, "refused"), el("td", { class: "bad" }, answer.why));
  }
  return line;
}

function showAnswers(client: Client, keys: string[], answers: Answer[]): void {
  const table = byId("answers");
  table.hidden = false;
  table.querySelector("tbody")!.replaceChildren(
    ...keys.map((key, i) => cells(key, client.rowOf(key), answers[i]!)),
  );
}

function showCurves(noise: NoiseParameters): void {
  const shape = distribution(noise);
  const mean = meanOf(shape);
  let last = shape.length - 1;
  const top = Math.max(...shape);
  while (shape[last]! < top / 500) --last;
  const x = (k: number) => 10 + (620 * k) / (last + 1);
  const y = (p: number) => 150 - (130 * p) / top;
  const path = (shift: number) =>
    Array.from(shape.subarray(0, last + 1))
      .map((p, k) => `${k === 0 ? "M" : "L"}${x(k + shift).toFixed(2)} ${y(p).toFixed(2)}`)
      .join(" ");
  const curves = byId<SVGElement>("curves");
  curves.setAttribute("aria-label", "Two curves that are nearly the same: with your query, and without it");
  curves.replaceChildren(
    svg("line", { class: "axis", x1: "10", x2: "630", y1: "150", y2: "150" }),
    svg("path", { class: "without", d: path(0) }),
    svg("path", { class: "with", d: path(1) }),
    svg("text", { class: "key-without", x: "630", y: "24", "text-anchor": "end" }, "you did not ask for the row"),
    svg("text", { class: "key-with", x: "630", y: "48", "text-anchor": "end" }, "you did (dashed)"),
    svg("text", { x: "10", y: "174" }, "0"),
    svg("text", { x: "630", y: "174", "text-anchor": "end" }, count(last + 1)),
  );
  const guess = bestGuessPercent(noise);
  byId("curves-text").textContent =
    `Along the bottom, how often the last party may count one row, by the noise of one honest party alone; the higher the curve, the likelier. ` +
    `Each party but the last makes up about ${Math.round(mean)} queries for every row. ` +
    (noise.phi > 1
      ? `All parties signed that this protects ${count(noise.phi)} queries of one visitor in one round together`
      : "All parties signed that this protects one query of a visitor in one round, and not a list of them") +
    ` (epsilon ${noise.epsilon}, delta ${noise.delta}): whoever guesses which of two things you asked for, where a coin is right in 50 of 100 cases, is right in at most ${guess}.`;
  byId("limit-noise").textContent =
    `The noise gives a little away every time: in one round, a guess between two ${noise.phi > 1 ? "lists" : "queries"} is right in at most ${guess} of 100 cases. Asking the same every day adds up.`;
}

function showNoise(result: Result, report: RoundReport | undefined, parties: number): void {
  byId("noise").hidden = report === undefined;
  if (!report) return;
  const reports = partyReports(report, parties);
  const own = result.slots.length;
  const all = Number(report.round?.queries ?? 0n);
  const noise = reports.slice(0, -1).map((r) => r.noise);
  const made = noise.reduce((a, b) => a + b, 0);
  const others = Math.max(0, all - own);
  byId("noise-text").textContent =
    `As the parties say, the last one got ${count(all + made)} queries. It cannot tell which are which: ` +
    `${count(own)} were yours (${count(result.slots.filter((s) => s.wanted).length)} that you wanted, the rest padding, so that their number tells nothing), ` +
    `${count(others)} of others, and ${count(made)} noise. Parties that work together know their own noise: that of one honest party is enough, or, if the last one is the honest one, its silence.`;
  const parts = [
    { kind: "you", amount: own, name: `yours: ${count(own)}` },
    { kind: "others", amount: others, name: `of others: ${count(others)}` },
    ...noise.map((amount, i) => ({
      kind: i % 2 === 0 ? "noise1" : "noise2",
      amount,
      name: `noise of party ${i + 1}: ${count(amount)}`,
    })),
  ];
  fillBar(byId("noise-bar"), parts.map((part) => part.name).join(", "), parts);
  byId("noise-legend").replaceChildren(
    ...parts.map((part) => el("li", {}, el("i", { class: part.kind, "aria-hidden": "true" }), part.name)),
  );
}

function showSeen(client: Client, keys: string[], result: Result, report: RoundReport | undefined): void {
  const parties = client.deployment!.roster.parties.length;
  const reports = partyReports(report, parties);
  const choices: { name: string; slot: SlotView }[] = [];
  for (const key of keys) {
    const row = client.rowOf(key);
    const slot = result.slots.find((s) => s.row === row);
    if (slot) choices.push({ name: key, slot });
  }
  const padding = result.slots.find((slot) => !slot.wanted);
  if (padding) choices.push({ name: "a padding query", slot: padding });
  byId("follow").replaceChildren(
    ...choices.map((choice, i) => {
      const input = el("input", { type: "radio", name: "follow", value: String(i) }) as HTMLInputElement;
      input.checked = i === 0;
      input.addEventListener("change", () => showParties(result, choice.slot, reports));
      return el("label", {}, input, ` ${choice.name}`);
    }),
  );
  byId("seen").hidden = false;
  showParties(result, choices[0]!.slot, reports);
}

/** What the parties say of the round, once the last one has said it. */
async function reportOf(client: Client, round: Round): Promise<RoundReport | undefined> {
  for (let tries = 0; tries < 10; ++tries) {
    const { counter, onionKeys } = round.header;
    let report: RoundReport | undefined;
    try {
      const { rounds } = await client.status();
      report = rounds.find((r) => r.round?.header?.header?.counter === counter);
    } catch {
      return undefined; // the answers do not depend on it
    }
    showStages(report);
    const parties = onionKeys.length;
    if (report?.stages.some((stage) => stage.party === parties && stage.stage === "online")) return report;
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
  return undefined;
}

// As the client in C++: so often at most a lookup is submitted, whatever ends its rounds.
const MAX_ATTEMPTS = 3;
// So many are sent in a visit, by mistake or not.
const MAX_LOOKUPS = 20;
// When a visitor is told that no round opens, and may stop.
const SAY_NO_ROUND_S = 10;

interface Lookup {
  result: Result;
  report: RoundReport | undefined;
}

class Page {
  #busy = false;
  #asking = false;
  #stop = new AbortController();
  #last?: { keys: string[]; result: Result };

  constructor(
    private readonly client: Client,
    private readonly about: server.About,
  ) {}

  start(): void {
    const { manifest, noise, roster } = this.client.deployment!;
    byId("legend").textContent = `Up to three keys, of the ${count(manifest.records)} in the table “${visible(manifest.name)}” or others`;
    byId("keys").replaceChildren(...this.about.keys.map((key) => el("option", { value: key })));
    const inputs = this.#inputs();
    const offered = this.about.keys.slice();
    for (const input of inputs) {
      if (offered.length === 0) break;
      input.value = offered.splice(randomBelow(systemRandom, offered.length), 1)[0]!;
    }
    byId("demo-note").hidden = !this.about.demonstration;
    showChain(roster.parties.length);
    showCurves(noise);
    showStep(-1);
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#lookUp(this.#keys());
    });
    byId("spoil").addEventListener("click", () => void this.#spoil());
    byId("honest").addEventListener("click", () => void this.#honest());
    byId("stop").addEventListener("click", () => this.#stop.abort());
    this.#enable();
    const { renewed } = this.client.deployment!;
    const news = renewed.map((n) => ` Party ${n} has a new key, which its earlier one signed.`).join("");
    say(
      `Ready.${news} ${roster.parties.length} parties have shown their keys, and signed who they are, the table and its ${count(manifest.rows)} rows.`,
    );
  }

  #inputs(): HTMLInputElement[] {
    return [...document.querySelectorAll<HTMLInputElement>('input[name="key"]')];
  }

  #keys(): string[] {
    return [...new Set(this.#inputs().map((input) => input.value.trim()).filter((key) => key !== ""))];
  }

  #enable(): void {
    for (const id of ["look-up", "spoil", "honest"]) byId<HTMLButtonElement>(id).disabled = this.#busy;
  }

  async #alone(work: () => Promise<void>): Promise<void> {
    if (this.#busy) return;
    this.#busy = true;
    this.#enable();
    try {
      await work();
    } finally {
      this.#busy = false;
      this.#enable();
      showTraffic();
      showSpent(this.client);
    }
  }

  /** With `again`, a round that ended without answers is followed by another: each gives a little away. */
  async #ask(keys: string[], again = false): Promise<Lookup | undefined> {
    for (let attempt = 1; ; ++attempt) {
      let own = 0;
      try {
        say("Waiting for a round that takes queries …");
        showStep(0);
        this.#stop = new AbortController();
        let report: RoundReport | undefined;
        const result = await this.client.lookUp(
          keys,
          (event) => {
            own = this.#tell(event, own);
            showTraffic();
          },
          // The parties are asked before the answers are looked at: when the page asks afterwards would
          // tell them how many rows were wanted, and which did not verify.
          async (round) => {
            showStep(4);
            say("Hearing what the parties say of the round …");
            report = await reportOf(this.client, round);
            say("Taking off the masks, and checking all parties' signatures on each row …");
            showStep(5);
          },
          this.#stop.signal,
        );
        return { result, report };
      } catch (error) {
        if (again && error instanceof RoundLost && attempt < MAX_ATTEMPTS) continue;
        say(`The lookup ended without an answer: ${messageOf(error)}. Nothing was believed.`, true);
        showStep(-1);
        return undefined;
      } finally {
        byId("stop").hidden = true;
      }
    }
  }

  /** While a lookup waits, what the parties say of its round. */
  #watchStages(counter: bigint): void {
    if (this.#asking) return;
    this.#asking = true;
    this.client
      .status()
      .then(({ rounds }) =>
        showStages(rounds.find((r) => r.round?.header?.header?.counter === counter)),
      )
      .catch(() => {}) // the lookup itself tells when the frontend is silent
      .finally(() => (this.#asking = false));
  }

  #tell(event: Event, own: number): number {
    switch (event.step) {
      case "looking-for-round":
        if (event.waitedS >= SAY_NO_ROUND_S && byId("stop").hidden) {
          byId("stop").hidden = false;
          say("No round takes queries now. Party 1 opens them. This page waits for up to ten minutes; nothing was asked yet.");
        }
        break;
      case "sealing":
        byId("stop").hidden = true;
        say("Sealing: a layer for each party …");
        break;
      case "submitted":
        showStep(1);
        say("Sealed and sent. The round takes the queries of others until its window closes.");
        return event.submission.length;
      case "round": {
        this.#watchStages(event.info.header!.header!.counter);
        const queries = this.client.queriesFor(this.#keys().length);
        if (event.info.state === RoundState.OPEN_FOR_ONIONS && own > 0) {
          showFill(event.info.onions, queries);
        } else if (event.info.state === RoundState.SEALED) {
          showFill(event.info.onions, queries);
          showStep(2);
          say("The round is full. Each party peels its layer, adds noise, shuffles, and hands on.");
        } else if (event.info.state === RoundState.ANSWERING) {
          showStep(4);
          say("The numbers go down the chain, and answers come back under masks.");
        }
        break;
      }
      case "queried":
        showStep(3);
        say("Mixed. A number for each query is sent; each party changes it, and the last one reads a row in it.");
        break;
      case "answered":
        break;
      case "verified":
        showStep(STEPS.length);
        break;
    }
    return own;
  }

  async #lookUp(keys: string[]): Promise<void> {
    if (keys.length === 0) return;
    await this.#alone(async () => {
      const lookup = await this.#ask(keys);
      if (lookup) this.#show(keys, lookup);
    });
  }

  /** Sends nothing. */
  #show(keys: string[], { result, report }: Lookup): void {
    showAnswers(this.client, keys, result.answers);
    const refused = result.answers.filter((answer) => answer.kind === "refused").length;
    say(
      refused > 0
        ? `${refused} of ${keys.length} answers refused: the row does not carry the signatures of all parties.`
        : "Done. Every answer carries the signatures of all parties.",
      refused > 0,
    );
    byId("answers").dataset["round"] = hex(result.round.id);
    if (report?.round) showFill(report.round.onions, result.slots.length);
    showSeen(this.client, keys, result, report);
    showNoise(result, report, this.client.deployment!.roster.parties.length);
    this.#last = { keys, result };
    byId("play").hidden = !this.about.canSpoil;
    byId("spoil").textContent = `Spoil the row of “${visible(keys[0]!)}” and ask again`;
  }

  async #spoil(): Promise<void> {
    const last = this.#last;
    if (!last) return;
    await this.#alone(async () => {
      const key = last.keys[0]!;
      const row = this.client.rowOf(key);
      if (row === undefined) return;
      const status = byId("play-status");
      byId("verdicts").replaceChildren();
      try {
        status.textContent = `You are the last party now, and have changed a byte of row ${row}. The rounds that ran were lost. Two clients ask again …`;
        await server.spoil(row);
        byId("honest").hidden = false;
        const [lookup, other] = await Promise.all([this.#ask(last.keys, true), server.otherClient(key)]);
        if (lookup) this.#show(last.keys, lookup);
        this.#judge(key, row, lookup?.result, other);
      } catch (error) {
        status.textContent = `That did not work: ${messageOf(error)}`;
      }
    });
  }

  #judge(key: string, row: number, result: Result | undefined, other: server.OtherClient): void {
    const answer = result?.answers[0];
    const here = answer?.kind === "refused";
    // Exit code 3 of `shoal query`: an answer could not be verified.
    const there = other.exitCode === 3;
    const card = (verdict: string, title: string, ...text: string[]) =>
      el(
        "div",
        { class: `verdict-card ${verdict}` },
        el("h3", {}, title),
        ...text.map((line) => el("p", { class: "mono" }, line)),
      );
    const verdictOf = (refused: boolean, answered: boolean) =>
      refused ? "refused" : answered ? "believed" : "silent";
    const titles = { refused: "refused it", believed: "believed it", silent: "got no answer" };
    const mine = verdictOf(here, answer !== undefined);
    const theirs = verdictOf(there, other.exitCode === 0);
    byId("verdicts").replaceChildren(
      card(
        mine,
        `This page ${titles[mine]}`,
        answer?.kind === "refused" ? answer.why : (answer?.kind ?? "the rounds were lost; try again"),
      ),
      card(
        theirs,
        `The client in C++ ${titles[theirs]}`,
        other.command,
        `exit code ${other.exitCode}`,
        other.output.trim(),
        other.errors.trim().split("\n").at(-1) ?? "",
      ),
    );
    byId("play-status").textContent =
      here && there
        ? `Both clients refused row ${row}. The other rows are right as before, and nothing told you who had asked for “${visible(key)}”.`
        : "The two clients' verdicts are below.";
  }

  async #honest(): Promise<void> {
    await this.#alone(async () => {
      const status = byId("play-status");
      try {
        await server.honest();
        byId("honest").hidden = true;
        byId("verdicts").replaceChildren();
        status.textContent = "The last party is honest again. Look up again to see it.";
        byId("spoil").focus();
      } catch (error) {
        status.textContent = `That did not work: ${messageOf(error)}`;
      }
    });
  }
}

async function main(): Promise<void> {
  byId("origin").textContent = location.origin;
  try {
    if (!isSecureContext) throw new Error("a page over plain HTTP can be altered on its way, and has no cryptography");
    const about = await server.about();
    const pins = parsePins(await server.pins());
    byId("fingerprint").textContent = fingerprintOfPins(pins);
    const client = new Client({
      pins,
      transport: /^wss?:/.test(about.door)
        ? new WebSocketTransport(about.door)
        : new HttpTransport(new URL(about.door, location.href).href),
      random: systemRandom,
      now: () => Date.now() / 1000,
      padTo: about.pad,
      maxLookups: MAX_LOOKUPS,
      watch: (exchange) => {
        sent += exchange.sent.length;
        received += exchange.received.length;
      },
    });
    await client.open();
    showTraffic();
    showSpent(client);
    new Page(client, about).start();
  } catch (error) {
    say(`This page trusts nobody here: ${messageOf(error)}`, true);
  }
}

void main();
