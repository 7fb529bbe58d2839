#include "src/shoald/machine_control.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/wire/control.h"

namespace shoal::shoald {
namespace {

// How long after the head has told a state clients are shown it: two ticks, so that a machine that
// hears of it later shows it at the same moment.
constexpr uint64_t kTicksUntilShown = 2;
constexpr std::chrono::seconds kWhoKnowsWhyEndsWithin(2);
// In a wait that somebody may call off.
constexpr std::chrono::milliseconds kBetweenLooks(100);

// A round's machines and the lane over which they talk.
struct Joined {
  Joined(std::unique_ptr<machines::Transport> link, Seed key, const Clock* clock,
         RandomSource* random, machines::Machines::Options options)
      : lane(std::move(link)), machines(lane.get(), std::move(key), clock, random, options) {}
  const std::unique_ptr<machines::Transport> lane;
  machines::Machines machines;
};

void ToWire(const server::Counts& counts, wire::MachineCounts& out) {
  out.set_onions(counts.onions);
  out.set_queries(counts.queries);
  out.set_counted_onions(counts.counted_onions);
  out.set_counted_queries(counts.counted_queries);
  out.set_storage_code(static_cast<uint32_t>(counts.storage.code()));
  out.set_storage_message(std::string(counts.storage.message()));
}

server::Counts FromWire(const wire::MachineCounts& counts) {
  return {.onions = counts.onions(),
          .queries = counts.queries(),
          .counted_onions = counts.counted_onions(),
          .counted_queries = counts.counted_queries(),
          .storage = absl::Status(static_cast<absl::StatusCode>(counts.storage_code()),
                                  counts.storage_message())};
}

}  // namespace

absl::StatusOr<std::shared_ptr<machines::Machines>> MachineLinks::Join(uint32_t number,
                                                                       const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<machines::Transport> lane, job_->OpenLane(number));
  auto joined = std::make_shared<Joined>(
      std::move(lane), machines::RoundKey(secret_.view(), round_id, job_->id()), clock_, random_,
      machines::Machines::Options{.progress_limit_s = progress_limit_s_,
                                  .secret_name = machines::SecretName(secret_.view())});
  machines::Machines* const machines = &joined->machines;
  return std::shared_ptr<machines::Machines>(std::move(joined), machines);
}

absl::Status CallRoll(machines::Machines& control, const std::string& keys_directory) {
  const absl::Status all = control.Gather("roll call", {}, 0).status();
  if (absl::IsUnauthenticated(all)) {
    return absl::UnauthenticatedError(
        absl::StrCat(keys_directory, "/machines.key: ", all.message(),
                     ": give every machine the directory of keys that `shoal keys machine` makes "
                     "from the head's, and start again"));
  }
  if (all.ok()) return all;
  if (absl::IsUnavailable(all)) std::this_thread::sleep_for(kWhoKnowsWhyEndsWithin);
  return absl::UnavailableError(all.message());
}

MachineControl::MachineControl(machines::Machines* machines, Options options)
    : options_(std::move(options)),
      count_(machines->count()),
      control_(machines, ControlOptions()) {}

MachineControl::~MachineControl() = default;

Control::Options MachineControl::ControlOptions() {
  Control::Options control;
  control.period = options_.period;
  control.obey = [this](const Digest& id, const wire::RoundOrder& order) {
    return Obey(id, order);
  };
  control.failed = [this](const Digest& id, const absl::Status& why) {
    spdlog::error("a round could not be opened at all machines: {}", why.ToString());
    options_.party->End(id).IgnoreError();
    if (options_.not_opened) options_.not_opened(why);
  };
  control.epochs = [party = options_.party] { return party->OpenableEpochs(); };
  control.epochs_said = [this](uint32_t rank, std::vector<uint64_t> epochs) {
    if (options_.party->rank() > 0) {
      if (rank == 0 && !epochs.empty()) options_.party->HeadHas(epochs.back());
      return;
    }
    const MutexLock lock(mutex_);
    epochs_[rank] = std::move(epochs);
    changed_.NotifyAll();
  };
  control.ended = [this](const absl::Status& why) {
    if (!why.ok()) {
      // The likely reason where nobody alters what passes.
      const absl::string_view hint =
          absl::IsDataLoss(why) ? " (are all machines of the same version?)" : "";
      spdlog::critical("the party's machines have to end: {}{}", why.ToString(), std::string(hint));
    }
    {
      const MutexLock lock(mutex_);
      // To start again may help, whatever it was. An exit code that denies it, as that for damaged
      // data, would let one byte that was altered on its way keep the party from coming back.
      why_ended_ = why.ok() ? why : absl::UnavailableError(why.message());
      changed_.NotifyAll();
    }
    if (options_.ended) options_.ended();
  };
  server::Frontend* const frontend = options_.frontend;
  if (frontend == nullptr) return control;
  control.count = [frontend](const Digest& id, wire::MachineCounts& counts) {
    if (const auto own = frontend->Own(id); own.ok()) ToWire(*own, counts);
  };
  control.counted = [frontend](uint32_t rank, const Digest& id, const wire::MachineCounts& counts) {
    frontend->TakeCounts(rank, id, FromWire(counts));
  };
  control.told = [this, frontend](const wire::ToldRound& told) {
    const absl::StatusOr<Digest> id = server::ParseRoundId(told.round_id());
    if (!id.ok()) return;  // no machine says that (DecodeControl)
    frontend->Show({.round_id = *id, .report = told.report()},
                   options_.clock->SteadyMilliseconds() + ShownAfterMs());
  };
  control.before_is_told = [this, frontend] {
    frontend->BeforeIsTold(options_.clock->SteadyMilliseconds() + ShownAfterMs());
  };
  if (options_.party->rank() > 0) return control;
  control.has_told_before = [frontend] { return frontend->HasToldBefore(); };
  control.tell = [frontend](size_t most_bytes) {
    std::vector<wire::ToldRound> out;
    for (server::Told& told : frontend->Tell(most_bytes)) {
      wire::ToldRound& one = out.emplace_back();
      one.set_round_id(ToString(told.round_id));
      *one.mutable_report() = std::move(told.report);
    }
    return out;
  };
  return control;
}

