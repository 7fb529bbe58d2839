#include "src/plan/synthetic_term.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/roster/assemble.h"
#include "src/roster/party_keys.h"
#include "src/round/header.h"
#include "src/server/journal.h"
#include "src/server/online.h"
#include "src/sharing/batch.h"
#include "src/shuffle/permutation.h"
#include "src/signature/bls.h"
#include "src/storage/file.h"

namespace shoal::plan {
namespace {

constexpr auto kSecret = PageBuffer::Content::kSecret;
constexpr uint32_t kParties = 2;

PageBuffer RandomSeeds(uint64_t count, RandomSource& random, ThreadPool& pool) {
  PageBuffer seeds = *PageBuffer::Create(32 * count, kSecret);
  const Seed key = random.NewSeed();
  constexpr size_t kBlock = 1 << 16;
  pool.ParallelFor(count, kBlock, [&](size_t begin, size_t end) {
    SeededRandom(key.view(), "shoal practice term", begin)
        .Fill(MutableBytes(seeds).subspan(32 * begin, 32 * (end - begin)));
  });
  return seeds;
}

wire::QueryBatch AllQueries(uint64_t count, uint64_t rows) {
  wire::QueryBatch batch;
  batch.positions.resize(count);
  std::iota(batch.positions.begin(), batch.positions.end(), 0u);
  batch.tallies.resize(count);
  for (uint64_t i = 0; i < count; ++i) batch.tallies[i] = static_cast<uint32_t>(i % rows);
  return batch;
}

// A roster that allows terms, signed by all of these keys.
absl::StatusOr<roster::Roster> MakeRoster(std::span<const roster::PartyKeys> keys, uint64_t slots,
                                          uint64_t now_s) {
  wire::Roster settings;
  settings.set_deployment("practice");
  std::vector<wire::PartyAnnouncement> announcements;
  wire::PinnedParties pins;
  pins.set_deployment("practice");
  for (const roster::PartyKeys& party : keys) {
    wire::Party& entry = *settings.add_parties();
    entry.set_name(party.name());
    const std::string address = absl::StrCat("127.0.0.1:", 7000 + settings.parties_size());
    settings.parties_size() == 1 ? entry.set_client_address(address)
                                 : entry.set_peer_address(address);
    announcements.push_back(party.announcement());
    pins.add_bls_public_keys_hex(Hex(party.bls().public_key().bytes()));
  }
  wire::NoiseParameters& noise = *settings.mutable_noise();
  noise.set_mechanism(wire::GEOMETRIC);
  noise.set_epsilon(1);
  noise.set_delta(1e-6);
  noise.set_phi(1);
  noise.set_mode(15);
  noise.set_left_scale(1.25);
  noise.set_right_scale(5);
  settings.set_clock_tolerance_s(60);
  settings.set_max_slots(static_cast<uint32_t>(slots));
  settings.mutable_term_limit()->set_days(30);
  settings.mutable_term_limit()->set_refreshes(1000);
  SHOAL_ASSIGN_OR_RETURN(wire::SignedRoster roster,
                         roster::AssembleRoster(settings, announcements, now_s));
  std::vector<signature::Signature> shares;
  for (const roster::PartyKeys& party : keys) {
    shares.push_back(party.bls().Sign(roster::RosterDigest(roster.roster())));
  }
  SHOAL_ASSIGN_OR_RETURN(const auto all, signature::AggregateSignatures(shares));
  roster.set_signature(ToString(all.bytes()));
  SHOAL_ASSIGN_OR_RETURN(const auto pinned, roster::PinnedParties::Create(pins));
  return roster::Roster::Verify(roster, pinned, now_s);
}

}  // namespace

struct SyntheticTerm::State {
  Shape shape;
  std::string directory;
  RandomSource* random = nullptr;
  ThreadPool* pool = nullptr;
  SystemClock clock;
  std::vector<roster::PartyKeys> keys;
  wire::RoundHeader header;
  Digest id = {};
  std::shared_ptr<const server::TableEpoch> table;
  std::vector<std::unique_ptr<server::FileJournal>> journals;
  std::vector<std::unique_ptr<server::Terms>> terms;
  wire::SignedRefreshHeader refresh;

  // Of the party that is made up, until it is kept. Query i of party 1, or its noise, is at place
  // place[i] of party 2, which asks row a mod rows at place a.
  uint32_t party = 0;
  server::OnlineMaterial material;
  PageArray<uint32_t> place;
  // Of the first slots: the term seeds of party 1, and party 2's with their places.
  std::vector<Seed> first_seeds, last_seeds;
  std::vector<uint32_t> places;

