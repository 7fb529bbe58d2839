#include "src/plan/model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "src/base/status_macros.h"
#include "src/machines/load_bound.h"
#include "src/machines/machines.h"
#include "src/onion/onion.h"
#include "src/plan/calibrate.h"
#include "src/round/query_bytes.h"
#include "src/server/round_memory.h"
#include "src/server/terms.h"
#include "src/sharing/sharing.h"
#include "src/shuffle/permutation.h"
#include "src/signature/bls.h"
#include "src/storage/spool.h"
#include "src/table/manifest.h"
#include "src/table/row.h"
#include "src/table/row_versions.h"
#include "src/table/table.h"

namespace shoal::plan {
namespace {

// How full table::Place makes rows (src/table/placement.h): the share of a row's bytes, and of the
// whole records that fit in it.
constexpr double kHashedFill = 0.97, kHashedRecordsFill = 0.99;
constexpr double kMaxPositions = 4294967294.0;
// Of a term, as rosters allow.
constexpr uint32_t kMaxRefreshes = 10'000;
// The most keys that may wait for the next term where the plan chooses the room, and its steps.
constexpr double kMostDisplaced = 0.01;
constexpr uint32_t kRoomStep = 5;
// As table::Place draws them.
constexpr double kKeysPerBucket = 2;
// Lists of more rows are those of so many, scaled: a row takes the same bits in each.
constexpr uint64_t kMostSampledRows = 1 << 12;
constexpr double kClientQueryBytes = round::kSlotQueryBytes;
// Bytes of arrays that the offline stage touches for a position (server/round_memory.cc).
constexpr double kOfflineArrayBytes = 32 + 1 + 16 + 8 + 4;
// Bytes for a position in the message that queries are forwarded in.
constexpr double kForwardMessageBytes = 4 + 1.0 / 8;
// What machines of a party pass to each other (server/party_shuffle.cc, server/query_routes.cc): a
// fingerprint and its answer for a position; bucket and tally beside an onion, and its place; place
// and tally of a query.
constexpr double kPrintBytes = 16 + 1, kItemBytes = 2 + 4, kPlaceBytes = 4, kRouteBytes = 4 + 4;

absl::Status OutOfRange(absl::string_view option, absl::string_view range, double got) {
  return absl::InvalidArgumentError(absl::StrFormat("--%s must be %s, got %g", option, range, got));
}

// How far a table of this size is from fitting a cache, from 0 to 1.
double Far(double table_bytes) {
  return std::clamp(
      std::log2(table_bytes / kNearTableBytes) / std::log2(kFarTableBytes / kNearTableBytes), 0.0,
      1.0);
}

uint64_t Whole(double number) { return static_cast<uint64_t>(std::llround(number)); }

// Memory of freed spools. A new spool reuses the smallest piece that SpoolPlace::Reuses allows.
class Spares {
 public:
  explicit Spares(std::initializer_list<double> bytes) : bytes_(bytes) {}
  // The bytes of a new spool of `bytes` that are touched for the first time.
  double Fresh(double bytes) {
    auto best = bytes_.end();
    for (auto it = bytes_.begin(); it != bytes_.end(); ++it) {
      if (SpoolPlace::Reuses(Whole(*it), Whole(bytes)) && (best == bytes_.end() || *it < *best)) {
        best = it;
      }
    }
    if (best == bytes_.end()) return bytes;
    bytes_.erase(best);
    return 0;
  }

