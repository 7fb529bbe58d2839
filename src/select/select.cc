#include "src/select/select.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sodium.h"
#include "src/base/instruction_set.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/select/kernel.h"

namespace shoal::select {
namespace {

// Queries for which a table is read from memory once.
constexpr size_t kPass = 64;
// Of rows that are not there.
constexpr BytesView kNoRow;
// Rows are fetched a block and so many bytes before they are read.
constexpr size_t kAheadBytes = 8192;
// Less of a table than this is not worth another thread.
constexpr size_t kPartBytes = size_t{1} << 20;

// The project's dispatch. A build for another processor has no such kernels, and no such sets.
const Kernel& ActiveKernel() {
  switch (ActiveInstructionSet()) {
    case InstructionSet::kAvx512:
      return *Avx512Kernel();
    case InstructionSet::kAvx2:
      return *Avx2Kernel();
    case InstructionSet::kPortable:
      break;
  }
  return *PortableKernel();
}

absl::Status CheckRowBytes(size_t row_bytes) {
  if (row_bytes >= 1 && row_bytes <= kMaxRowBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("select: rows of ", row_bytes, " bytes; 1 to ", kMaxRowBytes, " are possible"));
}

absl::Status CheckRows(const Rows& rows, size_t places) {
  if (rows.count() <= places) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("select: ", rows.count(), " rows for ", places, " places"));
}

absl::Status CheckQuery(const Query& query, size_t places, size_t row_bytes) {
  if (query.selection.size() != SelectionBytes(places)) {
    return absl::InvalidArgumentError(absl::StrCat("select: a selection of ",
                                                   query.selection.size(), " bytes; ", places,
                                                   " places take ", SelectionBytes(places)));
  }
  if (query.sum.size() != row_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("select: room for a sum of ", query.sum.size(),
                                                   " bytes; rows have ", row_bytes));
  }
  return absl::OkStatus();
}

void Fetch(const uint8_t* row, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
  __builtin_prefetch(row + bytes - 1);
}

}  // namespace

namespace internal {

// Scans rows for some queries on one thread. What it holds of selections and sums is wiped with it.
class Scanner {
 public:
  // Every table or bucket to come has places up to `places`, and the first `direct` of them in
  // memory at equal distances.
  Scanner(const Kernel& kernel, size_t row_bytes, size_t places, size_t direct, size_t most_queries)
      : kernel_(kernel),
        row_bytes_(row_bytes),
        padded_(PaddedBytes(row_bytes)),
        direct_(direct),
        ahead_(kAheadBytes / row_bytes / kBlockRows * kBlockRows),
        missing_(row_bytes),
        copies_(direct < places ? kBlockRows * row_bytes : 0),
        masks_(kBlockRows * std::min(kGroup, most_queries)),
        words_(kGroup),
        sums_(most_queries * padded_ / sizeof(Line)) {}
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  // Places from 0 on whose rows lie at equal distances.
  static size_t Direct(const Rows& rows) { return rows.spans_ == nullptr ? rows.count_ : 0; }