  uint64_t next() const { return shape.queries + shape.noise; }
  void NewTable();
};

void SyntheticTerm::State::NewTable() {
  auto bytes = std::make_shared<Bytes>(shape.rows * shape.answer_bytes);
  random->Fill(*bytes);
  const uint64_t epoch = table == nullptr ? 1 : table->epoch + 1;
  server::TableEpoch made{
      .facts = {.manifest_digest = Transcript("shoal practice table").U64(epoch).Finish(),
                .rows = shape.rows,
                .row_bytes =
                    static_cast<uint32_t>(shape.answer_bytes - signature::kSignatureBytes)},
      .id = {},
      .epoch = epoch,
      .answers = {*bytes, shape.rows}};
  made.holder = std::move(bytes);
  table = std::make_shared<const server::TableEpoch>(std::move(made));
}

SyntheticTerm::SyntheticTerm(std::unique_ptr<State> state) : state_(std::move(state)) {}

SyntheticTerm::~SyntheticTerm() {
  state_->terms.clear();
  state_->journals.clear();
  std::error_code ignored;
  std::filesystem::remove_all(state_->directory, ignored);
}

absl::StatusOr<std::unique_ptr<SyntheticTerm>> SyntheticTerm::Create(
    const Shape& shape, const std::string& directory, RandomSource& random,
    const server::Resources& resources) {
  auto made = std::make_unique<State>();
  State& s = *made;
  s.shape = shape;
  s.random = &random;
  s.pool = resources.pool;
  s.directory = directory + "/shoal-practice-XXXXXX";
  if (::mkdtemp(s.directory.data()) == nullptr) {
    const int error = errno;
    return ErrnoStatus(error, s.directory);
  }
  std::unique_ptr<SyntheticTerm> term(new SyntheticTerm(std::move(made)));

  const uint64_t now_s = s.clock.NowSeconds();
  for (uint32_t party = 1; party <= kParties; ++party) {
    SHOAL_ASSIGN_OR_RETURN(
        auto keys, roster::PartyKeys::Generate(absl::StrCat("party-", party), now_s, random));
    s.keys.push_back(std::move(keys));
  }
  SHOAL_ASSIGN_OR_RETURN(const roster::Roster roster, MakeRoster(s.keys, shape.queries, now_s));
  s.NewTable();
  s.header.set_counter(1'000);
  s.header.set_roster_digest(ToString(roster.digest()));
  s.header.set_manifest_digest(ToString(s.table->facts.manifest_digest));
  for (uint32_t party = 0; party < kParties; ++party) s.header.add_onion_keys(std::string(32, 'k'));
  s.header.set_max_rows(shape.rows);
  s.header.set_answer_bytes(static_cast<uint32_t>(shape.answer_bytes));
  s.header.set_max_refreshes(1000);
  s.header.set_term_expires_s(now_s + 24 * 3600);
  s.id = round::RoundId(s.header);
  for (uint32_t party = 1; party <= kParties; ++party) {
    const std::string place = absl::StrCat(s.directory, "/", party);
    SHOAL_ASSIGN_OR_RETURN(auto journal, server::FileJournal::Open(place + "/journal"));
    s.journals.push_back(std::move(journal));
    SHOAL_ASSIGN_OR_RETURN(
        auto terms, server::Terms::Open({.number = PartyNumber(party),
                                         .roster = roster,
                                         .directory = place + "/terms",
                                         .table = [&s] { return s.table; }},
                                        &s.keys[party - 1].bls(), s.journals.back().get(), &random,
                                        &s.clock, resources));
    s.terms.push_back(std::move(terms));
  }
  return term;
}

absl::Status SyntheticTerm::MakeUp(uint32_t party) {
  State& s = *state_;
  SHOAL_CHECK(party == s.party + 1 && party <= kParties);
  s.party = party;
  const bool first = party == 1;
  const uint64_t n = s.shape.queries, positions = first ? n : s.next();
  if (first) {
    const Seed key = s.random->NewSeed();
    SHOAL_ASSIGN_OR_RETURN(s.place, shuffle::RandomPermutation(s.next(), key.view(), *s.pool));
    s.places.assign(s.place.begin(), s.place.begin() + std::min(n, kChecked));
  }
  server::OnlineMaterial& material = s.material;
  material.positions = static_cast<uint32_t>(positions);
  material.seeds = RandomSeeds(positions, *s.random, *s.pool);
  SHOAL_ASSIGN_OR_RETURN(material.target, PageArray<uint32_t>::Create(positions, kSecret));
  if (!first) {
    // A share that takes a tally for the row that it names.
    SHOAL_ASSIGN_OR_RETURN(material.shares,
                           PageArray<sharing::QueryShare>::Create(positions, kSecret));
    for (uint64_t a = 0; a < positions; ++a) material.shares[a] = {0, 1};
  }
  for (uint32_t slot = 0; slot < s.places.size(); ++slot) {
    const uint32_t position = first ? slot : s.places[slot];
    (first ? s.first_seeds : s.last_seeds)
        .push_back(round::TermSeed(material.seed(position), s.id));
  }
  return absl::OkStatus();
}

absl::Status SyntheticTerm::Keep() {
  State& s = *state_;
  const bool first = s.party == 1;
  const server::OnlineMaterial material = std::exchange(s.material, {});
  server::Forwarding forwarding;
  if (first) {
    const PageArray<uint32_t> place = std::exchange(s.place, {});
    forwarding.count = forwarding.places = s.next();
    SHOAL_ASSIGN_OR_RETURN(forwarding.memory,
                           server::ForwardMemory::Create(static_cast<uint32_t>(s.next())));
    const std::span<uint32_t> back = forwarding.memory.place();
    for (uint64_t i = 0; i < s.next(); ++i) back[place[i]] = static_cast<uint32_t>(i);
  }
  const server::RoundSecrets secrets(s.random->NewSeed());
  return s.terms[s.party - 1]->Keep({.header = s.header,
                                     .round_id = s.id,
                                     .secrets = secrets,
                                     .material = material,
                                     .queries = AllQueries(material.positions, s.shape.rows),
                                     .forwarding = first ? &forwarding : nullptr,
                                     .table = *s.table});
}

uint64_t SyntheticTerm::bytes_at_rest() const {
  uint64_t bytes = 0;
  for (uint32_t party = 1; party <= kParties; ++party) {
    const std::string place = absl::StrCat(state_->directory, "/", party, "/terms");
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      bytes += entry.file_size();
    }
  }
  return bytes;
}

void SyntheticTerm::NewTable() { state_->NewTable(); }

absl::Status SyntheticTerm::SignRefresh() {
  State& s = *state_;
  wire::RefreshHeader& header = *s.refresh.mutable_header();
  header.set_round_id(ToString(s.id));
  header.set_number(header.number() + 1);
  header.set_epoch(s.table->epoch);
  header.set_manifest_digest(ToString(s.table->facts.manifest_digest));
  SHOAL_ASSIGN_OR_RETURN(const auto later, s.terms[1]->Sign(header, std::nullopt));
  SHOAL_ASSIGN_OR_RETURN(const auto both, s.terms[0]->Sign(header, later));
  s.refresh.set_signature(ToString(both.bytes()));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> SyntheticTerm::Answer() {
  return state_->terms[1]->Answer(state_->refresh);
}

absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> SyntheticTerm::Return(
    ByteSource& answers, std::span<const round::RefreshTag> later_tags) {
  return state_->terms[0]->Return(state_->refresh, answers, later_tags);
}

std::vector<SyntheticTerm::Fetch> SyntheticTerm::MakeFetches(const round::RefreshTag& tag,
                                                             uint64_t each) const {
  const Digest masks = round::RefreshMasksId(state_->refresh.header(), tag);
  std::vector<Fetch> fetches;
  for (uint64_t first = 0; first < state_->first_seeds.size(); first += each) {
    Fetch& fetch = fetches.emplace_back();
    const uint64_t end = std::min<uint64_t>(first + each, state_->first_seeds.size());
    for (uint64_t slot = first; slot < end; ++slot) {
      fetch.slots.push_back(static_cast<uint32_t>(slot));
      fetch.tokens.push_back(sharing::Expand(state_->first_seeds[slot].view(), masks).token);
    }
  }
  return fetches;
}

absl::Status SyntheticTerm::TakeFetch(const Fetch& fetch, const round::RefreshTag& tag) const {
  return state_->terms[0]
      ->Places(state_->refresh.header(), tag, fetch.slots, fetch.tokens)
      .status();
}

bool SyntheticTerm::TakesRow(uint64_t slot, MutableBytes answer,
                             std::span<const round::RefreshTag> tags) const {
  const State& s = *state_;
  SHOAL_CHECK(slot < s.first_seeds.size() && tags.size() == kParties &&
              answer.size() == sharing::TaggedBytes(s.shape.answer_bytes));
  const wire::RefreshHeader& header = s.refresh.header();
  const sharing::AnswerSeed seeds[] = {
      {s.first_seeds[slot].view(), round::RefreshMasksId(header, tags[0])},
      {s.last_seeds[slot].view(), round::RefreshMasksId(header, tags[1])}};
  if (!sharing::UnmaskAnswer(seeds, answer)) return false;
  const size_t bytes = s.shape.answer_bytes;
  return std::ranges::equal(answer.first(bytes), s.table->answers.bytes.subspan(
                                                     s.places[slot] % s.shape.rows * bytes, bytes));
}

}  // namespace shoal::plan
