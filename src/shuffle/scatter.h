// Sorts records of one size by their places, even if they do not fit in memory.
#ifndef SHOAL_SRC_SHUFFLE_SCATTER_H_
#define SHOAL_SRC_SHUFFLE_SCATTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/storage/page_buffer.h"
#include "src/storage/spool.h"

namespace shoal::shuffle {

// Call Put for all records, in any order, then Next until it is empty. In memory a record goes
// straight to its place. In a file, records gather in buckets of neighbouring places. Each bucket
// is written in long runs, then read back once and sorted in memory. That takes two passes over the
// disk, and memory for one bucket, from the first Next on, and for records that wait to be written:
// half a mebibyte (or one record) for each bucket. Thread-compatible.
class Scatter {
 public:
  static constexpr uint64_t kBucketBytes = uint64_t{128} << 20;
  static constexpr uint32_t kNowhere = 0xffffffff;

  // For places 0 to places - 1, with records of `record_bytes` each, in a spool of MemoryBytes
  // (checked).
  static absl::StatusOr<Scatter> Create(uint64_t places, size_t record_bytes, Spool spool);
  // The same, but only the first `wanted` places are handed out. Records for the other places are
  // moved like the rest and never read, so that timing Put does not show which records are which.
  // Buckets have at most `bucket_bytes`, places included, or one record: less than kBucketBytes for
  // several lists that are read at the same time.
  static absl::StatusOr<Scatter> CreateFor(uint64_t wanted, uint64_t places, size_t record_bytes,
                                           uint64_t bucket_bytes, Spool spool);

  // Puts the i-th record to places[i], or drops it if that is kNowhere. Each place is put at most
  // once. Errors of the file system.
  absl::Status Put(std::span<const uint32_t> places, BytesView records, ThreadPool& pool);
  // Puts record numbers[i] of `records` to places[i]; the others are not looked at.
  absl::Status PutSome(std::span<const uint32_t> numbers, std::span<const uint32_t> places,
                       BytesView records, ThreadPool& pool);

  // Returns the records of the next places, from place 0 on: at least one record and at most some
  // megabytes, empty at the end. A place that was never put has arbitrary bytes. The caller may
  // write to the bytes, which are valid until the next call.
  absl::StatusOr<MutableBytes> Next(ThreadPool& pool);

  // Only in memory (checked): the records of places that Next does not hand out, as they lie, until
  // this object dies.
  BytesView Records(uint64_t first, uint64_t count) const;
  // Zeros the records of all places from `first` on, which Next does not hand out (checked), if
  // they are in memory.
  void WipeFrom(uint64_t first);

  // Lets Next begin again with place 0, and frees the memory for a bucket until then. Not for a
  // caller that has written to the bytes.
  void Rewind();

  bool in_memory() const { return spool_.in_memory(); }
  // Only in memory (checked): the spool, with the record of each place at its place.
  Spool TakeSpool() &&;

  // Bytes of all records that Next hands out.
  uint64_t size() const { return wanted_ * record_bytes_; }
  // For tests: memory for a bucket, in bytes. It is twice the bucket at most, as read and in order.
  uint64_t buffer_bytes() const { return entries_.size() + ordered_.size(); }

  static uint64_t MemoryBytes(uint64_t places, size_t record_bytes) {
    return places * EntryBytes(record_bytes);
  }
  // Touches the spool's memory beyond its size, for a later list. Call it before Put.
  void TouchRoom(ThreadPool& pool) { spool_.Touch(spool_.size(), pool); }

 private:
  // Records with their places, on their way to the file.
  struct Bucket {
    uint64_t written = 0;  // bytes
    SecretVector<uint8_t> waiting;
  };
  // In a file a record travels with its place.
  static size_t EntryBytes(size_t record_bytes) { return record_bytes + sizeof(uint32_t); }
  size_t entry_bytes() const { return EntryBytes(record_bytes_); }
  uint64_t BucketPlaces(size_t bucket) const;
  // record_of(i) is where the record for places[i] is.
  template <typename RecordOf>
  absl::Status PutRecords(std::span<const uint32_t> places, const RecordOf& record_of,
                          ThreadPool& pool);
  // Handles the records for every `of`-th bucket from bucket `first` on.
  template <typename RecordOf>
  absl::Status PutInBuckets(std::span<const uint32_t> places, const RecordOf& record_of,
                            size_t first, size_t of);
  // Writes the waiting records of a bucket. Different buckets may be flushed at the same time.
  absl::Status Flush(size_t bucket);
  absl::Status MakeBuffers();
  absl::Status Load(ThreadPool& pool);

  uint64_t wanted_ = 0, places_ = 0;
  size_t record_bytes_ = 0;
  uint64_t given_ = 0;  // places that Next has handed out
  Spool spool_;

  uint64_t bucket_places_ = 0;
  std::vector<Bucket> buckets_;
  PageBuffer entries_;   // as they are read back, a part of a bucket at a time
  PageBuffer ordered_;   // the records of one bucket
  uint64_t loaded_ = 0;  // buckets
};

}  // namespace shoal::shuffle

#endif  // SHOAL_SRC_SHUFFLE_SCATTER_H_
