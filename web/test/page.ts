// The page in headless Chromium, against three real parties, with every link captured:
//   node page.mjs PACKAGES RECORDS OUT CHAIN DOOR START..
// PACKAGES has playwright-core and axe-core, RECORDS is the table (TSV), OUT is for screenshots, CHAIN is the
// chain's directory, with a certificate for a door, DOOR is shoal-door, and START is the command that starts the chain and the page's server, with the ports of the environment:
// PORT + 1 and PORT + 2 are where the roster has parties 2 and 3, and PORT + 7 where the page has the door;
// PORT + 5, PORT + 6 and PORT + 8 are where they are. At PORT + 9 is a door over TLS.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import * as crypto from "node:crypto";
import * as fs from "node:fs";
import * as http from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import * as readline from "node:readline";
import type { Browser, Page } from "playwright-core";
import { Capture } from "./capture.ts";

const [packages, records, out, chain, door, ...start] = process.argv.slice(2);
const from = createRequire(`${packages}/any.js`);
const { chromium } = from("playwright-core") as typeof import("playwright-core");
const axe = fs.readFileSync(from.resolve("axe-core/axe.min.js"), "utf8");
const port = Number(process.env["PORT"]);
const table = new Map(
  fs.readFileSync(records!, "utf8").trimEnd().split("\n").map((line) => line.split("\t") as [string, string]),
);

const links = { toParty2: new Capture(), toParty3: new Capture(), toDoor: new Capture() };
const problems: string[] = [];

function watch(page: Page): void {
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error") problems.push(message.text());
  });
}

const ready = (page: Page) => page.locator("#look-up:enabled").waitFor({ timeout: 60_000 });

async function checked(page: Page, what: string): Promise<void> {
  await page.evaluate(axe);
  const found = (await page.evaluate("axe.run({ resultTypes: ['violations'] })")) as {
    violations: { id: string; help: string; nodes: { html: string }[] }[];
  };
  assert.deepEqual(
    found.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes[0]?.html}`),
    [],
    what,
  );
}

async function answers(page: Page): Promise<[string, string, string][]> {
  const rows = await page.locator("#answers tbody tr").all();
  return Promise.all(
    rows.map(async (row) => (await row.locator("th, td").allTextContents()) as [string, string, string]),
  );
}

const numberIn = (text: string) => Number(/([\d,]+) *(?:$|[a-z,])/.exec(text)![1]!.replaceAll(",", ""));

async function seen(page: Page, party: number, what: string): Promise<string> {
  return (await page.locator(`#party-${party} [data-seen=${what}]`).innerText()).trim();
}

/** The frames that went to the door. */
function framesIn(capture: Buffer): { type: number; control: Buffer; bytes: number }[] {
  const frames = [];
  for (let at = capture.indexOf("SHL3"); at >= 0; at = capture.indexOf("SHL3", at)) {
    const size = capture.readUInt32LE(at + 8);
    frames.push({
      type: capture.readUInt16LE(at + 4),
      control: capture.subarray(at + 20, at + 20 + size),
      bytes: 20 + size,
    });
    at += 20 + size;
  }
  return frames;
}

/** Exactly `bulk`, and what TLS, the frames around it and signs of life add: not more than a hundredth. */
function carries(what: string, bytes: number, bulk: number): void {
  assert.ok(bytes >= bulk, `${what}: ${bytes} bytes cannot carry ${bulk}`);
  assert.ok(bytes < 1.01 * bulk + 30_000, `${what}: ${bytes} bytes are more than ${bulk} and what surrounds them`);
}

/** Notes which step of the lookup the page shows at each of its requests. */
async function noteRequests(page: Page): Promise<void> {
  await page.addInitScript(`{
    const { fetch } = window;
    window.requests = [];
    window.fetch = (to, ...rest) => {
      const done = document.querySelectorAll("#steps .done").length;
      const current = document.querySelector("#steps .now")?.textContent;
      window.requests.push({ to: String(to), done, current });
      return fetch(to, ...rest);
    };
  }`);
}

/** From when an answer is opened, nothing is sent until the visitor asks for something: whether it verified,
 *  and how many rows were wanted, would show in when it is sent. */
async function sendsNothingAfterAnswers(page: Page): Promise<void> {
  const requests = (await page.evaluate("window.requests")) as { to: string; done: number; current?: string }[];
  const calls = requests.filter(({ to }) => to.endsWith("/v1/call"));
  assert.ok(calls.some(({ current }) => current === "Parties answer"), JSON.stringify(calls));
  assert.deepEqual(calls.filter(({ done, current }) => current === "Check signatures" || done === 6), []);
}

