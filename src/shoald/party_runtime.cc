#include "src/shoald/party_runtime.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/parallel/mutex.h"
#include "src/storage/file.h"

namespace shoal::shoald {
namespace {

// How long a machine that is told to end waits for its head to say so.
constexpr std::chrono::seconds kHeadSaysSoWithin(10);

std::string TermsDirectory(const ServerConfig& config) {
  return config.state_directory() + "/terms";
}

}  // namespace

absl::StatusOr<std::unique_ptr<JoinedMachine>> JoinedMachine::Join(
    MachineJob* job, Seed secret, const std::string& keys_directory, const Clock* clock,
    RandomSource* random, uint64_t progress_limit_s) {
  std::unique_ptr<JoinedMachine> joined(
      new JoinedMachine(job, std::move(secret), clock, random, progress_limit_s));
  SHOAL_ASSIGN_OR_RETURN(joined->control_, joined->links_.JoinControl());
  SHOAL_RETURN_IF_ERROR(CallRoll(*joined->control_, keys_directory));
  return joined;
}

server::Party::Options PartyOptions(const ServerConfig& config, const roster::Roster& roster,
                                    server::TableEpoch table) {
  server::Party::Options options{
      .number = PartyNumber(config.party()), .roster = roster, .table = std::move(table)};
  options.max_open_rounds =
      std::max<size_t>(options.max_open_rounds, 2 * config.rounds().max_rounds());
  return options;
}

// The rounds of a party that the frontend has forgotten, or cannot reach, end by themselves; terms
// at their time, which the lists do not shorten if nobody sends them. Terms sleep for hours, so
// that a party that keeps some gives the system the memory that a refresh, or a round, has left.
class PartyRuntime::Expiry {
 public:
  // `terms` may be null, and so may `next`, the link to the next party.
  Expiry(server::Party* party, server::Terms* terms, PeerLink* next, SpoolPlace* spools)
      : thread_([this, party, terms, next, spools] {
          constexpr int kGiveBackEvery = 60;
          for (int seconds = 1; Wait(std::chrono::seconds(1)); ++seconds) {
            party->EndExpired();
            if (terms != nullptr) terms->EndExpired();
            if (next != nullptr) next->CloseEnded();
            if (terms != nullptr && seconds % kGiveBackEvery == 0) spools->GiveBackUnused();
          }
        }) {}
  ~Expiry() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyAll();
    thread_.join();
  }

