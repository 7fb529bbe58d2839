#!/usr/bin/env python3
"""A Shoal client in another language, written from docs/protocol.md.

Takes slots in a round, asks keys, verifies the answers, prints "key TAB value", "key TAB (absent)" or
"key TAB (not known until the next term)". It keeps no state: every run draws new secrets, and nothing is repeated after a failure. It knows the
hashed layout alone. Needs protoc and scripts/setup --test.
"""
import argparse, hashlib, hmac, pathlib, secrets, socket, ssl, struct, subprocess, sys, tempfile, time

import row_versions
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.poly1305 import Poly1305
from google.protobuf import text_format
from py_ecc.bls.g2_primitives import subgroup_check
from py_ecc.bls.hash_to_curve import hash_to_G1
from py_ecc.bls.point_compression import decompress_G1, decompress_G2
from py_ecc.optimized_bls12_381 import FQ12, G2, add, final_exponentiate, is_inf, neg, pairing
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

P = 2**31 - 1
SUITE = "hpke-x25519-sha256-chacha20poly1305"
UNKNOWN = "unknown"  # no value is text
ANSWER_TAG = 16  # bytes
OPEN_FOR_ONIONS, OPEN_FOR_QUERIES, ANSWERED = 1, 3, 5  # round states
OUT_OF_TERMS_S = 60  # for so long a lookup that is made once enters no round with a term

def require(condition, message):
    if not condition:
        raise SystemExit("client: " + message)

def load_messages():
    root = pathlib.Path(__file__).resolve().parents[2]
    out = tempfile.mkdtemp(prefix="shoal-proto-")
    protos = [str(path.relative_to(root)) for path in (root / "src/wire").glob("*.proto")]
    subprocess.run(["protoc", "--python_out", out, "--proto_path", ".", *protos], cwd=root, check=True)
    sys.path.insert(0, out)
    from src.wire import client_pb2, roster_pb2
    return client_pb2, roster_pb2

# --- canonical bytes: digests, ids, signed messages ---

def transcript(*fields, key=b""):
    """BLAKE2b-256; integers as 8 bytes little endian, doubles as their bits, others after their length."""
    state = hashlib.blake2b(digest_size=32, key=key)
    for field in fields:
        if isinstance(field, (int, float)):
            state.update(struct.pack("<d" if isinstance(field, float) else "<Q", field))
        else:
            data = field.encode() if isinstance(field, str) else field
            state.update(struct.pack("<Q", len(data)) + data)
    return state.digest()

def noise_fields(n):
    return n.mechanism, n.epsilon, n.delta, n.phi, n.mode, n.left_scale, n.right_scale

def roster_digest(r):
    parties = [(p.number, p.name, p.peer_address, p.client_address, p.bls_public_key,
                p.proof_of_possession, p.tls_certificate_sha256, p.machines) +
               sum(((m.peer_address, m.client_address) for m in p.other_machines), ())
               for p in r.parties]
    return transcript("shoal roster v2", r.deployment, r.epoch, len(parties), *sum(parties, ()),
                      *noise_fields(r.noise), r.valid_from_s, r.expires_s, r.clock_tolerance_s,
                      r.max_slots, r.onion_suite,
                      *([r.term_limit.days, r.term_limit.refreshes] if r.HasField("term_limit") else []))

def manifest_digest(m):
    return transcript("shoal manifest v2", m.name, m.table_id, m.epoch, m.created_s, m.expires_s,
                      m.records, m.rows, m.row_bytes, 2, m.hashed.hash_seed, m.hashed.buckets,
                      m.hashed.placement_digest, m.rows_digest, m.deployment, *row_versions.fields(m),
                      *([m.incomplete_rows] if m.incomplete_rows else []))

def round_id_of(h):
    return transcript("shoal round v3", h.counter, h.roster_digest, h.manifest_digest,
                      len(h.onion_keys), *h.onion_keys, h.max_rows, h.answer_bytes,
                      *noise_fields(h.noise), len(h.machines), *h.machines, h.max_slots,
                      h.announced_s, h.onions_close_s, h.queries_close_s, h.expires_s, h.onion_suite,
                      *([h.max_refreshes, h.term_expires_s] if h.max_refreshes or h.term_expires_s else []))

# --- BLS signatures: public keys in G2, signatures in G1 ---

def checked_point(data, size):
    require(len(data) == size, f"a point has {size} bytes, not {len(data)}")
    words = [int.from_bytes(data[at:at + 48], "big") for at in range(0, size, 48)]
    point = decompress_G1(words[0]) if size == 48 else decompress_G2(tuple(words))
    require(not is_inf(point) and subgroup_check(point), "a point outside the group")
    return point

