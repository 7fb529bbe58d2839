// Submissions and onions: how seeds travel down the chain (docs/protocol.md, section 6). Every
// layer is an HPKE message (hpke.h) whose info names the round and the party. No seed is carried:
// each is exported from its layer. Lengths are in bytes.
//
//   party m, the last               enc                               32
//   party j, 1 < j < m              enc | Seal(onion for party j+1)   48 + OnionBytes(m - j)
//   party 1, a submission           enc | Seal(n onions for party 2)  48 + n * OnionBytes(m - 1)
//
//   seed_j = Export("seed", 32);  seed_1 of onion i of a submission = Export("slot" | LE32 i, 32)
//
// A submission has one layer for party 1, which knows anyway which onions came together.
#ifndef SHOAL_SRC_ONION_ONION_H_
#define SHOAL_SRC_ONION_ONION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/bytes.h"
#include "src/onion/hpke.h"

namespace shoal::onion {

// An onion of `layers` > 0 layers, for as many parties. With none there is nothing: 0.
constexpr size_t OnionBytes(size_t layers) {
  return layers == 0 ? 0 : kEncBytes + kSealBytes * (layers - 1);
}

// What party 1 gets for `count` slots of a chain of `parties` parties.
constexpr size_t SubmissionBytes(size_t parties, size_t count) {
  return kSealBytes + count * OnionBytes(parties - 1);
}
inline constexpr size_t kMaxSubmissionBytes = 1 << 20;
constexpr size_t MaxSubmissionOnions(size_t parties) {
  return (kMaxSubmissionBytes - kSealBytes) / OnionBytes(parties - 1);
}
// The number of slots of a submission of so many bytes; 0 if no submission has that length.
constexpr size_t SubmissionOnions(size_t parties, size_t bytes) {
  const size_t onion = OnionBytes(parties - 1);
  if (bytes <= kSealBytes || bytes > kMaxSubmissionBytes) return 0;
  return (bytes - kSealBytes) % onion == 0 ? (bytes - kSealBytes) / onion : 0;
}

// A submission of a round of two tiers: a piece for each half, one after the other. Each has the
// form of a submission to a chain of two parties.
constexpr size_t TwoPiecesBytes(size_t count) { return 2 * SubmissionBytes(2, count); }
constexpr size_t kMaxTwoPiecesOnions =
    (kMaxSubmissionBytes - TwoPiecesBytes(0)) / (TwoPiecesBytes(1) - TwoPiecesBytes(0));
// The number of slots of a submission of so many bytes; 0 if none of two pieces has that length.
constexpr size_t TwoPiecesOnions(size_t bytes) {
  return bytes > kMaxSubmissionBytes || bytes % 2 != 0 ? 0 : SubmissionOnions(2, bytes / 2);
}

// Builds n onions for `recipients`: parties `first_party` (at least 2), first_party + 1, .. to the
// last.
//
//   ephemeral_secrets, seeds: n * k * 32 bytes, item (i, l) at (i * k + l) * 32, for onion i and
//   layer l, where l = 0 is the outermost and k = recipients.size()
//   onions: n * OnionBytes(k); with an empty span only the seeds are computed
//
// Layers are sealed in batches, innermost first. One thread. Constant time in the secrets.
void BuildOnions(const Digest& round_id, uint32_t first_party,
                 std::span<const Recipient> recipients, BytesView ephemeral_secrets,
                 MutableBytes seeds, MutableBytes onions);

// One layer for party `party`, around an onion for the party after it (none at the last party).
// Writes its seed. For tests, which make onions that no honest client makes.
Bytes AddLayer(const Digest& round_id, uint32_t party, const Recipient& recipient,
               BytesView ephemeral_secret, BytesView inner, MutableBytes seed);

// Peels one layer, party `party`'s, off each of n = valid.size() onions of `layers` layers. Writes
// n * 32 bytes of seeds and n * OnionBytes(layers - 1) bytes of inner onions. valid[i] is 1 if the
// layer opened; otherwise 0, and seed and inner onion are zeros. The last layer (`layers` is 1) has
// no tag: it is invalid only if its shared point is all zeros. One thread.
void PeelOnions(const KeyPair& key, const Digest& round_id, uint32_t party, size_t layers,
                BytesView onions, MutableBytes seeds, MutableBytes inner, std::span<uint8_t> valid);

// One submission to be sealed or opened. `onions` holds the n onions for party 2.
struct SubmissionToSeal {
  BytesView ephemeral_secret;  // 32 bytes, for this plaintext alone
  BytesView onions;
  MutableBytes submission;  // kSealBytes longer; may be empty: only seeds are exported
  MutableBytes seeds;       // n * 32 bytes of seed_1, or empty: none are exported
  uint32_t first = 0;       // the number in the submission of the first seed
};
struct SubmissionToOpen {
  BytesView submission;
  MutableBytes seeds;   // n * 32 bytes
  MutableBytes onions;  // kSealBytes shorter than the submission
  bool opened = false;  // set by the call; if it stays false, seeds and onions are zeros
};

// Seals submissions for party 1, or recomputes their seeds. One thread.
void SealSubmissions(const Recipient& party_1, const Digest& round_id,
                     std::span<const SubmissionToSeal> submissions);
// Opens submissions as party 1. One thread.
void OpenSubmissions(const KeyPair& key, const Digest& round_id,
                     std::span<SubmissionToOpen> submissions);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_ONION_H_
