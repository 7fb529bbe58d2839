// How many bytes a client of the chain sends and gets for a query: the one meaning of `query_bytes`
// and `answer_bytes` of the chain wherever engines are compared (`shoal query`, `shoal simulate`,
// `shoal plan`, the studies).
#ifndef SHOAL_SRC_ROUND_QUERY_BYTES_H_
#define SHOAL_SRC_ROUND_QUERY_BYTES_H_

#include <cstddef>
#include <cstdint>

#include "src/onion/onion.h"
#include "src/sharing/halves.h"
#include "src/sharing/sharing.h"

namespace shoal::round {

// In SubmitQueries: slot, token, tally.
inline constexpr size_t kSlotQueryBytes = 4 + sharing::kTokenBytes + 4;

// The onion and the query of one slot. What a whole request has in addition is not counted: the
// layer around a submission (onion::kSealBytes), ids, the frame.
constexpr size_t QueryBytes(uint32_t parties) {
  return onion::OnionBytes(parties - 1) + kSlotQueryBytes;
}

// The answer: row and signature, `answer_bytes` long, and their tag.
constexpr size_t FetchedBytes(uint32_t answer_bytes) { return sharing::TaggedBytes(answer_bytes); }

// The same in rounds of two tiers: the onions of both halves, slot and both parts; the answers of
// both halves.
constexpr size_t TwoTiersSlotQueryBytes(size_t selection_bytes) {
  return 4 + sharing::PartsBytes(selection_bytes);
}
constexpr size_t TwoTiersQueryBytes(size_t selection_bytes) {
  return 2 * onion::OnionBytes(1) + TwoTiersSlotQueryBytes(selection_bytes);
}
constexpr size_t TwoTiersFetchedBytes(uint32_t answer_bytes) {
  return sharing::HalvesAnswerBytes(answer_bytes);
}

}  // namespace shoal::round

#endif  // SHOAL_SRC_ROUND_QUERY_BYTES_H_
