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
#include "src/shoald/refresh_driver.h"
#include "src/shoald/round_steps.h"
#include "src/shoald/run_calls.h"
#include "src/sim/network.h"
#include "src/sim/universe.h"
#include "src/storage/spool.h"

namespace shoal::sim {

// The calls to the next party, as shoald::RemoteLink makes them.
class SimulatedLink final : public server::Link {
 public:
  using AnswerBytes = std::function<absl::StatusOr<uint64_t>(const Digest& round_id)>;
  // `from` is a machine; the next party has so many.
  SimulatedLink(Network* network, Address from, uint32_t next_machines, AnswerBytes answer_bytes,
                Time stage_limit, SpoolPlace* spools, AnswerBytes refresh_bytes = nullptr);

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override;
  absl::Status Offline(const wire::SignedHeader& header,
                       std::unique_ptr<ByteSource> onions) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id,
                                                     Bytes queries) override;
  absl::Status OfflineRun(const wire::SignedHeader& header, const server::Mine& mine,
                          std::unique_ptr<ByteSource> onions) override {
    return runs_.OfflineRun(header, mine, std::move(onions));
  }
  absl::StatusOr<std::unique_ptr<server::PartedSource>> OnlineRun(
      const Digest& round_id, const server::Mine& mine, const wire::QueryBatch& queries) override {
    return runs_.OnlineRun(round_id, mine, queries);
  }
  absl::StatusOr<server::StageReports> Reports(const Digest& round_id) override;
  absl::StatusOr<server::ListAnswer> Live(const wire::SignedLiveRounds& live) override;
  absl::StatusOr<signature::Signature> ProposeRefresh(const wire::RefreshHeader& header) override;
  absl::StatusOr<std::unique_ptr<server::RefreshAnswers>> Refresh(
      const wire::SignedRefreshHeader& refresh) override;
  void CancelStages() { cancelled_ = true; }

 private:
  std::function<bool()> Over(const Digest& round_id) const;
  std::function<bool()> TermOver(const Digest& round_id) const;
  absl::StatusOr<Network::Answer> Call(wire::Frame request, Time timeout,
                                       const std::function<bool()>& cancelled,
                                       uint32_t machine = 0) const;

  Network* const network_;
  const Address from_;
  const uint32_t next_machines_;
  const AnswerBytes answer_bytes_, refresh_bytes_;
  const Time stage_limit_;
  bool cancelled_ = false;
  shoald::RunCalls runs_;
};

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
  std::unique_ptr<SimulatedLink> next_;
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
