// One party put together and taken apart: what shoald, shoald-machines and simulations run.
//
//     party before ---> PeerService, PartStages ---+
//     clients --------> ClientService, Frontend ---+--> ChainNode --> PeerLink --> next party
//                       Driver, RefreshDriver -----+        |
//                       MachineControl <---> other machines |
//                                                         Party, Terms, journal
#ifndef SHOAL_SRC_SHOALD_PARTY_RUNTIME_H_
#define SHOAL_SRC_SHOALD_PARTY_RUNTIME_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/net/server.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/roster.h"
#include "src/server/chain.h"
#include "src/server/frontend.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/server/refreshes.h"
#include "src/server/terms.h"
#include "src/shoald/chain_states.h"
#include "src/shoald/client_service.h"
#include "src/shoald/config.h"
#include "src/shoald/driver.h"
#include "src/shoald/machine_control.h"
#include "src/shoald/part_stages.h"
#include "src/shoald/peer.h"
#include "src/shoald/peer_link.h"
#include "src/shoald/pir_service.h"
#include "src/shoald/refresh_driver.h"
#include "src/shoald/round_steps.h"
#include "src/shoald/table_epochs.h"
#include "src/storage/spool.h"

namespace shoal::shoald {

// A machine's links to the others of its party.
class JoinedMachine {
 public:
  // `secret` and `keys_directory` are those of roster::MachineKeys. To be called before the table
  // is read, which can take minutes: the others are to wait for this machine. Errors: those of
  // CallRoll. All pointers must outlive the object.
  static absl::StatusOr<std::unique_ptr<JoinedMachine>> Join(MachineJob* job, Seed secret,
                                                             const std::string& keys_directory,
                                                             const Clock* clock,
                                                             RandomSource* random,
                                                             uint64_t progress_limit_s);
  uint32_t rank() const { return job_->rank(); }
  uint32_t count() const { return job_->count(); }
  // Of a round: server::PartyMachines::join.
  MachineLinks& links() { return links_; }
  machines::Machines& control() { return *control_; }

 private:
  JoinedMachine(MachineJob* job, Seed secret, const Clock* clock, RandomSource* random,
                uint64_t progress_limit_s)
      : job_(job), links_(job, std::move(secret), clock, random, progress_limit_s) {}

  MachineJob* const job_;
  MachineLinks links_;
  std::shared_ptr<machines::Machines> control_;
};

// How requests come to a party and go from it: TLS, or the network of a simulation.
class PartyNetwork {
 public:
  // What a port serves, as net::Server::Options.
  struct Port {
    std::function<absl::StatusOr<wire::FrameLimits>(wire::FrameType)> limits;
    std::function<absl::StatusOr<std::unique_ptr<net::BulkSink>>(const wire::Frame& request,
                                                                 uint64_t bulk_bytes)>
        sink = nullptr;  // null at party 1
    net::Handler handler;
  };
  virtual ~PartyNetwork() = default;
  virtual std::unique_ptr<PeerCalls> CallsTo(const roster::Party& next) = 0;
  // From now on requests come to `port`, until Close: no call of the port runs once that returns.
  virtual absl::Status Listen(Port port) = 0;
  virtual void Close() = 0;
};

// Told of what happens. All may be empty; called from any thread.
struct PartyEvents {
  // Of the journal, whose `broken` means that the process is to end.
  server::FileJournalOptions journal = {};
  // server::Party::Options.
  std::function<void(RoundCounter round, uint64_t opened, uint64_t onions)> progress = nullptr;
  std::function<void(RoundCounter round, absl::string_view why)> round_ended = nullptr;
  std::function<void(const wire::StageReport& report)> stage_done = nullptr;
  // server::Terms::Options.
  std::function<void(RoundCounter round, absl::string_view why)> term_ended = nullptr;
  std::function<void(const wire::StageReport& report)> refresh_done = nullptr;
  // At party 1: how a try of a refresh ended.
  std::function<void(const absl::Status& how)> refresh_tried = nullptr;
  // MachineControl::Options.
  std::function<void()> job_ended = nullptr;
  std::function<void(const absl::Status& why)> not_opened = nullptr;
  // server::Resources::making_piece, of the party's rounds and of its terms: for tests.
  std::function<void(const Digest& round_id)> making_piece = nullptr;
  std::function<void(const Digest& round_id)> making_piece_of_term = nullptr;
};

// The options of a party that follow from what its operator has written.
server::Party::Options PartyOptions(const ServerConfig& config, const roster::Roster& roster,
                                    server::TableEpoch table);

class PartyRuntime {
 public:
  struct Options {
    ServerConfig config;  // complete (ReadServerConfig)
    // All pointers must outlive the runtime.
    const roster::Roster* roster;
    const signature::SecretKey* key = nullptr;  // of the party, at its head
    JoinedMachine* machine = nullptr;           // null at a party of one machine
    TableEpochs* epochs;                        // with answers at the backend
    PirService* engines = nullptr;              // null if the party runs none
    PartyNetwork* network;
    const Clock* clock;
    RandomSource* random;
    ThreadPool* pool;
    // What this party says of itself. Null: nothing is said of parties.
    std::function<wire::PartyState()> state = nullptr;
    PartyEvents events = {};
  };