 private:
  std::vector<double> bytes_;
};

// Bytes that party j gets for each position.
double InBytes(uint32_t parties, uint32_t j) {
  if (j > 1) return static_cast<double>(onion::OnionBytes(parties - j + 1));
  return static_cast<double>(onion::SubmissionBytes(parties, kSlotsOfASubmission)) /
         kSlotsOfASubmission;
}

// What machine 0 of a party sends to the others in a round.
struct Sent {
  double offline = 0, online = 0;
  double mean_offline = 0, mean_online = 0;  // without padding
};
Sent PredictSent(uint32_t machines, double in, double own, bool backend, double inner,
                 double answer) {
  Sent sent;
  const uint64_t positions = Whole(in), items = Whole(in + own);
  const double share = 1.0 / machines;
  for (uint32_t to = 1; to < machines; ++to) {
    sent.offline += kPrintBytes * static_cast<double>(machines::MostDrawn(positions, 1, machines));
    sent.mean_offline += kPrintBytes * in * share;
    if (backend) continue;
    const uint32_t buckets = shuffle::BucketCount(items * machines);
    const auto most = [&](uint64_t of) {
      const uint64_t part = machines::RunOf(buckets, to, machines).size();
      return static_cast<double>(machines::MostDrawn(of, part, buckets));
    };
    // All machines' counts of each bucket; onions there, places back; tallies there, answers back.
    sent.offline += 8.0 * buckets + (kItemBytes + inner + kPlaceBytes) * most(items);
    sent.mean_offline +=
        8.0 * buckets + (kItemBytes + inner) * (in + own) * share + kPlaceBytes * in * share;
    sent.online += (kRouteBytes + answer) * std::min(in, most(positions));
    sent.mean_online += (kRouteBytes + answer) * in * share;
  }
  return sent;
}

// What one machine of a party has in a round.
struct PartyShape {
  uint32_t party;
  bool backend;
  uint32_t machines;
  double in, own, out;  // positions; of its own noise
  uint32_t hops;
  double onion, inner;  // bytes
  // Bytes. The costs of an answer are measured by its length without its tag. With it, an answer
  // lies and moves.
  double answer, tagged;
  // The share of positions whose places are another machine's, and of the onions and noise.
  double moved;
  Sent sent;
  // Lists come in parts if either of two neighbours has several machines.
  bool joins_answers;
  double joined_onions, joined_answers;  // bytes
};
PartyShape ShapeOf(const Workload& w, const Layout& layout, double noise, uint32_t j) {
  PartyShape s = {};
  s.party = j;
  s.backend = j == w.parties;
  s.machines = w.MachinesOf(j);
  s.in = (static_cast<double>(w.queries) + (j - 1) * noise) / s.machines;
  s.own = s.backend ? 0 : noise / s.machines;
  s.out = s.backend ? 0 : s.in + s.own;
  s.hops = w.parties - j;
  s.onion = InBytes(w.parties, j);
  s.inner = static_cast<double>(onion::OnionBytes(s.hops));
  s.answer = layout.answer_bytes();
  s.tagged = static_cast<double>(round::FetchedBytes(layout.answer_bytes()));
  s.moved = 1 - 1.0 / s.machines;
  s.sent = PredictSent(s.machines, s.in, s.own, s.backend, s.inner, s.tagged);
  const bool joins_onions = j > 1 && s.machines * w.MachinesOf(j - 1) > 1;
  s.joins_answers = !s.backend && s.machines * w.MachinesOf(j + 1) > 1;
  s.joined_onions = joins_onions ? s.in * s.onion : 0;
  // Answers in parts are taken as they come, but there is room for them all.
  s.joined_answers = s.joins_answers ? s.out * s.tagged : 0;
  return s;
}

// Where a machine's lists are, and how many bytes of them pass through the system's memory: of a
// list in a file as many as of one in memory.
struct PartyLists {
  server::RoundSize size;
  server::RoundMemory memory;
  double noise, opened, ordered, returned;
  // The frontend keeps answers for its clients where they lie in memory, and copies others.
  double copied;
  double pads, forward;
  // What is made ahead of time.
  bool masks_ready, forward_ready;
};
// The stages' own rule decides what is in memory, for a party whose memory holds only this round's
// noise.
PartyLists ListsOf(const Workload& w, const Layout& layout, const PartyShape& s) {
  PartyLists lists = {};
  lists.size = {.positions = Whole(s.in),
                .noise = Whole(s.own),
                .inner_bytes = static_cast<size_t>(s.inner),
                .answer_bytes = layout.answer_bytes(),
                .others = s.backend ? 0 : Whole(s.moved * s.in),
                .batch = s.joins_answers};
  lists.noise = s.own * s.inner;
  const double free =
      w.spool_memory_bytes - (lists.noise <= w.spool_memory_bytes ? lists.noise : 0);
  lists.memory = server::DivideMemory(lists.size, Whole(free));
  const auto passed = [](const server::ListMemory& list) {
    return static_cast<double>(std::max(list.bytes, list.memory));
  };
  lists.opened = passed(lists.memory.opened);
  lists.ordered = passed(lists.memory.ordered);
  lists.returned = passed(lists.memory.returned);
  lists.copied = s.party == 1 && lists.memory.returned.memory == 0 ? s.in * s.tagged : 0;
  lists.masks_ready = lists.memory.pads.memory > 0;
  lists.forward_ready = lists.memory.forward.memory > 0;
  lists.pads = s.in * static_cast<double>(sharing::PadBytes(layout.answer_bytes()));
  lists.forward = s.out * (server::kForwardPositionBytes + kForwardMessageBytes);
  return lists;
}

double MaskNs(const PartyShape& s, const UnitCosts& unit) {
  return s.in * (CostAt(unit.mask(), s.in) + s.answer * CostAt(unit.mask_byte(), s.in));
}

constexpr double kNs = 1e-9;  // seconds

// Before the round, and its offline stage. Counts large arrays as touched for the first time,
// although a process's later rounds touch fewer new pages.
void FillOffline(const PartyShape& s, const PartyLists& lists, const UnitCosts& unit,
                 Party& party) {
  const double fresh = unit.fresh_byte_ns();
  // Each machine draws the noise of all, and seals its share.
  party.set_noise_cpu_s(kNs * (s.own * (SealNs(unit, s.hops) + s.inner * fresh) +
                               s.own * s.machines * unit.noise_ns()));
  const double open =
      (s.party == 1 ? unit.slot_ns() : unit.open_ns()) + s.onion * unit.open_byte_ns();
  const double place =
      s.backend ? s.in * CostAt(unit.backend_place(), s.in)
                : s.out * (CostAt(unit.place(), s.out) + s.inner * CostAt(unit.move_byte(), s.out));
  const double pages = s.in * kOfflineArrayBytes + lists.opened + lists.ordered +
                       (lists.masks_ready ? lists.pads : 0) +
                       (lists.forward_ready ? lists.forward : 0);
  // What is sent is also received.
  const double sent_ns = 2 * s.sent.offline * unit.inside_byte_ns();
  // At several machines a position's fingerprint is compared once more, and an onion that moves is
  // copied once more.
  const double shared =
      s.machines == 1 ? 0
                      : s.in * CostAt(unit.backend_place(), s.in) +
                            s.moved * s.out * s.inner * CostAt(unit.move_byte(), s.out) + sent_ns;
  party.set_offline_cpu_s(kNs * (s.in * open + place + (lists.masks_ready ? MaskNs(s, unit) : 0) +
                                 pages * fresh + shared + s.joined_onions * unit.join_byte_ns()));
}

// The online stage of the last party.
void FillAnswers(const Layout& layout, const PartyShape& s, const PartyLists& lists,
                 const UnitCosts& unit, Party& party) {
  party.set_online_cpu_s(
      kNs * (s.in * (CostAt(unit.answer(), s.in) + s.answer * CostAt(unit.answer_byte(), s.in) +
                     unit.far_row_ns() * Far(layout.rows() * s.answer)) +
             (lists.masks_ready ? 0 : MaskNs(s, unit))));
}

// The online stage of another one, and the way back.
void FillOnline(const PartyShape& s, const PartyLists& lists, const UnitCosts& unit, Party& party) {
  const double fresh = unit.fresh_byte_ns();
  // A query that moves is put to its place as one of noise is, and its answer is taken like one to
  // noise before it is sent to the machine that returns it. That machine puts it, too, and does not
  // digest it as one that came from the next party.
  const double elsewhere = s.moved * s.in;
  const double again =
      s.tagged * std::max(0.0, CostAt(unit.drop_byte(), s.own) - unit.digest_byte_ns());
  const double parts = s.joins_answers ? s.out * unit.part_query_ns() : 0;
  const double sent_ns = 2 * s.sent.online * unit.inside_byte_ns();
  const double tallies = sent_ns * kRouteBytes / (kRouteBytes + s.tagged);
  party.set_online_cpu_s(kNs *
                         (s.in * CostAt(unit.forward(), s.in) +
                          (s.own + elsewhere) * CostAt(unit.forward_noise(), s.own) + tallies +
                          parts + (lists.forward_ready ? 0 : lists.forward * fresh)));
  // Answers reuse the memory of the offline stage's lists.
  Spares spares({lists.noise, lists.opened, lists.ordered});
  party.set_answers_cpu_s(
      kNs * (s.in * (CostAt(unit.back(), s.in) + s.answer * CostAt(unit.back_byte(), s.in)) +
             s.own * (CostAt(unit.drop(), s.own) + s.answer * CostAt(unit.drop_byte(), s.own)) +
             elsewhere * (CostAt(unit.drop(), s.own) + again) + sent_ns - tallies +
             (lists.masks_ready ? 0 : MaskNs(s, unit)) + spares.Fresh(lists.returned) * fresh));
  // No stage's report counts this.
  party.set_keep_seconds(kNs * spares.Fresh(lists.copied) * fresh);
}

void FillMemory(const Layout& layout, const PartyShape& s, const PartyLists& lists, Party& party) {
  const double ahead =
      (lists.masks_ready ? lists.pads : 0) + (lists.forward_ready ? lists.forward : 0);
  const double rest = static_cast<double>(server::RestArrayBytes(lists.size)) + ahead;
  const double kept = s.own * (s.inner + 4);  // noise
  // The larger of the offline stage's lists with the noise, and the answers. The backend makes its
  // answers as they are sent.
  const double most = std::max(lists.opened + lists.ordered + kept + s.joined_onions,
                               lists.returned + lists.copied + s.joined_answers);
  const double peak =
      static_cast<double>(server::PeakArrayBytes(lists.size, lists.memory)) + ahead + most;
  const double table = s.backend ? layout.rows() * s.answer : 0;
  party.set_rest_memory_bytes(rest + kept);
  party.set_peak_memory_bytes(peak + table);
}

Party PredictParty(const Workload& w, const Layout& layout, const UnitCosts& unit, double noise,
                   uint32_t j) {
  const PartyShape s = ShapeOf(w, layout, noise, j);
  const PartyLists lists = ListsOf(w, layout, s);
  Party party;
  party.set_party(j);
  party.set_machines(s.machines);
  party.set_positions_in(s.in * s.machines);
  party.set_noise_queries(s.own * s.machines);
  party.set_sent_offline_bytes(s.sent.offline);
  party.set_sent_online_bytes(s.sent.online);
  party.set_padding_bytes(
      std::max(0.0, s.sent.offline + s.sent.online - s.sent.mean_offline - s.sent.mean_online));
  party.set_masks_ready(lists.masks_ready);
  FillOffline(s, lists, unit, party);
  if (s.backend) {
    FillAnswers(layout, s, lists, unit, party);
  } else {
    FillOnline(s, lists, unit, party);
  }
  const double query_bytes = QueryBatchBytes(s.in) + (s.backend ? 0 : QueryBatchBytes(s.out));
  const double link_bytes =
      s.in * s.onion + s.out * s.inner + query_bytes + (s.in + s.out) * s.tagged;
  party.set_links_cpu_s(kNs * link_bytes * unit.link_byte_ns());
  FillMemory(layout, s, lists, party);

  party.set_noise_seconds(WallSeconds(party.noise_cpu_s(), unit.noise_serial(), w.cores));
  party.set_offline_seconds(WallSeconds(party.offline_cpu_s(), unit.offline_serial(), w.cores));
  party.set_online_seconds(WallSeconds(
      party.online_cpu_s(), s.backend ? unit.answer_serial() : unit.online_serial(), w.cores));
  party.set_answers_seconds(WallSeconds(party.answers_cpu_s(), unit.back_serial(), w.cores));
  // Machines work at the same time.
  party.set_noise_cpu_s(s.machines * party.noise_cpu_s());
  party.set_offline_cpu_s(s.machines * party.offline_cpu_s());
  party.set_online_cpu_s(s.machines * party.online_cpu_s());
  party.set_answers_cpu_s(s.machines * party.answers_cpu_s());
  party.set_links_cpu_s(s.machines * party.links_cpu_s());
  return party;
}

void FillRental(const Workload& w, Plan& plan) {
  Rental& rental = *plan.mutable_rental();
  double inside = 0;
  for (const Party& party : plan.party()) {
    inside += party.machines() * (party.sent_offline_bytes() + party.sent_online_bytes());
  }
  const ChainTimes& times = plan.chain_times();
  const double machines = w.one_machine ? 1
                                        : std::accumulate(w.machines.begin(), w.machines.end(),
                                                          w.machines.empty() ? w.parties : 0u);
  rental.set_machines(machines);
  rental.set_minutes((times.offline_beside_noise_seconds() + times.online_seconds()) / 60);
  rental.set_price_machine_hour(w.price_machine_hour);
  rental.set_machines_price(machines * rental.minutes() / 60 * w.price_machine_hour);
  rental.set_gigabytes(plan.per_round().gigabytes());
  rental.set_inside_gigabytes(inside / 1e9);
  rental.set_traffic_price(plan.per_round().traffic_price());
  rental.set_price(rental.machines_price() + rental.traffic_price());
}

double CpuSeconds(const Plan& plan) {
  double sum = 0;
  for (const Party& p : plan.party()) {
    sum += p.noise_cpu_s() + p.offline_cpu_s() + p.online_cpu_s() + p.answers_cpu_s() +
           p.links_cpu_s();
  }
  return sum;
}

// Parties work one after the other. Encryption on the link between two parties runs beside their
// computation: on the same cores if they share a machine, otherwise on the receiver's. All parties
// make the next round's noise at the same time. With a machine for each party, only the frontend is
// still making noise when its onions come.
ChainTimes PredictTimes(const Workload& w, const Plan& plan, const UnitCosts& unit) {
  double offline = 0, online = 0, noise = 0, onion_bytes = 0, online_bytes = 0;
  // The bytes of a link, at each of the receiver's machines: party from + 1, and of answers `from`.
  for (const Party& party : plan.party()) {
    offline += party.offline_seconds();
    if (w.one_machine || party.party() == 1) noise += party.noise_seconds();
    online += party.online_seconds() + party.answers_seconds() + party.keep_seconds();
  }
  for (const Hop& hop : plan.hop()) {
    if (hop.from() == 0) continue;
    const uint32_t from = w.MachinesOf(hop.from()), to = w.MachinesOf(hop.from() + 1);
    onion_bytes += hop.onion_bytes() / to;
    online_bytes += hop.query_bytes() / to + hop.answer_bytes() / from;
  }
  const double byte_s = 1e-9 * unit.link_byte_ns() * (w.one_machine ? 2 : 1) / w.cores;
  ChainTimes times;
  times.set_offline_seconds(offline + onion_bytes * byte_s);
  times.set_offline_beside_noise_seconds(times.offline_seconds() + noise);
  times.set_online_seconds(online + online_bytes * byte_s);
  return times;
}

double Mixed(uint64_t row, uint64_t epoch) {
  uint64_t z = row * 0x9e3779b97f4a7c15u + epoch * 0xd1342543de82ef95u + 1;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

// Bytes of the lists of rows' epochs, of so many rows, each of which another epoch changes with
// probability `changed`.
struct ListBytes {
  double visit = 0;  // what a client fetches at each visit
  double base = 0;   // what it fetches in addition when it has none
};
ListBytes VersionListBytes(uint64_t rows, double changed) {
  const auto version = [](uint64_t epoch) {
    table::RowVersion made{.epoch = epoch, .rows_digest = {}};
    StoreLe(made.rows_digest.data(), epoch);
    return made;
  };
  // Two blocks before the one that counts.
  constexpr uint64_t kFirst = 2 * table::kBlockEpochs + 1, kLast = 3 * table::kBlockEpochs;
  auto versions = table::RowVersions::First(version(1), rows);
  ListBytes bytes;
  for (uint64_t epoch = 2; epoch <= kLast; ++epoch) {
    versions = versions.Next(version(epoch), rows,
                             [&](uint64_t row) { return Mixed(row, epoch) < changed; });
    if (epoch < kFirst) continue;
    const auto& lists = versions.lists();
    bytes.visit += static_cast<double>(lists.previous.size() + lists.recent.size());
    bytes.base += static_cast<double>(lists.base.size());
  }
  constexpr double kEpochs = kLast - kFirst + 1;
  return {bytes.visit / kEpochs, bytes.base / kEpochs};
}

// What a client sends and gets once at each refresh, beside its slots: round id, and header, all
// parties' signature and tags; round id and number (docs/protocol.md, "Refreshes").
double RefreshBytes(uint32_t parties) {
  return 32 + (32 + 4 + 8 + 32 + static_cast<double>(signature::kSignatureBytes) + 32.0 * parties) +
         (32 + 4);
}
// What a client sends for a slot of a refresh: its number and token.
constexpr double kRefreshSlotBytes = 4 + sharing::kTokenBytes;

// The terms of one machine a party: rosters allow no others.
TermParty PredictTermParty(const Workload& w, const Layout& layout, const UnitCosts& unit,
                           double noise, uint32_t j) {
  const bool frontend = j == 1, backend = j == w.parties;
  const double in = static_cast<double>(w.queries) + (j - 1) * noise;
  const double own = backend ? 0 : noise, out = backend ? 0 : in + own;
  const double answer = layout.answer_bytes();  // as in PredictParty
  const auto tagged = static_cast<double>(round::FetchedBytes(layout.answer_bytes()));
  const double ns = 1e-9;
  const server::TermArrays arrays = {.positions = Whole(in),
                                     .forwarded = Whole(out),
                                     .slots = frontend ? w.queries : 0,
                                     .backend = backend,
                                     .frontend = frontend};
  TermParty party;
  party.set_party(j);
  party.set_at_rest_bytes(static_cast<double>(arrays.file_bytes()));
  party.set_keep_cpu_s(ns * party.at_rest_bytes() * unit.term_byte_ns());
  double cpu_ns = 0;
  if (backend) {
    const double table = layout.rows() * answer;
    cpu_ns =
        in * (CostAt(unit.refresh_answer(), in) + answer * CostAt(unit.refresh_answer_byte(), in) +
              unit.refresh_far_row_ns() * Far(table)) +
        table * unit.refresh_table_byte_ns();
  } else {
    // A term that sleeps holds no memory, so that all of it is touched for the first time.
    const auto list =
        static_cast<double>(arrays.list_bytes(round::FetchedBytes(layout.answer_bytes())));
    cpu_ns =
        in * (CostAt(unit.refresh_back(), in) + answer * CostAt(unit.refresh_back_byte(), in)) +
        own * (CostAt(unit.refresh_drop(), own) + answer * CostAt(unit.refresh_drop_byte(), own)) +
        list * unit.fresh_byte_ns();
  }
  if (frontend) {
    party.set_answers_bytes(in * tagged);
    cpu_ns += in * tagged * unit.refresh_kept_byte_ns();
    party.set_fetch_cpu_s(ns * in * unit.refresh_fetch_ns());
  }
  party.set_refresh_cpu_s(ns * cpu_ns);
  const double client_bytes = frontend ? in * kRefreshSlotBytes : 0;
  party.set_links_cpu_s(ns * ((in + out) * tagged + client_bytes) * unit.link_byte_ns());
  party.set_refresh_seconds(WallSeconds(party.refresh_cpu_s(), unit.refresh_serial(), w.cores));
  return party;
}

// Keys without room in their rows at a term's last epoch, if records have one length: each row
// loses and gains keys at random, and lacks those beyond what fits. Rows have `per_row` keys at
// first, of which so many stay, and `fit` fit.
double DisplacedOfRow(double per_row, double stays, double fit) {
  const auto of = [&](double keys) {
    // Distributions of how many have gone (binomial) and how many have come and are there
    // (Poisson).
    const double mean = keys * (1 - stays);
    const auto most = static_cast<size_t>(keys + 10 * std::sqrt(mean) + 20);
    std::vector<double> gone(most + 1), come(most + 1);
    for (size_t i = 0; i <= most; ++i) {
      const auto k = static_cast<double>(i);
      come[i] = std::exp(-mean + k * std::log(mean) - std::lgamma(k + 1));
      if (k > keys) continue;
      gone[i] = std::exp(std::lgamma(keys + 1) - std::lgamma(k + 1) - std::lgamma(keys - k + 1) +
                         k * std::log(1 - stays) + (keys - k) * std::log(stays));
    }
    constexpr double kNothing = 1e-12;
    double displaced = 0;
    for (size_t i = 0; i <= most; ++i) {
      if (come[i] < kNothing) continue;
      for (size_t k = 0; k <= most; ++k) {
        if (gone[k] < kNothing) continue;
        displaced += come[i] * gone[k] *
                     std::max(0.0, keys + static_cast<double>(i) - static_cast<double>(k) - fit);
      }
    }
    return displaced;
  };
  if (!(stays > 0 && stays < 1)) return 0;
  const double low = std::floor(per_row), share = per_row - low;
  return (1 - share) * (low < 1 ? 0 : of(low)) + (share > 0 ? share * of(low + 1) : 0);
}

void FillTerm(const Workload& w, const UnitCosts& unit, Plan& plan) {
  Term& term = *plan.mutable_term();
  const Layout& layout = plan.table();
  term.set_refreshes(w.refreshes);
  term.set_epochs(w.epochs());
  term.set_days(w.epochs() / w.rounds_per_day);
  term.set_changed_percent(w.changed_percent);
  double cpu = 0, keep = 0, at_rest = 0, positions = 0, seconds = 0;
  for (uint32_t j = 1; j <= w.parties; ++j) {
    TermParty& party = *term.add_party();
    party = PredictTermParty(w, layout, unit, plan.noise_queries_per_party(), j);
    cpu += party.refresh_cpu_s() + party.fetch_cpu_s() + party.links_cpu_s();
    keep += party.keep_cpu_s();
    at_rest += party.at_rest_bytes();
    positions += plan.party(static_cast<int>(j) - 1).positions_in();
    seconds += party.refresh_seconds();
  }
  double link_bytes = 0;
  for (const Hop& hop : plan.hop()) {
    if (hop.from() > 0) link_bytes += hop.answer_bytes();
  }
  const double queries = plan.queries();
  const double clients = queries / plan.noise().phi();
  const double byte_s = 1e-9 * unit.link_byte_ns() * (w.one_machine ? 2 : 1) / w.cores;
  term.set_refresh_cpu_s(cpu);
  term.set_refresh_seconds(seconds + link_bytes * byte_s);
  term.set_refresh_link_bytes(link_bytes);
  term.set_refresh_client_bytes(queries * (plan.client().answer_bytes() + kRefreshSlotBytes) +
                                clients * RefreshBytes(w.parties));
  term.set_at_rest_bytes_per_position(at_rest / positions);
  const double hours = cpu / 3600, gigabytes = (link_bytes + term.refresh_client_bytes()) / 1e9;
  FillCost(w, hours, gigabytes, *term.mutable_per_refresh());
  term.set_placement_bytes(PlacementBytes(w));
  const double beside = clients * (w.epochs() * layout.list_bytes() + PlacementBytes(w));
  FillCost(w,
           plan.per_round().core_hours() + w.refreshes * hours +
               (keep + 1e-9 * beside * unit.link_byte_ns()) / 3600,
           plan.per_round().gigabytes() + w.refreshes * gigabytes + beside / 1e9,
           *term.mutable_per_term());
}

// Of all epochs of a term, or of the round.
double WholePrice(const Plan& plan) {
  return plan.has_term() ? plan.term().per_term().price() : plan.per_round().price();
}
double WholeCpuSeconds(const Plan& plan) {
  return plan.has_term() ? plan.term().per_term().core_hours() * 3600 : CpuSeconds(plan);
}

absl::StatusOr<Layout> LayOutWithRoom(const Workload& w, uint32_t row_bytes, uint32_t room) {
  if (row_bytes < 1 || row_bytes > table::kMaxRowBytes) {
    return OutOfRange("row-bytes", absl::StrCat("in [1, ", table::kMaxRowBytes, "]"), row_bytes);
  }
  const bool dense = w.layout == LayoutKind::kDense;
  const size_t record = RecordBytes(w);
  const uint64_t fit = row_bytes / record;
  if (fit == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--row-bytes must be at least ", record,
                                                   ", what one record takes, got ", row_bytes));
  }
  Layout out;
  out.set_layout(dense ? "dense" : "hashed");
  out.set_records(static_cast<double>(w.records));
  out.set_room_percent(room);
  out.set_row_bytes(dense ? static_cast<uint32_t>(fit * record) : row_bytes);
  // Where keys are placed, rows are as long as without their room, but hold a record.
  const uint64_t placed = std::max<uint64_t>(row_bytes - uint64_t{row_bytes} * room / 100, record);
  const double per_row =
      dense ? static_cast<double>(fit)
            : std::min(kHashedRecordsFill * static_cast<double>(placed / record),
                       kHashedFill * static_cast<double>(placed) / static_cast<double>(record));
  out.set_rows(std::ceil(static_cast<double>(w.records) / per_row));
  out.set_records_per_row(static_cast<double>(w.records) / out.rows());
  out.set_answer_bytes(out.row_bytes() + static_cast<uint32_t>(signature::kSignatureBytes));
  out.set_table_bytes(out.rows() * out.row_bytes());
  if (out.rows() > static_cast<double>(table::kMaxRows)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--row-bytes %d makes %.0f rows; a table has at most %d", row_bytes,
                        out.rows(), table::kMaxRows));
  }
  return out;
}

}  // namespace

