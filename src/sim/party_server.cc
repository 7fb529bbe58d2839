#include "src/sim/party_server.h"

#include <algorithm>
#include <utility>

#include "src/base/status_macros.h"
#include "src/sim/sim_calls.h"

namespace shoal::sim {
namespace {

// What an operator would write.
shoald::ServerConfig ConfigOf(const PartyServer::Options& options) {
  shoald::ServerConfig config;
  config.set_party(PartyAt(options.address));
  config.set_keys_directory("/sim/keys");
  config.set_state_directory("/sim/state");
  config.set_spool_directory("/tmp");  // the real one: what is there has no name, and is sealed
  config.set_spool_memory_mib(1024);
  config.set_stage_limit_s(options.stage_limit_s);
  if (config.party() == 1) *config.mutable_rounds() = options.rounds;
  shoald::FillDefaults(config);
  return config;
}

shoald::ServedEpoch FirstEpoch(const PartyServer::Options& options) {
  server::TableEpoch chain = options.universe->Epoch(options.epoch, PartyAt(options.address));
  if (options.alter_table) options.alter_table(chain);
  return {options.universe->table(options.epoch),
          std::make_shared<const server::TableEpoch>(std::move(chain))};
}

}  // namespace

class PartyServer::SimNetwork final : public shoald::PartyNetwork {
 public:
  SimNetwork(Network* network, Process* process, Address address)
      : network_(network), process_(process), address_(address) {}
  std::unique_ptr<shoald::PeerCalls> CallsTo(const roster::Party&) override {
    return std::make_unique<SimCalls>(network_, address_);
  }
  absl::Status Listen(Port port) override {
    network_->Listen(address_, {.process = process_,
                                .limits = std::move(port.limits),
                                .sink = std::move(port.sink),
                                .handler = std::move(port.handler)});
    listening_ = true;
    return absl::OkStatus();
  }
  // Not what an earlier process of the machine has left.
  void Close() override {
    if (std::exchange(listening_, false)) network_->Close(address_);
  }

 private:
  Network* const network_;
  Process* const process_;
  const Address address_;
  bool listening_ = false;
};

PartyServer::PartyServer(Options options)
    : options_(std::move(options)),
      network_(std::make_unique<SimNetwork>(options_.network, options_.process, options_.address)),
      epochs_(FirstEpoch(options_)) {}

absl::StatusOr<std::unique_ptr<PartyServer>> PartyServer::Start(Options options) {
  std::unique_ptr<PartyServer> self(new PartyServer(std::move(options)));
  const Universe& universe = *self->options_.universe;
  const shoald::ServerConfig config = ConfigOf(self->options_);
  if (shoald::MachineJob* const job = self->options_.job.get(); job != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(
        self->machine_, shoald::JoinedMachine::Join(
                            job, Seed(Bytes(sizeof(Digest), static_cast<uint8_t>(config.party()))),
                            config.keys_directory(), &self->clock_, &self->random_,
                            config.machines_progress_limit_s()));
  }
  SHOAL_ASSIGN_OR_RETURN(self->runtime_,
                         shoald::PartyRuntime::Create(
                             {.config = config,
                              .roster = &universe.roster(),
                              .key = self->is_head() ? &universe.key(config.party()) : nullptr,
                              .machine = self->machine_.get(),
                              .epochs = &self->epochs_,
                              .network = self->network_.get(),
                              .clock = &self->clock_,
                              .random = &self->random_,
                              .pool = &self->pool_,
                              .state = [server = self.get()] { return server->State(); },
                              .events = self->options_.events}));
  SHOAL_RETURN_IF_ERROR(self->runtime_->Start());
  return self;
}

wire::PartyState PartyServer::State() const {
  wire::PartyState state;
  state.set_party(PartyAt(options_.address));
  state.set_version("simulated");
  state.set_roster_epoch(options_.universe->roster().epoch());
  state.set_table_epoch(epochs_.table()->manifest().epoch());
  return state;
}

absl::Status PartyServer::Take(uint64_t epoch) {
  wanted_epoch_ = std::max(wanted_epoch_, epoch);
  return runtime_->Take({.table = options_.universe->table(epoch), .setups = {}},
                        [this, epoch] { return stopping_ || wanted_epoch_ > epoch; });
}

void PartyServer::EndRound(const Digest& round_id, const std::string& reason) {
  runtime_->steps().End(round_id, reason);
  runtime_->node().Live(runtime_->frontend()->Live()).IgnoreError();
}

void PartyServer::Stop() {
  stopping_ = true;
  runtime_->Stop().IgnoreError();
}

}  // namespace shoal::sim