async function looksUp(page: Page): Promise<void> {
  // By the keyboard alone: the first stop is the link to the lookup.
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate("document.activeElement.className"), "skip");
  const keys = ["key-7", "no-such-key", "key-33"];
  for (const key of keys) {
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate("document.activeElement.name"), "key");
    await page.keyboard.press("Control+A");
    await page.keyboard.type(key);
  }
  for (const link of Object.values(links)) link.clear();
  await page.keyboard.press("Enter");
  await page.locator("#seen").waitFor({ timeout: 60_000 });
  await ready(page);
  assert.match(await page.locator("#status").innerText(), /Every answer carries the signatures/);
  assert.deepEqual(await answers(page), [
    ["key-7", table.get("key-7"), "signed by all parties"],
    ["no-such-key", "not in the table", "proved by a signed row"],
    ["key-33", table.get("key-33"), "signed by all parties"],
  ]);
  assert.equal(await page.locator("#steps .done").count(), 6);
  const fill = await page.locator("#fill-text").innerText();
  assert.equal(fill, "In this round: 64 queries of yours, and, as party 1 says, 0 of others.");
  assert.match(await page.locator("#legend").innerText(), /of the 260 in the table “squares”/);
  assert.match(await page.locator("#spent").innerText(), /^epsilon 1, delta 0.000001,/);
}

/** How many parties there are, and what each of them does. */
async function saysHowMany(page: Page): Promise<void> {
  assert.match(await page.locator(".lead").innerText(), /^3 parties that do not trust each other /);
  const boxes = await page.locator("#flow li strong").allTextContents();
  assert.deepEqual(boxes, ["You", "Party 1", "Party 2", "Party 3"]);
  assert.doesNotMatch(await page.locator("body").innerText(), /three parties|all three|one of the three/i);
}

/** What the page says that the parties saw is what passed. */
async function saysWhatPassed(page: Page): Promise<void> {
  const up = framesIn(Buffer.concat(links.toDoor.forward));
  const upBytes = up.reduce((sum, frame) => sum + frame.bytes, 0);
  assert.ok(upBytes < 10_000, `a lookup of 64 slots sends ${upBytes} bytes`);
  console.log(`a lookup of 64 slots sends ${upBytes} bytes in ${up.length} frames`);

  // Party 1: the very message, in one request, and the very numbers.
  assert.equal(numberIn(await seen(page, 1, "submission")), 5168);
  const shown = (party: number) => page.locator(`#party-${party} details div div`).allTextContents();
  const [message, ...slots] = await shown(1);
  const submission = Buffer.from(message!.replace("message: ", ""), "hex");
  assert.equal(submission.length, 5168);
  const submitted = up.filter((frame) => frame.type === 20);
  assert.equal(submitted.length, 1);
  assert.ok(submitted[0]!.control.includes(submission), "another message was sent than is shown");
  const numbers = Buffer.alloc(4 * 64);
  slots.forEach((line, i) => numbers.writeUInt32LE(Number(/number (\d+)$/.exec(line)![1]), 4 * i));
  assert.equal(slots.length, 64);
  const queries = up.filter((frame) => frame.type === 21);
  assert.equal(queries.length, 1);
  assert.ok(queries[0]!.control.includes(numbers), "other numbers were sent than are shown");
  // The rows are in nothing that was sent, nor are the onions of parties 2 and 3: they are sealed.
  const [second, third] = [await shown(2), await shown(3)];
  const sent = Buffer.concat(links.toDoor.forward);
  for (const line of [...second, ...third]) {
    const onion = Buffer.from(/^[0-9a-f]+/.exec(line)![0], "hex");
    assert.ok(onion.length === 80 || onion.length === 32);
    assert.ok(!sent.includes(onion), "an onion is not sealed");
  }
  assert.equal(new Set([...second, ...third].map((line) => line.split(" ")[0])).size, 128);
  for (const key of ["key-7", "no-such-key", "key-33"]) {
    assert.ok(!sent.includes(key), "a key was sent");
  }
  const rows = new Set(third.map((line) => /row (\d+)$/.exec(line)![1]));
  assert.equal(rows.size, 64, "rows are asked twice");

  // Parties 2 and 3: lists as long as the page says, of onions as long as it says.
  const into = await Promise.all([1, 2, 3].map(async (party) => numberIn(await seen(page, party, "in"))));
  const noise = await Promise.all([1, 2].map(async (party) => numberIn(await seen(page, party, "noise"))));
  assert.equal(into[0], 64);
  assert.equal(into[1], 64 + noise[0]!);
  assert.equal(into[2], into[1]! + noise[1]!);
  const answerBytes = numberIn(await seen(page, 3, "answer"));
  assert.equal(answerBytes, 64 + 48 + 16);
  for (const [party, link] of [
    [2, links.toParty2],
    [3, links.toParty3],
  ] as const) {
    const onion = Number(/(\d+) bytes/.exec(await seen(page, party, "onion"))![1]);
    assert.equal(onion, party === 2 ? 80 : 32);
    const passed = link.bytes();
    const n = into[party - 1]!;
    carries(`to party ${party}`, passed.forward, n * (onion + 4));
    carries(`from party ${party}`, passed.back, n * answerBytes);
  }
  const words = await page.locator("#noise-text").innerText();
  assert.match(words, new RegExp(`got ${into[2]!.toLocaleString("en")} queries`));

  // Every party has said of its stages what they took.
  const stages = await page.locator(".stages").allInnerTexts();
  assert.match(stages[0]!, /noise\s.+\ss, .*mixing\s.+\ss/);
  assert.match(stages[1]!, /noise\s.+\ss, .*mixing\s.+\ss/);
  assert.match(stages[2]!, /mixing\s.+\ss, .*answers\s.+\ss/);

  // The other queries can be followed, by the keyboard too.
  const before = await seen(page, 3, "tally");
  await page.locator("#follow input").first().focus();
  // To the last one, a padding query: two of the keys may be in one row.
  await page.keyboard.press("ArrowUp");
  assert.notEqual(await seen(page, 3, "tally"), before);
}