  // Reads the party's state and puts it together; nobody is called or listened to. Errors: those of
  // FileJournal::Open, Terms::Open, Party::Create and Frontend::Create.
  static absl::StatusOr<std::unique_ptr<PartyRuntime>> Create(Options options);
  // Listens no more, and ends the calls that are under way. Rounds are left as they are, as by a
  // crash: Stop ends them.
  ~PartyRuntime();
  PartyRuntime(const PartyRuntime&) = delete;
  PartyRuntime& operator=(const PartyRuntime&) = delete;

  // Listens, and begins to drive rounds. At a party of several machines the head is the last to
  // listen: a round that it took part in while another machine still reads the table would fail.
  // Errors: those of PartyNetwork::Listen and MachineControl::AwaitAll.
  absl::Status Start();

  // Takes the next epoch, everywhere or nowhere: open rounds go on under the epoch that they began
  // with. After an error the old epoch stays in service. The head of several machines waits for the
  // others, which keep the old epoch for its rounds; CANCELLED as soon as `cancelled` says so.
  // Other errors: those of AddAnswers, Party::TakeEpoch, PirService::Reload and
  // MachineControl::AwaitEpoch.
  absl::Status Take(ServedTable next, const std::function<bool()>& cancelled);

  // Ends in good order, once: what listens ends first, then what it calls. Open rounds are erased.
  // UNAVAILABLE if the journal has failed; at one of several machines, the errors of control.
  absl::Status Stop();

  server::Party& party() { return *party_; }
  server::ChainNode& node() { return *node_; }
  server::Terms* terms() { return terms_.get(); }                 // null if the party keeps none
  server::Frontend* frontend() { return frontend_.get(); }        // null but at party 1
  server::Refreshes* refreshes() { return refreshes_.get(); }     // the same, where there are terms
  const OwnSteps* own_steps() const { return own_steps_.get(); }  // null but at party 1
  RoundSteps& steps();                                            // of rounds, at party 1's head
  const server::Journal& journal() const { return *journal_; }    // the head's
  ChainStates* states() { return states_.get(); }                 // null if nothing is said
  const ChainWatch* watch() const { return watch_.get(); }        // the same, and but at party 1
  const PeerService* peers() const { return peers_.get(); }       // null at party 1

 private:
  // The network closes, and calls that are under way end. May run twice.
  void CloseAndCancel();
  class Expiry;
  explicit PartyRuntime(Options options);
  uint32_t number() const { return options_.config.party(); }
  uint32_t rank() const { return options_.machine == nullptr ? 0 : options_.machine->rank(); }
  bool is_head() const { return rank() == 0; }
  bool is_one_of_several() const { return options_.machine != nullptr; }
  server::Resources ResourcesWith(const std::function<void(const Digest&)>& making_piece);
  absl::Status OpenJournal();
  absl::Status OpenTerms();
  absl::Status OpenParty();
  std::unique_ptr<PeerLink> LinkToNext();
  absl::Status OpenFrontend();
  void OpenPeers();
  PartyNetwork::Port MakePort();
  absl::Status JoinControl();

  const Options options_;
  std::atomic<bool> journal_broken_ = false;
  SpoolPlace spools_;
  SpoolPlace refresh_spools_;
  std::unique_ptr<server::FileJournal> journal_;
  std::unique_ptr<server::Terms> terms_;
  std::unique_ptr<server::Party> party_;
  std::unique_ptr<PeerLink> next_;  // null at the backend
  std::unique_ptr<server::ChainNode> node_;
  std::unique_ptr<ChainStates> states_;
  std::unique_ptr<server::Frontend> frontend_;
  std::unique_ptr<OwnSteps> own_steps_;
  std::unique_ptr<MachineControl> control_;  // at one of several machines
  std::unique_ptr<AllSteps> all_steps_;      // at party 1's head, if it has several
  std::unique_ptr<Expiry> expiry_;
  std::unique_ptr<server::Refreshes> refreshes_;
  std::unique_ptr<ChainWatch> watch_;
  std::unique_ptr<ClientService> clients_;
  std::unique_ptr<PartStages> parts_;  // with peers_
  std::unique_ptr<PeerService> peers_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<RefreshDriver> refresh_driver_;
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_PARTY_RUNTIME_H_
