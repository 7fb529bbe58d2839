#include "src/shuffle/scatter.h"

#include <algorithm>

#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::shuffle {
namespace {

constexpr uint64_t kBucketBytes = 128 << 20;
constexpr size_t kFlushBytes = 512 << 10;  // what is written to the file at a time
constexpr size_t kPieceBytes = 2 << 20;    // what Next gives
constexpr size_t kChunkBytes = 128 << 10;  // what one thread moves at a time
// What is edited at a time: a part of the first cache, and a vector's worth of records.
constexpr size_t kBlockBytes = 8 << 10, kBlockRecords = 16;
// Records ahead of the one that is written, whose places are fetched: they are anywhere in memory.
constexpr size_t kAhead = 8;

void PrefetchToWrite(const uint8_t* at, size_t bytes) {
  constexpr size_t kLine = 64;
  // Of a long record the beginning; the processor sees the rest coming.
  for (size_t i = 0; i < std::min<size_t>(bytes, 4 * kLine); i += kLine) {
    __builtin_prefetch(at + i, /*rw=*/1);
  }
}

}  // namespace

absl::StatusOr<Scatter> Scatter::CreateFor(uint64_t wanted, uint64_t places, size_t record_bytes,
                                           SpoolPlace& spools) {
  return CreateInBuckets(wanted, places, record_bytes, kBucketBytes, spools);
}

absl::StatusOr<Scatter> Scatter::CreateInBuckets(uint64_t wanted, uint64_t places,
                                                 size_t record_bytes, uint64_t bucket_bytes,
                                                 SpoolPlace& spools) {
  SHOAL_CHECK(wanted <= places && places < kNowhere && record_bytes > 0);
  Scatter scatter;
  scatter.wanted_ = wanted;
  scatter.places_ = places;
  scatter.record_bytes_ = record_bytes;
  const uint64_t entry_bytes = record_bytes + sizeof(uint32_t);
  // In a file a record travels with its place.
  SHOAL_ASSIGN_OR_RETURN(scatter.spool_, spools.Create(places * entry_bytes));
  if (scatter.spool_.in_memory()) return scatter;
  scatter.bucket_places_ = std::max<uint64_t>(1, bucket_bytes / entry_bytes);
  scatter.buckets_.resize((places + scatter.bucket_places_ - 1) / scatter.bucket_places_);
  const uint64_t most = std::min(places, scatter.bucket_places_);
  SHOAL_ASSIGN_OR_RETURN(scatter.entries_, PageBuffer::Create(most * entry_bytes,
                                                              PageBuffer::Content::kPublic));
  SHOAL_ASSIGN_OR_RETURN(scatter.ordered_, PageBuffer::Create(most * record_bytes,
                                                              PageBuffer::Content::kPublic));
  return scatter;
}

size_t Scatter::Chunk() const {
  return std::max<size_t>(kBlockRecords, kChunkBytes / record_bytes_);
}

void Scatter::Move(std::span<const uint32_t> places, BytesView records, bool drops) {
  const auto to = [this](uint32_t place) {
    SHOAL_CHECK(place < places_);
    return spool_.memory().data() + place * record_bytes_;
  };
  const auto dropped = [&](size_t i) { return drops && places[i] == kNowhere; };
  const auto prefetch = [&](size_t i) {
    if (i < places.size() && !dropped(i)) PrefetchToWrite(to(places[i]), record_bytes_);
  };
  for (size_t i = 0; i < kAhead; ++i) prefetch(i);
  for (size_t i = 0; i < places.size(); ++i) {
    prefetch(i + kAhead);
    if (dropped(i)) continue;
    std::copy_n(records.data() + i * record_bytes_, record_bytes_, to(places[i]));
  }
}

