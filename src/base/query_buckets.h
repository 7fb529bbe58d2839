// Where the rows of a table are in the buckets that queries of two tiers are for (docs/protocol.md,
// section 11): row r is place r div B of bucket r mod B, for B buckets.
#ifndef SHOAL_SRC_BASE_QUERY_BUCKETS_H_
#define SHOAL_SRC_BASE_QUERY_BUCKETS_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace shoal {

class QueryBuckets {
 public:
  // The most rows in a bucket: a query has a bit for each.
  static constexpr uint32_t kMaxPlaces = 1024;

  struct Place {
    uint32_t bucket, place;
    bool operator==(const Place&) const = default;
  };

  // Whether a table of so many rows can have so many buckets: from 2 up to the number of rows, with
  // at most kMaxPlaces rows in each, and fewer than 2^32 rows. INVALID_ARGUMENT names both numbers.
  static absl::Status Check(uint64_t rows, uint64_t buckets);

  // Check has passed (checked).
  QueryBuckets(uint64_t rows, uint64_t buckets);

  uint64_t rows() const { return rows_; }
  uint32_t count() const { return static_cast<uint32_t>(buckets_); }
  // The rows of the fullest bucket, which is bucket 0: K.
  uint32_t most_places() const { return PlacesIn(0); }
  // The rows of one bucket. bucket < count(), checked.
  uint32_t PlacesIn(uint32_t bucket) const;
  // Bytes of a selection: a bit for each place of the fullest bucket, in whole words of 64.
  size_t selection_bytes() const { return 8 * ((most_places() + 63) / 64); }

  // Quotient and remainder of any number by the number of buckets. As a division of the processor
  // takes different times for different numbers, this one multiplies.
  Place Divide(uint32_t number) const {
    // Exact for numbers and divisors below 2^32: Lemire, Kaser, Kurz, "Faster remainder by direct
    // computation" (2019), theorem 1.
    const auto quotient =
        static_cast<uint32_t>((static_cast<unsigned __int128>(inverse_) * number) >> 64);
    return {.bucket = number - quotient * count(), .place = quotient};
  }
  // Where a row is; in constant time. A number that is not below rows() has a place, too.
  Place Of(uint32_t row) const { return Divide(row); }
  // The row at a place that the bucket has (not checked).
  uint32_t RowAt(Place at) const { return at.place * count() + at.bucket; }

 private:
  uint64_t rows_, buckets_;
  uint64_t inverse_;  // 2^64 / buckets, rounded up
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_QUERY_BUCKETS_H_
