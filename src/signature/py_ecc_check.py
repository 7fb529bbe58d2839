"""Checks the output of bls_vectors with py_ecc, a BLS12-381 library of other authors.

py_ecc has the ciphersuites with public keys in G1 alone, so this is put together from its parts:
hash-to-curve, point compression, scalar multiplication and the pairing.
"""
import hashlib
import sys

from py_ecc.bls import G2ProofOfPossession
from py_ecc.bls.hash_to_curve import hash_to_G1
from py_ecc.bls.point_compression import (
    compress_G1,
    compress_G2,
    decompress_G1,
    decompress_G2,
)
from py_ecc.optimized_bls12_381 import FQ12, G2, add, final_exponentiate, multiply, neg, pairing

SIGNATURE_DOMAIN = b"BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_"
POSSESSION_DOMAIN = b"BLS_POP_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_"


def g1_bytes(point):
    return compress_G1(point).to_bytes(48, "big")


def g2_bytes(point):
    high, low = compress_G2(point)
    return high.to_bytes(48, "big") + low.to_bytes(48, "big")


def g1_point(data):
    return decompress_G1(int.from_bytes(data, "big"))


def g2_point(data):
    return decompress_G2((int.from_bytes(data[:48], "big"), int.from_bytes(data[48:], "big")))


def sign(secret, message, domain):
    return g1_bytes(multiply(hash_to_G1(message, domain, hashlib.sha256), secret))


def verify(public_key, message, signature):
    """The pairing equation e(H(m), pk) * e(-signature, g2) = 1."""
    hashed = hash_to_G1(message, SIGNATURE_DOMAIN, hashlib.sha256)
    product = pairing(public_key, hashed, final_exponentiate=False) * pairing(
        G2, neg(signature), final_exponentiate=False
    )
    return final_exponentiate(product) == FQ12.one()


def main():
    lines = [line.split() for line in sys.stdin]
    assert len(lines) == 5, lines
    key_sum, signature_sum = None, None
    for material, secret, public_key, proof, message, signature in lines[:-1]:
        message = b"" if message == "-" else bytes.fromhex(message)
        secret = int(secret, 16)
        assert secret == G2ProofOfPossession.KeyGen(bytes.fromhex(material)), "KeyGen"
        point = multiply(G2, secret)
        assert bytes.fromhex(public_key) == g2_bytes(point), "public key"
        assert bytes.fromhex(signature) == sign(secret, message, SIGNATURE_DOMAIN), "signature"
        assert bytes.fromhex(proof) == sign(secret, g2_bytes(point), POSSESSION_DOMAIN), "proof"
        share = g1_point(sign(secret, b"all", SIGNATURE_DOMAIN))
        key_sum = point if key_sum is None else add(key_sum, point)
        signature_sum = share if signature_sum is None else add(signature_sum, share)
    word, public_key, signature = lines[-1]
    assert word == "aggregate"
    assert bytes.fromhex(public_key) == g2_bytes(key_sum), "aggregated key"
    assert bytes.fromhex(signature) == g1_bytes(signature_sum), "aggregated signature"
    public_key, signature = g2_point(bytes.fromhex(public_key)), g1_point(bytes.fromhex(signature))
    assert verify(public_key, b"all", signature), "pairing"
    assert not verify(public_key, b"al", signature), "pairing accepts another message"
    print("py_ecc agrees on 4 keys and their aggregate")


main()
