#include "src/table/placement.h"

#include <algorithm>
#include <numeric>
#include <optional>

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

// One try with fixed rows and seed: nothing if some bucket fits nowhere.
std::optional<Placement> TryPlace(const std::vector<uint32_t>& record_bytes,
                                  const std::vector<KeyHash>& hashes, const HashSeed& seed,
                                  uint32_t buckets, uint64_t rows, uint32_t row_bytes) {
  // Keys grouped by bucket: members[begin[b] .. begin[b + 1]).
  std::vector<uint32_t> begin(size_t{buckets} + 1, 0);
  std::vector<uint64_t> bucket_bytes(buckets, 0);
  for (size_t i = 0; i < hashes.size(); ++i) {
    const uint32_t bucket = BucketOf(hashes[i], buckets);
    ++begin[bucket + 1];
    bucket_bytes[bucket] += record_bytes[i];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<uint32_t> members(hashes.size());
  {
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    for (size_t i = 0; i < hashes.size(); ++i) {
      members[next[BucketOf(hashes[i], buckets)]++] = static_cast<uint32_t>(i);
    }
  }
  std::vector<uint32_t> order(buckets);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return bucket_bytes[a] > bucket_bytes[b];
  });

  Placement placement{.seed = seed, .rows = rows, .displacements = Bytes(buckets, 0)};
  std::vector<uint32_t> load(rows, 0);
  uint64_t placed_bytes = 0;
  for (const uint32_t bucket : order) {
    if (bucket_bytes[bucket] == 0) break;
    const std::span<const uint32_t> keys(members.data() + begin[bucket],
                                         begin[bucket + 1] - begin[bucket]);
    // The displacement whose fullest row stays emptiest. It is good enough, and the search ends,
    // when that row is no fuller than rows are on average.
    const uint32_t average = static_cast<uint32_t>((placed_bytes + bucket_bytes[bucket]) / rows);
    uint32_t best_load = row_bytes + 1;
    int best = -1;
    for (int d = 0; d < kDisplacements && best_load > average; ++d) {
      uint32_t fullest = 0;
      size_t done = 0;
      for (; done < keys.size(); ++done) {
        uint32_t& row = load[RowOf(hashes[keys[done]], static_cast<uint8_t>(d), rows)];
        row += record_bytes[keys[done]];
        fullest = std::max(fullest, row);
        if (fullest >= best_load) {
          ++done;
          break;
        }
      }
      for (size_t i = 0; i < done; ++i) {
        load[RowOf(hashes[keys[i]], static_cast<uint8_t>(d), rows)] -= record_bytes[keys[i]];
      }
      if (fullest < best_load) {
        best_load = fullest;
        best = d;
      }
    }
    if (best < 0) return std::nullopt;
    placement.displacements[bucket] = static_cast<uint8_t>(best);
    for (const uint32_t key : keys) {
      load[RowOf(hashes[key], static_cast<uint8_t>(best), rows)] += record_bytes[key];
    }
    placed_bytes += bucket_bytes[bucket];
  }
  return placement;
}

}  // namespace

KeyHash HashKey(const HashSeed& seed, BytesView key) {
  uint8_t out[crypto_shorthash_siphashx24_BYTES];
  crypto_shorthash_siphashx24(out, key.data(), key.size(), seed.data());
  return {.bucket_word = LoadLe<uint64_t>(out), .row_word = LoadLe<uint64_t>(out + 8)};
}

absl::StatusOr<Placement> Place(const std::vector<uint32_t>& record_bytes,
                                const std::function<BytesView(size_t)>& key, uint32_t row_bytes,
                                RandomSource& random) {
  const size_t n = record_bytes.size();
  SHOAL_CHECK(n < UINT32_MAX);
  uint64_t total_bytes = 0;
  for (const uint32_t bytes : record_bytes) {
    SHOAL_CHECK(bytes > 0 && bytes <= row_bytes);
    total_bytes += bytes;
  }
  const auto buckets = static_cast<uint32_t>(
      std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(n) / kKeysPerBucket)));
  uint64_t last_rows = 0;
  for (double fill = kFirstFill; fill >= kLastFill; fill -= kFillStep) {
    const auto rows = std::max<uint64_t>(
        1, static_cast<uint64_t>(static_cast<double>(total_bytes) / (fill * row_bytes) + 0.999999));
    // Small tables: many fills are the same number of rows, each gets a few seeds.
    const int tries = rows == last_rows ? 1 : 2;
    last_rows = rows;
    for (int i = 0; i < tries; ++i) {
      HashSeed seed;
      random.Fill(seed);
      std::vector<KeyHash> hashes(n);
      for (size_t k = 0; k < n; ++k) hashes[k] = HashKey(seed, key(k));
      std::optional<Placement> placement =
          TryPlace(record_bytes, hashes, seed, buckets, rows, row_bytes);
      if (placement.has_value()) return *std::move(placement);
    }
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "no placement into rows of ", row_bytes,
      " bytes: many records are nearly as long as a row; choose longer rows"));
}

}  // namespace shoal::table
