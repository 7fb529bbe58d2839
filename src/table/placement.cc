#include "src/table/placement.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/check.h"

namespace shoal::table {
namespace {

static_assert(std::tuple_size_v<HashSeed> == crypto_shorthash_siphashx24_KEYBYTES);

// Keys a bucket on average: 1 / kKeysPerBucket bytes of metadata a key. More keys make the last
// buckets hard to place.
constexpr double kKeysPerBucket = 2;
constexpr double kFirstFill = 0.98;
constexpr double kLastFill = 0.3;
constexpr double kFillStep = 0.005;
constexpr int kDisplacements = 256;
// A placement is made anew if it needs at most this share of an earlier epoch's rows.
constexpr double kKeptShare = 0.75;

std::vector<KeyHash> HashKeys(const HashSeed& seed, const std::function<BytesView(size_t)>& key,
                              size_t n) {
  std::vector<KeyHash> hashes(n);
  for (size_t i = 0; i < n; ++i) hashes[i] = HashKey(seed, key(i));
  return hashes;
}

// Keys by the bucket that they are in.
class Buckets {
 public:
  Buckets(const std::vector<uint32_t>& record_bytes, const std::vector<KeyHash>& hashes,
          uint32_t count)
      : begin_(size_t{count} + 1, 0), bytes_(count, 0), members_(hashes.size()) {
    for (size_t i = 0; i < hashes.size(); ++i) {
      const uint32_t bucket = BucketOf(hashes[i], count);
      ++begin_[bucket + 1];
      bytes_[bucket] += record_bytes[i];
    }
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    std::vector<uint32_t> next(begin_.begin(), begin_.end() - 1);
    for (size_t i = 0; i < hashes.size(); ++i) {
      members_[next[BucketOf(hashes[i], count)]++] = static_cast<uint32_t>(i);
    }
  }
  std::span<const uint32_t> KeysOf(uint32_t bucket) const {
    return std::span(members_).subspan(begin_[bucket], begin_[bucket + 1] - begin_[bucket]);
  }
  uint64_t bytes(uint32_t bucket) const { return bytes_[bucket]; }
  // Those that have any keys, the longest first.
  std::vector<uint32_t> ByBytes() const {
    std::vector<uint32_t> order;
    for (uint32_t bucket = 0; bucket < bytes_.size(); ++bucket) {
      if (bytes_[bucket] > 0) order.push_back(bucket);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return bytes_[a] > bytes_[b]; });
    return order;
  }

 private:
  std::vector<uint32_t> begin_;  // of each bucket among the members, and their number
  std::vector<uint64_t> bytes_;
  std::vector<uint32_t> members_;  // keys
};

// Tries to find a displacement for every bucket, with the seed of the hashes and the rows of
// `placement`. False if some bucket fits nowhere. With `keep`, a bucket's present displacement is
// tried first.
bool TryPlace(const std::vector<uint32_t>& record_bytes, const std::vector<KeyHash>& hashes,
              uint32_t row_bytes, bool keep, Placement& placement) {
  const uint64_t rows = placement.rows;
  const auto buckets = static_cast<uint32_t>(placement.displacements.size());
  const Buckets grouped(record_bytes, hashes, buckets);
  std::vector<uint32_t> order = grouped.ByBytes();

  std::vector<uint32_t> load(rows, 0);
  uint64_t placed_bytes = 0;
  // Bytes in the fullest row that the bucket's keys would go to, with the keys in it. Stops
  // counting at `enough`.
  const auto fullest_row = [&](uint32_t bucket, uint8_t displacement, uint32_t enough) {
    const std::span<const uint32_t> keys = grouped.KeysOf(bucket);
    uint32_t fullest = 0;
    size_t done = 0;
    for (; done < keys.size() && fullest < enough; ++done) {
      uint32_t& row = load[RowOf(hashes[keys[done]], displacement, rows)];
      row += record_bytes[keys[done]];
      fullest = std::max(fullest, row);
    }
    for (size_t i = 0; i < done; ++i) {
      load[RowOf(hashes[keys[i]], displacement, rows)] -= record_bytes[keys[i]];
    }
    return fullest;
  };
  const auto put = [&](uint32_t bucket, uint8_t displacement) {
    placement.displacements[bucket] = displacement;
    for (const uint32_t key : grouped.KeysOf(bucket)) {
      load[RowOf(hashes[key], displacement, rows)] += record_bytes[key];
    }
    placed_bytes += grouped.bytes(bucket);
  };

  if (keep) {
    std::vector<uint32_t> moving;
    for (const uint32_t bucket : order) {
      const uint8_t kept = placement.displacements[bucket];
      if (fullest_row(bucket, kept, row_bytes + 1) <= row_bytes) {
        put(bucket, kept);
      } else {
        moving.push_back(bucket);
      }
    }
    order = std::move(moving);
  }
  for (const uint32_t bucket : order) {
    // The displacement whose fullest row stays emptiest. It is good enough, and the search ends,
    // when that row is no fuller than rows are on average.
    const uint32_t average = static_cast<uint32_t>((placed_bytes + grouped.bytes(bucket)) / rows);
    uint32_t best_load = row_bytes + 1;
    int best = -1;
    for (int d = 0; d < kDisplacements && best_load > average; ++d) {
      const uint32_t fullest = fullest_row(bucket, static_cast<uint8_t>(d), best_load);
      if (fullest < best_load) {
        best_load = fullest;
        best = d;
      }
    }
    if (best < 0) return false;
    put(bucket, static_cast<uint8_t>(best));
  }
  return true;
}

}  // namespace