double CostAt(const Curve& curve, double count) {
  const double few = std::log2(kFewPositions), many = std::log2(kManyPositions);
  const double share = std::clamp((std::log2(std::max(1.0, count)) - few) / (many - few), 0.0, 1.0);
  return curve.few_ns() + share * (curve.many_ns() - curve.few_ns());
}

double WallSeconds(double cpu_s, double serial, double cores) {
  return cpu_s * (serial + (1 - serial) / cores);
}

void FillCost(const Workload& w, double core_hours, double gigabytes, Cost& cost) {
  cost.set_core_hours(core_hours);
  cost.set_gigabytes(gigabytes);
  cost.set_cores_price(core_hours * w.price_core_hour);
  cost.set_traffic_price(gigabytes * w.price_gb);
  cost.set_price(cost.cores_price() + cost.traffic_price());
}

void FillNoise(const noise::Choice& noise, Noise& n) {
  const noise::Parameters& p = noise.parameters;
  n.set_mechanism(std::string(noise::MechanismName(p.mechanism)));
  n.set_epsilon(p.epsilon);
  n.set_delta(p.delta);
  n.set_phi(p.phi);
  n.set_mode(p.mode);
  n.set_left_scale(p.left_scale);
  n.set_right_scale(p.right_scale);
  n.set_mean_per_row(noise.mean);
  n.set_true_delta(noise.delta);
}

