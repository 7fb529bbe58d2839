#include "src/shuffle/scatter.h"

#include <algorithm>
#include <utility>

#include "sodium.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::shuffle {
namespace {

constexpr size_t kFlushBytes = 512 << 10;  // what is written to the file at a time
constexpr size_t kReadBytes = 16 << 20;    // what is read back, by all threads, at a time
constexpr size_t kPieceBytes = 2 << 20;    // what Next gives
constexpr size_t kChunkBytes = 128 << 10;  // what one thread moves at a time
constexpr size_t kChunkRecords = 1024;
// Threads that share the records of one call; every one looks at all places.
constexpr size_t kMostPutters = 8;

}  // namespace

absl::StatusOr<Scatter> Scatter::Create(uint64_t places, size_t record_bytes, Spool spool) {
  return CreateFor(places, places, record_bytes, kBucketBytes, std::move(spool));
}

absl::StatusOr<Scatter> Scatter::CreateFor(uint64_t wanted, uint64_t places, size_t record_bytes,
                                           uint64_t bucket_bytes, Spool spool) {
  SHOAL_CHECK(wanted <= places && places < kNowhere && record_bytes > 0);
  SHOAL_CHECK(spool.size() == MemoryBytes(places, record_bytes));
  Scatter scatter;
  scatter.wanted_ = wanted;
  scatter.places_ = places;
  scatter.record_bytes_ = record_bytes;
  scatter.spool_ = std::move(spool);
  if (scatter.in_memory()) return scatter;
  scatter.bucket_places_ = std::max<uint64_t>(1, bucket_bytes / scatter.entry_bytes());
  scatter.buckets_.resize((places + scatter.bucket_places_ - 1) / scatter.bucket_places_);
  return scatter;
}

absl::Status Scatter::MakeBuffers() {
  constexpr auto kSecret = PageBuffer::Content::kSecret;
  const uint64_t most = std::min(places_, bucket_places_);
  const uint64_t read = std::min(most, std::max<uint64_t>(1, kReadBytes / entry_bytes()));
  SHOAL_ASSIGN_OR_RETURN(entries_, PageBuffer::Create(read * entry_bytes(), kSecret));
  SHOAL_ASSIGN_OR_RETURN(ordered_, PageBuffer::Create(most * record_bytes_, kSecret));
  return absl::OkStatus();
}

void Scatter::Rewind() {
  given_ = 0;
  loaded_ = 0;
  entries_ = {};
  ordered_ = {};
}

BytesView Scatter::Records(uint64_t first, uint64_t count) const {
  SHOAL_CHECK(in_memory() && first >= wanted_ && first + count <= places_);
  return spool_.memory().subspan(first * record_bytes_, count * record_bytes_);
}

void Scatter::WipeFrom(uint64_t first) {
  SHOAL_CHECK(first >= wanted_ && first <= places_);
  if (!in_memory()) return;
  const MutableBytes rest = spool_.memory().subspan(first * record_bytes_);
  sodium_memzero(rest.data(), (places_ - first) * record_bytes_);
}

Spool Scatter::TakeSpool() && {
  SHOAL_CHECK(in_memory());
  return std::move(spool_);
}

uint64_t Scatter::BucketPlaces(size_t bucket) const {
  return std::min(bucket_places_, places_ - bucket * bucket_places_);
}

absl::Status Scatter::Put(std::span<const uint32_t> places, BytesView records, ThreadPool& pool) {
  SHOAL_CHECK(records.size() == places.size() * record_bytes_);
  return PutRecords(
      places, [&](size_t i) { return records.data() + i * record_bytes_; }, pool);
}

absl::Status Scatter::PutSome(std::span<const uint32_t> numbers, std::span<const uint32_t> places,
                              BytesView records, ThreadPool& pool) {
  SHOAL_CHECK(numbers.size() == places.size());
  const size_t count = records.size() / record_bytes_;
  SHOAL_CHECK(std::ranges::all_of(numbers, [&](uint32_t number) { return number < count; }));
  return PutRecords(
      places, [&](size_t i) { return records.data() + numbers[i] * record_bytes_; }, pool);
}

