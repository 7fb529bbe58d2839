// A party's secret permutation of its live messages and its noise (paper, algorithm 2, step 5).
#ifndef SHOAL_SRC_SHUFFLE_PERMUTATION_H_
#define SHOAL_SRC_SHUFFLE_PERMUTATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/parallel/thread_pool.h"
#include "src/storage/page_buffer.h"

namespace shoal::shuffle {

// target[i] is where item i goes: a bijection on [0, n), uniform over all n! of them as far as
// ChaCha20 under `key` (32 bytes, used for nothing else) is uniform. The result depends on n and
// the key alone, not on the number of threads. n must be below 2^32 (checked). RESOURCE_EXHAUSTED
// when there is no memory.
//
// Rao and Sandelius: every item draws a bucket, and every bucket is permuted by itself
// (Fisher-Yates), which makes all permutations equally likely. A bucket fits the cache, so that
// memory sees only passes over arrays, about 22 bytes an item.
absl::StatusOr<PageArray<uint32_t>> RandomPermutation(uint64_t n, BytesView key, ThreadPool& pool);

// For tests: buckets of about `bucket_items`, so that small n have several.
absl::StatusOr<PageArray<uint32_t>> RandomPermutationInBuckets(uint64_t n, uint64_t bucket_items,
                                                               BytesView key, ThreadPool& pool);

}  // namespace shoal::shuffle

#endif  // SHOAL_SRC_SHUFFLE_PERMUTATION_H_
