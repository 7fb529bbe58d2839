#include "src/plan/two_tiers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/onion/onion.h"
#include "src/plan/calibrate.h"
#include "src/server/round_memory.h"
#include "src/sharing/halves.h"
#include "src/storage/spool.h"

namespace shoal::plan {
namespace {

using sharing::Half;

constexpr double kHalfPositions = 4294967294.0;
// Rows of a bucket that are tried, falling.
constexpr uint32_t kPlaces[] = {QueryBuckets::kMaxPlaces, 768, 512, 384, 256, 192, 128, 64};
// About how the mean noise of a bucket grows with the queries of a list that may be for it: as
// c^0.6, by the table for lists of 64 in docs/privacy.md ("What multiplicity costs"). Only decides
// for which c noise is looked for.
constexpr double kNoiseGrowth = 0.6;
// A piece of one slot's share of a submission: the layer around it, shared by its slots.
constexpr double kPieceBytes = static_cast<double>(onion::OnionBytes(1)) +
                               static_cast<double>(onion::kSealBytes) / kSlotsOfASubmission;
// Before every piece on its way to the other party.
constexpr double kPieceLengthBytes = 4.0 / kSlotsOfASubmission;
constexpr double kSlotNumberBytes = 4;
// As of a chain for rows (model.cc).
constexpr double kOfflineArrays = 32 + 1 + 16 + 8 + 4;

double RecordBatchBytes(double records, size_t record_bytes) {
  return 1 + 4 + std::ceil(records / 8) + static_cast<double>(record_bytes) * records;
}

// One half of a round.
struct HalfSizes {
  Half half;
  double queries, noise;  // of clients; of the head
  QueryBuckets buckets;
  size_t selection;  // bytes
  double answer;

  double tagged() const { return answer + sharing::kAnswerTagBytes; }

