// Computes what three parties and their clients compute of the same bytes once: whether a signature
// is right (one that was just made is), the points that signatures stand for, and the multiples of
// onion keys. That is most of a simulation's time: the same list of live rounds is verified at
// every party, each second, and the same header by everybody. A program that links this file calls
// it in place of the real functions (--wrap in BUILD), and gets their results, kept by all that
// they depend on.
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/statusor.h"
#include "blst.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/onion/hpke.h"
#include "src/signature/bls.h"

#define SHOAL_SIM_VERIFY_PARAMETERS                                                              \
  const blst_p2_affine *key, const blst_p1_affine *signature, bool hash, const uint8_t *message, \
      size_t message_bytes, const uint8_t *domain, size_t domain_bytes,                          \
      const uint8_t *augmentation, size_t augmentation_bytes

namespace {

// Results of verifications, by what KeyOf returns.
std::unordered_map<std::string, BLST_ERROR>& Verified() {
  static auto* const results = new std::unordered_map<std::string, BLST_ERROR>();
  return *results;
}

std::string KeyOf(const void* key, const void* signature, const uint8_t* message,
                  size_t message_bytes, const uint8_t* domain, size_t domain_bytes) {
  std::string all;
  all.append(static_cast<const char*>(key), sizeof(blst_p2_affine));
  all.append(static_cast<const char*>(signature), sizeof(blst_p1_affine));
  all.append(reinterpret_cast<const char*>(&domain_bytes), sizeof domain_bytes);
  all.append(reinterpret_cast<const char*>(domain), domain_bytes);
  all.append(reinterpret_cast<const char*>(message), message_bytes);
  return all;
}

}  // namespace

extern "C" {

BLST_ERROR __real_blst_core_verify_pk_in_g2(SHOAL_SIM_VERIFY_PARAMETERS);

BLST_ERROR __wrap_blst_core_verify_pk_in_g2(SHOAL_SIM_VERIFY_PARAMETERS) {
  const auto [found, is_new] = Verified().try_emplace(
      KeyOf(key, signature, message, message_bytes, domain, domain_bytes), BLST_SUCCESS);
  if (is_new) {
    SHOAL_CHECK(hash && augmentation_bytes == 0);
    found->second =
        __real_blst_core_verify_pk_in_g2(key, signature, hash, message, message_bytes, domain,
                                         domain_bytes, augmentation, augmentation_bytes);
  }
  return found->second;
}

}  // extern "C"

namespace shoal::signature {

static_assert(sizeof(PublicKey) == sizeof(blst_p2_affine));
static_assert(sizeof(Signature) == sizeof(blst_p1_affine));

// SecretKey::Sign and Signature::FromBytes, as the linker names them.
Signature RealSign(const SecretKey* key, BytesView message) asm(
    "__real__ZNK5shoal9signature9SecretKey4SignESt4spanIKhLm18446744073709551615EE");
Signature MemoizedSign(const SecretKey* key, BytesView message) asm(
    "__wrap__ZNK5shoal9signature9SecretKey4SignESt4spanIKhLm18446744073709551615EE");
absl::StatusOr<Signature> RealFromBytes(BytesView bytes) asm(
    "__real__ZN5shoal9signature9Signature9FromBytesESt4spanIKhLm18446744073709551615EE");
absl::StatusOr<Signature> MemoizedFromBytes(BytesView bytes) asm(
    "__wrap__ZN5shoal9signature9Signature9FromBytesESt4spanIKhLm18446744073709551615EE");

Signature MemoizedSign(const SecretKey* key, BytesView message) {
  static auto* const public_keys = new std::map<std::string, PublicKey>();
  const std::string secret = ToString(key->bytes().view());
  auto found = public_keys->find(secret);
  if (found == public_keys->end()) found = public_keys->emplace(secret, key->public_key()).first;
  const Signature made = RealSign(key, message);
  const BytesView domain = AsBytes(kSignatureDomain);
  Verified().emplace(
      KeyOf(&found->second, &made, message.data(), message.size(), domain.data(), domain.size()),
      BLST_SUCCESS);
  return made;
}

absl::StatusOr<Signature> MemoizedFromBytes(BytesView bytes) {
  static auto* const results = new std::map<std::string, absl::StatusOr<Signature>>();
  const std::string known = ToString(bytes);
  const auto found = results->find(known);
  if (found != results->end()) return found->second;
  return results->emplace(known, RealFromBytes(bytes)).first->second;
}

}  // namespace shoal::signature

namespace shoal::onion {

// Recipient::Create, as the linker names it.
absl::StatusOr<Recipient> RealCreate(const PublicKey& public_key) asm(
    "__real__ZN5shoal5onion9Recipient6CreateERKSt5arrayIhLm32EE");
absl::StatusOr<Recipient> MemoizedCreate(const PublicKey& public_key) asm(
    "__wrap__ZN5shoal5onion9Recipient6CreateERKSt5arrayIhLm32EE");

absl::StatusOr<Recipient> MemoizedCreate(const PublicKey& public_key) {
  static auto* const results = new std::map<PublicKey, absl::StatusOr<Recipient>>();
  const auto found = results->find(public_key);
  if (found != results->end()) return found->second;
  return results->emplace(public_key, RealCreate(public_key)).first->second;
}

}  // namespace shoal::onion
