#include "src/shuffle/permutation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/secret.h"
#include "src/base/sodium_init.h"
#include "src/base/status_macros.h"

namespace shoal::shuffle {
namespace {

// 256 KiB of places: half of a core's cache of the second level.
constexpr uint64_t kBucketItems = 1 << 16;
// Shorter lists are divided as well, so that the machines of a party have about equal shares of
// them.
constexpr uint64_t kFewBuckets = 64, kFewItems = 1 << 10;
// Items whose buckets are drawn from one stream of randomness.
constexpr uint64_t kChunk = 1 << 18;
// A thread permutes buckets of about so many items at a time: a bucket of a short list takes less
// long than waking a thread for it.
constexpr uint64_t kPieceItems = 1 << 13;

// The 32-bit words of a stream of ChaCha20, of which a caller takes some kilobytes at a time.
class Draws {
 public:
  Draws(BytesView key, absl::string_view domain, uint64_t stream)
      : key_(SeedOf(DeriveKey(key, domain, stream))) {
    SHOAL_CHECK(InitSodium());
  }
  ~Draws() { sodium_memzero(words_.data(), sizeof words_); }
  Draws(const Draws&) = delete;
  Draws& operator=(const Draws&) = delete;

  // Leaves out the first words of the stream. None must have been taken (checked).
  void Skip(uint64_t words) {
    SHOAL_CHECK(next_block_ == 0);
    next_block_ = words / kBlockWords;
    (void)Next(words % kBlockWords);
  }

  // The next words: at most `most`, and at least one unless that is 0. Valid until the next call.
  std::span<const uint32_t> Next(uint64_t most) {
    if (used_ == made_) Make(most);
    const size_t count = std::min<uint64_t>(most, made_ - used_);
    used_ += count;
    return std::span(words_).subspan(used_ - count, count);
  }

 private:
  static constexpr size_t kBlockWords = 16;
  // libsodium's vectors make eight blocks at a time.
  static constexpr size_t kStepWords = 8 * kBlockWords;

  // Makes no more words than are asked for, but for a step's end: a bucket of some thousand items
  // would waste a good part of a buffer.
  void Make(uint64_t most) {
    made_ = std::min<uint64_t>(words_.size(), (most + kStepWords - 1) / kStepWords * kStepWords);
    used_ = 0;
    const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES] = {};
    auto* const bytes = reinterpret_cast<uint8_t*>(words_.data());
    // libsodium gives a stream from a block on only by encrypting, here zeros.
    sodium_memzero(bytes, made_ * sizeof(uint32_t));
    crypto_stream_chacha20_xor_ic(bytes, bytes, made_ * sizeof(uint32_t), nonce, next_block_,
                                  key_.data());
    next_block_ += made_ / kBlockWords;
  }

  const Seed key_;
  uint64_t next_block_ = 0;
  size_t made_ = 0, used_ = 0;
  std::array<uint32_t, 8 * kStepWords> words_;
};

constexpr auto kSecret = PageBuffer::Content::kSecret;

// Draws the bucket of every item, and counts those that live: lives(i) is 1 or 0.
template <typename Lives>
void DrawBuckets(Draws& draws, uint32_t buckets, std::span<uint16_t> bucket_of, uint32_t* counts,
                 const Lives& lives) {
  static_assert(BucketDraw::kNowhere == 0xffff);
  for (size_t at = 0; at < bucket_of.size();) {
    const std::span words = draws.Next(bucket_of.size() - at);
    uint16_t* const to = bucket_of.data() + at;
    for (size_t i = 0; i < words.size(); ++i) {
      const uint32_t bucket = words[i] & (buckets - 1), living = lives(at + i);
      to[i] = static_cast<uint16_t>(bucket | (living - 1));
      counts[bucket] += living;
    }
    at += words.size();
  }
}

// Fisher and Yates' shuffle. A draw below r is unbiased (Lemire 2019, algorithm 5): a word gives
// it, or is rejected.
void PermuteBucket(Draws& draws, std::span<uint32_t> mine) {
  for (uint64_t r = mine.size(); r > 1;) {
    for (const uint32_t word : draws.Next(r - 1)) {
      const uint64_t product = word * r;
      const auto low = static_cast<uint32_t>(product), below = static_cast<uint32_t>(r);
      if (low < below && low < -below % below) continue;
      const uint32_t last = mine[--r];
      mine[r] = std::exchange(mine[product >> 32], last);
    }
  }
}

// Gives items of the run's buckets the places that are next there.
void PlaceItems(std::span<const uint16_t> bucket_of, uint32_t first_bucket, uint32_t buckets,
                uint32_t* next, const uint32_t* places, uint32_t* target) {
  for (size_t i = 0; i < bucket_of.size(); ++i) {
    const uint32_t k = bucket_of[i] - first_bucket;  // large if the bucket is not in the run
    if (k < buckets) target[i] = places[next[k]++];
  }
}

}  // namespace