absl::Status Scatter::Put(std::span<const uint32_t> places, BytesView records, ThreadPool& pool,
                          const Edit& edit) {
  SHOAL_CHECK(records.size() == places.size() * record_bytes_ && given_ == 0);
  const auto part = [&](auto bytes, size_t first, size_t count) {
    return bytes.subspan(first * record_bytes_, count * record_bytes_);
  };
  const size_t block = std::max(kBlockRecords, kBlockBytes / record_bytes_);
  if (spool_.in_memory()) {
    pool.ParallelFor(places.size(), Chunk(), [&](size_t begin, size_t end) {
      if (!edit) {
        Move(places.subspan(begin, end - begin), part(records, begin, end - begin), true);
        return;
      }
      Bytes copy(std::min(block, end - begin) * record_bytes_);
      for (size_t at = begin; at < end; at += block) {
        const size_t n = std::min(block, end - at);
        std::ranges::copy(part(records, at, n), copy.begin());
        const MutableBytes edited = part(MutableBytes(copy), 0, n);
        edit(places.subspan(at, n), edited);
        Move(places.subspan(at, n), edited, false);
      }
    });
    return absl::OkStatus();
  }
  // Edited by all threads, then put to the buckets in order.
  Bytes copy;
  if (edit) {
    copy.assign(records.begin(), records.end());
    pool.ParallelFor(places.size(), block, [&](size_t begin, size_t end) {
      edit(places.subspan(begin, end - begin), part(MutableBytes(copy), begin, end - begin));
    });
    records = copy;
  }
  for (size_t i = 0; i < places.size(); ++i) {
    if (!edit && places[i] == kNowhere) continue;
    SHOAL_CHECK(places[i] < places_);
    const size_t bucket = places[i] / bucket_places_;
    Bytes& waiting = buckets_[bucket].waiting;
    AppendLe(waiting, places[i]);
    Append(waiting, part(records, i, 1));
    if (waiting.size() < kFlushBytes) continue;
    // They fill evenly: the others are not far from full.
    SHOAL_RETURN_IF_ERROR(pool.TryParallelFor(buckets_.size(), 1, [&](size_t begin, size_t) {
      return buckets_[begin].waiting.size() >= kFlushBytes / 2 ? Flush(begin) : absl::OkStatus();
    }));
  }
  return absl::OkStatus();
}

absl::Status Scatter::Flush(size_t bucket) {
  Bucket& b = buckets_[bucket];
  const uint64_t entry_bytes = record_bytes_ + sizeof(uint32_t);
  const uint64_t room = std::min(bucket_places_, places_ - bucket * bucket_places_) * entry_bytes;
  SHOAL_CHECK(b.written + b.waiting.size() <= room);  // or a place was put twice
  SHOAL_RETURN_IF_ERROR(
      spool_.Write(bucket * bucket_places_ * entry_bytes + b.written, b.waiting));
  b.written += b.waiting.size();
  b.waiting.clear();
  return absl::OkStatus();
}

absl::Status Scatter::Load(ThreadPool& pool) {
  const uint64_t entry_bytes = record_bytes_ + sizeof(uint32_t);
  SHOAL_RETURN_IF_ERROR(Flush(loaded_));
  buckets_[loaded_].waiting = {};
  const uint64_t first = loaded_ * bucket_places_;
  const uint64_t bytes = buckets_[loaded_].written;
  SHOAL_RETURN_IF_ERROR(
      spool_.Read(first * entry_bytes, MutableBytes(entries_).first(bytes), &pool));
  pool.ParallelFor(bytes / entry_bytes, Chunk(), [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const uint8_t* const entry = entries_.data() + i * entry_bytes;
      const uint64_t place = LoadLe<uint32_t>(entry) - first;
      std::copy_n(entry + sizeof(uint32_t), record_bytes_,
                  ordered_.data() + place * record_bytes_);
    }
  });
  ++loaded_;
  return absl::OkStatus();
}

absl::StatusOr<MutableBytes> Scatter::Next(ThreadPool& pool) {
  if (given_ == wanted_) return MutableBytes();
  uint64_t count = std::min<uint64_t>(wanted_ - given_,
                                      std::max<size_t>(1, kPieceBytes / record_bytes_));
  MutableBytes bytes;
  if (spool_.in_memory()) {
    bytes = spool_.memory().subspan(given_ * record_bytes_, count * record_bytes_);
  } else {
    if (given_ == loaded_ * bucket_places_) SHOAL_RETURN_IF_ERROR(Load(pool));
    const uint64_t first = (loaded_ - 1) * bucket_places_;
    count = std::min(count, first + bucket_places_ - given_);
    bytes = MutableBytes(ordered_).subspan((given_ - first) * record_bytes_,
                                           count * record_bytes_);
  }
  given_ += count;
  return bytes;
}

}  // namespace shoal::shuffle