  // Computes the sums over the places from `begin` on before `end`. Meanwhile fetches what is read
  // next, at last the first rows of `next`.
  void Scan(const Rows& rows, size_t begin, size_t end, std::span<const Query* const> queries,
            const Rows& next) {
    uint8_t* const sums = sums_.data()->bytes;
    std::fill_n(sums, queries.size() * padded_, uint8_t{0});
    for (size_t at = begin; at < end;) {
      const size_t stop = EndOfBlock(at, end);
      // The place to fetch from; behind the end it is one of `next`.
      const size_t ahead = stop + ahead_;
      const bool later = ahead >= end;
      const Rows& then = later ? next : rows;
      const size_t then_at = !later ? ahead : ahead - end < direct_ ? ahead - end : 0;
      Block block = {.rows = {},
                     .count = stop - at,
                     .bytes = row_bytes_,
                     .ahead = {},
                     .selections = words_.data(),
                     .queries = 0};
      if (at < direct_) {
        block.rows = DirectFrom(rows, at);
      } else {
        block.rows = Copy(rows, at, stop);
      }
      if (then_at < direct_) {
        block.ahead = DirectFrom(then, then_at);
      } else {
        for (size_t i = 0; i < kBlockRows; ++i) {
          Fetch(RowOf(then, then_at + i), row_bytes_);
        }
      }
      for (size_t first = 0; first < queries.size(); first += kGroup) {
        block.queries = std::min(kGroup, queries.size() - first);
        for (size_t q = 0; q < block.queries; ++q) {
          const uint8_t* const bits = queries[first + q]->selection.data();
          words_[q] = LoadLe<uint64_t>(bits + at / kBlockRows * 8) >> at % kBlockRows;
        }
        kernel_.add(block, masks_.data(), sums + first * padded_);
        block.ahead = {};
      }
      at = stop;
    }
    sodium_stackzero(kKernelStackBytes);
  }

  // Adds what Scan computed to the queries' sums.
  void Take(std::span<const Query* const> queries) const {
    for (size_t q = 0; q < queries.size(); ++q) {
      kernel_.take(sums_.data()->bytes + q * padded_, row_bytes_, queries[q]->sum.data());
    }
  }

 private:
  struct alignas(64) Line {
    uint8_t bytes[64];
  };

  // A block lies in one word of a selection, and has no places on both sides of direct_.
  size_t EndOfBlock(size_t at, size_t end) const {
    const size_t stop = std::min(end, (at / kBlockRows + 1) * kBlockRows);
    return at < direct_ ? std::min(stop, direct_) : stop;
  }

  static Places DirectFrom(const Rows& rows, size_t place) {
    return {rows.base_ + place * rows.stride_, rows.stride_};
  }

  // A place's row, or zeros if it is missing. By masks, so that no branch depends on which.
  const uint8_t* RowOf(const Rows& rows, size_t place) const {
    const size_t there = size_t{0} - static_cast<size_t>(place < rows.count_);  // all bits
    const size_t inside = place & there;
    const auto row = reinterpret_cast<uintptr_t>(
        rows.spans_ != nullptr ? rows.spans_[inside].data() : rows.base_ + inside * rows.stride_);
    const auto zeros = reinterpret_cast<uintptr_t>(missing_.data());
    return reinterpret_cast<const uint8_t*>(zeros ^ ((zeros ^ row) & there));
  }

  Places Copy(const Rows& rows, size_t begin, size_t end) {
    for (size_t at = begin; at < end; ++at) {
      std::memcpy(copies_.data() + (at - begin) * row_bytes_, RowOf(rows, at), row_bytes_);
    }
    return {copies_.data(), row_bytes_};
  }

  const Kernel& kernel_;
  const size_t row_bytes_, padded_, direct_, ahead_;
  const Bytes missing_;  // zeros
  Bytes copies_;
  SecretVector<uint32_t> masks_;
  SecretVector<uint64_t> words_;
  SecretVector<Line> sums_;
};

}  // namespace internal