HashSeed SeedOf(BytesView bytes) {
  HashSeed seed;
  SHOAL_CHECK(bytes.size() == seed.size());
  std::copy(bytes.begin(), bytes.end(), seed.begin());
  return seed;
}

KeyHash HashKey(const HashSeed& seed, BytesView key) {
  uint8_t out[crypto_shorthash_siphashx24_BYTES];
  crypto_shorthash_siphashx24(out, key.data(), key.size(), seed.data());
  return {.bucket_word = LoadLe<uint64_t>(out), .row_word = LoadLe<uint64_t>(out + 8)};
}

absl::StatusOr<Placement> Place(const std::vector<uint32_t>& record_bytes,
                                const std::function<BytesView(size_t)>& key, uint32_t row_bytes,
                                RandomSource& random, const Placement* previous) {
  const size_t n = record_bytes.size();
  SHOAL_CHECK(n < UINT32_MAX);
  uint64_t total_bytes = 0;
  for (const uint32_t bytes : record_bytes) {
    SHOAL_CHECK(bytes > 0 && bytes <= row_bytes);
    total_bytes += bytes;
  }
  std::optional<Placement> kept;
  // The number of buckets is kept with the placement, and every bucket is a byte of metadata. If
  // few of many keys are left, there would be several bytes for each key.
  if (previous != nullptr && previous->displacements.size() <= std::max<size_t>(1, n)) {
    kept = *previous;
    if (!TryPlace(record_bytes, HashKeys(kept->seed, key, n), row_bytes, /*keep=*/true, *kept)) {
      kept.reset();
    }
  }
  if (kept.has_value() &&
      static_cast<double>(total_bytes) > kKeptShare * static_cast<double>(kept->rows * row_bytes)) {
    return *std::move(kept);
  }
  const auto buckets = static_cast<uint32_t>(
      std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(n) / kKeysPerBucket)));
  uint64_t last_rows = 0;
  for (double fill = kFirstFill; fill >= kLastFill; fill -= kFillStep) {
    const auto rows = std::max<uint64_t>(
        1, static_cast<uint64_t>(static_cast<double>(total_bytes) / (fill * row_bytes) + 0.999999));
    if (kept.has_value() &&
        static_cast<double>(rows) > kKeptShare * static_cast<double>(kept->rows)) {
      return *std::move(kept);
    }
    // Each number of rows is tried with two seeds, and in small tables with one more for every
    // further fill that gives the same number of rows.
    const int tries = rows == last_rows ? 1 : 2;
    last_rows = rows;
    for (int i = 0; i < tries; ++i) {
      Placement placement{.seed = {}, .rows = rows, .displacements = Bytes(buckets, 0)};
      random.Fill(placement.seed);
      if (TryPlace(record_bytes, HashKeys(placement.seed, key, n), row_bytes, /*keep=*/false,
                   placement)) {
        return placement;
      }
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("no placement into rows of ", row_bytes,
                   " bytes: many records are nearly as long as a row; choose longer rows"));
}

}  // namespace shoal::table
