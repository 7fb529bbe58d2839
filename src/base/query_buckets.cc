#include "src/base/query_buckets.h"

#include "absl/strings/str_cat.h"
#include "src/base/check.h"

namespace shoal {

absl::Status QueryBuckets::Check(uint64_t rows, uint64_t buckets) {
  if (rows >= uint64_t{1} << 32) {
    return absl::InvalidArgumentError(
        absl::StrCat("query_buckets: ", rows, " rows are too many for buckets"));
  }
  if (buckets < 2 || buckets > rows) {
    return absl::InvalidArgumentError(
        absl::StrCat("query_buckets: ", buckets, " buckets for ", rows,
                     " rows; there are none, or from 2 up to as many as there are rows"));
  }
  const uint64_t least = (rows + kMaxPlaces - 1) / kMaxPlaces;
  if (buckets < least) {
    return absl::InvalidArgumentError(absl::StrCat(
        "query_buckets: ", buckets, " buckets for ", rows, " rows have up to ",
        (rows + buckets - 1) / buckets, " rows each, and ", kMaxPlaces, " is the most; at least ",
        least, " buckets do (where keys have been asked under fewer, take a multiple of these)"));
  }
  return absl::OkStatus();
}

QueryBuckets::QueryBuckets(uint64_t rows, uint64_t buckets) : rows_(rows), buckets_(buckets) {
  SHOAL_CHECK(Check(rows, buckets).ok());
  inverse_ = ~uint64_t{0} / buckets + 1;
}

uint32_t QueryBuckets::PlacesIn(uint32_t bucket) const {
  SHOAL_CHECK(bucket < buckets_);
  return static_cast<uint32_t>((rows_ - bucket + buckets_ - 1) / buckets_);
}

}  // namespace shoal