Workload Workload::WithoutTerm() const {
  Workload w = *this;
  w.refreshes = 0;
  w.room_percent.reset();
  return w;
}

uint32_t Workload::TermDays() const {
  return static_cast<uint32_t>(std::ceil(refreshes / rounds_per_day)) + 1;
}

absl::Status CheckWorkload(const Workload& w) {
  constexpr double kMaxRecords = 1e12, kMaxQueries = 4e9;
  const double records = static_cast<double>(w.records), queries = static_cast<double>(w.queries);
  if (records < 1 || records > kMaxRecords) return OutOfRange("records", "in [1, 1e12]", records);
  if (queries < 1 || queries > kMaxQueries) return OutOfRange("queries", "in [1, 4e9]", queries);
  if (w.parties < 2 || w.parties > 8) return OutOfRange("parties", "in [2, 8]", w.parties);
  if (w.cores < 1 || w.cores > 65536) return OutOfRange("cores", "in [1, 65536]", w.cores);
  if (w.layout == LayoutKind::kHashed && (w.key_bytes < 1 || w.key_bytes > 65535)) {
    return OutOfRange("key-bytes", "in [1, 65535] with --layout hashed", w.key_bytes);
  }
  if (w.value_bytes < 1 || w.value_bytes > table::kMaxRowBytes) {
    return OutOfRange("value-bytes", absl::StrCat("in [1, ", table::kMaxRowBytes, "]"),
                      w.value_bytes);
  }
  if (!(w.rounds_per_day > 0 && w.rounds_per_day <= 86400)) {
    return OutOfRange("rounds-per-day", "above 0 and at most 86400", w.rounds_per_day);
  }
  if (!(w.price_core_hour >= 0 && w.price_core_hour <= 1e6)) {
    return OutOfRange("price-core-hour", "in [0, 1e6]", w.price_core_hour);
  }
  if (!(w.price_gb >= 0 && w.price_gb <= 1e6)) {
    return OutOfRange("price-gb", "in [0, 1e6]", w.price_gb);
  }
  if (!(w.price_machine_hour >= 0 && w.price_machine_hour <= 1e6)) {
    return OutOfRange("price-machine-hour", "in [0, 1e6]", w.price_machine_hour);
  }
  if (w.refreshes > kMaxRefreshes) {
    return OutOfRange("refreshes", absl::StrCat("at most ", kMaxRefreshes), w.refreshes);
  }
  if (!(w.changed_percent > 0 && w.changed_percent <= 100)) {
    return OutOfRange("changed-percent", "above 0 and at most 100", w.changed_percent);
  }
  const uint32_t room = w.room_percent.value_or(0);
  if (room > table::kMaxRoomPercent) {
    return OutOfRange("room-percent", absl::StrCat("at most ", table::kMaxRoomPercent), room);
  }
  if (room > 0 && w.layout == LayoutKind::kDense) {
    return absl::InvalidArgumentError(
        "--room-percent is for hashed tables; slots of a dense one are as long as --value-bytes");
  }
  if (w.refreshes > 0 && std::ranges::any_of(w.machines, [](uint32_t n) { return n > 1; })) {
    return absl::InvalidArgumentError(
        "--refreshes: a party of several machines keeps no terms; leave --machines out");
  }
  if (!w.machines.empty() && w.machines.size() != w.parties) {
    return absl::InvalidArgumentError(
        absl::StrCat("--machines names ", w.machines.size(), " parties, --parties ", w.parties));
  }
  for (const uint32_t machines : w.machines) {
    if (machines < 1 || machines > machines::Machines::kMaxCount) {
      return OutOfRange("machines", absl::StrCat("in [1, ", machines::Machines::kMaxCount, "]"),
                        machines);
    }
    if (machines > 1 && w.one_machine) {
      return absl::InvalidArgumentError(
          "--machines: with --one-machine all parties share one machine");
    }
  }
  return absl::OkStatus();
}

