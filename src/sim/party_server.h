// One party of a simulated deployment: what src/shoald/program.cc puts together, over the
// simulated network in place of TLS.
#ifndef SHOAL_SRC_SIM_PARTY_SERVER_H_
#define SHOAL_SRC_SIM_PARTY_SERVER_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/parallel/thread_pool.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/shoald/client_service.h"
#include "src/shoald/driver.h"
#include "src/shoald/peer.h"
#include "src/sim/network.h"
#include "src/sim/universe.h"
#include "src/storage/spool.h"

namespace shoal::sim {

// The calls to the next party, as shoald::RemoteLink makes them.
class SimulatedLink final : public server::Link {
 public:
  using AnswerBytes = std::function<absl::StatusOr<uint64_t>(const Digest& round_id)>;
  SimulatedLink(Network* network, uint32_t from, AnswerBytes answer_bytes, Time stage_limit)
      : network_(network),
        from_(static_cast<Address>(from)),
        answer_bytes_(std::move(answer_bytes)),
        stage_limit_(stage_limit) {}

  absl::StatusOr<wire::SignedHeader> Propose(const wire::RoundHeader& draft,
                                             const wire::SignedLiveRounds& live) override;
  absl::Status Offline(const wire::SignedHeader& header,
                       std::unique_ptr<ByteSource> onions) override;
  absl::StatusOr<std::unique_ptr<ByteSource>> Online(const Digest& round_id,
                                                     Bytes queries) override;
  absl::StatusOr<server::StageReports> Reports(const Digest& round_id) override;
  absl::StatusOr<server::ListAnswer> Live(const wire::SignedLiveRounds& live) override;
  void CancelStages() { cancelled_ = true; }

 private:
  std::function<bool()> Over(const Digest& round_id) const;
  absl::StatusOr<Network::Answer> Call(wire::Frame request, Time timeout,
                                       const std::function<bool()>& cancelled) const;

  Network* const network_;
  const Address from_;
  const AnswerBytes answer_bytes_;
  const Time stage_limit_;
  bool cancelled_ = false;
};

class PartyServer {
 public:
  // Starts the party with the table's epoch `epoch`, on the machine's disk. Errors as those of
  // FileJournal::Open, Party::Create and Frontend::Create. Listens once it returns.
  static absl::StatusOr<std::unique_ptr<PartyServer>> Start(
      const Universe* universe, Network* network, Process* process, uint32_t number, uint64_t epoch,
      const server::RoundPlan& plan, server::FileJournalOptions journal_options);
  // Takes the next epoch, as on SIGHUP.
  absl::Status Take(uint64_t epoch);
  // Ends in good order, as on SIGTERM.
  void Stop();

  server::Party& party() { return *party_; }
  server::Frontend* frontend() { return frontend_.get(); }
  const server::Journal& journal() const { return *journal_; }

 private:
  PartyServer(const Universe* universe, Network* network, uint32_t number)
      : universe_(universe), network_(network), number_(number) {}

  const Universe* const universe_;
  Network* const network_;
  const uint32_t number_;
  const SystemClock clock_;
  SystemRandom random_;
  ThreadPool pool_{1};
  SpoolPlace spools_{"/tmp", uint64_t{1} << 30};
  std::unique_ptr<server::FileJournal> journal_;
  std::unique_ptr<server::Party> party_;
  std::unique_ptr<SimulatedLink> next_;
  std::unique_ptr<server::ChainNode> node_;
  std::unique_ptr<server::Frontend> frontend_;
  std::unique_ptr<shoald::ClientService> clients_;
  std::unique_ptr<shoald::PeerService> peers_;
  std::unique_ptr<shoald::Driver> driver_;
  bool stopping_ = false;
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_PARTY_SERVER_H_
