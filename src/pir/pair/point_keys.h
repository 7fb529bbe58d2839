// Distributed point functions: two short keys that two servers expand to one bit a row each. Each
// key alone looks random, and the bits of both differ at one row, which the client chose. (Boyle,
// Gilboa, Ishai: "Function Secret Sharing: Improvements and Extensions", CCS 2016, figure 1, with
// early termination, section 3.2.1.)
//
// A key is a binary tree of pseudorandom nodes of 16 bytes. Bit 0 of a node is its control bit, and
// the other 127 are its seed. With s the seed (bit 0 cleared), the children are
//
//     H(s), H(s + 1)              H(x) = AES(x) xor x under a key drawn for these two keys alone
//
// each xor the level's correction for its side if the control bit is set. Both servers have the
// same nodes but on the way to the row: there seeds are independent, and control bits differ. A
// node below the last level becomes 128 bits, H(s), xor the last correction if the control bit is
// set.
//
// Wire format, 16 L + 52 bytes for a tree of L levels:
//
//     16      AES key, the same in both
//     16      root; bit 0 is 0 for the offline server and 1 for the online one
//     16 L    corrections from the root on: that of the left child
//     16      correction of the 128 bits
//     4       bit i: bit 0 of the correction of the right child at level i, which otherwise is that
//             of the left one. Bits from L on are zero.
#ifndef SHOAL_SRC_PIR_PAIR_POINT_KEYS_H_
#define SHOAL_SRC_PIR_PAIR_POINT_KEYS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/pir/aes/aes128.h"

namespace shoal::pir::pair {

// Rows whose bits are one node of the last level.
inline constexpr uint64_t kLeafRows = 128;
// Trees for up to 2^32 rows.
inline constexpr uint32_t kMaxLevels = 25;

// Nodes of the last level that hold the bits of so many rows, at least one.
inline constexpr uint64_t LeavesFor(uint64_t rows) { return (rows - 1) / kLeafRows + 1; }
// The least tree with a bit for each row. Up to 2^32 rows.
uint32_t LevelsFor(uint64_t rows);
inline constexpr uint64_t PointKeyBytes(uint32_t levels) { return 16 * uint64_t{levels} + 52; }

// Writes two keys of PointKeyBytes(levels) (checked) whose bits differ at `row`, which is below
// kLeafRows << levels: a branch that looked would depend on it. Constant time in the row.
void MakePointKeys(uint32_t levels, uint64_t row, RandomSource& random, MutableBytes offline,
                   MutableBytes online);

// INVALID_ARGUMENT unless this is a key's encoding for this server: the length, bit 0 of the root,
// the bits that must be zero. Everything else is some key.
absl::Status CheckPointKey(uint32_t levels, bool online, BytesView key);

// 16 bytes, little-endian.
struct Node {
  uint64_t low = 0, high = 0;
};

// One key's tree, level by level. Neither time nor addresses depend on the key. Thread-compatible:
// not even const calls at the same time (aes128.h).
class PointTree {
 public:
  // A key that CheckPointKey accepts.
  PointTree(uint32_t levels, BytesView key);

  Node root() const;
  // Replaces nodes of level `from`, which begin at an even place of the tree or are the root alone,
  // by the first `count` nodes of level `to` below them. Leaves other bytes in `scratch`.
  void Grow(uint32_t from, uint32_t to, size_t count, SecretVector<Node>& nodes,
            SecretVector<Node>& scratch) const;
  // Replaces nodes of the last level by the bits of their rows: those of low rows in low bits of
  // low bytes.
  void ToBits(SecretVector<Node>& nodes, SecretVector<Node>& scratch) const;

 private:
  const uint32_t levels_;
  const SecretVector<uint8_t> key_;
  const Aes128 aes_;
};

}  // namespace shoal::pir::pair

#endif  // SHOAL_SRC_PIR_PAIR_POINT_KEYS_H_
