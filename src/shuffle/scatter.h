// Puts records of one size in the order of their places, also when they are more than memory holds.
#ifndef SHOAL_SRC_SHUFFLE_SCATTER_H_
#define SHOAL_SRC_SHUFFLE_SCATTER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/page_buffer.h"
#include "src/base/spool.h"
#include "src/base/thread_pool.h"

namespace shoal::shuffle {

// First Put for all records, in any order; then Next until it is empty. In memory a record goes
// straight to its place. In a file records gather in buckets of neighbouring places, each bucket is
// written in long runs, and read back once to be put in order in memory: two passes over the disk,
// and the memory of two buckets and of what waits to be written, half a mebibyte a bucket or a
// record. Thread-compatible.
class Scatter {
 public:
  static constexpr uint32_t kNowhere = 0xffffffff;

  // For places below `places`, of `record_bytes` each. `room`: MemoryBytes of a later one, which will
  // find the memory of this one if that is plentiful (SpoolPlace::Create).
  static absl::StatusOr<Scatter> Create(uint64_t places, size_t record_bytes, SpoolPlace& spools,
                                        uint64_t room = 0);
  // The same, but only the first `wanted` places are handed out. What is put to the others is work
  // that looks the same and is forgotten: so nobody who can time Put learns which are which.
  static absl::StatusOr<Scatter> CreateFor(uint64_t wanted, uint64_t places, size_t record_bytes,
                                           SpoolPlace& spools);

  // places[i] is for the i-th record, or kNowhere: it is dropped. A place is put at most once.
  // Errors of the file system.
  absl::Status Put(std::span<const uint32_t> places, BytesView records, ThreadPool& pool);

  // The records of the next places, from 0 on: some megabytes at most, at least one record, empty
  // at the end. At a place that was never put there are bytes without meaning. The caller may write
  // to them, and may keep them until the next call.
  absl::StatusOr<MutableBytes> Next(ThreadPool& pool);

  // Of all that Next hands out.
  uint64_t size() const { return wanted_ * record_bytes_; }

  // For tests: buckets of at most `bucket_bytes`, or of one record.
  static absl::StatusOr<Scatter> CreateInBuckets(uint64_t wanted, uint64_t places,
                                                 size_t record_bytes, uint64_t bucket_bytes,
                                                 SpoolPlace& spools, uint64_t room = 0);

  static uint64_t MemoryBytes(uint64_t places, size_t record_bytes) {
    return places * EntryBytes(record_bytes);
  }
  // Touches the room beyond its own size, for a later one: before Put.
  void TouchRoom(ThreadPool& pool) { spool_.Touch(spool_.size(), pool); }

 private:
  // Of records with their places, on their way to the file.
  struct Bucket {
    uint64_t written = 0;  // bytes
    Bytes waiting;
  };
  // In a file a record travels with its place.
  static size_t EntryBytes(size_t record_bytes) { return record_bytes + sizeof(uint32_t); }
  size_t entry_bytes() const { return EntryBytes(record_bytes_); }
  uint64_t BucketPlaces(size_t bucket) const;
  void PutInMemory(std::span<const uint32_t> places, BytesView records);
  // The records that go to every `of`-th bucket from `first` on.
  absl::Status PutInBuckets(std::span<const uint32_t> places, BytesView records, size_t first,
                            size_t of);
  // What waits of a bucket. Different ones at the same time.
  absl::Status Flush(size_t bucket);
  absl::Status Load(ThreadPool& pool);

  uint64_t wanted_ = 0, places_ = 0;
  size_t record_bytes_ = 0;
  uint64_t given_ = 0;  // places that Next has handed out
  Spool spool_;

  uint64_t bucket_places_ = 0;
  std::vector<Bucket> buckets_;
  PageBuffer entries_, ordered_;  // of one bucket
  uint64_t loaded_ = 0;           // buckets
};

}  // namespace shoal::shuffle

#endif  // SHOAL_SRC_SHUFFLE_SCATTER_H_