namespace {

using internal::Scanner;

// Which queries of which bucket are scanned together: `visits` visits of `width` queries each. Made
// without a branch that depends on the queries' buckets.
struct Schedule {
  size_t visits = 0, width = 0;
  SecretVector<size_t> buckets;        // of each visit
  SecretVector<const Query*> queries;  // of visit v, from v * width on
};

// The width whose visits cost least. Reading the rows costs a visit about as much as two queries
// do.
size_t WidthFor(size_t buckets, size_t queries) {
  size_t best = 1;
  const auto cost = [&](size_t width) { return (buckets + queries / width) * (width + 2); };
  for (const size_t width : {size_t{4}, kGroup}) {
    if (cost(width) < cost(best)) best = width;
  }
  return best;
}

// A bucket of n queries has max(1, ceil(n / width)) <= 1 + floor(n / width) of them.
size_t VisitsFor(size_t buckets, size_t queries, size_t width) { return buckets + queries / width; }

// Part p has the visits from begin_of(p) to begin_of(p + 1), and fills them up with fillers[p].
Schedule MakeSchedule(size_t buckets, std::span<const BucketQuery> queries,
                      std::span<const Query> fillers,
                      const std::function<size_t(size_t visits, size_t part)>& begin_of) {
  Schedule schedule;
  const size_t width = schedule.width = WidthFor(buckets, queries.size());
  schedule.visits = VisitsFor(buckets, queries.size(), width);
  SecretVector<size_t> counts(buckets), next(buckets);
  for (const BucketQuery& query : queries) ++counts[query.bucket];
  // The first visit of each bucket names it, and those behind are of the same one.
  schedule.buckets.resize(schedule.visits);
  size_t visit = 0;
  for (size_t b = 0; b < buckets; ++b) {
    schedule.buckets[visit] = b;
    next[b] = visit * width;
    visit += (counts[b] + (counts[b] == 0) + width - 1) / width;
  }
  for (size_t v = 1; v < schedule.visits; ++v) {
    schedule.buckets[v] = std::max(schedule.buckets[v], schedule.buckets[v - 1]);
  }
  schedule.queries.resize(schedule.visits * width);
  for (size_t part = 0; part < fillers.size(); ++part) {
    const size_t begin = begin_of(schedule.visits, part), end = begin_of(schedule.visits, part + 1);
    std::fill_n(schedule.queries.begin() + begin * width, (end - begin) * width, &fillers[part]);
  }
  for (const BucketQuery& query : queries) {
    schedule.queries[next[query.bucket]++] = &query.query;
  }
  return schedule;
}

}  // namespace

absl::StatusOr<Rows> Rows::Strided(BytesView bytes, size_t row_bytes, size_t stride, size_t count) {
  SHOAL_RETURN_IF_ERROR(CheckRowBytes(row_bytes));
  if (stride < row_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("select: rows of ", row_bytes, " bytes at every ", stride, " overlap"));
  }
  if (count > 0 && (bytes.size() < row_bytes || (bytes.size() - row_bytes) / stride < count - 1)) {
    return absl::InvalidArgumentError(absl::StrCat("select: ", count, " rows of ", row_bytes,
                                                   " bytes at every ", stride, " do not fit into ",
                                                   bytes.size(), " bytes"));
  }
  Rows rows(row_bytes, count);
  rows.base_ = bytes.data();
  rows.stride_ = count > 1 ? stride : row_bytes;  // so that sums of strides stay in memory
  return rows;
}

absl::StatusOr<Rows> Rows::Spans(std::span<const BytesView> spans, size_t row_bytes) {
  SHOAL_RETURN_IF_ERROR(CheckRowBytes(row_bytes));
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].size() == row_bytes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("select: row ", i, " has ", spans[i].size(), " bytes, not ", row_bytes));
  }
  Rows rows(row_bytes, spans.size());
  rows.spans_ = spans.empty() ? &kNoRow : spans.data();
  return rows;
}