async function looksGood(page: Page): Promise<void> {
  await checked(page, "light");
  await page.screenshot({ path: `${out}/wide.png`, fullPage: true });
  await page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
  await checked(page, "dark");
  await page.screenshot({ path: `${out}/dark.png`, fullPage: true });
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize({ width: 360, height: 740 });
  for (const details of await page.locator("details").all()) await details.locator("summary").click();
  const width = await page.evaluate("document.documentElement.scrollWidth");
  assert.equal(width, 360, "a narrow screen has to be scrolled sideways");
  await checked(page, "narrow");
  for (const details of await page.locator("details").all()) await details.locator("summary").click();
  await page.screenshot({ path: `${out}/narrow.png`, fullPage: true });
  await page.setViewportSize({ width: 1200, height: 900 });
}

async function spoils(page: Page): Promise<void> {
  await page.locator("#spoil").focus();
  await page.keyboard.press("Enter");
  await page.locator("#verdicts .verdict-card").first().waitFor({ timeout: 120_000 });
  await ready(page);
  const cards = await page.locator("#verdicts .verdict-card").allInnerTexts();
  assert.match(cards[0]!, /This page refused it[^]*row \d+: the signature does not match/);
  assert.match(cards[1]!, /The client in C\+\+ refused it[^]*exit code 3/);
  const shown = await answers(page);
  assert.deepEqual(shown[0]!.slice(0, 2), ["key-7", "refused"]);
  // The other rows are what they were. key-33 is in a row of its own.
  assert.deepEqual(shown[2], ["key-33", table.get("key-33"), "signed by all parties"]);
  await checked(page, "refused");
  await page.screenshot({ path: `${out}/refused.png`, fullPage: true });
  await page.locator("#honest").press("Enter");
  await page.locator("#honest").waitFor({ state: "hidden", timeout: 60_000 });
  await ready(page);
  for (let attempt = 1; ; ++attempt) {
    await page.locator("#look-up").press("Enter");
    await page.locator("#look-up:disabled").waitFor();
    await ready(page);
    const status = await page.locator("#status").innerText();
    if (/Every answer carries/.test(status)) break;
    // A round that the last party's end took with it.
    assert.ok(attempt < 3 && /round/.test(status), status);
  }
  assert.deepEqual((await answers(page))[0], ["key-7", table.get("key-7"), "signed by all parties"]);
}