 private:
  // False once this ends.
  bool Wait(std::chrono::seconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    const MutexLock lock(mutex_);
    while (!stopping_ && wake_.WaitUntil(mutex_, until)) {
    }
    return !stopping_;
  }

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

PartyRuntime::PartyRuntime(Options options)
    : options_(std::move(options)),
      spools_(options_.config.spool_directory(), options_.config.spool_memory_mib() << 20),
      // The answers of refreshes wait for days, and so in files alone.
      refresh_spools_(options_.config.spool_directory(), /*memory_bytes=*/0) {}

PartyRuntime::~PartyRuntime() { CloseAndCancel(); }

void PartyRuntime::CloseAndCancel() {
  options_.network->Close();
  if (next_ != nullptr) next_->CancelStages();
  if (parts_ != nullptr) parts_->CancelAll();
}

absl::StatusOr<std::unique_ptr<PartyRuntime>> PartyRuntime::Create(Options options) {
  std::unique_ptr<PartyRuntime> self(new PartyRuntime(std::move(options)));
  SHOAL_RETURN_IF_ERROR(self->OpenJournal());
  SHOAL_RETURN_IF_ERROR(self->OpenTerms());
  SHOAL_RETURN_IF_ERROR(self->OpenParty());
  self->next_ = self->LinkToNext();
  self->node_ = std::make_unique<server::ChainNode>(self->party_.get(), self->next_.get());
  if (self->options_.state) {
    ChainStates::Options states{.party = self->number(),
                                .parties = self->options_.roster->size(),
                                .self = self->options_.state,
                                .next = nullptr,
                                .clock = self->options_.clock};
    if (PeerLink* const next = self->next_.get(); next != nullptr) {
      states.next = [next](const wire::PartyStatesRequest& request) {
        return next->States(request);
      };
    }
    self->states_ = std::make_unique<ChainStates>(std::move(states));
  }
  self->expiry_ = std::make_unique<Expiry>(self->party_.get(), self->terms_.get(),
                                           self->next_.get(), &self->spools_);
  if (self->number() == 1) {
    SHOAL_RETURN_IF_ERROR(self->OpenFrontend());
  } else {
    self->OpenPeers();
  }
  return self;
}

// The head's is the party's. Another machine has one at party 1 alone, for its own clients.
absl::Status PartyRuntime::OpenJournal() {
  const ServerConfig& config = options_.config;
  if (!is_head() && number() != 1) {
    if (config.spool_directory() != config.state_directory()) return absl::OkStatus();
    return MakeDirectory(config.spool_directory(), FileMode::kPrivate);
  }
  server::FileJournalOptions journal = options_.events.journal;
  journal.broken = [this, told = std::move(journal.broken)](const absl::Status& why) {
    journal_broken_ = true;
    if (told) told(why);
  };
  SHOAL_ASSIGN_OR_RETURN(journal_,
                         server::FileJournal::Open(config.state_directory(), std::move(journal)));
  return absl::OkStatus();
}

server::Resources PartyRuntime::ResourcesWith(
    const std::function<void(const Digest&)>& making_piece) {
  return {.pool = options_.pool,
          .spools = &spools_,
          .making_piece = making_piece ? &making_piece : nullptr};
}

absl::Status PartyRuntime::OpenTerms() {
  const roster::Roster& roster = *options_.roster;
  // Without a term_limit this erases what is there.
  if (is_one_of_several() ||
      (roster.max_refreshes() == 0 && !FileExists(TermsDirectory(options_.config)))) {
    return absl::OkStatus();
  }
  SHOAL_ASSIGN_OR_RETURN(
      terms_,
      server::Terms::Open({.number = PartyNumber(number()),
                           .roster = roster,
                           .directory = TermsDirectory(options_.config),
                           .table = [epochs = options_.epochs] { return epochs->newest().chain; },
                           .ended = options_.events.term_ended,
                           .stage_done = options_.events.refresh_done},
                          options_.key, journal_.get(), options_.random, options_.clock,
                          ResourcesWith(options_.events.making_piece_of_term)));
  return absl::OkStatus();
}

absl::Status PartyRuntime::OpenParty() {
  server::Party::Options party =
      PartyOptions(options_.config, *options_.roster, *options_.epochs->newest().chain);
  party.progress = options_.events.progress;
  party.ended = options_.events.round_ended;
  party.stage_done = options_.events.stage_done;
  if (options_.roster->max_refreshes() > 0) party.terms = terms_.get();
  if (is_one_of_several()) {
    party.machines = {.rank = rank(),
                      .count = options_.machine->count(),
                      .join = [machine = options_.machine](uint32_t round, const Digest& id) {
                        return machine->links().Join(round, id);
                      }};
  }
  // Rounds are opened through control alone, which is there before anybody can ask for one (Start).
  if (is_one_of_several() && is_head()) {
    party.machines.opened = [this](const server::RoundOpening& opening) {
      control_->Opened(opening);
    };
    party.machines.ready = [this](uint64_t epoch) { return control_->ReadyFor(epoch); };
    party.machines.ended = [this](const Digest& id) { control_->Ended(id); };
  }
  const server::Resources resources = ResourcesWith(options_.events.making_piece);
  SHOAL_ASSIGN_OR_RETURN(
      party_, is_head() ? server::Party::Create(std::move(party), *options_.key, journal_.get(),
                                                options_.random, options_.clock, resources)
                        : server::Party::CreateOther(std::move(party), options_.random,
                                                     options_.clock, resources));
  return absl::OkStatus();
}

std::unique_ptr<PeerLink> PartyRuntime::LinkToNext() {
  const roster::Roster& roster = *options_.roster;
  if (number() == roster.size()) return nullptr;
  const roster::Party& next = roster.party(number() + 1);
  PeerLink::Options link{
      .party = next.number,
      .machines = next.machines,
      .senders = roster.party(number()).machines,
      .later = roster.size() - next.number,
      .answer_bytes = [party = party_.get()](const Digest& id) { return party->AnswerBytes(id); },
      .stage_limit = std::chrono::seconds(options_.config.stage_limit_s()),
      .spools = &spools_};
  if (party_->terms() != nullptr) {
    link.refresh_bytes = [terms = terms_.get()](const Digest& id) {
      return terms->AnswerBytesFromNext(id);
    };
  }
  return std::make_unique<PeerLink>(options_.network->CallsTo(next), std::move(link));
}

absl::Status PartyRuntime::OpenFrontend() {
  const roster::Roster& roster = *options_.roster;
  if (is_head() && journal_->highest_round() == RoundCounter()) {
    spdlog::warn(
        "{}: no round is in the journal. That is right for a new deployment. If the state was "
        "lost, "
        "the other parties end the old rounds by themselves; should they refuse new ones "
        "(counters "
        "only rise), leave their state alone and let this run: within a day they take them",
        options_.config.state_directory());
  }
  SHOAL_ASSIGN_OR_RETURN(
      frontend_, server::Frontend::Create(PlanFrom(options_.config, roster), party_.get(),
                                          journal_.get(), options_.clock, ResourcesWith(nullptr),
                                          {.rank = rank(), .count = roster.party(1).machines}));
  own_steps_ = std::make_unique<OwnSteps>(frontend_.get(), node_.get());
  if (is_head() && states_ != nullptr) {
    watch_ = std::make_unique<ChainWatch>(states_.get(), options_.clock);
  }
  if (party_->terms() != nullptr) {
    refreshes_ = std::make_unique<server::Refreshes>(party_.get(), journal_.get(), options_.clock,
                                                     options_.pool, &refresh_spools_);
  }
  clients_ = std::make_unique<ClientService>(frontend_.get(), &roster, options_.epochs,
                                             journal_.get(), watch_.get(), refreshes_.get());
  return absl::OkStatus();
}

void PartyRuntime::OpenPeers() {
  const uint32_t senders = options_.roster->party(number() - 1).machines;
  parts_ = std::make_unique<PartStages>(PartsOf(*node_, senders, &spools_));
  peers_ =
      std::make_unique<PeerService>(parts_.get(), is_head() ? node_.get() : nullptr, states_.get());
}

PartyNetwork::Port PartyRuntime::MakePort() {
  if (PeerService* const peers = peers_.get(); peers != nullptr) {
    return {.limits = [peers](wire::FrameType type) { return peers->Limits(type); },
            .sink = [peers](const wire::Frame& request,
                            uint64_t bulk_bytes) { return peers->Sink(request, bulk_bytes); },
            .handler =
                [peers](wire::Frame request, net::Reply reply) {
                  peers->Handle(std::move(request), std::move(reply));
                }};
  }
  // Clients of party 1's engines come to the same port.
  ClientService* const clients = clients_.get();
  PirService* const engines = options_.engines;
  return {.limits =
              [clients, engines](wire::FrameType type) {
                return engines != nullptr && PirService::Serves(type) ? engines->Limits(type)
                                                                      : clients->Limits(type);
              },
          .handler =
              [clients, engines](wire::Frame request, net::Reply reply) {
                if (engines != nullptr && PirService::Serves(request.type)) {
                  engines->Handle(std::move(request), std::move(reply));
                } else {
                  clients->Handle(std::move(request), std::move(reply));
                }
              }};
}

absl::Status PartyRuntime::JoinControl() {
  control_ = std::make_unique<MachineControl>(
      &options_.machine->control(),
      MachineControl::Options{.party = party_.get(),
                              .clock = options_.clock,
                              .frontend = frontend_.get(),
                              .own = own_steps_.get(),
                              .ended = options_.events.job_ended,
                              .not_opened = options_.events.not_opened});
  if (frontend_ != nullptr && is_head()) {
    all_steps_ = std::make_unique<AllSteps>(frontend_.get(), own_steps_.get(), control_.get());
  }
  spdlog::info("waits for the party's other machines");
  return control_->AwaitAll();
}

absl::Status PartyRuntime::Start() {
  if (!is_head()) SHOAL_RETURN_IF_ERROR(options_.network->Listen(MakePort()));
  if (is_one_of_several()) SHOAL_RETURN_IF_ERROR(JoinControl());
  if (!is_head()) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(options_.network->Listen(MakePort()));
  if (frontend_ != nullptr) {
    driver_ = std::make_unique<Driver>(frontend_.get(), node_.get(), options_.clock, &steps());
  }
  if (refreshes_ != nullptr) {
    refresh_driver_ = std::make_unique<RefreshDriver>(refreshes_.get(), node_.get(), options_.clock,
                                                      options_.events.refresh_tried);
  }
  return absl::OkStatus();
}

RoundSteps& PartyRuntime::steps() {
  if (all_steps_ != nullptr) return *all_steps_;
  return *own_steps_;
}

absl::Status PartyRuntime::Take(ServedTable next, const std::function<bool()>& cancelled) {
  const std::shared_ptr<const table::Table> table = next.table;
  server::TableEpoch epoch = ChainEpoch(*table);
  // Before the work of engines, which can take minutes.
  SHOAL_RETURN_IF_ERROR(party_->CheckEpoch(epoch));
  if (party_->answers_from_table()) SHOAL_RETURN_IF_ERROR(AddAnswers(*table, epoch));
  if (control_ != nullptr && is_head()) {
    if (const absl::Status all = control_->ReadyFor(epoch.epoch); !all.ok()) {
      spdlog::info("epoch {} of the table is read, and is taken when all machines have it: {}",
                   epoch.epoch, std::string(all.message()));
    }
    SHOAL_RETURN_IF_ERROR(control_->AwaitEpoch(epoch.epoch, cancelled));
  }
  const auto take = [&]() -> absl::Status {
    SHOAL_RETURN_IF_ERROR(party_->TakeEpoch(epoch));
    options_.epochs->Serve({table, std::make_shared<const server::TableEpoch>(std::move(epoch))});
    return absl::OkStatus();
  };
  return options_.engines != nullptr ? options_.engines->Reload(std::move(next), take) : take();
}

absl::Status PartyRuntime::Stop() {
  // The head tells the others once its own part has ended.
  absl::Status end;
  if (!is_head() && !journal_broken_) end = control_->AwaitEnd(kHeadSaysSoWithin);
  CloseAndCancel();
  refresh_driver_.reset();
  driver_.reset();
  clients_.reset();
  watch_.reset();
  party_->EndAll();  // calls of the party before that wait for another machine end
  peers_.reset();
  parts_.reset();
  party_->EndAll();  // what such a call has opened
  if (is_one_of_several() && is_head()) end = control_->Stop();
  if (journal_broken_) {
    return absl::UnavailableError(absl::StrCat(
        options_.config.state_directory(),
        ": a write to the journal failed, and what is on the disk is not known: start it again"));
  }
  return end;
}

}  // namespace shoal::shoald
