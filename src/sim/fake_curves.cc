// Stands in for the two kinds of elliptic curves, which would take three quarters of a simulation's
// time: BLS12-381 (all of src/signature/bls.h) and X25519 (libsodium's functions, which onions use
// on the portable path). The groups of the stand-ins are those of numbers modulo a prime under
// addition. So everything that the protocol relies on adds up as it does on the curves: sums of
// signatures verify under sums of keys, two parties agree on a point, equal inputs give equal
// outputs, an altered byte is noticed, a point of zeros has a low order. What does not hold is that
// secrets are secret: an adversary could divide. None of src/sim does. The curves have tests of
// their own (src/signature, src/onion).
//
// A program that links this file has these functions in place of src/signature/bls.cc, which the
// linker then leaves out, and of libsodium's.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/signature/bls.h"

namespace {

// A Mersenne prime.
constexpr uint64_t kPrime = (uint64_t{1} << 61) - 1;

uint64_t Reduce(uint64_t a) {
  a = (a & kPrime) + (a >> 61);
  return a >= kPrime ? a - kPrime : a;
}

uint64_t Product(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return Reduce((static_cast<uint64_t>(product) & kPrime) + static_cast<uint64_t>(product >> 61));
}

uint64_t Sum(uint64_t a, uint64_t b) { return Reduce(a + b); }

}  // namespace

namespace shoal::signature {

// A point is its number, in the first word.
struct Access {
  static uint64_t Number(const Signature& signature) { return signature.point_[0]; }
  static uint64_t Number(const PublicKey& key) { return key.point_[0]; }
  static uint64_t Number(const SecretKey& key) {
    return Reduce(LoadLe<uint64_t>(key.bytes_.data()));
  }
  static Signature MakeSignature(uint64_t number) {
    Signature signature;
    signature.point_ = {number};
    return signature;
  }
  static PublicKey MakeKey(uint64_t number) {
    PublicKey key;
    key.point_ = {number};
    return key;
  }
};

namespace {

uint64_t HashOf(const char* domain, BytesView message) {
  const Digest digest = Transcript(domain).Blob(message).Finish();
  return 1 + LoadLe<uint64_t>(digest.data()) % (kPrime - 1);
}

Signature SignIn(const char* domain, BytesView message, const SecretKey& key) {
  return Access::MakeSignature(Product(Access::Number(key), HashOf(domain, message)));
}

bool Fits(const char* domain, const PublicKey& key, BytesView message, const Signature& signature) {
  return Product(Access::Number(key), HashOf(domain, message)) == Access::Number(signature);
}

template <typename Encoded>
Encoded Encode(uint64_t number) {
  Encoded encoded = {};
  StoreLe<uint64_t>(encoded.data(), number);
  return encoded;
}

absl::StatusOr<uint64_t> Decode(BytesView bytes, size_t length, absl::string_view what) {
  if (bytes.size() != length) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": has ", bytes.size(), " bytes"));
  }
  const uint64_t number = LoadLe<uint64_t>(bytes.data());
  const BytesView rest = bytes.subspan(sizeof number);
  if (number == 0 || number >= kPrime ||
      std::ranges::any_of(rest, [](uint8_t byte) { return byte != 0; })) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": bad point"));
  }
  return number;
}

}  // namespace

absl::StatusOr<Signature> Signature::FromBytes(BytesView bytes) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t number, Decode(bytes, kSignatureBytes, "signature"));
  return Access::MakeSignature(number);
}

Signature::Encoded Signature::bytes() const { return Encode<Encoded>(Access::Number(*this)); }

absl::StatusOr<PublicKey> PublicKey::FromBytes(BytesView bytes) {
  SHOAL_ASSIGN_OR_RETURN(const uint64_t number, Decode(bytes, kPublicKeyBytes, "public key"));
  return Access::MakeKey(number);
}

PublicKey::Encoded PublicKey::bytes() const { return Encode<Encoded>(Access::Number(*this)); }

