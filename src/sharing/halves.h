// Queries and answers of two tiers, expanded from one seed of each party in each half
// (docs/protocol.md, section 11; docs/threat-model.md, "Two tiers").
//
// A round of two tiers has two halves. Each is a chain of two parties: its head shuffles, its tail
// answers. Party 1 is the head of half A and the tail of half B, party 2 the other way round. A
// query for place p of bucket b goes through both halves, and what both tails answer is XORed:
//
//   client                                    head of X                   tail of X
//     | k1: from the seed of B's tail           |                           |
//     | m_A = LE32(b) | k1 xor bit p            |                           |
//     | m_B = LE32(b)                           |                           |
//     | u = m xor pad_tail                      |                           |
//     | v = u | MAC_tail(u)                     |                           |
//     | w = v xor pad_head                      |                           |
//     |-- part B = w_B | MAC_head(w_B) -------->| compares the tag          |
//     |-- part A = w_A | MAC_head(w_A, part B)  |-- v = w xor pad_head ---->| compares the tag
//     |                                         |                           | m = u xor pad_tail
//     |                                         |<- y = x xor mask_tail, ---| x: the XOR of the
//     rows |                                         |   T = MAC_tail(y)         |    that k2 (A)
//     or k1 (B)
//     |<- z = y xor mask_head, T' = MAC_head(z, T)                          |    select
//     | y, T from z; compares T'; x_A xor x_B                               |
//
// A seed of half X expands by ChaCha20 with the first 12 bytes of X's id as nonce:
//
//   block 0      bytes 0..15: token (head of A; ExpandTokens and FirstWrongToken of batch.h, with
//                the id of A). Bytes 32..63: query key
//   block 1      bytes 0..31: answer key. Bytes 32..63: selection seed (tail of B)
//   block 2 ..   pad, and from the next whole block on the mask
//
// and the selection k1 is the stream of the selection seed under the same nonce, from block 0. No
// byte has two uses. MAC is Poly1305 (RFC 8439, section 2.5) under the query key or the answer key.
// Each key is for one message.
//
// These functions work on many seeds at once, one in each lane of a vector (kernel.h). `seeds` is
// an array of 32-byte seeds, and "seed i" of a call is seeds[positions[i]], as in batch.h. All are
// thread-safe and run on the calling thread. No branch and no address depends on a seed, a query or
// an answer; whether a tag was right is for the caller to branch on. What they keep of secrets is
// wiped when they return. Numbers of bytes are checked.
#ifndef SHOAL_SRC_SHARING_HALVES_H_
#define SHOAL_SRC_SHARING_HALVES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/bytes.h"
#include "src/base/query_buckets.h"
#include "src/base/secret.h"
#include "src/sharing/sharing.h"

