// The functions of sharing.h for many seeds at once, one seed in each lane of a vector. Results are
// the same byte for byte.
//
// `seeds` is an array of 32-byte seeds, and "seed i" of a call is seeds[positions[i]]; the caller
// guarantees that the array is long enough. Positions need not rise, but rising ones are faster to
// read. All functions are thread-safe and run on the calling thread: to use several threads, call
// them on pieces of a few hundred seeds or more. No branch and no address depends on a secret, and
// the stack is wiped at the end of a call. kernel.h has the instruction sets.
#ifndef SHOAL_SRC_SHARING_BATCH_H_
#define SHOAL_SRC_SHARING_BATCH_H_

#include <cstdint>
#include <span>

#include "src/base/bytes.h"
#include "src/sharing/sharing.h"

namespace shoal::sharing {

// shares[i] = Expand(seed i).share.
void ExpandShares(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                  std::span<QueryShare> shares);

// MaskAnswer(seed i) over answer i. `answers` holds positions.size() answers of
// TaggedBytes(answer_bytes) each. Returns the number of answers that have their mask and their tag:
// all.
size_t MaskAnswers(const uint8_t* seeds, std::span<const uint32_t> positions,
                   const Digest& round_id, size_t answer_bytes, TagCovers covers,
                   MutableBytes answers);

// What MaskAnswers needs of each seed, ahead of time: pad i, PadBytes(answer_bytes) of them.
void ExpandPads(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                size_t answer_bytes, MutableBytes pads);
// MaskAnswers from pads; "pad i" of a call is number positions[i] of them.
size_t MaskAnswersFromPads(const uint8_t* pads, std::span<const uint32_t> positions,
                           size_t answer_bytes, TagCovers covers, MutableBytes answers);

// UnmaskAnswer over what party 1 has sent: `tagged` holds answers of TaggedBytes(answer_bytes)
// each. Writes the answers, of answer_bytes each: zeros where the tag was wrong. No branch depends
// on whether it was. The seed of answer i for party j (from 0) is at 32 * (i * ids.size() + j), and
// ids[j] is what stands for the round id in its expansion.
void UnmaskAnswers(BytesView seeds, std::span<const Digest> ids, size_t answer_bytes,
                   BytesView tagged, MutableBytes answers);

// tokens[i] = Expand(seed i).token.
void ExpandTokens(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                  std::span<Token> tokens);

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
