// Hash and displace (after Belazzougui, Botelho, Dietzfelbinger 2009, with bins of bytes in place
// of slots). Maps any key, of the table or not, to its row. Takes one public byte for every few
// keys of the table.
//
//   h_0, h_1 = SipHash-2-4-128(hash_seed, key) as two 64-bit little-endian words
//   bucket   = floor(h_0 * buckets / 2^64)
//   row      = floor(mix(h_1 + d[bucket] * 0x9e3779b97f4a7c15 mod 2^64) * rows / 2^64)
//   mix(z)   : z ^= z >> 30; z *= 0xbf58476d1ce4e5b9; z ^= z >> 27; z *= 0x94d049bb133111eb;
//              z ^= z >> 31                                    (SplitMix64's finaliser)
#ifndef SHOAL_SRC_TABLE_PLACEMENT_H_
#define SHOAL_SRC_TABLE_PLACEMENT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"

namespace shoal::table {

using HashSeed = std::array<uint8_t, 16>;

struct KeyHash {
  uint64_t bucket_word;
  uint64_t row_word;
};

// The seed from a manifest, which must be 16 bytes (checked).
HashSeed SeedOf(BytesView bytes);

KeyHash HashKey(const HashSeed& seed, BytesView key);

// What a row that has no room for a key says in its place (row.h): the first four bytes of the
// hash. Buckets are at most 2^30, so that the bucket says nothing about these bits.
inline std::array<uint8_t, 4> MarkOf(const KeyHash& hash) {
  std::array<uint8_t, 4> mark;
  StoreLe<uint32_t>(mark.data(), static_cast<uint32_t>(hash.bucket_word));
  return mark;
}

inline uint32_t BucketOf(const KeyHash& hash, uint32_t buckets) {
  return static_cast<uint32_t>((static_cast<unsigned __int128>(hash.bucket_word) * buckets) >> 64);
}

inline uint64_t RowOf(const KeyHash& hash, uint8_t displacement, uint64_t rows) {
  uint64_t z = hash.row_word + displacement * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<uint64_t>((static_cast<unsigned __int128>(z) * rows) >> 64);
}

struct Placement {
  HashSeed seed;
  uint64_t rows = 0;
  Bytes displacements;  // one a bucket
};

// Chooses the number of rows, the seed and the displacements so that every row gets at most
// `row_bytes` bytes; the key that `key(i)` returns takes record_bytes[i]. Keys are distinct. Aims
// for rows that are 98 % full, then adds rows in small steps. The worst case, records just longer
// than half a row, makes rows half full. RESOURCE_EXHAUSTED if a placement fails even with rows 30
// % full, which no input is known to cause.
//
// `previous` is an earlier epoch's placement, for rows of the same size. With it keys stay in their
// rows, so that few rows change; only the shortest buckets of a row that overflows move. Seed and
// number of rows are chosen anew if that fails (keys chosen for this seed can cause it), if it
// saves a quarter of the rows, or if there are fewer keys than buckets, as every bucket is a byte
// of metadata.
absl::StatusOr<Placement> Place(const std::vector<uint32_t>& record_bytes,
                                const std::function<BytesView(size_t)>& key, uint32_t row_bytes,
                                RandomSource& random, const Placement* previous = nullptr);

}  // namespace shoal::table

#endif  // SHOAL_SRC_TABLE_PLACEMENT_H_
