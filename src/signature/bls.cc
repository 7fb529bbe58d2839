#include "src/signature/bls.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "absl/strings/str_cat.h"
#include "blst.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"

namespace shoal::signature {

// Keeps blst's types, with their global names, out of the header.
struct Access {
  static_assert(sizeof(blst_p1_affine) == sizeof(Signature::point_));
  static_assert(sizeof(blst_p2_affine) == sizeof(PublicKey::point_));

  static blst_p1_affine Point(const Signature& s) {
    return std::bit_cast<blst_p1_affine>(s.point_);
  }
  static blst_p2_affine Point(const PublicKey& k) {
    return std::bit_cast<blst_p2_affine>(k.point_);
  }
  static Signature Make(const blst_p1_affine& point) {
    Signature signature;
    signature.point_ = std::bit_cast<decltype(signature.point_)>(point);
    return signature;
  }
  static PublicKey Make(const blst_p2_affine& point) {
    PublicKey key;
    key.point_ = std::bit_cast<decltype(key.point_)>(point);
    return key;
  }
};

namespace {

BytesView Domain(const char* text) { return AsBytes(text); }

absl::Status PointError(BLST_ERROR error, absl::string_view what) {
  switch (error) {
    case BLST_BAD_ENCODING:
      return absl::InvalidArgumentError(absl::StrCat(what, ": bad point encoding"));
    case BLST_POINT_NOT_ON_CURVE:
      return absl::InvalidArgumentError(absl::StrCat(what, ": point is not on the curve"));
    default:
      return absl::InvalidArgumentError(absl::StrCat(what, ": bad point"));
  }
}

blst_p1 Hash(BytesView message, BytesView domain) {
  blst_p1 point;
  blst_hash_to_g1(&point, message.data(), message.size(), domain.data(), domain.size());
  return point;
}

// The scalar is wiped after use.
class Scalar {
 public:
  explicit Scalar(const SecretArray<kSecretKeyBytes>& bytes) {
    blst_scalar_from_bendian(&value_, bytes.data());
  }
  ~Scalar() { sodium_memzero(&value_, sizeof value_); }
  Scalar(const Scalar&) = delete;
  Scalar& operator=(const Scalar&) = delete;
  const blst_scalar* get() const { return &value_; }

 private:
  blst_scalar value_;
};

Signature SignIn(BytesView domain, BytesView message, const SecretArray<kSecretKeyBytes>& key) {
  const Scalar scalar(key);
  const blst_p1 hash = Hash(message, domain);
  blst_p1 product;
  blst_sign_pk_in_g2(&product, &hash, scalar.get());
  blst_p1_affine affine;
  blst_p1_to_affine(&affine, &product);
  return Access::Make(affine);
}

absl::Status VerifyIn(BytesView domain, const PublicKey& key, BytesView message,
                      const Signature& signature) {
  const blst_p2_affine key_point = Access::Point(key);
  const blst_p1_affine signature_point = Access::Point(signature);
  const BLST_ERROR error =
      blst_core_verify_pk_in_g2(&key_point, &signature_point, /*hash_or_encode=*/true,
                                message.data(), message.size(), domain.data(), domain.size());
  if (error != BLST_SUCCESS) return absl::UnauthenticatedError("signature does not match");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Signature> Signature::FromBytes(BytesView bytes) {
  if (bytes.size() != kSignatureBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("signature: has ", bytes.size(), " bytes instead of ", kSignatureBytes));
  }
  blst_p1_affine point;
  if (const BLST_ERROR error = blst_p1_uncompress(&point, bytes.data()); error != BLST_SUCCESS) {
    return PointError(error, "signature");
  }
  if (blst_p1_affine_is_inf(&point)) {
    return absl::InvalidArgumentError("signature: point at infinity");
  }
  if (!blst_p1_affine_in_g1(&point)) {
    return absl::InvalidArgumentError("signature: point is not in the subgroup");
  }
  return Access::Make(point);
}

Signature::Encoded Signature::bytes() const {
  const blst_p1_affine point = Access::Point(*this);
  Encoded encoded;
  blst_p1_affine_compress(encoded.data(), &point);
  return encoded;
}

absl::StatusOr<PublicKey> PublicKey::FromBytes(BytesView bytes) {
  if (bytes.size() != kPublicKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("public key: has ", bytes.size(), " bytes instead of ", kPublicKeyBytes));
  }
  blst_p2_affine point;
  if (const BLST_ERROR error = blst_p2_uncompress(&point, bytes.data()); error != BLST_SUCCESS) {
    return PointError(error, "public key");
  }
  if (blst_p2_affine_is_inf(&point)) {
    return absl::InvalidArgumentError("public key: point at infinity");
  }
  if (!blst_p2_affine_in_g2(&point)) {
    return absl::InvalidArgumentError("public key: point is not in the subgroup");
  }
  return Access::Make(point);
}

PublicKey::Encoded PublicKey::bytes() const {
  const blst_p2_affine point = Access::Point(*this);
  Encoded encoded;
  blst_p2_affine_compress(encoded.data(), &point);
  return encoded;
}

SecretKey SecretKey::Generate(RandomSource& random) {
  const Seed material = random.NewSeed();
  blst_scalar scalar;
  blst_keygen(&scalar, material.data(), material.size());
  SecretKey key;
  blst_bendian_from_scalar(key.bytes_.data(), &scalar);
  sodium_memzero(&scalar, sizeof scalar);
  return key;
}

absl::StatusOr<SecretKey> SecretKey::FromBytes(BytesView bytes) {
  if (bytes.size() != kSecretKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("secret key: has ", bytes.size(), " bytes instead of ", kSecretKeyBytes));
  }
  SecretKey key;
  key.bytes_ = SecretArray<kSecretKeyBytes>(bytes);
  const Scalar scalar(key.bytes_);
  if (!blst_sk_check(scalar.get())) {
    return absl::InvalidArgumentError("secret key: not in [1, r)");
  }
  return key;
}

