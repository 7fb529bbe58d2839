// One party of a simulated deployment, or one machine of a party of several: what
// src/shoald/program.cc puts together, over the simulated network in place of TLS.
#ifndef SHOAL_SRC_SIM_PARTY_SERVER_H_
#define SHOAL_SRC_SIM_PARTY_SERVER_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/server/refreshes.h"
#include "src/server/terms.h"
#include "src/shoald/client_service.h"
#include "src/shoald/driver.h"
#include "src/shoald/machine_control.h"
#include "src/shoald/part_stages.h"
#include "src/shoald/peer.h"
#include "src/shoald/peer_link.h"
#include "src/shoald/refresh_driver.h"
#include "src/shoald/round_steps.h"
#include "src/sim/network.h"
#include "src/sim/universe.h"
#include "src/storage/spool.h"

namespace shoal::sim {

class PartyServer {
 public:
  struct Options {
    const Universe* universe;
    Network* network;
    Process* process;
    Address address;  // of the machine
    uint64_t epoch;   // of the table
    server::RoundPlan plan;
    server::FileJournalOptions journal = {};
    // server::Resources::making_piece, of the party's rounds and of its terms.
    std::function<void(const Digest& round_id)> making_piece = nullptr;
    std::function<void(const Digest& round_id)> making_piece_of_term = nullptr;
    // server::Party::Options::stage_done.
    std::function<void(const wire::StageReport& report)> stage_done = nullptr;
    // Told the epoch of the table that the party takes, and may change it; the party's own alone.
    std::function<void(server::TableEpoch& epoch)> alter_table = nullptr;
    // At one of several machines, and told once its control has ended: the process is to end.
    std::unique_ptr<shoald::MachineJob> job = nullptr;
    std::function<void()> ended = nullptr;
    // The same, of its head: shoald::MachineControl::Options::not_opened.
    std::function<void(const absl::Status& why)> not_opened = nullptr;
  };
  // Starts the party, or the machine, on the machine's disk. Errors as those of FileJournal::Open,
  // Party::Create, Frontend::Create and MachineControl::AwaitAll. Listens once it returns.
  static absl::StatusOr<std::unique_ptr<PartyServer>> Start(Options options);
  // Takes the next epoch, as on SIGHUP.
  absl::Status Take(uint64_t epoch);
  // Ends in good order, as on SIGTERM.
  void Stop();

  // At party 1's head: ends a round as the driver does when a party says that it lacks the round.
  void EndRound(const Digest& round_id, const std::string& reason);
  // At a machine of a party of several: whether it holds the queries of a round.
  bool HoldsQueries(const Digest& round_id) const {
    return own_steps_.has_value() && own_steps_->HoldsQueries(round_id);
  }

  server::Party& party() { return *party_; }
  server::Frontend* frontend() { return frontend_.get(); }
  server::Terms* terms() { return terms_.get(); }               // null if the roster allows none
  server::Refreshes* refreshes() { return refreshes_.get(); }   // the same, and at party 1 alone
  const server::Journal& journal() const { return *journal_; }  // the head's
  bool is_head() const { return RankAt(options_.address) == 0; }

 private:
  explicit PartyServer(Options options) : options_(std::move(options)) {}
  bool is_one_of_several() const { return options_.job != nullptr; }
  absl::Status OpenParty();
  server::TableEpoch Epoch(uint64_t epoch) const;
  void Listen();

  const Options options_;
  const SystemClock clock_;
  SystemRandom random_;
  ThreadPool pool_{1};
  SpoolPlace spools_{"/tmp", uint64_t{1} << 30};
  SpoolPlace refresh_spools_{"/tmp", uint64_t{1} << 30};
  std::optional<shoald::MachineLinks> links_;
  std::shared_ptr<machines::Machines> control_machines_;
  std::unique_ptr<server::FileJournal> journal_;
  std::unique_ptr<server::Terms> terms_;
  std::unique_ptr<server::Party> party_;
  std::unique_ptr<shoald::PeerLink> next_;
  std::unique_ptr<server::ChainNode> node_;
  std::unique_ptr<server::Frontend> frontend_;
  std::optional<shoald::OwnSteps> own_steps_;
  std::unique_ptr<shoald::MachineControl> control_;  // at one of several machines
  std::optional<shoald::AllSteps> all_steps_;        // at party 1's head, if it has several
  std::unique_ptr<server::Refreshes> refreshes_;
  std::unique_ptr<shoald::ClientService> clients_;
  std::unique_ptr<shoald::PartStages> parts_;
  std::unique_ptr<shoald::PeerService> peers_;
  std::unique_ptr<shoald::Driver> driver_;
  std::unique_ptr<shoald::RefreshDriver> refresh_driver_;
  bool stopping_ = false;
  uint64_t wanted_epoch_ = 0;  // the newest one that Take was called for
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_PARTY_SERVER_H_
