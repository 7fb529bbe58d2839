#include "src/server/party_content.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/server/machine_messages.h"

namespace shoal::server {

using machines::Machines;

namespace {

// In all. No content comes near it (answers to 2^32 queries of some KiB each), and what follows
// from it, as 16 bytes for each byte, fits 64 bits.
constexpr uint64_t kMostBytes = uint64_t{1} << 58;

// What passes between machines is bound to this, so that nothing of one content is taken for
// another's.
std::string Stage(absl::string_view what, const ContentMac& mac) {
  return absl::StrCat(what, " (", mac.domain(), ")");
}

// Whether some queries at these positions can be described so.
bool IsPossible(const wire::QuerySlice& slice) {
  constexpr uint64_t kMostGapBytes = 5;  // LEB128 of 32 bits
  if (slice.used > slice.positions || slice.first_bits > 0xff ||
      slice.later_gap_bytes > kMostGapBytes * slice.used) {
    return false;
  }
  return slice.used == 0 ||
         (slice.first_used >= slice.first_position && slice.first_used <= slice.last_used &&
          slice.last_used < slice.first_position + slice.positions);
}

}  // namespace

PartyContent::PartyContent(const ContentMac& mac, std::vector<Part> parts, const Machines& machines)
    : mac_(&mac) {
  uint64_t begin = 0;
  for (const Part& part : parts) {
    if (part.bytes == 0) continue;
    if (part.machine == machines.rank()) {
      streams_.emplace_back(mac, begin);
      mine_.push_back(runs_.size());
    }
    runs_.push_back({part, begin, begin + part.bytes});
    begin += part.bytes;
  }
}

absl::StatusOr<PartyContent> PartyContent::OfList(const ContentMac& mac, uint64_t bytes,
                                                  Machines& machines) {
  absl::StatusOr<PartyContent> content = TryOfList(mac, bytes, machines);
  if (!content.ok()) machines.GiveUp();
  return content;
}

absl::StatusOr<PartyContent> PartyContent::TryOfList(const ContentMac& mac, uint64_t bytes,
                                                     Machines& machines) {
  SHOAL_ASSIGN_OR_RETURN(const auto lengths,
                         GatherNumbers(machines, Stage("lengths", mac), {&bytes, 1}));
  std::vector<Part> parts;
  uint64_t all = 0;
  for (uint32_t rank = 0; rank < lengths.size(); ++rank) {
    const uint64_t here = lengths[rank][0];
    if (here > kMostBytes - all) return Unannounced(rank);
    parts.push_back({rank, here});
    all += here;
  }
  return PartyContent(mac, std::move(parts), machines);
}

void PartyContent::Update(BytesView piece, ThreadPool& pool) {
  while (!piece.empty()) {
    SHOAL_CHECK(at_ < streams_.size());
    const uint64_t left = runs_[mine_[at_]].part.bytes - taken_;
    const BytesView now = piece.first(std::min<uint64_t>(piece.size(), left));
    streams_[at_].Update(now, pool);
    piece = piece.subspan(now.size());
    taken_ += now.size();
    if (now.size() < left) continue;
    ++at_;
    taken_ = 0;
  }
}

absl::StatusOr<PartyContent> PartyContent::OfParts(const ContentMac& mac,
                                                   std::span<const uint64_t> part_bytes,
                                                   Machines& machines) {
  const uint64_t bytes = std::accumulate(part_bytes.begin(), part_bytes.end(), uint64_t{0});
  SHOAL_ASSIGN_OR_RETURN(PartyContent content, OfList(mac, bytes, machines));
  uint64_t begun = 0;
  for (const uint64_t part : part_bytes) {
    if (part == 0) continue;
    const uint64_t first = content.runs_[content.mine_[0]].begin;
    content.coming_.push_back({begun, begun + part, ContentMac::Stream(mac, first + begun)});
    begun += part;
  }
  return content;
}

void PartyContent::UpdateAt(uint64_t offset, BytesView piece, ThreadPool& pool) {
  const auto part = std::ranges::find_if(coming_, [&](const Coming& each) {
    return each.next == offset && each.end - each.next >= piece.size();
  });
  SHOAL_CHECK(part != coming_.end());
  part->stream.Update(piece, pool);
  part->next += piece.size();
}

void PartyContent::JoinComing() {
  if (coming_.empty()) return;
  SHOAL_CHECK(at_ == 0 && taken_ == 0);
  for (size_t i = 0; i < coming_.size(); ++i) {
    SHOAL_CHECK(coming_[i].next == coming_[i].end);
    if (i > 0) coming_[0].stream.Join(std::move(coming_[i].stream));
  }
  streams_[0] = std::move(coming_[0].stream);
  at_ = 1;
  coming_.clear();
}

absl::Status PartyContent::GiveHeads(Machines& machines) {
  // The first bytes of a run whose chunk began in run `owner`.
  struct Head {
    uint32_t from;
    size_t owner;
    uint64_t bytes;
  };
  const uint32_t rank = machines.rank(), count = machines.count();
  std::vector<Head> heads;
  std::vector<SecretVector<uint8_t>> to(count);
  std::vector<uint64_t> most_to(count), most_from(count);
  for (size_t r = 0, stream = 0; r < runs_.size(); ++r) {
    const Run& run = runs_[r];
    const bool own = run.part.machine == rank;
    const size_t number = stream;
    if (own) ++stream;
    const uint64_t in_chunk = run.begin % mac_->chunk_bytes();
    if (in_chunk == 0) continue;
    const auto owner = std::ranges::upper_bound(runs_, run.begin - in_chunk, {}, &Run::end);
    const Head head = {.from = run.part.machine,
                       .owner = static_cast<size_t>(owner - runs_.begin()),
                       .bytes = std::min(mac_->chunk_bytes() - in_chunk, run.part.bytes)};
    heads.push_back(head);
    if (owner->part.machine == rank) most_from[head.from] += head.bytes;
    if (!own) continue;
    const BytesView bytes = streams_[number].head();
    most_to[owner->part.machine] += head.bytes;
    to[owner->part.machine].insert(to[owner->part.machine].end(), bytes.begin(), bytes.end());
  }
  SHOAL_ASSIGN_OR_RETURN(const auto came, ExchangeBytes(machines, Stage("digest", *mac_),
                                                        std::move(to), most_to, most_from));
  for (uint32_t from = 0; from < count; ++from) {
    if (came[from].size() != most_from[from]) return Unannounced(from);
  }
  std::vector<uint64_t> used(count);
  for (const Head& head : heads) {
    if (runs_[head.owner].part.machine != rank) continue;
    const auto stream = std::ranges::lower_bound(mine_, head.owner) - mine_.begin();
    streams_[static_cast<size_t>(stream)].Update(
        BytesView(came[head.from]).subspan(used[head.from], head.bytes));
    used[head.from] += head.bytes;
  }
  return absl::OkStatus();
}

absl::Status PartyContent::TryCommit(const StoreDigest& store, Machines& machines) {
  JoinComing();
  SHOAL_CHECK(at_ == streams_.size());
  SHOAL_RETURN_IF_ERROR(GiveHeads(machines));
  const uint32_t rank = machines.rank(), count = machines.count();
  constexpr size_t kTagBytes = sizeof(ContentMac::Tag);
  std::vector<SecretVector<uint8_t>> to(count);
  for (ContentMac::Stream& stream : streams_) {
    for (const ContentMac::Tag& tag : stream.FinishPart()) {
      to[0].insert(to[0].end(), tag.begin(), tag.end());
    }
  }
  const auto tags_of = [&](const Run& run) {
    return mac_->Chunks(run.end) - mac_->Chunks(run.begin);
  };
  std::vector<uint64_t> most_to(count), most_from(count);
  most_to[0] = to[0].size();
  for (const Run& run : runs_) {
    if (rank == 0) most_from[run.part.machine] += kTagBytes * tags_of(run);
  }
  SHOAL_ASSIGN_OR_RETURN(const auto came, ExchangeBytes(machines, Stage("tags", *mac_),
                                                        std::move(to), most_to, most_from));
  if (rank == 0) {
    SecretVector<ContentMac::Tag> tags;
    std::vector<uint64_t> used(count);
    for (uint32_t from = 0; from < count; ++from) {
      if (came[from].size() != most_from[from]) return Unannounced(from);
    }
    for (const Run& run : runs_) {
      for (uint64_t k = tags_of(run); k > 0; --k) {
        uint64_t& at = used[run.part.machine];
        std::copy_n(came[run.part.machine].data() + at, kTagBytes, tags.emplace_back().begin());
        at += kTagBytes;
      }
    }
    SHOAL_RETURN_IF_ERROR(store(mac_->Combine(runs_.empty() ? 0 : runs_.back().end, tags)));
  }
  // Nothing of the content, or made of it, leaves any machine before the head has stored the
  // digest.
  return machines.Gather(Stage("committed", *mac_), {}, 0).status();
}

absl::Status PartyContent::Commit(const StoreDigest& store, Machines& machines) {
  const absl::Status status = TryCommit(store, machines);
  if (!status.ok()) machines.GiveUp();
  return status;
}

namespace {

absl::Status TryCommitQueries(const ContentMac& mac, BytesView encoded,
                              const wire::QueryBatch* decoded, std::span<const uint64_t> positions,
                              const StoreDigest& store, Machines& machines, ThreadPool& pool) {
  const uint32_t rank = machines.rank(), count = machines.count();
  if (count == 1 && (decoded == nullptr || !encoded.empty())) {
    PartyContent content(mac, {{.machine = 0, .bytes = encoded.size()}}, machines);
    content.Update(encoded, pool);
    return content.Commit(store, machines);
  }
  SHOAL_CHECK(positions.size() == count + 1);
  const uint64_t here = positions[rank + 1] - positions[rank];
  std::optional<wire::QueryBatch> made;
  if (decoded == nullptr) {
    SHOAL_ASSIGN_OR_RETURN(made, wire::DecodeQueryBatch(encoded, static_cast<uint32_t>(here)));
    decoded = &*made;
  }
  const wire::QuerySlice own = wire::DescribeSlice(*decoded, positions[rank], here);
  const std::array<uint64_t, 5> facts = {own.used, own.first_used, own.last_used,
                                         own.later_gap_bytes, own.first_bits};
  SHOAL_ASSIGN_OR_RETURN(const auto all,
                         GatherNumbers(machines, Stage("slices of queries", mac), facts));
  std::vector<wire::QuerySlice> slices;
  for (uint32_t r = 0; r < count; ++r) {
    slices.push_back({.first_position = positions[r],
                      .positions = positions[r + 1] - positions[r],
                      .used = all[r][0],
                      .first_used = all[r][1],
                      .last_used = all[r][2],
                      .later_gap_bytes = all[r][3],
                      .first_bits = all[r][4]});
    if (!IsPossible(slices.back())) return Unannounced(r);
  }
  const std::vector<uint64_t> used_bytes = wire::UsedBytes(slices);
  std::vector<PartyContent::Part> parts;
  for (uint32_t r = 0; r < count; ++r) parts.push_back({r, used_bytes[r]});
  for (uint32_t r = 0; r < count; ++r) parts.push_back({r, 4 * slices[r].used});
  PartyContent content(mac, std::move(parts), machines);
  content.Update(wire::EncodeUsed(*decoded, slices, rank), pool);
  content.Update(wire::EncodedTallies(*decoded), pool);
  return content.Commit(store, machines);
}

}  // namespace

absl::Status CommitQueries(const ContentMac& mac, BytesView encoded,
                           const wire::QueryBatch* decoded, std::span<const uint64_t> positions,
                           const StoreDigest& store, Machines& machines, ThreadPool& pool) {
  const absl::Status status =
      TryCommitQueries(mac, encoded, decoded, positions, store, machines, pool);
  if (!status.ok()) machines.GiveUp();
  return status;
}

CommittedSource::CommittedSource(std::unique_ptr<ByteSource> inner, PartyContent content,
                                 StoreDigest store, Machines* machines, ThreadPool* pool)
    : inner_(std::move(inner)),
      content_(std::move(content)),
      store_(std::move(store)),
      machines_(machines),
      pool_(pool),
      size_(inner_->size()) {}

absl::Status CommittedSource::Start() {
  return size_ == 0 ? content_.Commit(store_, *machines_) : absl::OkStatus();
}

absl::StatusOr<BytesView> CommittedSource::Next() {
  if (given_ == size_) return BytesView();
  absl::StatusOr<BytesView> next = inner_->Next();
  if (!next.ok()) machines_->GiveUp();
  SHOAL_ASSIGN_OR_RETURN(const BytesView piece, next);
  SHOAL_CHECK(!piece.empty() && piece.size() <= size_ - given_);
  content_.Update(piece, *pool_);
  given_ += piece.size();
  if (given_ == size_) SHOAL_RETURN_IF_ERROR(content_.Commit(store_, *machines_));
  return piece;
}

}  // namespace shoal::server