PublicKey SecretKey::public_key() const {
  const Scalar scalar(bytes_);
  blst_p2 point;
  blst_sk_to_pk_in_g2(&point, scalar.get());
  blst_p2_affine affine;
  blst_p2_to_affine(&affine, &point);
  return Access::Make(affine);
}

Signature SecretKey::Sign(BytesView message) const {
  return SignIn(Domain(kSignatureDomain), message, bytes_);
}

Signature SecretKey::ProvePossession() const {
  return SignIn(Domain(kPossessionDomain), public_key().bytes(), bytes_);
}

absl::StatusOr<ProvenKey> ProvenKey::FromBytes(BytesView public_key, BytesView proof) {
  SHOAL_ASSIGN_OR_RETURN(const PublicKey key, PublicKey::FromBytes(public_key));
  const absl::StatusOr<Signature> signature = Signature::FromBytes(proof);
  if (!signature.ok()) return Annotate(signature.status(), "proof of possession");
  if (!VerifyIn(Domain(kPossessionDomain), key, public_key, *signature).ok()) {
    return absl::UnauthenticatedError("the proof of possession does not fit the public key");
  }
  return ProvenKey(key);
}

absl::StatusOr<PublicKey> AggregateKeys(std::span<const ProvenKey> keys) {
  if (keys.empty()) return absl::InvalidArgumentError("no public keys to aggregate");
  const blst_p2_affine first = Access::Point(keys[0].key());
  blst_p2 sum;
  blst_p2_from_affine(&sum, &first);
  for (const ProvenKey& key : keys.subspan(1)) {
    const blst_p2_affine point = Access::Point(key.key());
    blst_p2_add_or_double_affine(&sum, &sum, &point);
  }
  if (blst_p2_is_inf(&sum)) return absl::InvalidArgumentError("the public keys sum to infinity");
  blst_p2_affine affine;
  blst_p2_to_affine(&affine, &sum);
  return Access::Make(affine);
}

absl::StatusOr<Signature> AggregateSignatures(std::span<const Signature> signatures) {
  if (signatures.empty()) return absl::InvalidArgumentError("no signatures to aggregate");
  const blst_p1_affine first = Access::Point(signatures[0]);
  blst_p1 sum;
  blst_p1_from_affine(&sum, &first);
  for (const Signature& signature : signatures.subspan(1)) {
    const blst_p1_affine point = Access::Point(signature);
    blst_p1_add_or_double_affine(&sum, &sum, &point);
  }
  if (blst_p1_is_inf(&sum)) return absl::InvalidArgumentError("the signatures sum to infinity");
  blst_p1_affine affine;
  blst_p1_to_affine(&affine, &sum);
  return Access::Make(affine);
}

