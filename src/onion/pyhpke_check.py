"""Opens what pyhpke_peer seals, and seals for it to open, with pyhpke, an HPKE of other authors.

The format is put together here once more from docs/sealed-boxes.md: submissions, onions, and the
seeds that are exported from each layer.
"""
import os
import subprocess
import sys

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey
from pyhpke.exceptions import OpenError

PARTIES = 3
ENC = 32
INNER = 32  # what party 2 finds in its layer
ONION = ENC + INNER + 16

KEM, KDF = KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256
SEALING = CipherSuite.new(KEM, KDF, AEADId.CHACHA20_POLY1305)
EXPORT_ONLY = CipherSuite.new(KEM, KDF, AEADId.EXPORT_ONLY)


def info(round_id, party):
    return b"shoal onion v2" + round_id + bytes([party])


def slot(i):
    return b"slot" + i.to_bytes(4, "little")


def private_key(secret):
    return KEMKey.from_pyca_cryptography_key(X25519PrivateKey.from_private_bytes(secret))


def public_key(secret):
    public = X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
    return KEMKey.from_pyca_cryptography_key(X25519PublicKey.from_public_bytes(public))


def receive(suite, secret, round_id, party, enc):
    return suite.create_recipient_context(enc, private_key(secret), info(round_id, party))


def open_submission(round_id, secrets, submission):
    """The seeds of the three parties."""
    piece = receive(SEALING, secrets[0], round_id, 1, submission[:ENC])
    onions = piece.open(submission[ENC:])
    seeds = [b"", b"", b""]
    for i in range(len(onions) // ONION):
        onion = onions[i * ONION : (i + 1) * ONION]
        middle = receive(SEALING, secrets[1], round_id, 2, onion[:ENC])
        inner = middle.open(onion[ENC:])
        assert len(inner) == INNER
        last = receive(EXPORT_ONLY, secrets[2], round_id, 3, inner)
        seeds[0] += piece.export(slot(i), 32)
        seeds[1] += middle.export(b"seed", 32)
        seeds[2] += last.export(b"seed", 32)
    return seeds


def seal_submission(round_id, secrets, count):
    """A submission and the seeds of the three parties."""

    def send(suite, party):
        return suite.create_sender_context(public_key(secrets[party - 1]), info(round_id, party))

    seeds = [b"", b"", b""]
    onions = b""
    enc, piece = send(SEALING, 1)
    for i in range(count):
        inner, last = send(EXPORT_ONLY, 3)
        middle_enc, middle = send(SEALING, 2)
        onions += middle_enc + middle.seal(inner)
        seeds[0] += piece.export(slot(i), 32)
        seeds[1] += middle.export(b"seed", 32)
        seeds[2] += last.export(b"seed", 32)
    return enc + piece.seal(onions), seeds


def check_ours(peer):
    lines = subprocess.run([peer, "seal"], check=True, capture_output=True, text=True).stdout
    sealed = [[bytes.fromhex(word) for word in line.split()] for line in lines.splitlines()]
    assert sealed, "nothing was sealed"
    for round_id, *words in sealed:
        secrets, submission, seeds = words[:PARTIES], words[PARTIES], words[PARTIES + 1 :]
        assert open_submission(round_id, secrets, submission) == seeds, "seeds"
        try:
            open_submission(bytes(32), secrets, submission)
            raise AssertionError("opens in another round")
        except OpenError:
            pass
    return len(sealed)


def check_theirs(peer, sets):
    requests, expected = [], []
    for count in (1, 2, 8, 17):
        round_id = os.urandom(32)
        secrets = [os.urandom(32) for _ in range(PARTIES)]
        submission, seeds = seal_submission(round_id, secrets, count)
        spoiled = submission[:-1] + bytes([submission[-1] ^ 1])
        for sent, answer in ((submission, seeds), (spoiled, None)):
            requests.append(" ".join(part.hex() for part in [round_id, *secrets, sent]))
            answer = ["refused"] if answer is None else [part.hex() for part in answer]
            expected += [answer] * sets
    lines = subprocess.run(
        [peer, "open"], check=True, capture_output=True, text=True, input="\n".join(requests) + "\n"
    ).stdout
    assert [line.split() for line in lines.splitlines()] == expected, "opened"
    return len(requests)


sets = check_ours(sys.argv[1])
theirs = check_theirs(sys.argv[1], sets)
print(f"pyhpke agrees: {sets} submissions of ours, {theirs} of its own, {sets} instruction sets")
