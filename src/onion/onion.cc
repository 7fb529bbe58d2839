#include "src/onion/onion.h"

#include <algorithm>
#include <cstring>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/secret.h"

namespace shoal::onion {
namespace {

// Onions that are peeled at a time: a full batch for the kernels, with a scratch that fits the
// cache.
constexpr size_t kPeelBatch = 128;

}  // namespace

void BuildOnions(const Digest& round_id, std::span<const Recipient> recipients, BytesView seeds,
                 BytesView ephemeral_secrets, MutableBytes onions) {
  const size_t layers = recipients.size();
  if (layers == 0) return;
  const size_t bytes = OnionBytes(layers);
  const size_t n = onions.size() / bytes;
  SHOAL_CHECK(onions.size() == n * bytes);
  SHOAL_CHECK(seeds.size() == n * layers * kSeedBytes);
  SHOAL_CHECK(ephemeral_secrets.size() == n * layers * 32);

  // Layer l of an onion is its tail from kLayerBytes * l on: each layer is sealed in place
  // around the one before.
  for (size_t l = layers; l-- > 0;) {
    uint8_t* const box = onions.data() + kLayerBytes * l;
    for (size_t i = 0; i < n; ++i) {
      uint8_t* message = box + i * bytes + kSealBytes;
      std::memcpy(message, round_id.data(), round_id.size());
      std::memcpy(message + round_id.size(), seeds.data() + (i * layers + l) * kSeedBytes,
                  kSeedBytes);
    }
    const size_t box_bytes = bytes - kLayerBytes * l;
    SealBatch(recipients[l], {ephemeral_secrets.data() + l * 32, layers * 32, 32},
              {box + kSealBytes, bytes, box_bytes - kSealBytes}, {box, bytes, box_bytes}, n);
  }
}

void PeelOnions(const KeyPair& key, const Digest& round_id, size_t layers, BytesView onions,
                MutableBytes seeds, MutableBytes inner, std::span<uint8_t> valid) {
  SHOAL_CHECK(layers > 0);
  const size_t n = valid.size();
  const size_t bytes = OnionBytes(layers);
  const size_t inner_bytes = OnionBytes(layers - 1);
  SHOAL_CHECK(onions.size() == n * bytes);
  SHOAL_CHECK(seeds.size() == n * kSeedBytes);
  SHOAL_CHECK(inner.size() == n * inner_bytes);

  const size_t message_bytes = bytes - kSealBytes;
  SecretVector<uint8_t> messages(std::min(n, kPeelBatch) * message_bytes);
  for (size_t begin = 0; begin < n; begin += kPeelBatch) {
    const size_t count = std::min(n - begin, kPeelBatch);
    OpenBatch(key, {onions.data() + begin * bytes, bytes, bytes},
              {messages.data(), message_bytes, message_bytes}, valid.subspan(begin, count));
    for (size_t i = 0; i < count; ++i) {
      uint8_t* message = messages.data() + i * message_bytes;
      uint8_t& is_valid = valid[begin + i];
      is_valid &= sodium_memcmp(message, round_id.data(), round_id.size()) == 0;
      // A box for another round is as dead as one that did not open: its content is not passed on.
      if (!is_valid) std::memset(message, 0, message_bytes);
      message += round_id.size();
      std::memcpy(seeds.data() + (begin + i) * kSeedBytes, message, kSeedBytes);
      if (inner_bytes > 0) {
        std::memcpy(inner.data() + (begin + i) * inner_bytes, message + kSeedBytes, inner_bytes);
      }
    }
  }
}

}  // namespace shoal::onion