absl::Status SelectFromTable(const Rows& table, size_t places, std::span<const Query> queries,
                             ThreadPool* pool) {
  SHOAL_RETURN_IF_ERROR(CheckRows(table, places));
  for (const Query& query : queries) {
    SHOAL_RETURN_IF_ERROR(CheckQuery(query, places, table.row_bytes()));
  }
  const Kernel& kernel = ActiveKernel();
  const size_t blocks = (table.count() + kBlockRows - 1) / kBlockRows;
  const size_t parts =
      std::clamp<size_t>(table.count() * table.row_bytes() / kPartBytes, 1, ThreadsOf(pool));
  const auto begin_of = [&](size_t part) {
    return std::min(table.count(), blocks * part / parts * kBlockRows);
  };
  std::vector<const Query*> pass;
  for (size_t first = 0; first < queries.size(); first += kPass) {
    pass.clear();
    for (const Query& query : queries.subspan(first, std::min(kPass, queries.size() - first))) {
      pass.push_back(&query);
    }
    std::vector<std::unique_ptr<Scanner>> scanners(parts);
    ParallelForEach(pool, parts, [&](size_t part) {
      scanners[part] = std::make_unique<Scanner>(kernel, table.row_bytes(), table.count(),
                                                 Scanner::Direct(table), pass.size());
      scanners[part]->Scan(table, begin_of(part), begin_of(part + 1), pass, table);
    });
    for (const auto& scanner : scanners) scanner->Take(pass);
  }
  return absl::OkStatus();
}

uint64_t ScheduleBytes(size_t buckets, size_t queries) {
  const size_t width = WidthFor(buckets, queries);
  // A visit has its bucket and its queries; a bucket two numbers while they are being counted.
  return sizeof(size_t) * (VisitsFor(buckets, queries, width) * (1 + width) + 2 * buckets);
}

absl::Status SelectFromBuckets(std::span<const Rows> buckets, size_t places,
                               std::span<const BucketQuery> queries, ThreadPool* pool,
                               const std::atomic<bool>* ended) {
  if (places > kMaxBucketPlaces) {
    return absl::InvalidArgumentError(absl::StrCat(
        "select: buckets of ", places, " places; at most ", kMaxBucketPlaces, " are possible"));
  }
  for (const Rows& rows : buckets) {
    SHOAL_RETURN_IF_ERROR(CheckRows(rows, places));
    if (rows.row_bytes() == buckets[0].row_bytes()) continue;
    return absl::InvalidArgumentError(absl::StrCat("select: buckets with rows of ",
                                                   buckets[0].row_bytes(), " and of ",
                                                   rows.row_bytes(), " bytes"));
  }
  for (const auto& [bucket, query] : queries) {
    if (bucket >= buckets.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("select: bucket ", bucket, " of ", buckets.size()));
    }
    SHOAL_RETURN_IF_ERROR(CheckQuery(query, places, buckets[0].row_bytes()));
  }
  if (buckets.empty()) return absl::OkStatus();
  const size_t row_bytes = buckets[0].row_bytes();
  const Kernel& kernel = ActiveKernel();
  size_t direct = places;
  for (const Rows& rows : buckets) direct = std::min(direct, Scanner::Direct(rows));
  const size_t parts = ThreadsOf(pool);
  const auto begin_of = [&](size_t visits, size_t part) { return visits * part / parts; };
  // Of queries over nothing. Each part has its own, as threads write to the sums.
  const Bytes nothing(SelectionBytes(places));
  std::vector<Bytes> ignored(parts, Bytes(row_bytes));
  std::vector<Query> fillers;
  for (Bytes& sum : ignored) fillers.push_back({.selection = nothing, .sum = sum});
  const Schedule schedule = MakeSchedule(buckets.size(), queries, fillers, begin_of);
  ParallelForEach(pool, parts, [&](size_t part) {
    Scanner scanner(kernel, row_bytes, places, direct, schedule.width);
    const size_t end = begin_of(schedule.visits, part + 1);
    for (size_t v = begin_of(schedule.visits, part); v < end; ++v) {
      if (ended != nullptr && *ended) return;
      const std::span<const Query* const> together(&schedule.queries[v * schedule.width],
                                                   schedule.width);
      scanner.Scan(buckets[schedule.buckets[v]], 0, places, together,
                   buckets[schedule.buckets[std::min(v + 1, end - 1)]]);
      scanner.Take(together);
    }
  });
  if (ended != nullptr && *ended) return absl::CancelledError("select: the round has ended");
  return absl::OkStatus();
}

}  // namespace shoal::select