SecretKey SecretKey::Generate(RandomSource& random) {
  const Seed material = random.NewSeed();
  SecretKey key;
  std::copy_n(material.data(), kSecretKeyBytes, key.bytes_.data());
  SHOAL_CHECK(Access::Number(key) != 0);
  return key;
}

absl::StatusOr<SecretKey> SecretKey::FromBytes(BytesView bytes) {
  SecretKey key;
  if (bytes.size() != kSecretKeyBytes)
    return absl::InvalidArgumentError("secret key: wrong length");
  key.bytes_ = SecretArray<kSecretKeyBytes>(bytes);
  if (Access::Number(key) == 0) return absl::InvalidArgumentError("secret key: zero");
  return key;
}

PublicKey SecretKey::public_key() const { return Access::MakeKey(Access::Number(*this)); }

Signature SecretKey::Sign(BytesView message) const {
  return SignIn(kSignatureDomain, message, *this);
}

Signature SecretKey::ProvePossession() const {
  return SignIn(kPossessionDomain, public_key().bytes(), *this);
}

absl::StatusOr<ProvenKey> ProvenKey::FromBytes(BytesView public_key, BytesView proof) {
  SHOAL_ASSIGN_OR_RETURN(const PublicKey key, PublicKey::FromBytes(public_key));
  SHOAL_ASSIGN_OR_RETURN(const Signature signature, Signature::FromBytes(proof));
  if (!Fits(kPossessionDomain, key, public_key, signature)) {
    return absl::UnauthenticatedError("the proof of possession does not fit the public key");
  }
  return ProvenKey(key);
}

absl::StatusOr<PublicKey> AggregateKeys(std::span<const ProvenKey> keys) {
  uint64_t sum = 0;
  for (const ProvenKey& key : keys) sum = Sum(sum, Access::Number(key.key()));
  if (sum == 0) return absl::InvalidArgumentError("no public keys, or they sum to zero");
  return Access::MakeKey(sum);
}

absl::StatusOr<Signature> AggregateSignatures(std::span<const Signature> signatures) {
  uint64_t sum = 0;
  for (const Signature& signature : signatures) sum = Sum(sum, Access::Number(signature));
  if (sum == 0) return absl::InvalidArgumentError("no signatures, or they sum to zero");
  return Access::MakeSignature(sum);
}

absl::Status Verify(const PublicKey& key, BytesView message, const Signature& signature) {
  if (Fits(kSignatureDomain, key, message, signature)) return absl::OkStatus();
  return absl::UnauthenticatedError("signature does not match");
}

absl::Status VerifyBatch(const PublicKey& key, std::span<const BytesView> messages,
                         std::span<const Signature> signatures, RandomSource&, ThreadPool*) {
  SHOAL_CHECK(messages.size() == signatures.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    SHOAL_RETURN_IF_ERROR(Verify(key, messages[i], signatures[i]));
  }
  return absl::OkStatus();
}

}  // namespace shoal::signature

extern "C" {

// Word by word, as four numbers. -1 where all are zeros, as of a point of low order.
int crypto_scalarmult(unsigned char* product, const unsigned char* scalar,
                      const unsigned char* point) {
  uint64_t all = 0;
  for (size_t at = 0; at < 32; at += 8) {
    const uint64_t factor = Reduce(shoal::LoadLe<uint64_t>(scalar + at));
    const uint64_t word =
        Product(factor == 0 ? 1 : factor, Reduce(shoal::LoadLe<uint64_t>(point + at)));
    shoal::StoreLe<uint64_t>(product + at, word);
    all |= word;
  }
  return all == 0 ? -1 : 0;
}

int crypto_scalarmult_base(unsigned char* product, const unsigned char* scalar) {
  constexpr unsigned char kBase[32] = {9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
                                       9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0};
  return crypto_scalarmult(product, scalar, kBase);
}

// What calls leave on the stack is not looked for here, and clearing it takes longer than the
// calls.
void sodium_stackzero(const size_t) {}

}  // extern "C"
