// Looks keys up over the frontend's TLS port: `node look_up.mjs PINS HOST:PORT PAD KEY..`. Prints a
// line for each key, and on standard error what was sent.
import * as fs from "node:fs";
import { equal, hex, systemRandom } from "../client/bytes.ts";
import { parsePins } from "../client/deployment.ts";
import { Client } from "../client/lookup.ts";
import { TlsTransport } from "./tls_transport.ts";

const [pins, address, pad, ...keys] = process.argv.slice(2);
const colon = address!.lastIndexOf(":");
const transport = new TlsTransport(address!.slice(0, colon), Number(address!.slice(colon + 1)));
let up = 0;
const client = new Client({
  pins: parsePins(fs.readFileSync(pins!, "utf8")),
  transport,
  random: systemRandom,
  now: () => Date.now() / 1000,
  padTo: Number(pad),
  maxLookups: 1,
  watch: (exchange) => (up += exchange.sent.length),
});
try {
  const deployment = await client.open();
  const pinned = deployment.roster.parties[0]!.tlsCertificateSha256;
  if (!equal(await transport.certificate(), pinned)) throw new Error("another TLS certificate");
  const { answers, submission, slots } = await client.lookUp(keys);
  keys.forEach((key, i) => {
    const answer = answers[i]!;
    const text =
      answer.kind === "value"
        ? new TextDecoder().decode(answer.value)
        : answer.kind === "refused"
          ? `(refused: ${answer.why})`
          : answer.kind === "absent"
            ? "(absent)"
            : "(not known until the next term)";
    console.log(`${key}\t${text}`);
  });
  console.error(`slots ${slots.length}, submission ${submission.length}, up ${up} bytes`);
  console.error(`submission begins ${hex(submission.subarray(0, 8))}`);
} catch (error) {
  console.error(`look_up: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  transport.close();
}