namespace shoal::sharing {

// Their numbers are hashed.
enum class Half : uint8_t { kA = 1, kB = 2 };
enum class Role : uint8_t { kHead, kTail };

// The id of a half: what the round id is in a chain for rows.
Digest HalfId(const Digest& round_id, Half half);
// The root of what a party draws for a half, from its root of the round. It depends on the half's
// number and not on its id: the id depends on the header, and the header on onion keys of this
// root.
Seed HalfRoot(BytesView root, Half half);

struct HalfIds {
  Digest a, b;
  explicit HalfIds(const Digest& round_id)
      : a(HalfId(round_id, Half::kA)), b(HalfId(round_id, Half::kB)) {}
  const Digest& of(Half half) const { return half == Half::kA ? a : b; }
};

// --- Sizes. `selection_bytes`: QueryBuckets::selection_bytes().

inline constexpr size_t kBucketBytes = 4, kQueryTagBytes = kAnswerTagBytes;
// m, which is as long as u.
constexpr size_t MessageBytes(Half half, size_t selection_bytes) {
  return kBucketBytes + (half == Half::kA ? selection_bytes : 0);
}
// v, which a head sends on.
constexpr size_t ForwardedBytes(Half half, size_t selection_bytes) {
  return MessageBytes(half, selection_bytes) + kQueryTagBytes;
}
constexpr size_t PartBytes(Half half, size_t selection_bytes) {
  return ForwardedBytes(half, selection_bytes) + kQueryTagBytes;
}
// Part A | part B: what a client sends for a query.
constexpr size_t PartsBytes(size_t selection_bytes) {
  return PartBytes(Half::kA, selection_bytes) + PartBytes(Half::kB, selection_bytes);
}
// z_A | T'_A | z_B | T'_B: what a client fetches. `answer_bytes`: a row and its signature.
constexpr size_t HalvesAnswerBytes(size_t answer_bytes) { return 2 * TaggedBytes(answer_bytes); }

// --- Where things are in a seed's expansion.

// In bytes. The token's place is that of chains for rows (batch.h).
inline constexpr size_t kTokenAt = 0, kQueryKeyAt = 32, kAnswerKeyAt = 64, kSelectionSeedAt = 96;
// In blocks.
inline constexpr uint32_t kPadBlock = 2;
constexpr size_t QueryPadBytes(Half half, Role role, size_t selection_bytes) {
  return role == Role::kHead ? ForwardedBytes(half, selection_bytes)
                             : MessageBytes(half, selection_bytes);
}
constexpr uint32_t MaskBlock(Half half, Role role, size_t selection_bytes) {
  return kPadBlock + static_cast<uint32_t>((QueryPadBytes(half, role, selection_bytes) + 63) / 64);
}

// --- Clients.

// The seeds of a query, one after the other, and in this order in arrays of them.
enum class QuerySeed : uint8_t { kHeadA, kTailA, kHeadB, kTailB };
inline constexpr size_t kSeedsPerQuery = 4;

// parts[i]: part A | part B of the query for rows[i], which are below buckets.rows(). The seeds of
// query i are at 32 * (4 * i + number of QuerySeed).
void MakeParts(BytesView seeds, const HalfIds& ids, const QueryBuckets& buckets,
               std::span<const uint32_t> rows, MutableBytes parts);

// answers[i]: row | signature of what came for query i, z_A | T'_A | z_B | T'_B. All zeros if one
// of the tags, of either half, is not what honest parties make of that half: what was altered on
// its way is lost, whatever it holds. Whether it is does not show in the time.
void UnmaskHalves(BytesView seeds, const HalfIds& ids, size_t selection_bytes, size_t answer_bytes,
                  BytesView tagged, MutableBytes answers);

// --- Heads.

// Compares the tag of every part with the head's own; wrong[i] = 1 where it differs, else 0. In
// half A `parts` are PartsBytes each, as A's tag covers part B; in half B PartBytes of that half
// each. Writes v, ForwardedBytes each: zeros where the tag is wrong, so that nothing altered goes
// on.
void OpenParts(const uint8_t* seeds, std::span<const uint32_t> positions, const HalfIds& ids,
               Half half, size_t selection_bytes, BytesView parts, MutableBytes forwarded,
               std::span<uint8_t> wrong);

// v of a head's own noise queries, for buckets[i], under the seeds of the tail. `selections`: in
// half A random bytes, selection_bytes for each; in half B nothing. The bodies have the form of
// real ones.
void MakeForwarded(const uint8_t* tail_seeds, std::span<const uint32_t> positions,
                   const HalfIds& ids, Half half, size_t selection_bytes,
                   std::span<const uint32_t> buckets, BytesView selections, MutableBytes forwarded);

// --- Tails.

// Compares the tag of every v and takes its pad off: asked[i] is the bucket that is to be scanned,
// always one that there is, and selections[i] its selection, selection_bytes each. wrong[i] = 1
// where the tag differs or the bucket is past the end: there, too, one bucket is to be scanned, and
// pseudorandom bytes go out in place of the result.
void OpenForwarded(const uint8_t* seeds, std::span<const uint32_t> positions, const HalfIds& ids,
                   Half half, const QueryBuckets& buckets, BytesView forwarded,
                   std::span<uint32_t> asked, MutableBytes selections, std::span<uint8_t> wrong);

// --- Both.

// Makes a tail's y | T of x, or a head's z | T' of y | T: TaggedBytes(answer_bytes) each, of which
// the last 16 do not matter at a tail.
void MaskHalf(const uint8_t* seeds, std::span<const uint32_t> positions, const HalfIds& ids,
              Half half, Role role, size_t selection_bytes, size_t answer_bytes,
              MutableBytes answers);

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_HALVES_H_
