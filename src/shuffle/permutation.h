// A party's secret permutation of its live messages and its noise (paper, algorithm 2, step 5).
#ifndef SHOAL_SRC_SHUFFLE_PERMUTATION_H_
#define SHOAL_SRC_SHUFFLE_PERMUTATION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/page_buffer.h"
#include "src/base/thread_pool.h"

namespace shoal::shuffle {

// target[i] is where item i goes: a bijection on [0, n), uniform over all n! of them as far as
// ChaCha20 under `key` (32 bytes, used for nothing else) is uniform. A function of n and the key
// alone, whatever the number of threads. RESOURCE_EXHAUSTED when there is no memory; n below 2^32 (checked).
//
// Rao and Sandelius: every item draws a bucket, and every bucket is permuted by itself (Fisher-Yates),
// which makes all permutations equally likely. A bucket fits the cache, so that nothing but passes
// over arrays goes to memory: about 22 bytes an item.
absl::StatusOr<PageArray<uint32_t>> RandomPermutation(uint64_t n, BytesView key,
                                                      ThreadPool& pool);

// For tests: buckets of about `bucket_items`, so that small n have several.
absl::StatusOr<PageArray<uint32_t>> RandomPermutationInBuckets(uint64_t n, uint64_t bucket_items,
                                                               BytesView key, ThreadPool& pool);

}  // namespace shoal::shuffle

#endif  // SHOAL_SRC_SHUFFLE_PERMUTATION_H_
