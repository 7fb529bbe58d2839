#include "src/server/slices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/onion/onion.h"
#include "src/roster/roster.h"

namespace shoal::server {
namespace {

using machines::Run;

// Products with a number of machines fit 64 bits.
constexpr uint64_t kMostRecords = uint64_t{1} << 57;
static_assert(roster::kMaxMachines == machines::Machines::kMaxCount);
static_assert(kMostRecords <= ~uint64_t{0} / machines::Machines::kMaxCount);

absl::Status Bad(uint32_t from, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("list from machine ", from, ": ", why));
}

}  // namespace

size_t OnionBytesFor(uint32_t parties, uint32_t party) {
  return onion::OnionBytes(party < parties ? parties + 1 - party : 1);
}

std::vector<PartToSend> PartsToSend(const ListPart& run, uint32_t rank, uint32_t receivers) {
  SHOAL_CHECK(run.records < kMostRecords && run.first <= run.records &&
              run.count <= run.records - run.first);
  std::vector<PartToSend> out;
  for (uint32_t to = 0; to < receivers; ++to) {
    const Run slice = machines::RunOf(run.records, to, receivers);
    const uint64_t begin = std::max(slice.begin, run.first);
    const uint64_t end = std::min(slice.end, run.end());
    if (begin < end) {
      out.push_back({to, {run.records, begin, end - begin}});
    } else if (slice.size() == 0 && rank == 0) {
      out.push_back({to, {run.records, slice.begin, 0}});
    }
  }
  return out;
}

Tiling::Tiling(uint32_t rank, uint32_t count, uint32_t senders, uint64_t most_records)
    : rank_(rank), count_(count), most_records_(most_records), parts_(senders) {
  SHOAL_CHECK(rank < count && count <= machines::Machines::kMaxCount && senders > 0 &&
              most_records < kMostRecords);
}

absl::Status Tiling::Add(uint32_t from, const ListPart& part) {
  if (from >= parts_.size()) {
    return Bad(from, absl::StrCat("the party has ", parts_.size(), " machines"));
  }
  if (part.records > most_records_) {
    return Bad(from, absl::StrCat(part.records, " records, where ", most_records_, " are allowed"));
  }
  if (records_.has_value() && *records_ != part.records) {
    return Bad(from, absl::StrCat("has ", part.records, " records, and ", *records_,
                                  " by what another machine says"));
  }
  if (parts_[from].has_value()) return Bad(from, "a second part");
  const Run slice = machines::RunOf(part.records, rank_, count_);
  if (part.first < slice.begin || part.first > slice.end || part.count > slice.end - part.first) {
    return Bad(from, absl::StrCat(part.count, " records from ", part.first,
                                  " on are not in the slice of machine ", rank_, ", ", slice.begin,
                                  " to ", slice.end));
  }
  if (part.count == 0 && (slice.size() > 0 || from != 0)) return Bad(from, "an empty part");
  // The parts on both sides. Before machine 0 and after the last one are the ends of the slice.
  int64_t before = int64_t{from} - 1;
  while (before >= 0 && !parts_[static_cast<size_t>(before)].has_value()) --before;
  size_t after = from + 1;
  while (after < parts_.size() && !parts_[after].has_value()) ++after;
  const uint64_t begin = before < 0 ? slice.begin : parts_[static_cast<size_t>(before)]->end();
  const uint64_t end = after == parts_.size() ? slice.end : parts_[after]->first;
  if (part.first < begin || part.end() > end) {
    return Bad(from, absl::StrCat("records ", part.first, " to ", part.end(),
                                  " overlap those of another machine, or are not in its order"));
  }
  // A neighbour's run begins where this one ends.
  if (before + 1 == int64_t{from} && part.first != begin) {
    return Bad(from, absl::StrCat("nobody has records ", begin, " to ", part.first));
  }
  if (after == size_t{from} + 1 && part.end() != end) {
    return Bad(from, absl::StrCat("nobody has records ", part.end(), " to ", end));
  }
  records_ = part.records;
  slice_ = slice;
  parts_[from] = part;
  covered_ += part.count;
  return absl::OkStatus();
}

Run Tiling::slice() const {
  SHOAL_CHECK(slice_.has_value());
  return *slice_;
}

wire::QueryBatchView CutBatch(const wire::QueryBatch& batch, const ListPart& run,
                              const ListPart& part) {
  SHOAL_CHECK(part.first >= run.first && part.end() <= run.end());
  const uint64_t skipped = part.first - run.first;
  const auto begin = std::ranges::lower_bound(batch.positions, skipped);
  const auto end = std::ranges::lower_bound(batch.positions, skipped + part.count);
  const auto first = static_cast<size_t>(begin - batch.positions.begin());
  const auto count = static_cast<size_t>(end - begin);
  return {std::span(batch.positions).subspan(first, count),
          std::span(batch.tallies).subspan(first, count), static_cast<uint32_t>(skipped)};
}

wire::QueryBatch JoinBatches(std::vector<BatchPart> parts) {
  wire::QueryBatch out;
  size_t used = 0;
  for (const BatchPart& part : parts) used += wire::EncodedQueries(part.encoded);
  out.positions.reserve(used);
  out.tallies.reserve(used);
  uint64_t before = 0;
  for (BatchPart& part : parts) {
    SHOAL_CHECK(before + part.positions < ~uint32_t{0});
    SHOAL_CHECK(wire::AppendQueryBatch(part.encoded, static_cast<uint32_t>(part.positions),
                                       static_cast<uint32_t>(before), out)
                    .ok());
    before += part.positions;
    part.encoded = Bytes();
  }
  return out;
}

}  // namespace shoal::server