size_t RecordBytes(const Workload& w) {
  if (w.layout == LayoutKind::kHashed) {
    return table::HashedRecordBytes(w.key_bytes, w.value_bytes);
  }
  wire::DenseLayout layout;
  layout.set_records_per_row(1);
  layout.set_value_bytes(w.value_bytes);
  return table::DenseSlotBytes(layout);
}

double DisplacedKeys(const Workload& w, const Layout& layout) {
  if (w.layout == LayoutKind::kDense) return 0;
  const double stays = std::pow(1 - kGoneOfChanges * w.changed_percent / 100, w.refreshes);
  const auto fit = static_cast<double>(layout.row_bytes() / RecordBytes(w));
  return layout.rows() * DisplacedOfRow(layout.records_per_row(), stays, fit);
}

EpochChange ChangeOf(const Workload& w, const Layout& layout) {
  const double share = w.changed_percent / 100;
  const bool dense = w.layout == LayoutKind::kDense;
  EpochChange change;
  change.gone = dense ? 0 : kGoneOfChanges * share * layout.records();
  change.records = share * layout.records() - change.gone;
  // Each change is in a row of its own choice.
  const double row = 1 - std::pow(1 - share, std::max(1.0, layout.records_per_row()));
  change.rows = row * layout.rows();
  const auto rows = static_cast<uint64_t>(layout.rows());
  const uint64_t sampled = std::min(rows, kMostSampledRows);
  const ListBytes lists = VersionListBytes(sampled, row);
  const double scale = static_cast<double>(rows) / static_cast<double>(sampled);
  change.list_bytes = kManifestBytes + lists.visit * scale;
  change.base_bytes = lists.base * scale;
  return change;
}

