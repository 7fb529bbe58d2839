// Onions: how seeds travel down the chain (paper, section 5, "OEnc"; docs/protocol.md).
//
//   layer for party j = box_j( round id (32) | seed_j (32) | layer for party j+1 )
//
// so k layers are 112 * k bytes.
#ifndef SHOAL_SRC_ONION_ONION_H_
#define SHOAL_SRC_ONION_ONION_H_

#include <cstddef>
#include <span>

#include "src/base/bytes.h"
#include "src/onion/sealed_box.h"

namespace shoal::onion {

inline constexpr size_t kSeedBytes = 32;
inline constexpr size_t kLayerBytes = 32 + kSeedBytes + kSealBytes;  // 112

constexpr size_t OnionBytes(size_t layers) { return kLayerBytes * layers; }

// Builds n onions for `recipients` (first: the outermost layer, the next party in the chain).
//
//   seeds, ephemeral_secrets: n * k * 32 bytes, item (i, l) at (i * k + l) * 32, for onion i and
//   layer l, where l = 0 is the outermost and k = recipients.size()
//   onions: n * OnionBytes(k)
//
// Layers are sealed in batches, innermost first. One thread. Constant time in the secrets.
void BuildOnions(const Digest& round_id, std::span<const Recipient> recipients, BytesView seeds,
                 BytesView ephemeral_secrets, MutableBytes onions);

// Peels one layer off each of n = valid.size() onions of `layers` layers. Writes n * 32 bytes of
// seeds and n * OnionBytes(layers - 1) bytes of inner onions. valid[i] is 1 if the box opened and
// names `round_id`; otherwise 0, and seed and inner onion are zeros. One thread.
void PeelOnions(const KeyPair& key, const Digest& round_id, size_t layers, BytesView onions,
                MutableBytes seeds, MutableBytes inner, std::span<uint8_t> valid);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_ONION_H_