  double all() const { return queries + noise; }
  double forwarded_bytes() const {
    return RecordBatchBytes(all(), sharing::ForwardedBytes(half, selection));
  }
  // The selection bytes that the head takes a query's pad off, as only A's parts have a selection.
  double head_selection() const { return half == Half::kA ? static_cast<double>(selection) : 0; }
};

server::RoundSize HeadSize(const HalfSizes& s, uint32_t answer_bytes) {
  return {.positions = static_cast<uint64_t>(s.queries),
          .noise = static_cast<uint64_t>(s.noise),
          .inner_bytes = onion::OnionBytes(1),
          .answer_bytes = answer_bytes,
          .part_bytes = s.half == Half::kA ? sharing::PartsBytes(s.selection)
                                           : sharing::PartBytes(s.half, s.selection),
          .forwarded_bytes = sharing::ForwardedBytes(s.half, s.selection),
          .selection_bytes = s.selection,
          .buckets = s.buckets.count()};
}
server::RoundSize TailSize(const HalfSizes& s, uint32_t answer_bytes) {
  return {.positions = static_cast<uint64_t>(s.all()),
          .answer_bytes = answer_bytes,
          .part_bytes = sharing::ForwardedBytes(s.half, s.selection),
          .selection_bytes = s.selection,
          .buckets = s.buckets.count()};
}

double FreshOffline(const server::RoundSize& size, const server::RoundMemory& memory) {
  return static_cast<double>(size.positions) * kOfflineArrays +
         static_cast<double>(memory.opened.bytes + memory.ordered.bytes);
}
double FreshOnline(const server::RoundSize& size, const server::RoundMemory& memory) {
  return static_cast<double>(size.next_positions() * server::kForwardPositionBytes +
                             memory.untouched());
}

// Adds a half's work to what its head does.
void AddHead(const HalfSizes& s, const server::RoundSize& size, const server::RoundMemory& memory,
             const UnitCosts& unit, TwoTiersParty& party) {
  const double fresh = unit.fresh_byte_ns(), inner = static_cast<double>(size.inner_bytes);
  const double selection = s.head_selection() * unit.tier_selection_byte_ns();
  party.set_noise_queries(s.noise);
  party.set_noise_cpu_s(
      party.noise_cpu_s() +
      1e-9 * s.noise *
          (SealNs(unit, 1) + unit.noise_ns() + unit.tier_noise_ns() + selection + inner * fresh));
  const double open = unit.slot_ns() + kPieceBytes * unit.open_byte_ns();
  const double place = CostAt(unit.place(), s.all()) + inner * CostAt(unit.move_byte(), s.all());
  party.set_offline_cpu_s(party.offline_cpu_s() + 1e-9 * (s.queries * open + s.all() * place +
                                                          fresh * FreshOffline(size, memory)));
  const double forward =
      s.queries * (unit.tier_forward_ns() + selection) + s.noise * unit.tier_forward_noise_ns();
  const double back = s.queries * (unit.tier_back_ns() + s.answer * unit.tier_back_byte_ns()) +
                      s.noise * (unit.tier_drop_ns() + s.answer * unit.tier_drop_byte_ns());
  party.set_online_cpu_s(party.online_cpu_s() +
                         1e-9 * (forward + back + fresh * FreshOnline(size, memory)));
}

// The same for its tail. Every query reads a bucket from the cache, and the round every bucket from
// memory.
void AddTail(const HalfSizes& s, const server::RoundSize& size, const server::RoundMemory& memory,
             const UnitCosts& unit, TwoTiersParty& party) {
  const double fresh = unit.fresh_byte_ns();
  const double open = unit.open_ns() +
                      static_cast<double>(onion::OnionBytes(1)) * unit.open_byte_ns() +
                      CostAt(unit.backend_place(), s.all());
  party.set_offline_cpu_s(party.offline_cpu_s() +
                          1e-9 * (s.all() * open + fresh * FreshOffline(size, memory)));
  const double bucket = s.buckets.most_places() * s.answer;
  const double each = unit.tier_open_ns() +
                      static_cast<double>(s.selection) * unit.tier_selection_byte_ns() +
                      s.answer * unit.tier_answer_byte_ns() + bucket * unit.tier_scan_byte_ns();
  const double table = static_cast<double>(s.buckets.rows()) * s.answer;
  party.set_online_cpu_s(party.online_cpu_s() +
                         1e-9 * (s.all() * each + table * unit.tier_read_byte_ns() +
                                 fresh * FreshOnline(size, memory)));
}

double PeakOf(const server::RoundSize& size, const server::RoundMemory& memory) {
  return static_cast<double>(
      PeakArrayBytes(size, memory) +
      std::max(memory.opened.bytes + memory.ordered.bytes, memory.returned.bytes));
}

// Bytes from one party to the other and back (docs/protocol.md, "Between the parties").
double BetweenParties(const HalfSizes& s) {
  const double onions = static_cast<double>(onion::OnionBytes(1)) * s.all();
  const double answers = s.all() * s.tagged();
  if (s.half == Half::kA) return onions + s.forwarded_bytes() + answers;
  const double pieces = s.queries * (kPieceBytes + kPieceLengthBytes);
  const double parts = RecordBatchBytes(s.queries, sharing::PartBytes(s.half, s.selection));
  return pieces + onions + parts + s.forwarded_bytes() + answers + s.queries * s.tagged();
}

// What follows from sizes alone.
TwoTiers WithSizes(const Layout& layout, const QueryBuckets& divided, const BucketNoise& noise,
                   double own) {
  TwoTiers tiers;
  *tiers.mutable_table() = layout;
  tiers.set_buckets(divided.count());
  tiers.set_most_places(divided.most_places());
  tiers.set_selection_bytes(static_cast<uint32_t>(divided.selection_bytes()));
  tiers.set_most_in_bucket(noise.most_in_bucket);
  FillNoise(noise.choice, *tiers.mutable_noise());
  tiers.set_noise_queries_per_half(own);
  Client& client = *tiers.mutable_client();
  client.set_onion_bytes(2 * kPieceBytes);
  client.set_query_bytes(kSlotNumberBytes +
                         static_cast<double>(sharing::PartsBytes(divided.selection_bytes())));
  client.set_answer_bytes(static_cast<double>(sharing::HalvesAnswerBytes(layout.answer_bytes())));
  return tiers;
}

double AllSeconds(const TwoTiersParty& p) {
  return p.noise_cpu_s() + p.offline_cpu_s() + p.online_cpu_s() + p.links_cpu_s();
}

void FillSums(const Workload& w, const UnitCosts& unit, double onion_bytes, TwoTiers& tiers) {
  const double queries = static_cast<double>(w.queries);
  const Client& client = tiers.client();
  const double client_bytes =
      queries * (client.onion_bytes() + client.query_bytes() + client.answer_bytes());
  double cpu = 0, offline = 0, online = 0;
  for (TwoTiersParty& party : *tiers.mutable_party()) {
    party.set_links_cpu_s(1e-9 * unit.link_byte_ns() *
                          (tiers.link_bytes() + (party.party() == 1 ? client_bytes : 0)));
    cpu += AllSeconds(party);
    const double off = WallSeconds(party.offline_cpu_s(), unit.offline_serial(), w.cores);
    const double on = WallSeconds(party.online_cpu_s(), unit.answer_serial(), w.cores);
    offline = w.one_machine ? offline + off : std::max(offline, off);
    online = w.one_machine ? online + on : std::max(online, on);
  }
  const double byte_s = 1e-9 * unit.link_byte_ns() * (w.one_machine ? 2 : 1) / w.cores;
  tiers.set_offline_seconds(offline + onion_bytes * byte_s);
  tiers.set_online_seconds(online + (tiers.link_bytes() - onion_bytes) * byte_s);
  FillCost(w, cpu / 3600, (client_bytes + tiers.link_bytes()) / 1e9, *tiers.mutable_per_round());
  tiers.set_server_seconds_per_query(cpu / queries);
  tiers.set_price_per_million_queries(1e6 * tiers.per_round().price() / queries);
}

}  // namespace

absl::Status CheckTwoTiers(const Workload& w) {
  if (w.parties != 2) {
    return absl::FailedPreconditionError(absl::StrCat(
        "two tiers are for exactly two parties, got --parties ", w.parties, "; with --parties 2"));
  }
  for (uint32_t party = 1; party <= 2; ++party) {
    if (w.MachinesOf(party) == 1) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("two tiers are for parties of one machine each, and party ", party, " has ",
                     w.MachinesOf(party), "; leave --machines out"));
  }
  if (w.refreshes > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("two tiers have no terms, got --refreshes ", w.refreshes, "; leave it out"));
  }
  return absl::OkStatus();
}