double FirstBytes(const Workload& w, const Layout& layout) {
  const EpochChange change = ChangeOf(w, layout);
  return change.list_bytes + change.base_bytes + PlacementBytes(w);
}

double PlacementBytes(const Workload& w) {
  return w.layout == LayoutKind::kDense
             ? 0
             : std::ceil(static_cast<double>(w.records) / kKeysPerBucket);
}

absl::StatusOr<Layout> LayOut(const Workload& w, uint32_t row_bytes) {
  const bool chosen =
      w.refreshes > 0 && !w.room_percent.has_value() && w.layout == LayoutKind::kHashed;
  uint32_t room = w.room_percent.value_or(0);
  for (;; room += kRoomStep) {
    if (room > table::kMaxRoomPercent) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "--row-bytes ", row_bytes, ": no room is enough for the term's changes; longer rows"));
    }
    SHOAL_ASSIGN_OR_RETURN(Layout layout, LayOutWithRoom(w, row_bytes, room));
    if (chosen && DisplacedKeys(w, layout) > kMostDisplaced * layout.records()) continue;
    if (w.refreshes > 0) {
      const EpochChange change = ChangeOf(w, layout);
      layout.set_changed_rows(change.rows / layout.rows());
      layout.set_list_bytes(change.list_bytes);
    }
    return layout;
  }
}

