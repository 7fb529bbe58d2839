#include "src/shuffle/permutation.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"

namespace shoal::shuffle {
namespace {

// 256 KiB of places: half of a core's cache of the second level.
constexpr uint64_t kBucketItems = 1 << 16;
// About as many streams as a core can write to without missing its caches all the time.
constexpr uint64_t kMaxBuckets = 1 << 11;
// Items whose buckets are drawn from one stream of randomness.
constexpr uint64_t kChunk = 1 << 18;

// 32-bit draws from a stream, many at a time.
class Draws {
 public:
  Draws(BytesView key, absl::string_view domain, uint64_t stream) : random_(key, domain, stream) {}
  ~Draws() { sodium_memzero(words_.data(), sizeof words_); }

  uint32_t U32() {
    if (used_ == words_.size()) {
      random_.Fill({reinterpret_cast<uint8_t*>(words_.data()), sizeof words_});
      used_ = 0;
    }
    return words_[used_++];
  }
  // Uniform in [0, bound), unbiased (Lemire 2019, algorithm 5); bound > 0.
  uint32_t Below(uint32_t bound) {
    uint64_t product = uint64_t{U32()} * bound;
    if (static_cast<uint32_t>(product) < bound) {
      const uint32_t threshold = -bound % bound;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{U32()} * bound;
    }
    return static_cast<uint32_t>(product >> 32);
  }

 private:
  SeededRandom random_;
  std::array<uint32_t, 1024> words_;
  size_t used_ = words_.size();
};

}  // namespace

absl::StatusOr<PageArray<uint32_t>> RandomPermutation(uint64_t n, BytesView key, ThreadPool& pool) {
  return RandomPermutationInBuckets(n, kBucketItems, key, pool);
}

absl::StatusOr<PageArray<uint32_t>> RandomPermutationInBuckets(uint64_t n, uint64_t bucket_items,
                                                               BytesView key, ThreadPool& pool) {
  SHOAL_CHECK(n <= std::numeric_limits<uint32_t>::max() && bucket_items > 0);
  constexpr auto kSecret = PageBuffer::Content::kSecret;
  // A power of two, so that a bucket is some bits of a draw.
  const uint64_t buckets =
      std::min(kMaxBuckets, std::bit_ceil((n + bucket_items - 1) / bucket_items));
  const uint64_t chunks = (n + kChunk - 1) / kChunk;
  SHOAL_ASSIGN_OR_RETURN(auto target, PageArray<uint32_t>::Create(n, kSecret));
  if (n == 0) return target;

  // Draws every item's bucket, and counts how many items of a chunk go to each.
  SHOAL_ASSIGN_OR_RETURN(auto bucket_of, PageArray<uint16_t>::Create(n, kSecret));
  SecretVector<uint32_t> next(chunks * buckets);  // counts, then where the chunk's next one goes
  pool.ParallelFor(chunks, 1, [&](size_t begin, size_t end) {
    for (size_t chunk = begin; chunk < end; ++chunk) {
      Draws draws(key, "shoal permutation buckets v1", chunk);
      uint32_t* const counts = next.data() + chunk * buckets;
      for (uint64_t i = chunk * kChunk; i < std::min(n, (chunk + 1) * kChunk); ++i) {
        const uint32_t bucket = draws.U32() & static_cast<uint32_t>(buckets - 1);
        bucket_of[i] = static_cast<uint16_t>(bucket);
        ++counts[bucket];
      }
    }
  });
  std::vector<uint32_t> start(buckets + 1);
  uint32_t total = 0;
  for (uint64_t bucket = 0; bucket < buckets; ++bucket) {
    start[bucket] = total;
    for (uint64_t chunk = 0; chunk < chunks; ++chunk) {
      total += std::exchange(next[chunk * buckets + bucket], total);
    }
  }
  start[buckets] = total;

  // places[start[b] + r]: where the r-th item of bucket b goes.
  SHOAL_ASSIGN_OR_RETURN(auto places, PageArray<uint32_t>::Create(n, kSecret));
  pool.ParallelFor(buckets, 1, [&](size_t begin, size_t end) {
    for (size_t bucket = begin; bucket < end; ++bucket) {
      Draws draws(key, "shoal permutation places v1", bucket);
      uint32_t* const mine = places.data() + start[bucket];
      const uint32_t count = start[bucket + 1] - start[bucket];
      for (uint32_t r = 0; r < count; ++r) mine[r] = start[bucket] + r;
      for (uint32_t r = count; r > 1; --r) std::swap(mine[r - 1], mine[draws.Below(r)]);
    }
  });

  pool.ParallelFor(chunks, 1, [&](size_t begin, size_t end) {
    for (size_t chunk = begin; chunk < end; ++chunk) {
      uint32_t* const cursors = next.data() + chunk * buckets;
      for (uint64_t i = chunk * kChunk; i < std::min(n, (chunk + 1) * kChunk); ++i) {
        target[i] = places[cursors[bucket_of[i]]++];
      }
    }
  });
  std::ranges::fill(start, 0);
  return target;
}

}  // namespace shoal::shuffle