uint64_t MachineControl::ShownAfterMs() const {
  return kTicksUntilShown * static_cast<uint64_t>(options_.period.count());
}

absl::Status MachineControl::Obey(const Digest& round_id, const wire::RoundOrder& order) {
  if (order.end()) {
    const absl::Status ended = options_.party->End(round_id);
    // What clients are shown of it is the head's to say.
    if (options_.own != nullptr) options_.own->End(round_id, "");
    return ended;
  }
  if (order.has_step()) {
    if (options_.own == nullptr) {
      return absl::InvalidArgumentError("a step of the frontend's at another party");
    }
    return options_.own->Do(round_id, order.step().step(), order.step().attempt());
  }
  const absl::Status opened = Open(order);
  if (!opened.ok()) {
    options_.party->End(round_id).IgnoreError();
    return opened;
  }
  // Ahead of time, while onions come in.
  noise_.Spawn([this, round_id] { options_.party->PrepareNoise(round_id).IgnoreError(); });
  return absl::OkStatus();
}

absl::Status MachineControl::Open(const wire::RoundOrder& order) {
  server::Party& party = *options_.party;
  const wire::SignedHeader& header = order.open().header();
  SHOAL_RETURN_IF_ERROR(
      party.Open({order.round(), header, Seed(AsBytes(order.open().root_seed()))}));
  if (options_.own == nullptr) return absl::OkStatus();
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<const server::TableEpoch> table,
                         party.TableOf(header.header()));
  // Party 1 signs last: its header has all signatures.
  SHOAL_ASSIGN_OR_RETURN(
      const round::Round round,
      round::Round::Verify(header, party.roster(), table->facts, options_.clock->NowSeconds()));
  return options_.own->Open(round);
}

absl::Status MachineControl::AwaitAll() {
  return control_.AwaitFirstTick().ok() ? absl::OkStatus() : AwaitEnd(std::chrono::seconds(60));
}

void MachineControl::Opened(const server::RoundOpening& opening) {
  control_.Open(opening.number, opening.header, opening.root);
}

absl::Status MachineControl::ReadyFor(uint64_t epoch) const {
  if (control_.SinceTick() > options_.heard_within) {
    return absl::UnavailableError("the party's machines do not hear each other");
  }
  const MutexLock lock(mutex_);
  return CheckEpochLocked(epoch);
}

absl::Status MachineControl::CheckEpochLocked(uint64_t epoch) const {
  for (uint32_t rank = 1; rank < count_; ++rank) {
    const auto found = epochs_.find(rank);
    const std::vector<uint64_t> none, &epochs = found == epochs_.end() ? none : found->second;
    if (std::ranges::find(epochs, epoch) != epochs.end()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "machine ", rank, " of the party does not have epoch ", epoch, " of the table, but epoch ",
        epochs.empty() ? "none" : absl::StrCat(epochs.back()),
        ": put the same table there, and have all machines take it (SIGHUP to the launcher)"));
  }
  return absl::OkStatus();
}

absl::Status MachineControl::AwaitEpoch(uint64_t epoch, const std::function<bool()>& cancelled) {
  const MutexLock lock(mutex_);
  for (;;) {
    const absl::Status all = CheckEpochLocked(epoch);
    if (all.ok() || why_ended_.has_value()) return all.ok() ? all : *why_ended_;
    if (cancelled()) return absl::CancelledError(all.message());
    changed_.WaitUntil(mutex_, std::chrono::steady_clock::now() + kBetweenLooks);
  }
}

absl::Status MachineControl::OpenAtAll(const round::Round& round,
                                       const std::function<absl::Status()>& own) {
  // The order has gone with the head's signature (Opened).
  absl::Status first = own();
  first.Update(control_.WaitForOthers(round.id()));
  return first;
}

absl::Status MachineControl::DoAtAll(const Digest& round_id, wire::RoundStep step, uint64_t attempt,
                                     const std::function<absl::Status()>& own) {
  SHOAL_RETURN_IF_ERROR(control_.Order(round_id, step, attempt));
  absl::Status first = own();
  first.Update(control_.WaitForOthers(round_id));
  return first;
}

absl::Status MachineControl::WaitUntilShown(const Digest& round_id, wire::RoundState state) {
  return options_.frontend->WaitUntilShown(round_id, state);
}

absl::Status MachineControl::Stop() {
  control_.Stop();
  return AwaitEnd(std::chrono::seconds(60));
}

absl::Status MachineControl::AwaitEnd(std::chrono::seconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  const MutexLock lock(mutex_);
  while (!why_ended_.has_value()) {
    if (!changed_.WaitUntil(mutex_, until) && std::chrono::steady_clock::now() >= until) {
      return absl::DeadlineExceededError("the party's head does not say that its machines end");
    }
  }
  return *why_ended_;
}

}  // namespace shoal::shoald
