#include "src/sim/universe.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/shoald/table_epochs.h"
#include "src/table/records.h"

namespace shoal::sim {
namespace {

constexpr uint64_t kNowS = 1'800'000'000;
constexpr char kDeployment[] = "simulated";
// Longer than any clock of a simulation is off.
constexpr uint64_t kLifetimeS = 1'000'000;

wire::NoiseParameters Noise() {
  // Hardly any privacy, and few noise queries.
  return roster::NoiseToWire({.mechanism = noise::Mechanism::kGeometric,
                              .epsilon = 1,
                              .delta = 0.95,
                              .phi = 1,
                              .mode = 1,
                              .left_scale = 0.5,
                              .right_scale = 0.5});
}

}  // namespace

Universe::Universe(const std::vector<uint32_t>& machines, bool terms) : has_terms_(terms) {
  ::shoal::testing::TestRandom random(1);
  wire::Roster draft;
  draft.set_deployment(kDeployment);
  draft.set_epoch(1);
  *draft.mutable_noise() = Noise();
  draft.set_valid_from_s(kNowS - kLifetimeS);
  draft.set_expires_s(kNowS + kLifetimeS);
  draft.set_clock_tolerance_s(60);
  draft.set_max_slots(256);
  draft.set_onion_suite(std::string(roster::kOnionSuite));
  if (terms) {
    draft.mutable_term_limit()->set_days(10);
    draft.mutable_term_limit()->set_refreshes(20);
  }
  for (uint32_t number = 1; number <= machines.size(); ++number) {
    keys_.push_back(signature::SecretKey::Generate(random));
    wire::Party& party = *draft.add_parties();
    party.set_number(number);
    party.set_name(absl::StrCat("party-", number));
    const std::string address = absl::StrCat("127.0.0.1:", 7000 + number);
    number == 1 ? party.set_client_address(address) : party.set_peer_address(address);
    party.set_bls_public_key(ToString(keys_.back().public_key().bytes()));
    party.set_proof_of_possession(ToString(keys_.back().ProvePossession().bytes()));
    Digest certificate;
    random.Fill(certificate);
    party.set_tls_certificate_sha256(ToString(certificate));
    party.set_machines(machines[number - 1]);
    for (uint32_t rank = 1; rank < party.machines(); ++rank) {
      const std::string other = absl::StrCat("127.0.0.1:", 7000 + number + 100 * rank);
      wire::Machine& machine = *party.add_other_machines();
      number == 1 ? machine.set_client_address(other) : machine.set_peer_address(other);
    }
  }
  std::vector<wire::RosterShare> shares;
  for (const signature::SecretKey& key : keys_) {
    auto share = roster::SignRoster(draft, key);
    SHOAL_CHECK(share.ok());
    shares.push_back(*std::move(share));
  }
  auto signed_roster = roster::AggregateRoster(draft, shares);
  SHOAL_CHECK(signed_roster.ok());
  signed_roster_ = *std::move(signed_roster);
  auto pins = roster::PinnedParties::Create(*roster::PinsOf(draft));
  SHOAL_CHECK(pins.ok());
  pins_ = *std::move(pins);
  auto roster = roster::Roster::Verify(signed_roster_, *pins_, kNowS);
  SHOAL_CHECK(roster.ok());
  roster_ = *std::move(roster);

  ThreadPool pool(1);
  for (uint64_t epoch = 1; epoch <= (terms ? kTermEpochs : kEpochs); ++epoch) {
    table::RecordSet records("simulated");
    for (size_t i = 0; i < Records(epoch); ++i) {
      const std::string key = Key(i), value = Value(i, epoch);
      SHOAL_CHECK(records.Add(AsBytes(key), AsBytes(value), i + 1).ok());
    }
    table::TableOptions options;
    options.name = "simulated table";
    options.deployment = kDeployment;
    std::optional<table::PreviousEpoch> previous;
    if (!tables_.empty()) {
      previous = tables_.back()->AsPrevious();
      options.previous = &*previous;
    }
    options.epoch = epoch;
    options.created_s = kNowS - kLifetimeS / 2;
    options.expires_s = kNowS + kLifetimeS;
    options.row_bytes = 48;
    auto content = table::BuildHashed(records, options, random);
    SHOAL_CHECK(content.ok());
    std::vector<table::TableShare> table_shares;
    for (const signature::SecretKey& key : keys_) {
      auto share = table::SignTable(*content, options.previous, *roster_, key, pool);
      SHOAL_CHECK(share.ok());
      table_shares.push_back(*std::move(share));
    }
    auto table = table::AggregateTable(*content, *roster_, table_shares, kNowS, random, pool);
    SHOAL_CHECK(table.ok());
    tables_.push_back(std::make_shared<const table::Table>(*std::move(table)));
  }
}

server::TableEpoch Universe::Epoch(uint64_t epoch, uint32_t party) const {
  server::TableEpoch out = shoald::ChainEpoch(*tables_[epoch - 1]);
  if (party == parties()) SHOAL_CHECK(shoald::AddAnswers(*tables_[epoch - 1], out).ok());
  return out;
}

uint32_t Universe::FrontendMachine(const std::string& client_address) const {
  const roster::Party& frontend = roster_->party(1);
  uint32_t rank = 0;
  while (frontend.ClientAddress(rank) != client_address) ++rank;
  return rank;
}

std::string Universe::Key(size_t i) { return absl::StrCat("key-", i); }
std::string Universe::Value(size_t i, uint64_t epoch) {
  return absl::StrCat("value ", epoch, " of ", i);
}

}  // namespace shoal::sim
