// What sharing.h does, for many seeds at once: one seed in each lane of a vector. Byte for byte the
// same results.
//
// `seeds` is an array of 32-byte seeds; seed i of a call is number positions[i] of them (positions
// need not rise, but memory likes it), and the caller guarantees that it is there. Everything is
// thread-safe and runs on the calling thread: who has many cuts the work, into pieces of a few
// hundred or more. Nothing branches on a secret or looks one up, and the stack is wiped at the end
// of a call. kernel.h has the instruction sets.
#ifndef SHOAL_SRC_SHARING_BATCH_H_
#define SHOAL_SRC_SHARING_BATCH_H_

#include <cstdint>
#include <span>

#include "src/base/bytes.h"
#include "src/sharing/sharing.h"

namespace shoal::sharing {

// shares[i] = Expand(seed i).share.
void ExpandShares(const uint8_t* seeds, std::span<const uint32_t> positions,
                  const Digest& round_id, std::span<QueryShare> shares);

// XorMask(seed i) over answer i. `answers` holds positions.size() answers of `answer_bytes` each.
void XorMasks(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
              size_t answer_bytes, MutableBytes answers);

// tokens[i] = Expand(seed i).token.
void ExpandTokens(const uint8_t* seeds, std::span<const uint32_t> positions,
                  const Digest& round_id, std::span<Token> tokens);

// The first i with tokens[i] != Expand(seed i).token, or tokens.size(). The time depends on the
// result alone.
size_t FirstWrongToken(const uint8_t* seeds, std::span<const uint32_t> positions,
                       const Digest& round_id, std::span<const Token> tokens);

// tallies[i] = FirstTally(the shares of the seeds of query i, queries[i]), queries below p. The
// seed of query i for party j (from 0) is at 32 * (i * parties + j). `tallies` may be `queries`.
void FirstTallies(BytesView seeds, size_t parties, const Digest& round_id,
                  std::span<const uint32_t> queries, std::span<uint32_t> tallies);

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_BATCH_H_
