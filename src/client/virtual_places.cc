#include "src/client/virtual_places.h"

#include <algorithm>
#include <utility>

#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/client/rows.h"

namespace shoal::client {

VirtualPlaces::VirtualPlaces(const QueryBuckets& buckets, uint32_t most_in_bucket)
    : buckets_(buckets), most_in_bucket_(most_in_bucket) {
  SHOAL_CHECK(most_in_bucket >= 1 && count() <= uint64_t{1} << 32);
}

uint32_t VirtualPlaces::Queries(size_t distinct_keys, uint32_t pad_to) const {
  return PaddedCount(distinct_keys, pad_to, count());
}

VirtualPlaces::Taken VirtualPlaces::Take(std::span<const uint32_t> rows) const {
  std::vector<uint32_t> sorted(rows.begin(), rows.end());
  std::ranges::sort(sorted);
  SHOAL_CHECK(std::ranges::adjacent_find(sorted) == sorted.end());
  // Bucket by bucket, with rows rising in each.
  std::ranges::stable_sort(sorted, {}, [&](uint32_t row) { return buckets_.Of(row).bucket; });
  std::vector<std::pair<uint32_t, uint32_t>> taken;  // places and their rows
  Taken out;
  uint32_t bucket = 0, copy = 0;
  for (const uint32_t row : sorted) {
    if (const uint32_t own = buckets_.Of(row).bucket; own != bucket) bucket = own, copy = 0;
    if (copy == most_in_bucket_) {
      out.unknown.push_back(row);
      continue;
    }
    // Below count(), which fits.
    taken.emplace_back(buckets_.RowAt({.bucket = bucket, .place = copy++}), row);
  }
  std::ranges::sort(taken);
  for (const auto& [place, row] : taken) {
    out.places.push_back(place);
    out.rows.push_back(row);
  }
  return out;
}

VirtualPlaces::Queried VirtualPlaces::Draw(std::span<const uint32_t> rows, uint32_t count,
                                           RandomSource& random) const {
  Taken taken = Take(rows);
  Queried out{.rows = PadRows(taken.places, count, this->count(), random),
              .unknown = std::move(taken.unknown)};
  // Draws come from a stream of this call, as there are many small ones.
  const Seed seed = random.NewSeed();
  SeededRandom draws(seed.view(), "shoal client bucket padding v1");
  for (uint32_t& query : out.rows) {
    const auto wanted = std::ranges::lower_bound(taken.places, query);
    if (wanted != taken.places.end() && *wanted == query) {
      query = taken.rows[static_cast<size_t>(wanted - taken.places.begin())];
      continue;
    }
    const uint32_t bucket = buckets_.Divide(query).bucket;
    query = buckets_.RowAt(
        {.bucket = bucket, .place = static_cast<uint32_t>(draws.Below(buckets_.PlacesIn(bucket)))});
  }
  return out;
}

}  // namespace shoal::client