absl::StatusOr<TwoTiers> PredictTwoTiers(const Workload& w, const Layout& layout, uint64_t buckets,
                                         const BucketNoise& noise, const UnitCosts& unit) {
  SHOAL_RETURN_IF_ERROR(CheckWorkload(w));
  SHOAL_RETURN_IF_ERROR(CheckTwoTiers(w));
  const auto rows = static_cast<uint64_t>(layout.rows());
  SHOAL_RETURN_IF_ERROR(QueryBuckets::Check(rows, buckets));
  const uint32_t phi = noise.choice.parameters.phi;
  if (phi > uint64_t{noise.most_in_bucket} * buckets) {
    return absl::InvalidArgumentError(
        absl::StrCat("--phi ", phi, " is more than ", noise.most_in_bucket, " for each of ",
                     buckets, " buckets: a larger --most-in-bucket, or more rows"));
  }
  const double queries = static_cast<double>(w.queries);
  const double own = noise.choice.mean * static_cast<double>(buckets);
  if (queries + own > kHalfPositions) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "noise overflow: the tail of a half would have %.3g positions, at most %.0f", queries + own,
        kHalfPositions));
  }
  const QueryBuckets divided(rows, buckets);
  TwoTiers tiers = WithSizes(layout, divided, noise, own);

  std::array<TwoTiersParty, 2> parties;
  double onion_bytes = 0, link_bytes = 0;
  for (const Half half : {Half::kA, Half::kB}) {
    const HalfSizes s = {half,
                         queries,
                         own,
                         divided,
                         divided.selection_bytes(),
                         static_cast<double>(layout.answer_bytes())};
    TwoTiersParty& head = parties[half == Half::kA ? 0 : 1];
    TwoTiersParty& tail = parties[half == Half::kA ? 1 : 0];
    const server::RoundSize of_head = HeadSize(s, layout.answer_bytes());
    const server::RoundSize of_tail = TailSize(s, layout.answer_bytes());
    // What two halves and their noise leave of each other's memory is not modelled: each has half.
    const auto room = static_cast<uint64_t>(w.spool_memory_bytes / 2);
    const auto head_memory = server::DivideMemory(of_head, room);
    const auto tail_memory = server::DivideMemory(of_tail, room);
    AddHead(s, of_head, head_memory, unit, head);
    AddTail(s, of_tail, tail_memory, unit, tail);
    head.set_peak_memory_bytes(head.peak_memory_bytes() + PeakOf(of_head, head_memory) +
                               own * (static_cast<double>(of_head.inner_bytes) + 4));
    tail.set_peak_memory_bytes(tail.peak_memory_bytes() + PeakOf(of_tail, tail_memory));
    onion_bytes += static_cast<double>(onion::OnionBytes(1)) * s.all();
    link_bytes += BetweenParties(s);
  }
  for (uint32_t number = 1; number <= 2; ++number) {
    TwoTiersParty& party = *tiers.add_party();
    party = std::move(parties[number - 1]);
    party.set_party(number);
    party.set_peak_memory_bytes(party.peak_memory_bytes() + layout.rows() * layout.answer_bytes());
  }
  tiers.set_link_bytes(link_bytes);
  FillSums(w, unit, onion_bytes + queries * (kPieceBytes + kPieceLengthBytes), tiers);
  return tiers;
}

