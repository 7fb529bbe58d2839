// BLS signatures over BLS12-381: draft-irtf-cfrg-bls-signature, minimal-signature-size variant,
// proof-of-possession scheme. Signatures are 48 bytes in G1, public keys 96 bytes in G2, both
// compressed as Zcash does. Every type here holds a checked point: on the curve, in the group of
// prime order, not infinity. The curve arithmetic is blst's.
#ifndef SHOAL_SRC_SIGNATURE_BLS_H_
#define SHOAL_SRC_SIGNATURE_BLS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"

namespace shoal::signature {

inline constexpr size_t kSignatureBytes = 48;
inline constexpr size_t kPublicKeyBytes = 96;
inline constexpr size_t kSecretKeyBytes = 32;

// The ciphersuite: hash-to-curve domain of signatures and of proofs of possession.
inline constexpr char kSignatureDomain[] = "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_";
inline constexpr char kPossessionDomain[] = "BLS_POP_BLS12381G1_XMD:SHA-256_SSWU_RO_POP_";

class Signature {
 public:
  using Encoded = std::array<uint8_t, kSignatureBytes>;

  // INVALID_ARGUMENT: wrong length, bad encoding, not in the group, or infinity. About 60 us.
  static absl::StatusOr<Signature> FromBytes(BytesView bytes);

  Encoded bytes() const;

 private:
  friend struct Access;
  Signature() = default;
  std::array<uint64_t, 12> point_;  // blst_p1_affine
};

class PublicKey {
 public:
  using Encoded = std::array<uint8_t, kPublicKeyBytes>;

  // INVALID_ARGUMENT as for Signature. About 100 us.
  static absl::StatusOr<PublicKey> FromBytes(BytesView bytes);

  Encoded bytes() const;
  bool operator==(const PublicKey& other) const { return point_ == other.point_; }

 private:
  friend struct Access;
  PublicKey() = default;
  std::array<uint64_t, 24> point_;  // blst_p2_affine
};

class SecretKey {
 public:
  // From 32 fresh random bytes by the draft's KeyGen.
  static SecretKey Generate(RandomSource& random);

  // 32 bytes big endian, in [1, r); INVALID_ARGUMENT otherwise.
  static absl::StatusOr<SecretKey> FromBytes(BytesView bytes);

  const SecretArray<kSecretKeyBytes>& bytes() const { return bytes_; }
  PublicKey public_key() const;

  // Deterministic; constant time in the key. About 160 us.
  Signature Sign(BytesView message) const;

  // The signature on the public key's bytes, in the domain of possession.
  Signature ProvePossession() const;

 private:
  friend struct Access;
  SecretKey() = default;
  SecretArray<kSecretKeyBytes> bytes_;
};

// A public key whose owner has proved that it knows the secret key. Only such keys are
// aggregated: a "rogue" key, made as a function of the others', has no proof.
class ProvenKey {
 public:
  // INVALID_ARGUMENT for malformed bytes, UNAUTHENTICATED for a proof that does not fit.
  static absl::StatusOr<ProvenKey> FromBytes(BytesView public_key, BytesView proof);

  const PublicKey& key() const { return key_; }

 private:
  explicit ProvenKey(const PublicKey& key) : key_(key) {}
  PublicKey key_;
};

// The key under which an aggregate of all keys' signatures on one message verifies.
// INVALID_ARGUMENT: no keys, or they sum to infinity.
absl::StatusOr<PublicKey> AggregateKeys(std::span<const ProvenKey> keys);

// INVALID_ARGUMENT: no signatures, or they sum to infinity.
absl::StatusOr<Signature> AggregateSignatures(std::span<const Signature> signatures);

// UNAUTHENTICATED if `signature` is not `key`'s on `message`. About 1 ms.
absl::Status Verify(const PublicKey& key, BytesView message, const Signature& signature);

// OK if every signatures[i] is `key`'s on messages[i]; UNAUTHENTICATED if some is not (it does not
// say which). Draws a 128-bit weight for every pair, so a set with a wrong one passes with
// probability below 2^-127. One pairing equation in all and about 100 us a pair, on the threads of
// `pool` and the caller's if there is a pool. The two spans must have equal sizes; empty ones are
// OK.
absl::Status VerifyBatch(const PublicKey& key, std::span<const BytesView> messages,
                         std::span<const Signature> signatures, RandomSource& random,
                         ThreadPool* pool = nullptr);

}  // namespace shoal::signature

#endif  // SHOAL_SRC_SIGNATURE_BLS_H_