std::vector<uint32_t> RowSizes(const Workload& w) {
  // Powers of two and their middles, and the size of exactly one dense record.
  std::vector<uint32_t> sizes;
  if (w.layout == LayoutKind::kDense) sizes.push_back(w.value_bytes);
  for (uint32_t size = 64; size <= 1 << 17; size *= 2) {
    sizes.push_back(size);
    sizes.push_back(size + size / 2);
  }
  std::sort(sizes.begin(), sizes.end());
  std::vector<uint32_t> out;
  double last_rows = 0;
  for (uint32_t size : sizes) {
    const auto layout = LayOut(w, size);
    if (!layout.ok() || layout->rows() == last_rows) continue;
    last_rows = layout->rows();
    out.push_back(layout->row_bytes());
    if (last_rows == 1) break;
  }
  if (out.empty()) {  // long records: one to a row
    out.push_back(static_cast<uint32_t>(
        w.layout == LayoutKind::kDense ? w.value_bytes
                                       : table::HashedRecordBytes(w.key_bytes, w.value_bytes)));
  }
  return out;
}

double QueryBatchBytes(double queries) { return 1 + 4 + std::ceil(queries / 8) + 4 * queries; }

absl::StatusOr<Plan> Predict(const Workload& w, const Layout& layout, const noise::Choice& noise,
                             const UnitCosts& costs) {
  SHOAL_RETURN_IF_ERROR(CheckWorkload(w));
  SHOAL_RETURN_IF_ERROR(noise::CheckPhi(noise.parameters, static_cast<uint64_t>(layout.rows())));
  const double queries = static_cast<double>(w.queries);
  const double own = noise.mean * layout.rows();
  const double most = queries + (w.parties - 1) * own;
  if (most > kMaxPositions) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "noise overflow: the backend would have %.3g positions, at most %.0f; fewer rows "
        "(larger --row-bytes), or a larger --epsilon or --delta, make less noise",
        most, kMaxPositions));
  }
  Plan plan;
  *plan.mutable_costs() = costs;
  plan.set_parties(w.parties);
  plan.set_queries(queries);
  plan.set_rounds_per_day(w.rounds_per_day);
  plan.set_cores(w.cores);
  plan.set_one_machine(w.one_machine);
  plan.set_price_core_hour(w.price_core_hour);
  plan.set_price_gb(w.price_gb);
  *plan.mutable_table() = layout;
  FillNoise(noise, *plan.mutable_noise());
  plan.set_noise_queries_per_party(own);
  plan.set_noise_queries_per_round(own * (w.parties - 1));

  double bytes = 0;
  for (uint32_t j = 1; j <= w.parties; ++j) {
    *plan.add_party() = PredictParty(w, layout, costs, own, j);
    const double into = queries + (j - 1) * own;
    Hop& hop = *plan.add_hop();
    hop.set_from(j - 1);
    hop.set_onion_bytes(into * InBytes(w.parties, j));
    hop.set_query_bytes(j == 1 ? into * kClientQueryBytes : QueryBatchBytes(into));
    hop.set_answer_bytes(into * static_cast<double>(round::FetchedBytes(layout.answer_bytes())));
    bytes += hop.onion_bytes() + hop.query_bytes() + hop.answer_bytes();
  }
  *plan.mutable_chain_times() = PredictTimes(w, plan, costs);
  Client& client = *plan.mutable_client();
  client.set_onion_bytes(InBytes(w.parties, 1));
  client.set_query_bytes(kClientQueryBytes);
  client.set_answer_bytes(static_cast<double>(round::FetchedBytes(layout.answer_bytes())));

  const double hours = CpuSeconds(plan) / 3600, gigabytes = bytes / 1e9;
  FillCost(w, hours, gigabytes, *plan.mutable_per_round());
  FillCost(w, hours * w.rounds_per_day, gigabytes * w.rounds_per_day, *plan.mutable_per_day());
  plan.set_price_per_million_queries(plan.per_round().price() / queries * 1e6);
  double busiest = 0;
  for (const Party& party : plan.party()) {
    const double seconds = party.noise_seconds() + party.offline_seconds() +
                           party.online_seconds() + party.answers_seconds() +
                           party.links_cpu_s() / w.cores / party.machines();
    busiest = w.one_machine ? busiest + seconds : std::max(busiest, seconds);
  }
  plan.set_busiest_party_load(busiest * w.rounds_per_day / 86400);
  FillRental(w, plan);

  if (w.refreshes > 0) FillTerm(w, costs, plan);

  Download& download = *plan.mutable_download();
  download.set_client_bytes(layout.records() * static_cast<double>(RecordBytes(w)) +
                            kManifestBytes);
  const double per_query = client.onion_bytes() + client.query_bytes() + client.answer_bytes();
  download.set_break_even_lookups(download.client_bytes() / per_query);
  return plan;
}