/** While no round opens, the visitor is told, and can stop; and the page gives up by itself. */
async function waitsForARound(browser: Browser, url: string): Promise<void> {
  const page = await browser.newPage();
  watch(page);
  await page.clock.install();
  let polls = 0;
  await page.route("**/v1/call", async (route) => {
    const frame = route.request().postDataBuffer();
    if (frame?.readUInt16LE(4) !== 18) return route.continue();
    ++polls;
    const none = Buffer.alloc(20); // no rounds
    none.write("SHL3");
    none.writeUInt16LE(18, 4);
    await route.fulfill({
      body: none,
      headers: { "Access-Control-Allow-Origin": "*", "Content-Type": "application/octet-stream" },
    });
  });
  await page.goto(url);
  await ready(page);
  const status = page.locator("#status");
  const waits = async (seconds: number) => {
    const before = polls;
    await page.locator("#look-up").click();
    while (polls < before + 2) await new Promise((resolve) => setTimeout(resolve, 50));
    assert.ok(await page.locator("#stop").isHidden());
    await page.clock.fastForward(1000 * seconds);
  };
  await waits(11);
  await page.locator("#stop").waitFor();
  assert.match(await status.innerText(), /^No round takes queries now/);
  await checked(page, "no round");
  await page.locator("#stop").click();
  await ready(page);
  assert.match(await status.innerText(), /it was stopped before a round took it; nothing was asked/);
  await waits(601);
  await ready(page);
  assert.match(await status.innerText(), /no round took 64 queries within 600 seconds; nothing was asked/);
  assert.ok(await page.locator("#stop").isHidden());
  assert.equal(await page.locator("#spent").innerText(), "nothing yet");
  await page.close();
}

/** The digest of a certificate's key, by which Chromium takes it without an authority. */
function keyDigest(): string {
  const certificate = new crypto.X509Certificate(fs.readFileSync(`${chain}/door.crt`));
  const key = certificate.publicKey.export({ type: "spki", format: "der" });
  return crypto.createHash("sha256").update(key).digest("base64");
}

/** The page from another server, which may ask another door, and may send no policy. Chromium lets a page ask this machine only
 *  if it came from here, so that the page itself cannot be altered on its way to it. */
