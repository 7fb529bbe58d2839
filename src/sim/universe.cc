#include "src/sim/universe.h"

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/parallel/thread_pool.h"
#include "src/shoald/table_epochs.h"
#include "src/table/records.h"
#include "src/table/testing/signed_table.h"

namespace shoal::sim {
namespace {

using roster::testing::kNowS;
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

Universe::Universe(const std::vector<uint32_t>& machines, bool terms)
    : has_terms_(terms), random_(1), parties_(machines, random_) {
  wire::Roster& draft = parties_.draft();
  draft.set_deployment(kDeployment);
  draft.set_epoch(1);
  *draft.mutable_noise() = Noise();
  draft.set_valid_from_s(kNowS - kLifetimeS);
  draft.set_expires_s(kNowS + kLifetimeS);
  draft.set_max_slots(256);
  if (terms) {
    draft.mutable_term_limit()->set_days(10);
    draft.mutable_term_limit()->set_refreshes(20);
  }
  signed_roster_ = parties_.Signed();
  pins_ = parties_.pinned();
  roster_ = parties_.roster();

  ThreadPool pool(1);
  for (uint64_t epoch = 1; epoch <= (terms ? kTermEpochs : kEpochs); ++epoch) {
    const table::RecordSet records = table::testing::Records(
        Records(epoch), table::testing::Layout::kHashed, [&](size_t i) { return Value(i, epoch); });
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
    tables_.push_back(std::make_shared<const table::Table>(
        table::testing::MakeTable(records, options, table::testing::Layout::kHashed, parties_,
                                  *roster_, kNowS, random_, pool)));
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
