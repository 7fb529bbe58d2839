// Incremental non-malleable sharing of queries (paper, section 4), XOR sharing of answers and the
// tags on these, all expanded from one 32-byte seed per party.
//
// seed_j expands by ChaCha20 (RFC 8439: 32-bit block counter, 96-bit nonce), key = seed_j, nonce =
// the first 12 bytes of the round id. A seed is used in one round alone.
//
//   block 0      bytes 0..15: token_j (party 1 alone uses it)
//                bytes 16..63: twelve 32-bit little-endian words, each masked to its low 31 bits;
//                x_j is the first below p, y_j the first after it in [1, p)
//   block 1..    e_j: the mask of the answer, answer_bytes long
//   block 1 + ceil(answer_bytes / 64)
//                bytes 0..31: the key of the answer tag
//
// A party sends its answers as y_j | T_j, TaggedBytes(answer_bytes) long. Party m, the last, sends
//
//   y_m = (row | signature) xor e_m,    T_m = MAC_m(y_m)
//
// and party j, from what party j + 1 has sent it,
//
//   y_j = y_(j+1) xor e_j,              T_j = MAC_j(y_j | T_(j+1))
//
// where MAC_j is Poly1305 (RFC 8439, section 2.5) under party j's key. That key is for one message:
// a party tags one answer to a query for ever. The client, which has all seeds, computes all tags
// again. Without them an XOR by the last party over the answers that hold one row, and the same XOR
// by a frontend or a door over the answers to one client, would cancel where that client asked for
// that row. A sum of the parties' tags would cancel as well; so each covers the one before.
//
// A masked word is not usable with probability 2^-31 or 2^-30, so that twelve words fail to give a
// pair with probability below 2^-300; the pair is then (0, 1).
#ifndef SHOAL_SRC_SHARING_SHARING_H_
#define SHOAL_SRC_SHARING_SHARING_H_

#include <array>
#include <cstdint>
#include <span>

#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/sharing/field.h"

namespace shoal::sharing {

inline constexpr size_t kTokenBytes = 16;
inline constexpr size_t kTagKeyBytes = 32, kAnswerTagBytes = 16;

// An answer with its tag, as parties send it and clients fetch it; `answer_bytes`, here and below:
// a row and its signature.
constexpr uint64_t TaggedBytes(uint64_t answer_bytes) { return answer_bytes + kAnswerTagBytes; }
// What a party may keep ready for an answer: its mask, then the key of its tag.
constexpr uint64_t PadBytes(uint64_t answer_bytes) { return answer_bytes + kTagKeyBytes; }
// The block of a seed's expansion in which the key of the answer tag is.
constexpr uint32_t TagKeyBlock(uint64_t answer_bytes) {
  return static_cast<uint32_t>(1 + (answer_bytes + 63) / 64);
}
using Token = std::array<uint8_t, kTokenBytes>;

// One party's share of a query.
struct QueryShare {
  uint32_t x;  // in [0, p)
  uint32_t y;  // in [1, p)
  bool operator==(const QueryShare&) const = default;
};

// What block 0 of a seed gives.
struct Expansion {
  Token token;
  QueryShare share;
};
Expansion Expand(BytesView seed, const Digest& round_id);

// XORs e_j into `answer`, any length up to 2^32 blocks. The reference that the batch kernels are
// tested against.
void XorMask(BytesView seed, const Digest& round_id, MutableBytes answer);

// What a party's answer tag covers: at the last party its masked answer, at the others also the
// tag that came with the answer.
enum class TagCovers { kAnswer, kAnswerAndTag };
constexpr TagCovers TagCoversAt(bool last_party) {
  return last_party ? TagCovers::kAnswer : TagCovers::kAnswerAndTag;
}

// Makes party j's y_j | T_j of what `tagged` holds: y_(j+1) | T_(j+1), or at the last party row,
// signature and 16 bytes that do not matter. The reference that the batch kernels are tested
// against.
void MaskAnswer(BytesView seed, const Digest& round_id, TagCovers covers, MutableBytes tagged);

// One party's seed of an answer, and what stands for the round id in its expansion: the round id,
// or in a refresh the party's masks id (src/round/refresh.h).
struct AnswerSeed {
  BytesView seed;
  Digest id;
};
// Removes the masks of all parties, party 1's seed first, from what party 1 has sent, in place, and
// says whether its tag is the one that honest parties make of it. If not, all bytes become zeros,
// so that nobody uses the row or looks at its signature. The tag's bytes become zeros anyway. The
// reference that UnmaskAnswers (batch.h) is tested against.
bool UnmaskAnswer(std::span<const AnswerSeed> seeds, MutableBytes tagged);
// What all parties together make of row and signature, followed by 16 bytes that do not matter.
void MaskByAll(std::span<const AnswerSeed> seeds, MutableBytes tagged);

// Rec (definition 2): party j's step, l_j = y_j * l_(j-1) + x_j mod p. `tally` below p.
inline uint32_t Advance(const QueryShare& share, uint32_t tally) {
  return MulAdd(share.y, tally, share.x);
}

// Sh: the tally l_0 that the shares of parties 1..m, applied in order, take to `query` < p.
// The reference that the batch kernels are tested against.
uint32_t FirstTally(std::span<const QueryShare> shares, uint32_t query);

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_SHARING_H_