uint32_t BucketCount(uint64_t n) {
  // A power of two, so that a bucket is some bits of a draw.
  const auto of = [n](uint64_t items) { return std::bit_ceil((n + items - 1) / items); };
  const uint64_t wanted = std::max(of(kBucketItems), std::min(of(kFewItems), kFewBuckets));
  return static_cast<uint32_t>(std::min<uint64_t>(kMaxBuckets, wanted));
}

absl::StatusOr<BucketDraw> BucketDraw::Create(uint32_t buckets, uint64_t first, uint64_t count,
                                              std::span<const uint8_t> living, BytesView key,
                                              ThreadPool& pool) {
  SHOAL_CHECK(std::has_single_bit(buckets) && buckets <= kMaxBuckets);
  SHOAL_CHECK(living.empty() || living.size() == count);
  BucketDraw draw;
  draw.buckets_ = buckets;
  draw.counts_.resize(buckets);
  SHOAL_ASSIGN_OR_RETURN(draw.bucket_of_, PageArray<uint16_t>::Create(count, kSecret));
  const uint64_t first_chunk = first / kChunk;
  for (uint64_t at = 0; at < count; at = draw.chunks_.back().end) {
    const uint64_t next_chunk = ((first + at) / kChunk + 1) * kChunk;
    draw.chunks_.push_back({at, std::min(count, next_chunk - first)});
  }
  draw.chunk_counts_.resize(draw.chunks_.size() * buckets);
  pool.ParallelFor(draw.chunks_.size(), 1, [&](size_t begin, size_t end) {
    for (size_t chunk = begin; chunk < end; ++chunk) {
      Draws draws(key, "shoal permutation buckets v2", first_chunk + chunk);
      if (chunk == 0) draws.Skip(first % kChunk);
      const auto [from, to] = draw.chunks_[chunk];
      const std::span bucket_of = draw.bucket_of_.span().subspan(from, to - from);
      uint32_t* const counts = draw.chunk_counts_.data() + chunk * buckets;
      if (living.empty()) {
        DrawBuckets(draws, buckets, bucket_of, counts, [](size_t) { return 1u; });
      } else {
        const uint8_t* const lives = living.data() + from;
        DrawBuckets(draws, buckets, bucket_of, counts,
                    [&](size_t i) { return lives[i] != 0 ? 1u : 0u; });
      }
    }
  });
  for (size_t i = 0; i < draw.chunk_counts_.size(); ++i) {
    draw.counts_[i % buckets] += draw.chunk_counts_[i];
  }
  return draw;
}

absl::StatusOr<BucketRun> BucketRun::Permute(uint32_t first_bucket, uint32_t first_place,
                                             std::span<const uint32_t> sizes, BytesView key,
                                             ThreadPool& pool) {
  BucketRun run;
  run.first_bucket_ = first_bucket;
  run.first_place_ = first_place;
  run.start_.resize(sizes.size() + 1);
  std::partial_sum(sizes.begin(), sizes.end(), run.start_.begin() + 1);
  SHOAL_ASSIGN_OR_RETURN(run.places_, PageArray<uint32_t>::Create(run.start_.back(), kSecret));
  const size_t grain = 1 + kPieceItems * sizes.size() / (1 + run.places_.size());
  pool.ParallelFor(sizes.size(), grain, [&](size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      Draws draws(key, "shoal permutation places v2", first_bucket + k);
      uint32_t* const mine = run.places_.data() + run.start_[k];
      const uint32_t count = sizes[k], place = first_place + run.start_[k];
      for (uint32_t r = 0; r < count; ++r) mine[r] = place + r;
      PermuteBucket(draws, {mine, count});
    }
  });
  return run;
}