async function otherServer(url: string, door?: string, sendsPolicy = true): Promise<http.Server> {
  const server = http.createServer((request, response) => {
    void fetch(url + request.url!.slice(1)).then(async (answer) => {
      let body = Buffer.from(await answer.arrayBuffer());
      let policy = answer.headers.get("Content-Security-Policy")!;
      if (door) policy = policy.replace("connect-src", `connect-src ${new URL(door).origin}`);
      if (door && request.url === "/about.json") {
        body = Buffer.from(JSON.stringify({ ...JSON.parse(body.toString()), door }));
      }
      response.writeHead(answer.status, {
        "Content-Type": answer.headers.get("Content-Type")!,
        ...(sendsPolicy ? { "Content-Security-Policy": policy } : {}),
      });
      response.end(body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server;
}

const urlOf = (server: http.Server) => `http://localhost:${(server.address() as AddressInfo).port}/`;

/** A door over TLS, as an operator runs one, for the page at `origin`. */
async function secureDoor(origin: string): Promise<ChildProcess> {
  const config = `${chain}/secure-door.textproto`;
  fs.writeFileSync(
    config,
    `listen_address: "127.0.0.1:${port + 9}"
certificate_file: "door.crt"
private_key_file: "door.key"
roster_file: "roster.textproto"
pinned_parties_file: "pinned.textproto"
allowed_origins: "${origin}"
`,
  );
  const child = spawn(door!, ["--config", config], { stdio: ["ignore", "ignore", "pipe"] });
  await new Promise<void>((resolve, reject) => {
    child.once("exit", () => reject(new Error("no door over TLS")));
    readline.createInterface(child.stderr!).on("line", (line) => {
      if (line.includes("listens on")) resolve();
    });
  });
  return child;
}

/** The same lookup over TLS, by WebSocket: one message is one frame. */
async function looksUpBySocket(browser: Browser, url: string): Promise<void> {
  const server = await otherServer(url, `wss://localhost:${port + 9}/v1/ws`);
  const secure = await secureDoor(new URL(urlOf(server)).origin);
  const page = await browser.newPage();
  watch(page);
  const sent: number[] = [];
  page.on("websocket", (socket) =>
    socket.on("framesent", ({ payload }) => sent.push((payload as Buffer).readUInt16LE(4))),
  );
  await page.goto(urlOf(server));
  await ready(page);
  await page.locator("input[name=key]").first().fill("key-12");
  for (const at of [1, 2]) await page.locator("input[name=key]").nth(at).fill("");
  await page.locator("#look-up").click();
  await page.locator("#seen").waitFor({ timeout: 60_000 });
  assert.deepEqual(await answers(page), [["key-12", table.get("key-12"), "signed by all parties"]]);
  for (const type of [16, 17, 18, 19, 20, 21, 22, 23, 24]) assert.ok(sent.includes(type), `no request ${type}`);
  await page.close();
  secure.removeAllListeners("exit");
  secure.kill("SIGTERM");
  server.close();
}

/** The page has its policy in itself: from a server that sends none, it runs no other program, and asks
 *  no other server in the clear. */
async function hasItsOwnPolicy(browser: Browser, url: string): Promise<void> {
  const server = await otherServer(url, undefined, false);
  const page = await browser.newPage();
  await page.goto(urlOf(server));
  const refusals = (await page.evaluate(`(async () => {
    const refused = [];
    document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.head.append(script);
    const image = document.createElement("img");
    image.src = "https://evil.example/x.png";
    document.body.append(image);
    const frame = document.createElement("iframe");
    frame.src = "https://evil.example/";
    document.body.append(frame);
    await fetch("http://evil.example/").catch(() => {});
    for (let i = 0; i < 100 && refused.length < 4; ++i) await new Promise((resolve) => setTimeout(resolve, 20));
    return [window.ran === undefined, ...new Set(refused)].map(String).sort();
  })()`)) as string[];
  assert.deepEqual(refusals, ["connect-src", "frame-src", "img-src", "script-src-elem", "true"]);
  await page.close();
  server.close();
}

/** Pages of others, other names, and altered files. */
async function refuses(browser: Browser, url: string): Promise<void> {
  const status = async (path: string, headers: Record<string, string>) => {
    const context = await browser.newContext();
    const answer = await context.request.post(url + path, { headers, data: "{}" });
    await context.close();
    return answer.status();
  };
  assert.equal(await status("play/honest", { Origin: "http://evil.example" }), 403);
  assert.equal(await status("play/honest", { Host: "evil.example" }), 403);
  // The same page from another server: its browser may not ask the door.
  const stranger = await otherServer(url);
  const foreign = await browser.newPage();
  const refused = foreign.waitForEvent("console", (message) => /CORS/.test(message.text()));
  await foreign.goto(urlOf(stranger));
  await refused;
  assert.ok(await foreign.locator("#look-up").isDisabled());
  await foreign.close();
  stranger.close();

  const altered = async (path: string, body: (text: string) => string) => {
    const page = await browser.newPage();
    await page.route(`**/${path}`, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: body(await response.text()) });
    });
    await page.goto(url);
    return page;
  };
  // Keys that are not the parties': nothing can be asked.
  const pins = await altered("pinned.textproto", (text) => {
    const lines = text.split("\n");
    return [lines[0], lines[2], lines[1], ...lines.slice(3)].join("\n");
  });
  await pins.getByText("trusts nobody here: roster: its parties are not the pinned ones").waitFor();
  assert.ok(await pins.locator("#look-up").isDisabled());
  await pins.close();
  // Another program than the one that the page names is not run.
  const program = await altered("shoal.js", (text) => `${text}\n`);
  await program.waitForTimeout(500);
  assert.match(await program.locator("#status").innerText(), /Asking the parties/);
  await program.close();
}

async function main(): Promise<void> {
  await links.toParty2.listen(port + 1, port + 5);
  await links.toParty3.listen(port + 2, port + 6);
  await links.toDoor.listen(port + 7, port + 8);
  const server = spawn(start[0]!, start.slice(1), { stdio: ["ignore", "pipe", "inherit"] });
  const browser = await chromium.launch({
    executablePath: "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", `--ignore-certificate-errors-spki-list=${keyDigest()}`],
  });
  try {
    const served = await new Promise<number>((resolve, reject) => {
      server.once("exit", () => reject(new Error("the page's server did not start")));
      readline.createInterface(server.stdout!).on("line", (line) => {
        const match = /the page is at http:\/\/localhost:(\d+)\//.exec(line);
        if (match) resolve(Number(match[1]));
      });
    });
    const url = `http://localhost:${served}/`;
    const page = await (await browser.newContext({ viewport: { width: 1200, height: 900 } })).newPage();
    watch(page);
    await noteRequests(page);
    await page.goto(url);
    await ready(page);
    await saysHowMany(page);
    await checked(page, "before a lookup");
    await page.screenshot({ path: `${out}/start.png`, fullPage: true });
    await looksUp(page);
    await sendsNothingAfterAnswers(page);
    await saysWhatPassed(page);
    await looksGood(page);
    await spoils(page);
    await looksUpBySocket(browser, url);
    await waitsForARound(browser, url);
    assert.deepEqual(problems, []);
    await hasItsOwnPolicy(browser, url);
    await refuses(browser, url);
    console.log("the page does what it says");
  } catch (error) {
    console.error("the browser said:", problems);
    throw error;
  } finally {
    await browser.close();
    server.kill("SIGTERM");
    for (const link of Object.values(links)) link.close();
  }
}

await main();
process.exit(0);
