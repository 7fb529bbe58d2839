// What each party saw of a lookup. Of the visitor's own queries the client knows it, as it made them;
// of the whole round the parties say it (GetStatus).
import type { RoundReport } from "../gen/src/wire/client_pb.ts";
import type { Result, SlotView } from "../client/lookup.ts";
import { hex } from "../client/bytes.ts";
import { begin, byId, count, el } from "./dom.ts";

/** Of a party in a round, as it says: how many queries came and went, and how many it made up. */
export interface PartyReport {
  in: number;
  out: number;
  noise: number;
}

export function partyReports(report: RoundReport | undefined, parties: number): PartyReport[] {
  return Array.from({ length: parties }, (_, i) => {
    const own = report?.stages.filter((stage) => stage.party === i + 1) ?? [];
    const stage = (name: string) => own.find((s) => s.stage === name);
    const offline = stage("offline");
    return {
      in: Number(offline?.positionsIn ?? 0n),
      out: Number(offline?.positionsOut ?? 0n),
      noise: Number(own.reduce((most, s) => (s.noiseQueries > most ? s.noiseQueries : most), 0n)),
    };
  });
}

const STAGE_NAMES = new Map([
  ["noise", "noise"],
  ["offline", "mixing"],
  ["online", "numbers"],
  ["answers", "answers"],
]);

/** What a party has done in a round, and how long it took, as it says. */
function stagesOf(report: RoundReport | undefined, party: number, last: boolean): string {
  return (report?.stages ?? [])
    .filter((stage) => stage.party === party && STAGE_NAMES.has(stage.stage))
    .map((stage) => {
      const name = last && stage.stage === "online" ? "answers" : STAGE_NAMES.get(stage.stage);
      const seconds = stage.seconds < 0.01 ? "<0.01" : stage.seconds.toFixed(2);
      return `${name}\u00a0${seconds}\u00a0s`;
    })
    .join(", ");
}

/** In the boxes at the top, as they come. */
export function showStages(report: RoundReport | undefined): void {
  const lines = document.querySelectorAll<HTMLElement>(".stages");
  lines.forEach((line, i) => {
    const done = stagesOf(report, i + 1, i + 1 === lines.length);
    line.textContent = done === "" ? "" : `Done: ${done}`;
  });
}

const made = () => el("span", { class: "made" }, "yours");
const says = () => el("span", { class: "says" }, "says");

function fact(name: string, seen: string, ...value: (Node | string)[]): HTMLElement {
  return el("div", {}, el("dt", {}, name), el("dd", { "data-seen": seen }, ...value));
}

function all(title: string, lines: string[]): HTMLElement {
  const scroll = el("div", { class: "scroll mono", tabindex: "0", "aria-label": title });
  scroll.append(...lines.map((line) => el("div", {}, line)));
  return el("details", {}, el("summary", {}, title), scroll);
}

function article(party: number, title: string, role: string, ...content: Node[]): HTMLElement {
  const id = `party-${party}`;
  return el(
    "article",
    { class: "party", id, "aria-labelledby": `${id}-title` },
    el("h3", { id: `${id}-title` }, title),
    el("p", { class: "role" }, role),
    el("dl", {}, ...content.filter((node) => (node as Element).tagName === "DIV")),
    ...content.filter((node) => (node as Element).tagName !== "DIV"),
  );
}

export function showParties(result: Result, follow: SlotView, reports: PartyReport[]): void {
  const parties = reports.length;
  const { slots, submission } = result;
  const n = slots.length;
  const cards: HTMLElement[] = [];
  for (let party = 1; party <= parties; ++party) {
    const report = reports[party - 1]!;
    const tally = follow.tallies[party - 1]!;
    const own = party === 1 ? undefined : follow.onions[party - 2]!;
    const took = report.in > 0 ? count(report.in) : "–";
    if (party === 1) {
      cards.push(
        article(
          1,
          "Party 1, the front",
          "takes your message, and shuffles",
          fact("Your sealed message", "submission", made(), ` ${count(submission.length)} bytes for ${n} queries: `, el("span", { class: "mono" }, begin(submission))),
          fact("Your query, as a number", "tally", made(), " the number ", el("span", { class: "mono" }, count(tally)), ` for slot ${count(follow.slot)}`),
          fact("Queries that came to it", "in", says(), ` ${took}`),
          fact("Noise that it added", "noise", says(), ` ${count(report.noise)} made-up queries`),
          el("p", { class: "verdict" }, "Knows who asks and when. Not what: the number is random to it."),
          all(`All that it got of you (${n})`, [
            `message: ${hex(submission)}`,
            ...slots.map((slot) => `slot ${slot.slot}: number ${slot.tallies[0]}`),
          ]),
        ),
      );
    } else if (party < parties) {
      cards.push(
        article(
          party,
          `Party ${party}, ${parties === 3 ? "the middle" : "between"}`,
          "gets a shuffled list, and shuffles again",
          fact("Your onion, one of the list", "onion", made(), ` ${own!.length} bytes: `, el("span", { class: "mono" }, begin(own!))),
          fact("Your query, as a number", "tally", made(), " the number ", el("span", { class: "mono" }, count(tally)), " at a place that only party 1 knows"),
          fact("Queries that came to it", "in", says(), ` ${took}, noise among them`),
          fact("Noise that it added", "noise", says(), ` ${count(report.noise)} made-up queries`),
          el("p", { class: "verdict" }, "Knows neither who asks nor what."),
          all(`All that it got of you (${n})`, slots.map((slot) => `${hex(slot.onions[party - 2]!)} number ${slot.tallies[party - 1]}`)),
        ),
      );
    } else {
      cards.push(
        article(
          party,
          `Party ${party}, the last`,
          "reads the rows, and answers",
          fact("Your onion, one of the list", "onion", made(), ` ${own!.length} bytes: `, el("span", { class: "mono" }, begin(own!))),
          fact("Your query, as a number", "tally", made(), " the number ", el("span", { class: "mono" }, count(tally)), ", which it turns into ", el("strong", {}, `row ${follow.row}`)),
          fact("Queries that came to it", "in", says(), ` ${took}, noise among them`),
          fact("Your answer, on its way back", "answer", made(), ` ${count(follow.answer.length)} bytes, under a mask and a tag of every party: `, el("span", { class: "mono" }, begin(follow.answer))),
          el("p", { class: "verdict" }, `Knows that row ${follow.row} was asked. Not by whom, nor whether by anybody: it may be noise.`),
          all(`All that it got of you (${n})`, slots.map((slot) => `${hex(slot.onions[party - 2]!)} number ${slot.tallies[party - 1]} row ${slot.row}`)),
        ),
      );
    }
  }
  byId("parties").replaceChildren(...cards);
}
