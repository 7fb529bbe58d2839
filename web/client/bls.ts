// BLS signatures over BLS12-381: signatures in G1, public keys in G2 (docs/protocol.md, section 2).
import { bls12_381 } from "@noble/curves/bls12-381.js";
import { Refused, require } from "./bytes.ts";

const G1 = bls12_381.G1.Point;
const G2 = bls12_381.G2.Point;
const Fp12 = bls12_381.fields.Fp12;
export type PublicKey = InstanceType<typeof G2>;
type Signature = InstanceType<typeof G1>;

export const SIGNATURE_BYTES = 48;
export const PUBLIC_KEY_BYTES = 96;
const SIGNATURE_DOMAIN = "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_";
const POSSESSION_DOMAIN = "BLS_POP_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_";

/** Points from outside are on the curve, in the subgroup of prime order, not infinity, and have one
 *  encoding. */
function checked<Point extends { is0(): boolean; assertValidity(): void; toBytes(): Uint8Array }>(
  what: string,
  bytes: Uint8Array,
  length: number,
  parse: (bytes: Uint8Array) => Point,
): Point {
  require(bytes.length === length, `${what}: a point has ${length} bytes`);
  let point: Point;
  try {
    point = parse(bytes);
    point.assertValidity();
  } catch {
    throw new Refused(`${what}: not a point of the group`);
  }
  require(!point.is0(), `${what}: the point at infinity`);
  const again = point.toBytes();
  require(
    again.every((byte, i) => byte === bytes[i]),
    `${what}: another encoding of the point`,
  );
  return point;
}

export function publicKey(what: string, bytes: Uint8Array): PublicKey {
  const point = checked(what, bytes, PUBLIC_KEY_BYTES, (b) => G2.fromBytes(b));
  require(point.isTorsionFree(), `${what}: not a point of the group`);
  return point;
}

function signatureOf(what: string, bytes: Uint8Array): Signature {
  const point = checked(what, bytes, SIGNATURE_BYTES, (b) => G1.fromBytes(b));
  require(point.isTorsionFree(), `${what}: not a point of the group`);
  return point;
}

function verifyIn(
  what: string,
  domain: string,
  key: PublicKey,
  message: Uint8Array,
  bytes: Uint8Array,
): void {
  const signature = signatureOf(what, bytes);
  const hashed = bls12_381.G1.hashToCurve(message, { DST: domain });
  // e(H(m), pk) = e(signature, g2)
  const product = bls12_381.pairingBatch([
    { g1: hashed, g2: key },
    { g1: signature.negate(), g2: G2.BASE },
  ]);
  require(Fp12.eql(product, Fp12.ONE), `${what}: the signature does not match`);
}

/** Throws Refused unless the signature is right; `what` begins the message. */
export function verify(
  what: string,
  key: PublicKey,
  message: Uint8Array,
  signature: Uint8Array,
): void {
  verifyIn(what, SIGNATURE_DOMAIN, key, message, signature);
}

/** Without this proof a key must never be summed with others. */
export function verifyPossession(
  what: string,
  key: PublicKey,
  bytes: Uint8Array,
  proof: Uint8Array,
): void {
  verifyIn(what, POSSESSION_DOMAIN, key, bytes, proof);
}

export function sum(keys: PublicKey[]): PublicKey {
  const total = keys.reduce((a, b) => a.add(b), G2.ZERO);
  require(!total.is0(), "the parties' keys cancel each other");
  return total;
}