std::span<const uint32_t> BucketRun::places(uint32_t bucket) const {
  SHOAL_CHECK(bucket >= first_bucket() && bucket < end_bucket());
  const size_t k = bucket - first_bucket_;
  return places_.span().subspan(start_[k], start_[k + 1] - start_[k]);
}

void BucketRun::Place(const BucketDraw& slice, std::span<const uint32_t> before,
                      std::span<uint32_t> target, ThreadPool& pool) const {
  const uint32_t buckets = end_bucket() - first_bucket();
  SHOAL_CHECK(before.size() == buckets && target.size() == slice.bucket_of().size() &&
              end_bucket() <= slice.buckets_);
  // Where the next item of each chunk and bucket stands in places_.
  SecretVector<uint32_t> next(slice.chunks_.size() * buckets);
  for (uint32_t k = 0; k < buckets; ++k) {
    uint32_t at = start_[k] + before[k];
    for (size_t chunk = 0; chunk < slice.chunks_.size(); ++chunk) {
      next[chunk * buckets + k] = at;
      at += slice.chunk_counts_[chunk * slice.buckets_ + first_bucket_ + k];
    }
    SHOAL_CHECK(at <= start_[k + 1]);
  }
  pool.ParallelFor(slice.chunks_.size(), 1, [&](size_t begin, size_t end) {
    for (size_t chunk = begin; chunk < end; ++chunk) {
      const auto [from, to] = slice.chunks_[chunk];
      PlaceItems(slice.bucket_of().subspan(from, to - from), first_bucket_, buckets,
                 next.data() + chunk * buckets, places_.data(), target.data() + from);
    }
  });
}

absl::StatusOr<PageArray<uint32_t>> RandomPermutation(uint64_t n, BytesView key, ThreadPool& pool) {
  return RandomPermutationInBuckets(n, BucketCount(n), key, pool);
}

absl::StatusOr<PageArray<uint32_t>> RandomPermutationInBuckets(uint64_t n, uint32_t buckets,
                                                               BytesView key, ThreadPool& pool) {
  SHOAL_CHECK(n <= std::numeric_limits<uint32_t>::max());
  SHOAL_ASSIGN_OR_RETURN(auto target, PageArray<uint32_t>::Create(n, kSecret));
  SHOAL_ASSIGN_OR_RETURN(const BucketDraw all, BucketDraw::Create(buckets, 0, n, {}, key, pool));
  SHOAL_ASSIGN_OR_RETURN(const BucketRun run, BucketRun::Permute(0, 0, all.counts(), key, pool));
  run.Place(all, std::vector<uint32_t>(buckets), target.span(), pool);
  return target;
}

absl::StatusOr<SecretVector<uint32_t>> ItemsAt(uint64_t begin, uint64_t end, uint64_t n,
                                               BytesView key, ThreadPool& pool) {
  SHOAL_CHECK(begin <= end && end <= n && n <= std::numeric_limits<uint32_t>::max());
  SecretVector<uint32_t> items(end - begin);
  if (items.empty()) return items;
  SHOAL_ASSIGN_OR_RETURN(const BucketDraw all,
                         BucketDraw::Create(BucketCount(n), 0, n, {}, key, pool));
  // The buckets that places begin to end - 1 meet.
  uint32_t first_bucket = 0, place = 0;
  while (place + all.counts()[first_bucket] <= begin) place += all.counts()[first_bucket++];
  uint32_t end_bucket = first_bucket;
  for (uint64_t met = place; met < end; ++end_bucket) met += all.counts()[end_bucket];
  const auto sizes = all.counts().subspan(first_bucket, end_bucket - first_bucket);
  SHOAL_ASSIGN_OR_RETURN(const BucketRun run,
                         BucketRun::Permute(first_bucket, place, sizes, key, pool));
  SecretVector<uint32_t> next(sizes.size());  // how many items of each bucket were passed
  for (uint32_t item = 0; item < n; ++item) {
    const uint32_t k = all.bucket_of()[item] - first_bucket;  // large if not of the run
    if (k >= sizes.size()) continue;
    const uint32_t at = run.places(first_bucket + k)[next[k]++];
    if (at >= begin && at < end) items[at - begin] = item;
  }
  return items;
}

}  // namespace shoal::shuffle