absl::Status Verify(const PublicKey& key, BytesView message, const Signature& signature) {
  return VerifyIn(Domain(kSignatureDomain), key, message, signature);
}

// With weights w_i: e(sum w_i H(m_i), key) = e(sum w_i s_i, g2). All points are in the groups of
// prime order, which the types guarantee, so a wrong pair survives only for one weight in 2^128.
absl::Status VerifyBatch(const PublicKey& key, std::span<const BytesView> messages,
                         std::span<const Signature> signatures, RandomSource& random,
                         ThreadPool* pool) {
  SHOAL_CHECK(messages.size() == signatures.size());
  const size_t n = messages.size();
  if (n == 0) return absl::OkStatus();
  if (n == 1) return Verify(key, messages[0], signatures[0]);

  constexpr size_t kWeightBytes = 16;
  Bytes weights(n * kWeightBytes);
  random.Fill(weights);

  // Big chunks: Pippenger's cost a point falls with their size.
  struct {
    Mutex mutex;
    blst_p1 hashes ABSL_GUARDED_BY(mutex) = {};  // z = 0: infinity
    blst_p1 signatures ABSL_GUARDED_BY(mutex) = {};
  } sums;
  const auto add_chunk = [&](size_t begin, size_t end) {
    const size_t m = end - begin;
    std::vector<blst_p1> hashes(m);
    for (size_t i = 0; i < m; ++i) {
      hashes[i] = Hash(messages[begin + i], Domain(kSignatureDomain));
    }
    std::vector<blst_p1_affine> points(m);
    // blst takes arrays of pointers, and a null pointer for "contiguous after the one before".
    const blst_p1* const hash_array[2] = {hashes.data(), nullptr};
    blst_p1s_to_affine(points.data(), hash_array, m);
    std::vector<limb_t> scratch(blst_p1s_mult_pippenger_scratch_sizeof(m) / sizeof(limb_t));
    const byte* const scalar_array[2] = {weights.data() + begin * kWeightBytes, nullptr};
    const blst_p1_affine* const point_array[2] = {points.data(), nullptr};
    blst_p1 chunk_hash_sum, chunk_signature_sum;
    blst_p1s_mult_pippenger(&chunk_hash_sum, point_array, m, scalar_array, 8 * kWeightBytes,
                            scratch.data());
    for (size_t i = 0; i < m; ++i) points[i] = Access::Point(signatures[begin + i]);
    blst_p1s_mult_pippenger(&chunk_signature_sum, point_array, m, scalar_array, 8 * kWeightBytes,
                            scratch.data());
    const MutexLock lock(sums.mutex);
    blst_p1_add_or_double(&sums.hashes, &sums.hashes, &chunk_hash_sum);
    blst_p1_add_or_double(&sums.signatures, &sums.signatures, &chunk_signature_sum);
  };
  const size_t threads = ThreadsOf(pool);
  ParallelFor(pool, n, std::max<size_t>(64, (n + threads - 1) / threads), add_chunk);

  blst_p1_affine hash_affine, signature_affine;
  {
    const MutexLock lock(sums.mutex);
    blst_p1_to_affine(&hash_affine, &sums.hashes);
    blst_p1_to_affine(&signature_affine, &sums.signatures);
  }
  const blst_p2_affine key_point = Access::Point(key);
  blst_fp12 left, right;
  // Infinity on either side is refused, as it must not be paired. Right signatures give it with
  // probability 2^-128.
  if (blst_p1_affine_is_inf(&hash_affine) || blst_p1_affine_is_inf(&signature_affine)) {
    return absl::UnauthenticatedError("a signature does not match");
  }
  blst_miller_loop(&left, &key_point, &hash_affine);
  blst_miller_loop(&right, &BLS12_381_G2, &signature_affine);
  if (!blst_fp12_finalverify(&left, &right)) {
    return absl::UnauthenticatedError("a signature does not match");
  }
  return absl::OkStatus();
}

}  // namespace shoal::signature
