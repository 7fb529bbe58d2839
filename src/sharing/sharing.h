// Incremental non-malleable sharing of queries (paper, section 4) and XOR sharing of answers, both
// expanded from one 32-byte seed per party.
//
// seed_j expands by ChaCha20 (RFC 8439: 32-bit block counter, 96-bit nonce), key = seed_j, nonce =
// the first 12 bytes of the round id. A seed is used in one round alone.
//
//   block 0      bytes 0..15: token_j (party 1 alone uses it)
//                bytes 16..63: twelve 32-bit little-endian words, each masked to its low 31 bits;
//                x_j is the first below p, y_j the first after it in [1, p)
//   block 1..    e_j: the mask of the answer, answer_bytes long
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

// Rec (definition 2): party j's step, l_j = y_j * l_(j-1) + x_j mod p. `tally` below p.
inline uint32_t Advance(const QueryShare& share, uint32_t tally) {
  return MulAdd(share.y, tally, share.x);
}

// Sh: the tally l_0 that the shares of parties 1..m, applied in order, take to `query` < p.
// The reference that the batch kernels are tested against.
uint32_t FirstTally(std::span<const QueryShare> shares, uint32_t query);

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_SHARING_H_
