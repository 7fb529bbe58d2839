#include "src/server/query_routes.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/machines/load_bound.h"
#include "src/machines/machines.h"
#include "src/server/machine_messages.h"
#include "src/server/record_cutter.h"
#include "src/sharing/sharing.h"

namespace shoal::server {
namespace {

using machines::Machines;

// Queries that one thread looks at by itself.
constexpr size_t kRoutedBlock = 1 << 14;
// A place and a tally.
constexpr size_t kRecordBytes = 4 + 4;

// Finds out which machine owns a place, in a few steps however many machines there are.
class Owners {
 public:
  // Machine j owns the places from starts[j] to starts[j + 1] - 1.
  explicit Owners(std::span<const uint64_t> starts) : starts_(starts) {
    while (starts.back() >> shift_ >= kBlocks) ++shift_;
    uint32_t owner = 0;
    for (uint64_t place = 0; place < starts.back(); place += uint64_t{1} << shift_) {
      while (place >= starts[owner + 1]) ++owner;
      first_.push_back(owner);
    }
  }
  uint32_t Of(uint32_t place) const {
    SHOAL_CHECK(place < starts_.back());
    uint32_t owner = first_[place >> shift_];
    while (place >= starts_[owner + 1]) ++owner;
    return owner;
  }

 private:
  static constexpr uint64_t kBlocks = 4096;  // more of them than borders between machines
  const std::span<const uint64_t> starts_;
  int shift_ = 0;
  std::vector<uint32_t> first_;  // of each block of places, the machine that owns the first one
};

// A machine's queries that go to others, by the machine that owns their places.
struct Departing {
  std::vector<SecretVector<uint8_t>> records;   // a place and a tally of each
  std::vector<SecretVector<uint32_t>> numbers;  // the same queries' numbers here
};

Departing SortByOwner(const OnlineMaterial& material, const wire::QueryBatch& queries,
                      const Machines& machines, ThreadPool& pool) {
  const uint32_t rank = machines.rank(), count = machines.count();
  const size_t used = queries.positions.size(), blocks = (used + kRoutedBlock - 1) / kRoutedBlock;
  const Owners owners(material.layout.places);
  // Counts in every block, then handles all blocks in parallel. at[b * count + j] is where block
  // b's queries for machine j begin. Meanwhile owner_of has who owns a query's place, and this
  // machine for dead ones, which go nowhere. What loops read is at hand in them, as the compiler
  // cannot know that what they write is none of it.
  SecretVector<uint64_t> at((blocks + 1) * count);
  SecretVector<uint8_t> owner_of(used);
  static_assert(Machines::kMaxCount <= 256);
  const uint32_t* const positions = queries.positions.data();
  const uint32_t* const tallies = queries.tallies.data();
  const uint32_t* const targets = material.target.span().data();
  const sharing::QueryShare* const shares = material.shares.span().data();
  const auto end_of = [&](size_t block) { return std::min(used, (block + 1) * kRoutedBlock); };
  pool.ParallelFor(blocks, 1, [&](size_t begin, size_t end) {
    for (size_t b = begin; b < end; ++b) {
      uint64_t* const counts = at.data() + (b + 1) * count;
      uint8_t* const mine = owner_of.data();
      for (size_t i = b * kRoutedBlock, to = end_of(b); i < to; ++i) {
        const uint32_t place = targets[positions[i]];
        const uint32_t owner = place == OnlineMaterial::kDead ? rank : owners.Of(place);
        mine[i] = static_cast<uint8_t>(owner);
        ++counts[owner];
      }
      counts[rank] = 0;
    }
  });
  for (size_t k = count; k < at.size(); ++k) at[k] += at[k - count];
  Departing departing;
  for (uint32_t j = 0; j < count; ++j) {
    const uint64_t go = at[blocks * count + j];
    departing.records.emplace_back(go * kRecordBytes);
    departing.numbers.emplace_back(go);
  }
  pool.ParallelFor(blocks, 1, [&](size_t begin, size_t end) {
    struct Next {
      uint8_t* record;
      uint32_t* number;
    };
    for (size_t b = begin; b < end; ++b) {
      std::array<Next, Machines::kMaxCount> next;
      for (uint32_t j = 0; j < count; ++j) {
        const uint64_t k = at[b * count + j];
        next[j] = {departing.records[j].data() + k * kRecordBytes, departing.numbers[j].data() + k};
      }
      const uint8_t* const mine = owner_of.data();
      for (size_t i = b * kRoutedBlock, to = end_of(b); i < to; ++i) {
        if (mine[i] == rank) continue;
        const uint32_t position = positions[i];
        Next& out = next[mine[i]];
        StoreLe(out.record, targets[position]);
        StoreLe(out.record + 4, sharing::Advance(shares[position], tallies[i]));
        out.record += kRecordBytes;
        *out.number++ = static_cast<uint32_t>(i);
      }
    }
  });
  return departing;
}

// Exchanges records of one size with the others. `take` gets whole ones, comes[i] in all from
// machine i. Errors of Machines and of `take`; INVALID_ARGUMENT or DATA_LOSS if more or fewer come;
// CANCELLED once the round has ended.
template <typename Take>
absl::Status ExchangeRecords(absl::string_view what, std::span<const Machines::Outgoing> outgoing,
                             std::span<const uint64_t> most_bytes, std::span<const uint64_t> comes,
                             size_t record_bytes, const Resources& resources, const Take& take) {
  std::vector<RecordCutter> cutters;
  for (const uint64_t records : comes) cutters.emplace_back(records, record_bytes);
  const auto cut = [&](uint32_t from, BytesView piece) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(resources.CheckLive());
    return cutters[from].Cut(piece, what, [&](BytesView came) { return take(from, came); });
  };
  SHOAL_RETURN_IF_ERROR(resources.machines->Exchange(what, outgoing, most_bytes, cut));
  for (uint32_t i = 0; i < cutters.size(); ++i) {
    if (!cutters[i].complete()) return Unannounced(i);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckNumbersFit(uint64_t queries) {
  if (queries < shuffle::Scatter::kNowhere) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("queries: ", queries, " at one machine do not fit 32 bits"));
}

absl::StatusOr<QueryRoutes> QueryRoutes::Forward(const OnlineMaterial& material,
                                                 const wire::QueryBatch& queries,
                                                 uint64_t first_number,
                                                 std::span<ForwardMemory::Item> items,
                                                 const Resources& resources) {
  QueryRoutes routes;
  Machines& machines = *resources.machines;
  const uint32_t rank = machines.rank(), count = machines.count();
  if (count == 1) return routes;
  const std::vector<uint64_t>& starts = material.layout.places;
  const std::vector<uint64_t>& slices = material.layout.positions;
  SHOAL_CHECK(starts.size() == count + 1 && slices.size() == count + 1);
  Departing departing = SortByOwner(material, queries, machines, *resources.pool);
  SHOAL_RETURN_IF_ERROR(resources.CheckLive());

  SecretVector<uint64_t> facts = {queries.positions.size()};
  for (const auto& numbers : departing.numbers) facts.push_back(numbers.size());
  SHOAL_ASSIGN_OR_RETURN(const auto all, GatherNumbers(machines, "queries", facts));
  for (uint32_t i = 0; i < count; ++i) {
    if (all[i][0] > slices[i + 1] - slices[i]) return Unannounced(i);
  }
  const uint32_t buckets = material.layout.buckets;
  // No more positions of a machine than this have the owner's places; so no more used ones.
  const auto most = [&](uint32_t from, uint32_t owner) {
    const uint64_t drawn = machines::MostDrawn(
        slices[from + 1] - slices[from], machines::RunOf(buckets, owner, count).size(), buckets);
    return std::min(all[from][0], drawn);
  };
  std::vector<ViewSource> sources(departing.records.begin(), departing.records.end());
  std::vector<Machines::Outgoing> outgoing;
  std::vector<uint64_t> most_bytes;
  SecretVector<uint64_t> next;  // of each machine, the number of its next query
  uint64_t number = first_number;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t comes = all[i][1 + rank];
    routes.most_to_.push_back(most(rank, i));
    routes.most_from_.push_back(most(i, rank));
    if (comes > (i == rank ? 0 : routes.most_from_[i])) return Unannounced(i);
    outgoing.push_back({&sources[i], routes.most_to_[i] * kRecordBytes});
    most_bytes.push_back(routes.most_from_[i] * kRecordBytes);
    next.push_back(number);
    routes.came_.push_back(comes);
    number += comes;
  }
  SHOAL_RETURN_IF_ERROR(CheckNumbersFit(number));
  const auto take = [&](uint32_t from, BytesView came) -> absl::Status {
    for (; !came.empty(); came = came.subspan(kRecordBytes)) {
      const uint32_t place = LoadLe<uint32_t>(came.data()) - material.first_place;
      const auto tally = LoadLe<uint32_t>(came.data() + 4);
      if (place >= items.size() || items[place].from != 0 || tally >= wire::kTallyModulus) {
        return Unannounced(from);
      }
      items[place] = {tally, static_cast<uint32_t>(++next[from])};
    }
    return absl::OkStatus();
  };
  SHOAL_RETURN_IF_ERROR(ExchangeRecords("tallies", outgoing, most_bytes, routes.came_, kRecordBytes,
                                        resources, take));
  // No machine sends its slice before all have theirs.
  SHOAL_RETURN_IF_ERROR(machines.Gather("forwarded", {}, 0).status());
  routes.sent_ = std::move(departing.numbers);
  return routes;
}

absl::Status QueryRoutes::Return(std::span<const std::unique_ptr<ByteSource>> others,
                                 shuffle::Scatter& own, size_t tagged_bytes,
                                 const Resources& resources) const {
  Machines& machines = *resources.machines;
  const uint32_t count = machines.count();
  if (count == 1) return absl::OkStatus();
  SHOAL_CHECK(others.size() == count && came_.size() == count);
  std::vector<Machines::Outgoing> outgoing;
  std::vector<uint64_t> most_bytes;
  SecretVector<uint64_t> comes;
  for (uint32_t i = 0; i < count; ++i) {
    outgoing.push_back({others[i].get(), most_from_[i] * tagged_bytes});
    most_bytes.push_back(most_to_[i] * tagged_bytes);
    comes.push_back(sent_[i].size());
  }
  SecretVector<uint64_t> taken(count);
  const auto take = [&](uint32_t from, BytesView answers) -> absl::Status {
    const size_t n = answers.size() / tagged_bytes;
    const auto numbers = std::span(sent_[from]).subspan(taken[from], n);
    taken[from] += n;
    return own.Put(numbers, answers, *resources.pool);
  };
  SHOAL_RETURN_IF_ERROR(
      ExchangeRecords("answers", outgoing, most_bytes, comes, tagged_bytes, resources, take));
  // No machine hands out an answer before all have all of theirs.
  return machines.Gather("answered", {}, 0).status();
}

}  // namespace shoal::server