template <typename RecordOf>
absl::Status Scatter::PutRecords(std::span<const uint32_t> places, const RecordOf& record_of,
                                 ThreadPool& pool) {
  SHOAL_CHECK(given_ == 0);
  if (in_memory()) {
    uint8_t* const to = spool_.memory().data();
    pool.ParallelFor(places.size(), std::max<size_t>(1, kChunkBytes / record_bytes_),
                     [&](size_t begin, size_t end) {
                       for (size_t i = begin; i < end; ++i) {
                         if (places[i] == kNowhere) continue;
                         SHOAL_CHECK(places[i] < places_);
                         std::copy_n(record_of(i), record_bytes_, to + places[i] * record_bytes_);
                       }
                     });
    return absl::OkStatus();
  }
  const size_t putters = places.size() < kChunkRecords ? 1 : std::min(pool.size(), kMostPutters);
  return pool.TryParallelFor(putters, 1, [&](size_t putter, size_t) {
    return PutInBuckets(places, record_of, putter, putters);
  });
}

template <typename RecordOf>
absl::Status Scatter::PutInBuckets(std::span<const uint32_t> places, const RecordOf& record_of,
                                   size_t first, size_t of) {
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == kNowhere) continue;
    SHOAL_CHECK(places[i] < places_);
    const size_t number = places[i] / bucket_places_;
    if (number % of != first) continue;
    SecretVector<uint8_t>& waiting = buckets_[number].waiting;
    const size_t at = waiting.size();
    waiting.resize(at + entry_bytes());
    StoreLe(waiting.data() + at, places[i]);
    std::copy_n(record_of(i), record_bytes_, waiting.data() + at + sizeof(uint32_t));
    if (waiting.size() >= kFlushBytes) SHOAL_RETURN_IF_ERROR(Flush(number));
  }
  return absl::OkStatus();
}

absl::Status Scatter::Flush(size_t number) {
  Bucket& bucket = buckets_[number];
  const uint64_t room = BucketPlaces(number) * entry_bytes();
  SHOAL_CHECK(bucket.written + bucket.waiting.size() <= room);  // else a place was put twice
  SHOAL_RETURN_IF_ERROR(
      spool_.Write(number * bucket_places_ * entry_bytes() + bucket.written, bucket.waiting));
  bucket.written += bucket.waiting.size();
  bucket.waiting.clear();
  return absl::OkStatus();
}

absl::Status Scatter::Load(ThreadPool& pool) {
  if (ordered_.empty()) SHOAL_RETURN_IF_ERROR(MakeBuffers());
  SHOAL_RETURN_IF_ERROR(Flush(loaded_));
  SecretVector<uint8_t>().swap(buckets_[loaded_].waiting);
  const uint64_t first = loaded_ * bucket_places_;
  const uint64_t bytes = buckets_[loaded_].written;
  for (uint64_t at = 0; at < bytes; at += entries_.size()) {
    const MutableBytes entries =
        MutableBytes(entries_).first(std::min(entries_.size(), bytes - at));
    SHOAL_RETURN_IF_ERROR(spool_.Read(first * entry_bytes() + at, entries, &pool));
    pool.ParallelFor(entries.size() / entry_bytes(), kChunkRecords, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const uint8_t* const entry = entries.data() + i * entry_bytes();
        const uint64_t place = LoadLe<uint32_t>(entry) - first;
        std::copy_n(entry + sizeof(uint32_t), record_bytes_,
                    ordered_.data() + place * record_bytes_);
      }
    });
  }
  ++loaded_;
  const uint64_t next = loaded_ * bucket_places_;
  if (next < wanted_) {
    spool_.WillRead(next * entry_bytes(), buckets_[loaded_].written);
  }
  return absl::OkStatus();
}

absl::StatusOr<MutableBytes> Scatter::Next(ThreadPool& pool) {
  if (given_ == wanted_) return MutableBytes();
  uint64_t count =
      std::min<uint64_t>(wanted_ - given_, std::max<size_t>(1, kPieceBytes / record_bytes_));
  MutableBytes bytes;
  if (in_memory()) {
    bytes = spool_.memory().subspan(given_ * record_bytes_, count * record_bytes_);
  } else {
    if (given_ == loaded_ * bucket_places_) SHOAL_RETURN_IF_ERROR(Load(pool));
    const uint64_t first = (loaded_ - 1) * bucket_places_;
    count = std::min(count, first + bucket_places_ - given_);
    bytes = MutableBytes(ordered_).subspan((given_ - first) * record_bytes_, count * record_bytes_);
  }
  given_ += count;
  return bytes;
}

}  // namespace shoal::shuffle
