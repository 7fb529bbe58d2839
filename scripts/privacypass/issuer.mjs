// An issuer of Privacy Pass tokens (RFC 9578, type 2) and a client that asks it, on the library
// @cloudflare/privacypass-ts: for tests of shoal-door and to try it out. Whom it gives tokens is nobody's
// question here: a real issuer asks for what the operator of the door wants, and lives elsewhere.
//
//   node issuer.mjs key DIR                           makes DIR/private.pem and DIR/public.der
//   node issuer.mjs tokens DIR ISSUER ORIGIN COUNT    prints COUNT values of Authorization, one a line
//   node issuer.mjs unlinkable DIR ISSUER ORIGIN COUNT
//                      issues COUNT tokens and checks that each of them fits each issuance: that there is
//                      one blinding factor with which this token would have come of that request
//
// The packages are those of scripts/setup --test.
import { createPublicKey, createPrivateKey, webcrypto } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

// The library asks for the global one, which Node has from 19 on by itself.
globalThis.crypto ??= webcrypto;

const here = dirname(fileURLToPath(import.meta.url));
const require = createRequire(join(process.env.PRIVACYPASS ?? join(here, "../../.deps/privacypass"), "package.json"));
const { publicVerif, util, TokenChallenge, TOKEN_TYPES } = await import(
  pathToFileURL(require.resolve("@cloudflare/privacypass-ts")).href);
const { BlindRSAMode, Client, Issuer, getPublicKeyBytes } = publicVerif;
const MODE = BlindRSAMode.PSS;
const ALGORITHM = { name: "RSA-PSS", hash: "SHA-384" };

async function makeKey(dir) {
  const keys = await Issuer.generateKey(MODE, { modulusLength: 2048, publicExponent: Uint8Array.from([1, 0, 1]) });
  mkdirSync(dir, { recursive: true });
  const der = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", keys.privateKey));
  writeFileSync(join(dir, "private.pem"), createPrivateKey({ key: der, format: "der", type: "pkcs8" })
    .export({ format: "pem", type: "pkcs8" }), { mode: 0o600 });
  writeFileSync(join(dir, "public.der"), await getPublicKeyBytes(keys.publicKey));
}

async function readKeys(dir) {
  const secret = createPrivateKey(readFileSync(join(dir, "private.pem")));
  const pkcs8 = secret.export({ format: "der", type: "pkcs8" });
  const spki = createPublicKey(secret).export({ format: "der", type: "spki" });
  return {
    privateKey: await webcrypto.subtle.importKey("pkcs8", pkcs8, ALGORITHM, true, ["sign"]),
    publicKey: await webcrypto.subtle.importKey("spki", spki, ALGORITHM, true, ["verify"]),
    jwk: secret.export({ format: "jwk" }),
  };
}

// One token, and what the issuer saw of it.
async function issue(dir, name, origin) {
  const keys = await readKeys(dir);
  const issuer = new Issuer(MODE, name, keys.privateKey, keys.publicKey);
  const client = new Client(MODE);
  const challenge = new TokenChallenge(TOKEN_TYPES.BLIND_RSA.value, name, new Uint8Array(0), [origin]);
  const request = await client.createTokenRequest(challenge, new Uint8Array(readFileSync(join(dir, "public.der"))));
  const response = await issuer.issue(request);
  const token = (await client.finalize(response)).serialize();
  return { token, blinded: request.blindedMsg, jwk: keys.jwk };
}

const integer = (bytes) => BigInt("0x" + Buffer.from(bytes).toString("hex"));
function power(base, exponent, modulus) {
  let result = 1n;
  for (base %= modulus; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = result * base % modulus;
    base = base * base % modulus;
  }
  return result;
}
function inverse(value, modulus) {
  let [a, b, x, y] = [value % modulus, modulus, 1n, 0n];
  while (b > 0n) [a, b, x, y] = [b, a % b, y, x - a / b * y];
  if (a !== 1n) throw new Error("not invertible");
  return (x % modulus + modulus) % modulus;
}

async function unlinkable(dir, name, origin, count) {
  const seen = [];
  for (let i = 0; i < count; ++i) seen.push(await issue(dir, name, origin));
  const number = (field) => integer(Buffer.from(seen[0].jwk[field], "base64url"));
  const [n, e, d] = [number("n"), number("e"), number("d")];
  for (const { blinded } of seen) {
    for (const { token } of seen) {
      // The signature, to the power of e, is the encoded message; the request is it, blinded.
      const message = power(integer(token.slice(98)), e, n);
      const blind = power(integer(blinded) * inverse(message, n), d, n);
      if (power(blind, e, n) * message % n !== integer(blinded)) throw new Error("no blinding factor fits");
      // One that a client would not draw tells which token is whose.
      if (blind < 1n << 1024n || n - blind < 1n << 1024n) throw new Error("a token fits its issuance better than others do");
      if (Buffer.from(token).includes(Buffer.from(blinded).subarray(0, 16))) throw new Error("the token has bytes of its request");
    }
  }
}

const [command, dir, name, origin, count] = process.argv.slice(2);
if (command === "key" && dir) {
  await makeKey(dir);
} else if (command === "tokens" && count) {
  for (let i = 0; i < Number(count); ++i) {
    const { token } = await issue(dir, name, origin);
    console.log(`PrivateToken token="${Buffer.from(token).toString("base64").replaceAll("+", "-").replaceAll("/", "_")}"`);
  }
} else if (command === "unlinkable" && count) {
  await unlinkable(dir, name, origin, Number(count));
} else {
  console.error("usage: see the head of issuer.mjs");
  process.exit(2);
}
