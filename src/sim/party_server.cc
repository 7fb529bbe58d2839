#include "src/sim/party_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/sim/sim_calls.h"

namespace shoal::sim {
namespace {

using wire::FrameType;

constexpr char kStateDirectory[] = "/sim/state";
// As in src/shoald/program.cc.
constexpr std::chrono::seconds kHeadSaysSoWithin(10);

}  // namespace

absl::StatusOr<std::unique_ptr<PartyServer>> PartyServer::Start(Options options) {
  std::unique_ptr<PartyServer> self(new PartyServer(std::move(options)));
  const auto& [universe, network, process, address, epoch, plan, journal, making_piece, of_term,
               stage_done, alter_table, job, ended, not_opened] = self->options_;
  const roster::Roster& roster = universe->roster();
  if (self->is_one_of_several()) {
    self->links_.emplace(
        job.get(), Seed(Bytes(sizeof(Digest), static_cast<uint8_t>(PartyAt(address)))),
        &self->clock_, &self->random_, machines::Machines::Options().progress_limit_s);
    SHOAL_ASSIGN_OR_RETURN(self->control_machines_, self->links_->JoinControl());
    SHOAL_RETURN_IF_ERROR(shoald::CallRoll(*self->control_machines_, "/sim/keys"));
  }
  SHOAL_RETURN_IF_ERROR(self->OpenParty());
  // What shoald's Expiry does.
  Scheduler* const scheduler = Scheduler::Current();
  scheduler->Spawn(process, [scheduler, self = self.get()] {
    for (;;) {
      scheduler->Sleep(kSecond);
      if (self->stopping_) return;
      self->party_->EndExpired();
      if (self->terms_ != nullptr) self->terms_->EndExpired();
    }
  });
  if (PartyAt(address) == 1) {
    SHOAL_ASSIGN_OR_RETURN(
        self->frontend_,
        server::Frontend::Create(plan, self->party_.get(), self->journal_.get(), &self->clock_,
                                 {.pool = &self->pool_, .spools = &self->spools_},
                                 {.rank = RankAt(address), .count = roster.party(1).machines}));
    self->own_steps_.emplace(self->frontend_.get(), self->node_.get());
    if (self->terms_ != nullptr) {
      self->refreshes_ =
          std::make_unique<server::Refreshes>(self->party_.get(), self->journal_.get(),
                                              &self->clock_, &self->pool_, &self->refresh_spools_);
    }
    self->clients_ = std::make_unique<shoald::ClientService>(
        self->frontend_.get(), &roster, universe->table(epoch), self->journal_.get(),
        /*chain=*/nullptr, self->refreshes_.get());
  } else {
    const uint32_t senders = roster.party(PartyAt(address) - 1).machines;
    if (senders > 1 || self->is_one_of_several()) {
      self->parts_ = std::make_unique<shoald::PartStages>(
          shoald::PartsOf(*self->node_, senders, &self->spools_));
    }
    self->peers_ = std::make_unique<shoald::PeerService>(
        self->is_head() ? self->node_.get() : nullptr, nullptr, self->parts_.get());
  }
  // The head is the last to listen.
  if (!self->is_head()) self->Listen();
  if (self->is_one_of_several()) {
    self->control_ = std::make_unique<shoald::MachineControl>(
        self->control_machines_.get(),
        shoald::MachineControl::Options{
            .party = self->party_.get(),
            .clock = &self->clock_,
            .frontend = self->frontend_.get(),
            .own = self->own_steps_.has_value() ? &*self->own_steps_ : nullptr,
            .ended = ended,
            .not_opened = not_opened});
    if (self->frontend_ != nullptr && self->is_head()) {
      self->all_steps_.emplace(self->frontend_.get(), &*self->own_steps_, self->control_.get());
    }
    SHOAL_RETURN_IF_ERROR(self->control_->AwaitAll());
  }
  if (!self->is_head()) return self;
  if (self->frontend_ != nullptr) {
    self->driver_ = std::make_unique<shoald::Driver>(
        self->frontend_.get(), self->node_.get(), &self->clock_,
        self->all_steps_.has_value() ? &*self->all_steps_ : nullptr);
  }
  if (self->refreshes_ != nullptr) {
    self->refresh_driver_ = std::make_unique<shoald::RefreshDriver>(
        self->refreshes_.get(), self->node_.get(), &self->clock_);
  }
  self->Listen();
  return self;
}

server::TableEpoch PartyServer::Epoch(uint64_t epoch) const {
  server::TableEpoch made = options_.universe->Epoch(epoch, PartyAt(options_.address));
  if (options_.alter_table) options_.alter_table(made);
  return made;
}

absl::Status PartyServer::OpenParty() {
  const roster::Roster& roster = options_.universe->roster();
  const uint32_t number = PartyAt(options_.address);
  if (is_head() || number == 1) {
    SHOAL_ASSIGN_OR_RETURN(journal_, server::FileJournal::Open(kStateDirectory, options_.journal));
  }
  const server::Resources resources{
      .pool = &pool_,
      .spools = &spools_,
      .making_piece = options_.making_piece ? &options_.making_piece : nullptr};
  server::Resources resources_of_terms = resources;
  resources_of_terms.making_piece =
      options_.making_piece_of_term ? &options_.making_piece_of_term : nullptr;
  server::Party::Options options{
      .number = PartyNumber(number), .roster = roster, .table = Epoch(options_.epoch)};
  options.stage_done = options_.stage_done;
  if (is_one_of_several()) {
    options.machines = {
        .rank = RankAt(options_.address),
        .count = roster.party(number).machines,
        .join = [this](uint32_t round, const Digest& id) { return links_->Join(round, id); }};
    if (is_head()) {
      options.machines.opened = [this](const server::RoundOpening& opening) {
        control_->Opened(opening);
      };
      options.machines.ready = [this](uint64_t epoch) { return control_->ReadyFor(epoch); };
      options.machines.ended = [this](const Digest& id) { control_->Ended(id); };
    }
  }
  if (roster.max_refreshes() > 0) {
    SHOAL_ASSIGN_OR_RETURN(
        terms_, server::Terms::Open({.number = PartyNumber(number),
                                     .roster = roster,
                                     .directory = absl::StrCat(kStateDirectory, "/terms"),
                                     .table = [this] { return party_->table(); }},
                                    &options_.universe->key(number), journal_.get(), &random_,
                                    &clock_, resources_of_terms));
    options.terms = terms_.get();
  }
  SHOAL_ASSIGN_OR_RETURN(
      party_, is_head()
                  ? server::Party::Create(std::move(options), options_.universe->key(number),
                                          journal_.get(), &random_, &clock_, resources)
                  : server::Party::CreateOther(std::move(options), &random_, &clock_, resources));
  if (number < roster.size()) {
    shoald::PeerLink::Options link{
        .party = number + 1,
        .machines = roster.party(number + 1).machines,
        .later = roster.size() - number - 1,
        .answer_bytes =
            [party = party_.get()](const Digest& round_id) { return party->AnswerBytes(round_id); },
        .stage_limit = std::chrono::seconds(options_.plan.stage_limit_s),
        .spools = &spools_};
    if (terms_ != nullptr) {
      link.refresh_bytes = [terms = terms_.get()](const Digest& id) {
        return terms->AnswerBytesFromNext(id);
      };
    }
    next_ = std::make_unique<shoald::PeerLink>(
        std::make_unique<SimCalls>(options_.network, options_.address), std::move(link));
  }
  node_ = std::make_unique<server::ChainNode>(party_.get(), next_.get());
  return absl::OkStatus();
}

void PartyServer::Listen() {
  Network::Listener listener{.process = options_.process};
  if (clients_ != nullptr) {
    listener.limits = [clients = clients_.get()](FrameType type) { return clients->Limits(type); };
    listener.handler = [clients = clients_.get()](wire::Frame request, net::Reply reply) {
      clients->Handle(std::move(request), std::move(reply));
    };
  } else {
    listener.limits = [peers = peers_.get()](FrameType type) { return peers->Limits(type); };
    listener.sink = [peers = peers_.get()](const wire::Frame& request, uint64_t bytes) {
      return peers->Sink(request, bytes);
    };
    listener.handler = [peers = peers_.get()](wire::Frame request, net::Reply reply) {
      peers->Handle(std::move(request), std::move(reply));
    };
  }
  options_.network->Listen(options_.address, std::move(listener));
}

absl::Status PartyServer::Take(uint64_t epoch) {
  wanted_epoch_ = std::max(wanted_epoch_, epoch);
  if (control_ != nullptr && is_head()) {
    SHOAL_RETURN_IF_ERROR(
        control_->AwaitEpoch(epoch, [this, epoch] { return stopping_ || wanted_epoch_ > epoch; }));
  }
  SHOAL_RETURN_IF_ERROR(party_->TakeEpoch(Epoch(epoch)));
  if (clients_ != nullptr) clients_->Serve(options_.universe->table(epoch));
  return absl::OkStatus();
}

void PartyServer::EndRound(const Digest& round_id, const std::string& reason) {
  all_steps_.has_value() ? all_steps_->End(round_id, reason) : frontend_->Abort(round_id, reason);
  node_->Live(frontend_->Live()).IgnoreError();
}

void PartyServer::Stop() {
  // The head tells the others once its own part has ended.
  if (!is_head()) control_->AwaitEnd(kHeadSaysSoWithin).IgnoreError();
  stopping_ = true;
  options_.network->Close(options_.address);
  if (next_ != nullptr) next_->CancelStages();
  if (parts_ != nullptr) parts_->CancelAll();
  refresh_driver_.reset();
  driver_.reset();
  // Calls of the party before may wait for another machine.
  if (is_one_of_several()) party_->EndAll();
  peers_.reset();
  parts_.reset();
  party_->EndAll();
  if (is_one_of_several() && is_head()) control_->Stop().IgnoreError();
}

}  // namespace shoal::sim