def verify(what, key, message, signature, kind=b"SIG"):
    domain = b"BLS_%s_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_" % kind
    product = pairing(key, hash_to_G1(message, domain, hashlib.sha256), False) * pairing(
        G2, neg(checked_point(signature, 48)), False)
    require(final_exponentiate(product) == FQ12.one(), f"{what}: the signature does not match")

class Frontend:
    def __init__(self, address, messages):
        host, port = address.rsplit(":", 1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the roster pins it
        self.socket = context.wrap_socket(socket.create_connection((host, int(port)), timeout=120))
        self.certificate = hashlib.sha256(self.socket.getpeercert(binary_form=True)).digest()
        self.file = self.socket.makefile("rb")
        self.messages = messages

    def read(self, count):
        data = self.file.read(count)
        require(len(data) == count, "the frontend closed the connection")
        return data

    def call(self, kind, name, **fields):
        control = getattr(self.messages, name + "Request")(**fields).SerializeToString()
        self.socket.sendall(struct.pack("<4sHHIQ", b"SHL3", kind, 0, len(control), 0) + control)
        magic, answered, zero, size, bulk = struct.unpack("<4sHHIQ", self.read(20))
        require(magic != b"SHL2", "a frontend of Shoal 0.2, and this client is of 0.3: all of a deployment change together")
        require(magic == b"SHL3" and zero == bulk == 0 and size <= 4 << 20, "a bad frame")
        body = self.read(size)
        if answered == 1:
            error = self.messages.Error.FromString(body)
            raise SystemExit(f"client: {name}: error {error.code}: {error.message}")
        require(answered == kind, "a frame of another type")
        return getattr(self.messages, name + "Response").FromString(body)

# --- the table: from a key to its row, and from a row to the value ---

def siphash_2_4_128(key, data):
    def rounds(count):
        def step(a, b, bits):
            v[a] = (v[a] + v[b]) % 2**64
            v[b] = (v[b] << bits | v[b] >> (64 - bits)) % 2**64 ^ v[a]
        for _ in range(count):
            step(0, 1, 13); v[0] = (v[0] << 32 | v[0] >> 32) % 2**64; step(2, 3, 16)
            step(0, 3, 21); step(2, 1, 17); v[2] = (v[2] << 32 | v[2] >> 32) % 2**64
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D ^ 0xEE, k0 ^ 0x6C7967656E657261,
         k1 ^ 0x7465646279746573]
    for (word,) in struct.iter_unpack("<Q", data + bytes(7 - len(data) % 8) + bytes([len(data) % 256])):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]