double SealNs(const UnitCosts& unit, uint32_t layers) {
  double ns = layers * unit.seal_ns();
  // The innermost layer seals nothing.
  for (uint32_t l = 2; l <= layers; ++l) {
    ns += static_cast<double>(onion::OnionBytes(l - 1)) * unit.seal_byte_ns();
  }
  return ns;
}

absl::StatusOr<Plan> ChooseRows(const Workload& w, uint32_t row_bytes, const noise::Choice& noise,
                                const UnitCosts& costs, Aim aim) {
  std::vector<uint32_t> sizes = RowSizes(w);
  if (row_bytes != 0) {
    SHOAL_ASSIGN_OR_RETURN(const Layout layout, LayOut(w, row_bytes));
    row_bytes = layout.row_bytes();
    if (std::find(sizes.begin(), sizes.end(), row_bytes) == sizes.end()) {
      sizes.insert(std::lower_bound(sizes.begin(), sizes.end(), row_bytes), row_bytes);
    }
  }
  std::vector<Plan> plans;  // to choose from
  std::vector<Alternative> lines;
  absl::Status first_error;
  for (uint32_t size : sizes) {
    SHOAL_ASSIGN_OR_RETURN(const Layout layout, LayOut(w, size));
    absl::StatusOr<Plan> plan = Predict(w, layout, noise, costs);
    if (!plan.ok()) {
      if (row_bytes == size || row_bytes == 0) first_error = plan.status();
      Alternative line;
      line.set_epsilon(noise.parameters.epsilon);
      line.set_row_bytes(size);
      line.set_rows(layout.rows());
      line.set_note(std::string(plan.status().message()));
      lines.push_back(std::move(line));
      continue;
    }
    lines.push_back(Summarise(*plan));
    if (row_bytes == 0 || size == row_bytes) plans.push_back(*std::move(plan));
  }
  if (plans.empty()) return first_error;
  if (aim == Aim::kPrice) {
    const double lowest = WholePrice(*std::ranges::min_element(plans, {}, WholePrice));
    std::erase_if(plans, [&](const Plan& plan) { return WholePrice(plan) > kSamePrice * lowest; });
  }
  Plan best = *std::ranges::min_element(plans, {}, WholeCpuSeconds);
  // The price is linear in the number of queries, so two points give the price of the noise and
  // that of one query.
  Workload twice = w;
  twice.queries = w.queries * 2;
  if (const auto other = Predict(twice, best.table(), noise, costs); other.ok()) {
    const double per_query =
        (other->per_round().price() - best.per_round().price()) / static_cast<double>(w.queries);
    const double fixed = best.per_round().price() - per_query * static_cast<double>(w.queries);
    const double table = best.download().client_bytes() / 1e9 * w.price_gb;
    if (table > per_query) {
      Download& download = *best.mutable_download();
      download.set_break_even_queries(std::ceil(std::max(0.0, fixed) / (table - per_query)));
      download.set_break_even_queries_per_record(download.break_even_queries() /
                                                 static_cast<double>(w.records));
    }
  }
  for (Alternative& line : lines) {
    line.set_chosen(line.row_bytes() == best.table().row_bytes());
    *best.add_by_row_bytes() = std::move(line);
  }
  return best;
}

Alternative Summarise(const Plan& plan) {
  Alternative line;
  line.set_epsilon(plan.noise().epsilon());
  line.set_row_bytes(plan.table().row_bytes());
  line.set_mechanism(plan.noise().mechanism());
  line.set_mean_per_row(plan.noise().mean_per_row());
  line.set_rows(plan.table().rows());
  line.set_noise_queries(plan.noise_queries_per_round());
  const double epochs = plan.has_term() ? plan.term().epochs() : 1;
  const Cost& whole = plan.has_term() ? plan.term().per_term() : plan.per_round();
  line.set_cpu_s(WholeCpuSeconds(plan) / epochs);
  line.set_gigabytes(whole.gigabytes() / epochs);
  line.set_price_per_million(whole.price() / epochs / plan.queries() * 1e6);
  return line;
}

}  // namespace shoal::plan
