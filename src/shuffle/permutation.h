// A party's secret permutation of its live messages and its noise (paper, algorithm 2, step 5).
//
// Rao and Sandelius: every item draws a bucket, and every bucket is permuted by itself
// (Fisher-Yates), which makes all permutations equally likely (docs/machines.md has the proof). A
// bucket fits the cache, so that memory sees only passes over arrays.
//
// The permutation is a function of n and its key alone. Item g draws its bucket from word g of a
// stream, and a bucket is permuted with a stream of its own. So several machines make one
// permutation together: each draws for a slice of the items (BucketDraw), and each permutes a run
// of the buckets (BucketRun). Nobody needs to see all of it.
#ifndef SHOAL_SRC_SHUFFLE_PERMUTATION_H_
#define SHOAL_SRC_SHUFFLE_PERMUTATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/storage/page_buffer.h"

namespace shoal::shuffle {

// target[i] is where item i goes: a bijection on [0, n), uniform over all n! of them as far as
// ChaCha20 under `key` (32 bytes, used for nothing else) is uniform. The result depends on n and
// the key alone, not on the number of threads. n must be below 2^32 (checked). RESOURCE_EXHAUSTED
// when there is no memory. Takes about 10 bytes an item.
absl::StatusOr<PageArray<uint32_t>> RandomPermutation(uint64_t n, BytesView key, ThreadPool& pool);

// The number of buckets for n items: a power of two from 1 to kMaxBuckets that depends on n alone.
uint32_t BucketCount(uint64_t n);
inline constexpr uint32_t kMaxBuckets = 1 << 11;

// The buckets of a slice of the items. Movable. Thread-compatible.
class BucketDraw {
 public:
  // Draws for items first to first + count - 1, of which those with living[i] == 0 are left out;
  // `living` is for item first + i, or empty if all live. `buckets` is a power of two, at most
  // kMaxBuckets, the same for all slices of a permutation (checked). Costs a word of ChaCha20 an
  // item. RESOURCE_EXHAUSTED when there is no memory for 2 bytes an item.
  static absl::StatusOr<BucketDraw> Create(uint32_t buckets, uint64_t first, uint64_t count,
                                           std::span<const uint8_t> living, BytesView key,
                                           ThreadPool& pool);

  // kNowhere for an item that was left out.
  static constexpr uint16_t kNowhere = 0xffff;
  std::span<const uint16_t> bucket_of() const { return bucket_of_.span(); }
  // How many of the slice's items are in each bucket.
  std::span<const uint32_t> counts() const { return counts_; }

 private:
  friend class BucketRun;
  // The items of a slice that draw from one stream.
  struct Chunk {
    uint64_t begin, end;  // among the slice's items
  };

  uint32_t buckets_ = 0;
  PageArray<uint16_t> bucket_of_;
  std::vector<Chunk> chunks_;
  SecretVector<uint32_t> chunk_counts_;  // of chunk c and bucket b at c * buckets_ + b
  SecretVector<uint32_t> counts_;
};

// A run of buckets, permuted by whoever owns them. Movable. Thread-compatible.
class BucketRun {
 public:
  // Permutes buckets first_bucket to first_bucket + sizes.size() - 1, of so many items, which go to
  // the places from `first_place` on. RESOURCE_EXHAUSTED when there is no memory for 4 bytes an
  // item.
  static absl::StatusOr<BucketRun> Permute(uint32_t first_bucket, uint32_t first_place,
                                           std::span<const uint32_t> sizes, BytesView key,
                                           ThreadPool& pool);

  uint32_t first_bucket() const { return first_bucket_; }
  uint32_t end_bucket() const { return first_bucket_ + static_cast<uint32_t>(start_.size()) - 1; }
  uint32_t first_place() const { return first_place_; }
  uint32_t end_place() const { return first_place_ + static_cast<uint32_t>(places_.size()); }

  // Where the bucket's items go: its first item in the order of their numbers, its second, and so
  // on. The bucket is in the run (checked).
  std::span<const uint32_t> places(uint32_t bucket) const;

  // Sets target[i] to the place of the slice's item i, for items that are in this run's buckets.
  // before[k] is the number of items of earlier slices in the k-th bucket of the run.
  void Place(const BucketDraw& slice, std::span<const uint32_t> before, std::span<uint32_t> target,
             ThreadPool& pool) const;

 private:
  uint32_t first_bucket_ = 0, first_place_ = 0;
  SecretVector<uint32_t> start_;  // of the buckets in places_, and the end of the last one
  PageArray<uint32_t> places_;
};

// The items that go to places begin to end - 1 of the permutation that RandomPermutation makes of n
// items under `key`, in the order of the places. Draws for all items, and permutes the buckets that
// these places meet. RESOURCE_EXHAUSTED when there is no memory.
absl::StatusOr<SecretVector<uint32_t>> ItemsAt(uint64_t begin, uint64_t end, uint64_t n,
                                               BytesView key, ThreadPool& pool);

// For tests: so many buckets, so that small n have several.
absl::StatusOr<PageArray<uint32_t>> RandomPermutationInBuckets(uint64_t n, uint32_t buckets,
                                                               BytesView key, ThreadPool& pool);

}  // namespace shoal::shuffle

#endif  // SHOAL_SRC_SHUFFLE_PERMUTATION_H_