def row_of(manifest, placement, key):
    h0, h1 = siphash_2_4_128(manifest.hashed.hash_seed, key)
    z = (h1 + placement[h0 * manifest.hashed.buckets >> 64] * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return (z ^ z >> 31) * manifest.rows >> 64

def find(manifest, row, key):
    """The value, or None if the row proves that there is none, or UNKNOWN if it has no room for all of
    its keys. The row's signature has been verified, so it is well formed."""
    def varint(at):
        value = shift = 0
        while at < len(row):
            value |= (row[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if row[at - 1] < 128:
                break
        return value, at
    at = 0
    while True:
        key_bytes, at = varint(at)
        if key_bytes == 0:
            count = row[at] if at < len(row) else 0
            mark = struct.pack("<Q", siphash_2_4_128(manifest.hashed.hash_seed, key)[0])[:4]
            marks = [row[i:i + 4] for i in range(at + 1, at + 1 + 4 * count, 4)]
            return UNKNOWN if count == 255 or mark in marks else None
        value_bytes, at = varint(at)
        value_at = at + key_bytes - 1
        if row[at:value_at] == key:
            return row[value_at:value_at + value_bytes]
        at = value_at + value_bytes

def chacha20(seed, round_id, block, data):
    cipher = Cipher(algorithms.ChaCha20(seed, struct.pack("<I", block) + round_id[:12]), mode=None)
    return cipher.encryptor().update(data)

def expand(seed, round_id):
    """Token, x and y."""
    block = chacha20(seed, round_id, 0, bytes(64))
    words = [word & P for (word,) in struct.iter_unpack("<I", block[16:])]
    x_at = next(i for i, word in enumerate(words) if word < P)
    return block[:16], words[x_at], next(word for word in words[x_at + 1:] if 0 < word < P)

def first_tally(seeds, round_id, row):
    for seed in reversed(seeds):
        _, x, y = expand(seed, round_id)
        row = (row - x) * pow(y, P - 2, P) % P
    return row

def seal_layer(header, round_id, party, plaintext):
    """HPKE to one party: the layer, and the context that exports its seeds. The last seals nothing."""
    aead = AEADId.CHACHA20_POLY1305 if plaintext else AEADId.EXPORT_ONLY
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, aead)
    key = suite.kem.deserialize_public_key(header.onion_keys[party - 1])
    enc, context = suite.create_sender_context(key, b"shoal onion v2" + round_id + bytes([party]))
    return enc + (context.seal(plaintext) if plaintext else b""), context

def build_submission(header, round_id, count):
    """All onions in one submission, and for each of them the seeds of all parties."""
    onions, seeds = [b""] * count, [[] for _ in range(count)]
    for i in range(count):
        for party in range(len(header.onion_keys), 1, -1):
            onions[i], context = seal_layer(header, round_id, party, onions[i])
            seeds[i].insert(0, context.export(b"seed", 32))
    submission, context = seal_layer(header, round_id, 1, b"".join(onions))
    require(len(submission) <= 1 << 20, "too many onions for one submission")
    for i in range(count):
        seeds[i].insert(0, context.export(b"slot" + struct.pack("<I", i), 32))
    return submission, seeds

def mask_by_all(answer, seeds, ids):
    """What the parties, the last one first, make of row and signature: masked, and with party 1's tag."""
    masked, tag = answer, b""
    for seed, round_id in reversed(list(zip(seeds, ids))):
        masked = chacha20(seed, round_id, 1, masked)
        key = chacha20(seed, round_id, 1 + -(-len(answer) // 64), bytes(32))
        tag = Poly1305.generate_tag(key, masked + tag)
    return masked + tag

def unmask(tagged, seeds, ids):
    """Row and signature, or nothing where the answer was altered on its way: its tag is wrong. `ids` has
    for each party what its seed expands with: the round's id, or the masks id of a refresh."""
    answer = tagged[:-ANSWER_TAG]
    for seed, round_id in zip(seeds, ids):
        answer = chacha20(seed, round_id, 1, answer)
    return answer if hmac.compare_digest(mask_by_all(answer, seeds, ids), tagged) else None

def verify_deployment(deployment, pins, certificate):
    roster, manifest, now = deployment.roster.roster, deployment.manifest.manifest, time.time()
    require(roster.deployment == pins.deployment == manifest.deployment, "another deployment")
    require(manifest.HasField("hashed"), "the table is not hashed")
    require(not roster.most_in_bucket and not manifest.query_buckets, "two tiers (most_in_bucket "
            f"{roster.most_in_bucket}, query_buckets {manifest.query_buckets}) are not known to this client yet: "
            "ask this deployment by `shoal` or libshoal")
    require([p.bls_public_key.hex() for p in roster.parties] == list(pins.bls_public_keys_hex),
            "the parties are not the pinned ones")
    aggregate = None
    for party in roster.parties:
        key = checked_point(party.bls_public_key, 96)
        verify(f"party {party.number}", key, party.bls_public_key, party.proof_of_possession, b"POP")
        aggregate = add(aggregate, key) if aggregate else key
    verify("roster", aggregate, roster_digest(roster), deployment.roster.signature)
    verify("table", aggregate, manifest_digest(manifest), deployment.manifest.signature)
    require(roster.onion_suite == SUITE, f"the roster's onion suite is {roster.onion_suite}")
    require(roster.epoch >= pins.minimum_roster_epoch and manifest.epoch >= pins.minimum_table_epoch,
            "an old roster or table")
    slack = roster.clock_tolerance_s
    require(roster.valid_from_s - slack <= now < roster.expires_s + slack, "roster: not its time")
    require(manifest.created_s - slack <= now < manifest.expires_s + slack, "table: not its time")
    require(certificate in (None, roster.parties[0].tls_certificate_sha256), "another TLS certificate")
    return roster, manifest, aggregate

def fetch_placement(frontend, manifest):
    placement = b""
    while len(placement) < manifest.hashed.buckets:
        placement += frontend.call(17, "GetPlacement", manifest_digest=manifest_digest(manifest),
                                   offset=len(placement), max_bytes=1 << 20).data
    digest = transcript("shoal placement v1", placement)
    require(manifest.hashed.placement_digest == digest, "another placement")
    return placement

def pick_round(frontend, roster, manifest, aggregate, count, term):
    require(not term or roster.term_limit.refreshes, "no round of this deployment has a term")
    begun = time.time()
    while time.time() < begun + (25 * 3600 if term else 600):
        for info in frontend.call(18, "ListRounds").rounds:
            h, now = info.header.header, time.time()
            suits = h.max_refreshes > 0 if term else h.max_refreshes == 0 or now >= begun + OUT_OF_TERMS_S
            if (info.state == OPEN_FOR_ONIONS and suits and info.onions + count <= h.max_slots
                    and h.manifest_digest == manifest_digest(manifest) and now + 3 < h.onions_close_s):
                require(h.roster_digest == roster_digest(roster), "a round of another roster")
                require(h.answer_bytes == manifest.row_bytes + 48 and h.max_rows == manifest.rows
                        and h.noise == roster.noise and h.onion_suite == roster.onion_suite and not h.query_buckets,
                        "a round of other rows, or with other noise or onions")
                require(len(set(h.onion_keys)) == len(roster.parties), "onion keys")
                require(h.announced_s - roster.clock_tolerance_s <= now, "a round of the future")
                limit = roster.term_limit
                require(h.max_refreshes == 0 or (h.max_refreshes <= limit.refreshes and h.expires_s <= h.term_expires_s
                                                 <= h.announced_s + 86400 * limit.days), "a term beyond the limit")
                verify("round", aggregate, round_id_of(h), info.header.signature)
                return h, round_id_of(h)
        time.sleep(0.25)
    raise SystemExit("client: no round takes the queries")

def wait_for(frontend, round_id, state):
    reached = 0
    while reached < state:
        reached = frontend.call(19, "WaitRound", round_id=round_id, state=state, timeout_ms=20000).round.state
    require(reached == state, f"the round is in state {reached} already")

def verify_rows(manifest, aggregate, versions, rows, answers, wanted):
    """The bytes of the wanted rows from answers without masks."""
    verified = {}
    for row, answer in zip(rows, answers):
        if row in wanted:
            require(answer is not None, "an answer was altered on its way")
            message = transcript("shoal row v2", manifest.table_id, row, *versions[row], answer[:-48])
            verify(f"row {row}", aggregate, message, answer[-48:])
            verified[row] = answer[:-48]
    return verified

def look_up(frontend, pins, keys, pad, term=None):
    """The keys' values. With a dictionary `term`, in a round with a term, of which it then holds what a
    refresh takes (watch.py)."""
    deployment = frontend.call(16, "GetDeployment")
    roster, manifest, aggregate = verify_deployment(deployment, pins, frontend.certificate)
    placement = fetch_placement(frontend, manifest)
    versions = row_versions.fetch(frontend, manifest, manifest_digest(manifest), transcript)
    wanted = {row_of(manifest, placement, key) for key in keys}
    count, rows = min(-(-len(wanted) // pad) * pad, manifest.rows), set(wanted)
    while len(rows) < count:  # distinct random others
        rows.add(secrets.randbelow(manifest.rows))
    rows = sorted(rows, key=lambda row: secrets.randbits(64))

    header, round_id = pick_round(frontend, roster, manifest, aggregate, count, term is not None)
    submission, seeds = build_submission(header, round_id, count)
    slots = frontend.call(20, "SubmitOnions", round_id=round_id, submissions=[submission]).first_slots
    require(len(slots) == 1 and slots[0] + count <= header.max_slots, "slots that do not exist")
    wait_for(frontend, round_id, OPEN_FOR_QUERIES)
    tallies = [first_tally(s, round_id, row) for s, row in zip(seeds, rows)]
    used = {"round_id": round_id, "slots": struct.pack(f"<{count}I", *range(slots[0], slots[0] + count)),
            "tokens": b"".join(expand(s[0], round_id)[0] for s in seeds)}
    frontend.call(21, "SubmitQueries", tallies=struct.pack(f"<{count}I", *tallies), **used)
    wait_for(frontend, round_id, ANSWERED)
    answers = frontend.call(22, "FetchAnswers", **used).answers
    size = header.answer_bytes + ANSWER_TAG
    require(len(answers) == count * size, "another number of answers")

    # From here on nothing is sent, whatever the answers are.
    if term is not None:
        term.update(header=header, round_id=round_id, slots=used["slots"], rows=rows, wanted=wanted,
                    seeds=seeds, manifest=manifest)
    ids = [round_id] * len(header.onion_keys)
    plain = [unmask(answers[i * size:(i + 1) * size], seeds[i], ids) for i in range(count)]
    verified = verify_rows(manifest, aggregate, versions, rows, plain, wanted)
    return [find(manifest, verified[row_of(manifest, placement, key)], key) for key in keys]

def shown(raw):
    """Bytes of a table as a terminal may get them: it obeys nothing of them, and nothing is unseen."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in raw.decode(errors="backslashreplace"))

def show(keys, values):
    words = {None: "(absent)", UNKNOWN: "(not known until the next term)"}
    for key, value in zip(keys, values):
        print(shown(key), words[value] if value in words else shown(value), sep="\t", flush=True)

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pinned", required=True, help="text-format shoal.wire.PinnedParties")
    parser.add_argument("--pad", type=int, default=16, help="queries come in multiples of this")
    parser.add_argument("frontend", help="host:port")
    parser.add_argument("key", nargs="+")
    arguments = parser.parse_args()
    client_pb2, roster_pb2 = load_messages()
    pins = text_format.Parse(pathlib.Path(arguments.pinned).read_text(), roster_pb2.PinnedParties())
    keys = [key.encode() for key in arguments.key]
    frontend = Frontend(arguments.frontend, client_pb2)
    show(keys, look_up(frontend, pins, keys, arguments.pad))

if __name__ == "__main__":
    main()