std::vector<uint64_t> BucketCounts(uint64_t rows) {
  std::vector<uint64_t> counts;
  for (const uint32_t places : kPlaces) {
    const uint64_t buckets = std::max<uint64_t>(2, (rows + places - 1) / places);
    if (!QueryBuckets::Check(rows, buckets).ok()) continue;
    if (counts.empty() || counts.back() != buckets) counts.push_back(buckets);
  }
  return counts;
}

namespace {

// The least c with which a random list may be asked over so many buckets.
uint32_t LeastFor(uint32_t phi, uint64_t rows, uint64_t buckets) {
  // Where buckets differ by a row, the fuller ones have more than their share.
  const uint64_t full = rows / QueryBuckets(rows, buckets).most_places();
  return noise::LeastMostInBucket(phi, std::max<uint64_t>(1, full));
}

}  // namespace

std::vector<TwoTiersChoice::Shape> TwoTiersChoice::ShapesOf(const Workload& w, uint32_t row_bytes,
                                                            uint32_t phi) {
  std::vector<Shape> shapes;
  for (const uint32_t size : row_bytes != 0 ? std::vector{row_bytes} : RowSizes(w)) {
    const auto layout = LayOut(w, size);
    if (!layout.ok() || layout->rows() >= 0x1p32) continue;
    const auto rows = static_cast<uint64_t>(layout->rows());
    for (const uint64_t buckets : BucketCounts(rows)) {
      shapes.push_back({*layout, buckets, LeastFor(phi, rows, buckets)});
    }
  }
  return shapes;
}

TwoTiersChoice::TwoTiersChoice(Workload workload, UnitCosts costs, std::vector<Shape> shapes,
                               BucketNoise noise)
    : workload_(std::move(workload)),
      costs_(std::move(costs)),
      shapes_(std::move(shapes)),
      noise_(std::move(noise)) {}

absl::StatusOr<TwoTiersChoice> TwoTiersChoice::Create(const Workload& w, uint32_t row_bytes,
                                                      uint32_t most_in_bucket,
                                                      const noise::Choice& one_in_bucket,
                                                      const NoiseFor& noise_for,
                                                      const UnitCosts& costs) {
  SHOAL_RETURN_IF_ERROR(CheckTwoTiers(w));
  const uint32_t phi = one_in_bucket.parameters.phi;
  std::vector<Shape> shapes = ShapesOf(w, row_bytes, phi);
  uint32_t most = most_in_bucket;
  if (most == 0) {
    double lowest = 0;
    for (const Shape& shape : shapes) {
      BucketNoise about = {shape.least_in_bucket, one_in_bucket};
      about.choice.mean *= std::pow(about.most_in_bucket, kNoiseGrowth);
      const auto tiers = PredictTwoTiers(w, shape.layout, shape.buckets, about, costs);
      if (!tiers.ok()) continue;
      const double price = tiers->price_per_million_queries();
      if (most == 0 || price < lowest) most = about.most_in_bucket, lowest = price;
    }
  }
  std::erase_if(shapes, [&](const Shape& shape) { return shape.least_in_bucket > most; });
  if (shapes.empty()) {
    return absl::ResourceExhaustedError(
        most_in_bucket == 0 ? "two tiers: the table has too few rows for two buckets"
                            : absl::StrCat("two tiers: a random list of ", phi,
                                           " keys has more than ", most_in_bucket,
                                           " in a bucket, whatever their number: a larger "
                                           "--most-in-bucket, or more rows"));
  }
  BucketNoise noise = {most, one_in_bucket};
  if (most > 1) {
    SHOAL_ASSIGN_OR_RETURN(noise.choice, noise_for(most));
  }
  return TwoTiersChoice(w, costs, std::move(shapes), std::move(noise));
}

absl::StatusOr<TwoTiers> TwoTiersChoice::Best(double queries, Aim aim) const {
  Workload w = workload_;
  w.queries = static_cast<uint64_t>(queries);
  std::vector<TwoTiers> all;
  absl::Status first_error;
  for (const Shape& shape : shapes_) {
    auto tiers = PredictTwoTiers(w, shape.layout, shape.buckets, noise_, costs_);
    if (tiers.ok()) {
      all.push_back(*std::move(tiers));
    } else if (first_error.ok()) {
      first_error = tiers.status();
    }
  }
  if (all.empty()) return first_error;
  if (aim == Aim::kPrice) {
    const auto price = [](const TwoTiers& of) { return of.price_per_million_queries(); };
    const double lowest = price(*std::ranges::min_element(all, {}, price));
    std::erase_if(all, [&](const TwoTiers& of) { return price(of) > kSamePrice * lowest; });
  }
  return *std::ranges::min_element(
      all, {}, [](const TwoTiers& of) { return of.server_seconds_per_query(); });
}

}  // namespace shoal::plan
