// What is the same in every simulation: parties with keys, a roster, and the epochs of one small
// table that all of them have signed. Made once, from a fixed seed, as it costs many signatures.
#ifndef SHOAL_SRC_SIM_UNIVERSE_H_
#define SHOAL_SRC_SIM_UNIVERSE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/testing/test_random.h"
#include "src/roster/roster.h"
#include "src/roster/testing/parties.h"
#include "src/server/party.h"
#include "src/signature/bls.h"
#include "src/table/table.h"

namespace shoal::sim {

inline constexpr uint64_t kEpochs = 3, kTermEpochs = 6;
inline constexpr size_t kRecords = 10;

class Universe {
 public:
  // So many parties of one machine each, or parties of so many machines.
  explicit Universe(uint32_t parties) : Universe(std::vector<uint32_t>(parties, 1)) {}
  // With `terms` rounds may have terms, and there are more epochs.
  explicit Universe(const std::vector<uint32_t>& machines, bool terms = false);

  uint32_t parties() const { return parties_.size(); }
  const roster::Roster& roster() const { return *roster_; }
  const wire::SignedRoster& signed_roster() const { return signed_roster_; }
  // Of the frontend, by its address in the roster.
  uint32_t FrontendMachine(const std::string& client_address) const;
  const roster::PinnedParties& pins() const { return *pins_; }
  const signature::SecretKey& key(uint32_t party) const { return parties_.key(party); }
  // Epochs are numbered from 1.
  uint64_t epochs() const { return tables_.size(); }
  std::shared_ptr<const table::Table> table(uint64_t epoch) const { return tables_[epoch - 1]; }
  // As a party takes it; with the answers if it is the backend.
  server::TableEpoch Epoch(uint64_t epoch, uint32_t party) const;

  static std::string Key(size_t i);
  // Every epoch gives every key another value. The last two keys come with epoch 2, but where there
  // are terms: these last as long as keys stay in their rows.
  static std::string Value(size_t i, uint64_t epoch);
  size_t Records(uint64_t epoch) const {
    return epoch == 1 && !has_terms_ ? kRecords - 2 : kRecords;
  }

 private:
  const bool has_terms_;
  ::shoal::testing::TestRandom random_;
  roster::testing::Parties parties_;
  wire::SignedRoster signed_roster_;
  std::optional<roster::PinnedParties> pins_;
  std::optional<roster::Roster> roster_;
  std::vector<std::shared_ptr<const table::Table>> tables_;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_UNIVERSE_H_
