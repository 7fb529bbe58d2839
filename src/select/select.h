// XORs of the rows that secret vectors of bits select: the work of a server of two-server PIR. A
// client gives each of two servers a vector of one bit a row, which alone is uniform and which
// differs from the other server's in the bit of the wanted row. The XOR of both answers is that
// row. (Chor, Goldreich, Kushilevitz, Sudan: "Private Information Retrieval", FOCS 1995,
// section 3.1.)
//
//     selection   K bits, those of low rows in low bits of low bytes; SelectionBytes(K) bytes, of
//                 which the bits past K are ignored
//     rows        up to K of L bytes; those that are missing count as zeros
//     sum         L bytes: sum ^= the XOR of the rows whose bits are set
//
// Every row is read for every query, and neither a branch nor an address depends on a selection's
// bits. Up to 16 queries share the reading of a row from the cache, up to 64 that of a table from
// memory. src/base/instruction_set.h chooses how.
//
// Costs are in docs/performance.md.
//
// Thread-compatible: both functions may run at the same time for other sums. Sums of one call must
// not overlap with one another, nor with rows or selections.
#ifndef SHOAL_SRC_SELECT_SELECT_H_
#define SHOAL_SRC_SELECT_SELECT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/parallel/thread_pool.h"

namespace shoal::select {

inline constexpr size_t kMaxRowBytes = size_t{1} << 20;
inline constexpr size_t kMaxBucketPlaces = size_t{1} << 20;

// 8 bytes for every 64 places begun.
inline constexpr size_t SelectionBytes(size_t places) {
  return 8 * (places / 64 + (places % 64 != 0));
}

namespace internal {
class Scanner;
}

// A table or a bucket of it, in memory that somebody else keeps.
class Rows {
 public:
  // Row i is bytes[stride * i .. + row_bytes). INVALID_ARGUMENT if row_bytes is 0 or more than
  // kMaxRowBytes, if rows overlap, or if the last of them does not end within the bytes.
  static absl::StatusOr<Rows> Strided(BytesView bytes, size_t row_bytes, size_t stride,
                                      size_t count);
  // Row i is rows[i]; the spans themselves must live, too. INVALID_ARGUMENT as above, or if a row
  // has another length.
  static absl::StatusOr<Rows> Spans(std::span<const BytesView> rows, size_t row_bytes);

  size_t row_bytes() const { return row_bytes_; }
  size_t count() const { return count_; }

 private:
  friend class internal::Scanner;
  Rows(size_t row_bytes, size_t count) : row_bytes_(row_bytes), count_(count) {}

  size_t row_bytes_, count_;
  const uint8_t* base_ = nullptr;     // of strided ones
  size_t stride_ = 0;                 // the same
  const BytesView* spans_ = nullptr;  // of others
};

struct Query {
  BytesView selection;
  MutableBytes sum;
};

// Answers queries over one table of `places` places, which may be large. Without a pool the caller
// works alone; with one all threads read an equal part of the table each, for all queries.
//
// INVALID_ARGUMENT, and no sum is changed, if there are more rows than places, a selection has not
// SelectionBytes(places) bytes, or a sum has another length than a row.
absl::Status SelectFromTable(const Rows& table, size_t places, std::span<const Query> queries,
                             ThreadPool* pool = nullptr);

struct BucketQuery {
  size_t bucket;
  Query query;
};

// Answers queries, in any order, each over one of many buckets of `places` places. Reads the
// buckets one after the other, also those without queries. The number of instructions of each
// thread depends on the numbers of buckets, places, queries and threads and on the bytes of a row,
// but neither on the queries' buckets nor, if these are all strided or all spans, on how many rows
// a bucket lacks: queries of one bucket are taken 1, 4 or 16 at a time, which is chosen by these
// numbers, and queries over nothing fill up what is missing to the worst case. (Caches show which
// buckets were read often.) Every thread takes an equal part of this work.
//
// INVALID_ARGUMENT, and no sum is changed, for the reasons above, if there are more than
// kMaxBucketPlaces places, buckets differ in their rows' length, or a query's bucket is none. Where
// there is `ended`, looks at it after each bucket or group of its queries; CANCELLED once it is
// set, and the sums are of no use.
absl::Status SelectFromBuckets(std::span<const Rows> buckets, size_t places,
                               std::span<const BucketQuery> queries, ThreadPool* pool = nullptr,
                               const std::atomic<bool>* ended = nullptr);

// Bytes of memory that this takes beside its arguments.
uint64_t ScheduleBytes(size_t buckets, size_t queries);

}  // namespace shoal::select

#endif  // SHOAL_SRC_SELECT_SELECT_H_
