"""Prints known answers of two tiers, written from docs/protocol.md, section 11, with ChaCha20 and Poly1305 of a library:
what src/sharing/testdata/halves.txt holds and //src/sharing:halves_test compares with.

A case is a line "case NAME ROWS BUCKETS ROW_AND_SIGNATURE_BYTES ROW", and then lines "NAME HEX".
"""

import hashlib
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.poly1305 import Poly1305


def transcript(*fields, key=b""):
    state = hashlib.blake2b(digest_size=32, key=key)
    for field in fields:
        if isinstance(field, int):
            state.update(struct.pack("<Q", field))
        else:
            data = field.encode() if isinstance(field, str) else field
            state.update(struct.pack("<Q", len(data)) + data)
    return state.digest()


def stream(key, nonce, block, length):
    cipher = Cipher(algorithms.ChaCha20(key, struct.pack("<I", block) + nonce), mode=None)
    return cipher.encryptor().update(bytes(length))


def xor(a, b):
    assert len(a) == len(b)
    return bytes(x ^ y for x, y in zip(a, b))


class Expansion:
    """What a seed gives in one role of a half."""

    def __init__(self, seed, half_id, pad_bytes, mask_bytes):
        nonce = half_id[:12]
        first, second = stream(seed, nonce, 0, 64), stream(seed, nonce, 1, 64)
        self.token, self.query_key = first[:16], first[32:]
        self.answer_key, self.selection_seed, self.nonce = second[:32], second[32:], nonce
        self.pad = stream(seed, nonce, 2, pad_bytes)
        self.mask = stream(seed, nonce, 2 + -(-pad_bytes // 64), mask_bytes)

    def selection(self, length):
        return stream(self.selection_seed, self.nonce, 0, length)

    def query_tag(self, message):
        return Poly1305.generate_tag(self.query_key, message)

    def answer_tag(self, message):
        return Poly1305.generate_tag(self.answer_key, message)


def table_row(row, length):
    return bytes((row * row + 7 * row * i + i) % 256 for i in range(length))


def show(name, data):
    print(name, data.hex())


def case(name, rows, buckets, answer_bytes, row, seeds):
    places = -(-rows // buckets)
    s = 8 * -(-places // 64)
    round_id = bytes([9]) * 32
    ids = {x: transcript("shoal half v1", round_id, number) for x, number in (("A", 1), ("B", 2))}
    bucket, place = row % buckets, row // buckets
    selected = {"A": s, "B": 0}
    head = {x: Expansion(seeds["head " + x], ids[x], 20 + selected[x], answer_bytes) for x in "AB"}
    tail = {x: Expansion(seeds["tail " + x], ids[x], 4 + selected[x], answer_bytes) for x in "AB"}
    print("case", name, rows, buckets, answer_bytes, row)
    for x in "AB":
        show("id_" + x, ids[x])
        root = transcript("shoal half root v1", {"A": 1, "B": 2}[x], key=bytes([5]) * 32)
        show("root_" + x, root)
        show("seed_head_" + x, seeds["head " + x])
        show("seed_tail_" + x, seeds["tail " + x])
    show("token", head["A"].token)
    k1 = tail["B"].selection(s)
    k2 = xor(k1, (1 << place).to_bytes(s, "little"))
    show("k1", k1)
    show("k2", k2)
    message = {"A": struct.pack("<I", bucket) + k2, "B": struct.pack("<I", bucket)}
    under_head = {}
    for x in "AB":
        u = xor(message[x], tail[x].pad)
        v = u + tail[x].query_tag(u)
        show("v_" + x, v)
        under_head[x] = xor(v, head[x].pad)
    part_b = under_head["B"] + head["B"].query_tag(under_head["B"])
    part_a = under_head["A"] + head["A"].query_tag(under_head["A"] + part_b)
    show("part_A", part_a)
    show("part_B", part_b)
    both = bytes(answer_bytes)
    for x, chosen in (("A", k2), ("B", k1)):
        bits, result = int.from_bytes(chosen, "little"), bytes(answer_bytes)
        for p in range(8 * s):
            if bits >> p & 1 and p * buckets + bucket < rows:
                result = xor(result, table_row(p * buckets + bucket, answer_bytes))
        y = xor(result, tail[x].mask)
        y_tag = tail[x].answer_tag(y)
        z = xor(y, head[x].mask)
        z_tag = head[x].answer_tag(z + y_tag)
        show("x_" + x, result)
        show("tail_" + x, y + y_tag)
        show("head_" + x, z + z_tag)
        both = xor(both, result)
    assert both == table_row(row, answer_bytes)
    show("row", both)


def main():
    roles = ("head A", "tail A", "head B", "tail B")
    case("documented", 20, 2, 80, 7, {
role: bytes([i + 1]) * 32 for i, role in enumerate(roles)})
#A last place whose bit begins another word; the fullest bucket there is, with pads of several
#blocks; a row past the end of its bucket's words; masks that end with a block and just after one.
    for name, rows, buckets, answer_bytes, row in (("word", 130, 2, 58, 129), ("fullest", 2048, 2, 304, 2047),
                                                   ("uneven", 1000, 13, 64, 999), ("short", 129, 65, 65, 64)):
        case(name, rows, buckets, answer_bytes, row, {
role: transcript("seed", name, role) for role in roles})


main()
