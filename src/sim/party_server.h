// One party of a simulated deployment, or one machine of a party of several: what shoald runs
// (src/shoald/party_runtime.h), over the simulated network in place of TLS.
#ifndef SHOAL_SRC_SIM_PARTY_SERVER_H_
#define SHOAL_SRC_SIM_PARTY_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/server/refreshes.h"
#include "src/server/terms.h"
#include "src/shoald/config.h"
#include "src/shoald/machine_control.h"
#include "src/shoald/party_runtime.h"
#include "src/shoald/table_epochs.h"
#include "src/sim/network.h"
#include "src/sim/universe.h"

namespace shoal::sim {

class PartyServer {
 public:
  struct Options {
    const Universe* universe;
    Network* network;
    Process* process;
    Address address;  // of the machine
    uint64_t epoch;   // of the table
    // As in the configurations of all parties; the rounds are party 1's.
    shoald::Rounds rounds = {};
    uint32_t stage_limit_s;
    shoald::PartyEvents events = {};
    // Changes the first epoch of the table that the party has; the party's own alone.
    std::function<void(server::TableEpoch& epoch)> alter_table = nullptr;
    // At one of several machines.
    std::unique_ptr<shoald::MachineJob> job = nullptr;
  };
  // Starts the party, or the machine, on the machine's disk. Errors as those of
  // PartyRuntime::Create and Start. Listens once it returns.
  static absl::StatusOr<std::unique_ptr<PartyServer>> Start(Options options);
  // Takes the next epoch, as on SIGHUP.
  absl::Status Take(uint64_t epoch);
  // Ends in good order, as on SIGTERM.
  void Stop();

  // At party 1's head: ends a round as the driver does when a party says that it lacks the round.
  void EndRound(const Digest& round_id, const std::string& reason);
  // At a machine of party 1: whether it holds the queries of a round.
  bool HoldsQueries(const Digest& round_id) const {
    return runtime_->own_steps() != nullptr && runtime_->own_steps()->HoldsQueries(round_id);
  }

  server::Party& party() { return runtime_->party(); }
  server::Frontend* frontend() { return runtime_->frontend(); }
  server::Terms* terms() { return runtime_->terms(); }  // null if the roster allows none
  server::Refreshes* refreshes() { return runtime_->refreshes(); }
  const server::Journal& journal() const { return runtime_->journal(); }  // the head's
  bool is_head() const { return RankAt(options_.address) == 0; }

 private:
  class SimNetwork;
  explicit PartyServer(Options options);
  // What the party says of itself to the others.
  wire::PartyState State() const;

  const Options options_;
  const SystemClock clock_;
  SystemRandom random_;
  ThreadPool pool_{1};
  const std::unique_ptr<shoald::PartyNetwork> network_;
  std::unique_ptr<shoald::JoinedMachine> machine_;  // at one of several machines
  shoald::TableEpochs epochs_;
  std::unique_ptr<shoald::PartyRuntime> runtime_;
  bool stopping_ = false;
  uint64_t wanted_epoch_ = 0;  // the newest one that Take was called for
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_PARTY_SERVER_H_
