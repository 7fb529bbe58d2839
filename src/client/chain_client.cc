#include "src/client/chain_client.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/device.h"
#include "src/client/refresh.h"
#include "src/onion/onion.h"
#include "src/parallel/mutex.h"
#include "src/round/query_bytes.h"
#include "src/table/manifest.h"

namespace shoal::client {
namespace {

constexpr uint32_t kPollMs = 250;
// For so long a client that needs a round with a term asks often, and seldom afterwards.
constexpr uint64_t kOftenS = 60;
constexpr uint32_t kSeldomPollMs = 10'000;
// How often a client that waits asks at most whether a newer epoch of the table is served.
constexpr uint64_t kEpochCheckS = 5;

bool RoundTakesNoMore(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status);
}

// The number of times that slots are saved while they are obtained.
constexpr size_t kSlotSaves = 8;
// Answers that one task unmasks: a batch of onions, whose seeds are computed again.
constexpr size_t kAnswerGrain = 128;

std::vector<uint32_t> Sorted(std::vector<uint32_t> items) {
  std::sort(items.begin(), items.end());
  return items;
}

BytesView BytesOf(std::span<const uint32_t> rows) {
  return {reinterpret_cast<const uint8_t*>(rows.data()), rows.size_bytes()};
}

std::string RoundName(const HeldRound& held) { return absl::StrCat("round ", held.counter()); }

}  // namespace

// The answers of one round, in its spool.
class ChainClient::Answers final : public RowAnswers {
 public:
  // `spool` is complete.
  Answers(ChainClient* client, HeldRound* held, round::Round round,
          std::unique_ptr<AnswerSpool> spool)
      : client_(*client),
        held_(*held),
        round_(std::move(round)),
        spool_(std::move(spool)),
        lookup_(*client->lookup_) {}

  const Digest& round_id() const { return held_.id; }
  std::span<const uint32_t> rows() const override { return held_.rows; }

  absl::Status Read(size_t first, MutableBytes out) const override {
    const size_t each = round_.answer_bytes(), tagged_bytes = round_.tagged_bytes();
    Bytes tagged(out.size() / each * tagged_bytes);
    SHOAL_RETURN_IF_ERROR(spool_->Read(first, tagged));
    client_.environment_.pool->ParallelFor(
        out.size() / each, kAnswerGrain, [&](size_t begin, size_t end) {
          Unmask(round_, held_.Onions(first + begin, end - begin),
                 BytesView(tagged).subspan(begin * tagged_bytes, (end - begin) * tagged_bytes),
                 out.subspan(begin * each, (end - begin) * each));
        });
    return absl::OkStatus();
  }

  absl::Status Erase() override {
    client_.store_->state().DropLookup(lookup_);
    return client_.GiveUp(held_);
  }

 private:
  ChainClient& client_;
  HeldRound& held_;
  const round::Round round_;
  const std::unique_ptr<AnswerSpool> spool_;
  const Digest lookup_;
};

// The answers of a lookup that is spread over rounds, unmasked and in memory: a round's entry in
// the state may end before the last round is answered.
class ChainClient::AnswersOfRounds final : public RowAnswers {
 public:
  AnswersOfRounds(ChainClient* client, const Digest& spread)
      : client_(*client), lookup_(*client->lookup_), spread_(spread) {}

  // To be called before anything else changes the state, which `answers` refers to.
  absl::Status Add(const Answers& answers) {
    const size_t each = client_.deployment_->manifest().answer_bytes();
    const size_t before = answers_.size();
    answers_.resize(before + answers.rows().size() * each);
    rows_.insert(rows_.end(), answers.rows().begin(), answers.rows().end());
    rounds_.push_back(answers.round_id());
    return answers.Read(0, MutableBytes(answers_).subspan(before));
  }

  std::span<const uint32_t> rows() const override { return rows_; }

  absl::Status Read(size_t first, MutableBytes out) const override {
    const size_t each = client_.deployment_->manifest().answer_bytes();
    const BytesView from = BytesView(answers_).subspan(first * each, out.size());
    std::copy(from.begin(), from.end(), out.begin());
    return absl::OkStatus();
  }

  absl::Status Erase() override {
    State& state = client_.store_->state();
    state.DropLookup(lookup_);
    state.DropSpread(spread_);
    for (const Digest& id : rounds_) {
      if (HeldRound* const held = state.FindRound(id); held != nullptr) state.End(*held);
    }
    return client_.store_->Save();
  }

 private:
  ChainClient& client_;
  const Digest lookup_;
  const Digest spread_;
  std::vector<Digest> rounds_;
  std::vector<uint32_t> rows_;
  SecretVector<uint8_t> answers_;
};

// Without patience: other machines may answer.
struct ChainClient::Way {
  Way(std::unique_ptr<Transport> to, const std::string& address, const ChainClient& client)
      : transport(std::move(to)),
        exchange(transport.get(), client.environment_.sleep, client.environment_.clock),
        connections(
            [connect = client.environment_.connect_to, address] { return connect(address); },
            &client.deployment_->roster(), client.environment_.sleep, /*keep=*/true) {}

  Traffic traffic() const { return transport->traffic() + connections.traffic(); }

  const std::unique_ptr<Transport> transport;
  Exchange exchange;
  Connections connections;
};

ChainClient::~ChainClient() = default;

ChainClient::ChainClient(const Deployment* deployment, ChainOptions options, Transport* transport,
                         StateStore* store, Environment environment)
    : deployment_(deployment),
      options_(options),
      store_(store),
      environment_(std::move(environment)),
      transport_(transport),
      patience_(environment_),
      exchange_(transport, environment_.sleep, environment_.clock, &patience_),
      connections_(environment_.connect, &deployment_->roster(), environment_.sleep,
                   /*keep=*/true) {
  Follow(deployment);
}

void ChainClient::Follow(const Deployment* deployment) {
  deployment_ = deployment;
  connections_.Follow(&deployment->roster());
  for (const auto& [machine, way] : ways_) past_ = past_ + way->traffic();
  ways_.clear();
  costs_.bytes.query_bytes = round::QueryBytes(deployment->roster().size());
  costs_.bytes.answer_bytes = round::FetchedBytes(deployment->manifest().answer_bytes());
}

absl::StatusOr<std::unique_ptr<ChainClient>> ChainClient::Create(const Deployment* deployment,
                                                                 ChainOptions options,
                                                                 Transport* transport,
                                                                 StateStore* store,
                                                                 Environment environment) {
  if (options.pad_to == 0 || options.pad_to > kMaxPadTo) {
    return absl::InvalidArgumentError(absl::StrCat("pad_to must be 1 to ", kMaxPadTo));
  }
  if (options.max_attempts == 0 || options.max_attempts > kMaxAttempts) {
    return absl::InvalidArgumentError(absl::StrCat("max_attempts must be 1 to ", kMaxAttempts));
  }
  if (options.term &&
      (options.term->max_enrolments == 0 || options.term->max_enrolments > State::kMaxEnrolments)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_enrolments must be 1 to ", State::kMaxEnrolments));
  }
  if (options.connections == 0 || options.connections > kMaxClientConnections) {
    return absl::InvalidArgumentError(
        absl::StrCat("connections must be 1 to ", kMaxClientConnections));
  }
  return std::unique_ptr<ChainClient>(
      new ChainClient(deployment, options, transport, store, std::move(environment)));
}

absl::StatusOr<round::Round> ChainClient::VerifyRound(const wire::SignedHeader& header) const {
  return round::Round::Verify(header, deployment_->roster(), deployment_->table_facts(),
                              environment_.clock->NowSeconds());
}

absl::StatusOr<HeldRound*> ChainClient::FindHeld(const Digest& round_id) {
  HeldRound* const held = store_->state().FindRound(round_id);
  if (held == nullptr || held->over) {
    return absl::NotFoundError("this client holds no slots in that round");
  }
  return held;
}

absl::Status ChainClient::GiveUp(HeldRound& held) {
  store_->state().End(held);
  return store_->Save();
}

absl::Status ChainClient::Lose(HeldRound& held) {
  if (TriedLookup* const tried = Tried(); tried != nullptr) ++tried->lost;
  return GiveUp(held);
}

uint64_t ChainClient::TimeOfAttempt() const {
  return std::max(store_->state().signed_s, environment_.clock->NowSeconds());
}

TriedLookup* ChainClient::Tried() {
  if (!lookup_) return nullptr;
  return &store_->state().AddLookup(*lookup_, TimeOfAttempt(), *environment_.random);
}

absl::Status ChainClient::CheckAttempts(const absl::Status& last) {
  const TriedLookup* const tried = lookup_ ? store_->state().FindLookup(*lookup_) : nullptr;
  if (tried == nullptr ||
      (tried->submissions < options_.max_attempts && tried->lost < kMaxLostRounds)) {
    return absl::OkStatus();
  }
  const std::string why = last.ok() ? "" : absl::StrCat("; the last time, ", last.message());
  const std::string when =
      TimeText(tried->latest_s + State::kLookupS, environment_.clock->NowSeconds());
  if (tried->submissions >= options_.max_attempts) {
    return absl::AbortedError(absl::StrCat(
        "giving up: this lookup was sent and charged ", tried->submissions,
        " times, which max_attempts of the configuration allows, in rounds that came to nothing",
        why, ". The attempts are forgotten at ", when));
  }
  return absl::AbortedError(absl::StrCat("giving up: ", tried->lost,
                                         " rounds came to nothing before this lookup was sent", why,
                                         ". They are forgotten at ", when));
}

absl::Status ChainClient::CheckEnrolments() const {
  if (!options_.term) return absl::OkStatus();
  const std::vector<uint64_t>& enrolments = store_->state().enrolments;
  const uint64_t now_s = environment_.clock->NowSeconds();
  const auto lasting = static_cast<size_t>(std::ranges::count_if(
      enrolments, [&](uint64_t until_s) { return until_s >= store_->state().signed_s; }));
  if (lasting < options_.term->max_enrolments) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this device has enrolled ", lasting,
                   " times in terms that last, which max_enrolments "
                   "allows; each showed its rows in a round. It may enrol again at ",
                   TimeText(*std::ranges::min_element(enrolments), now_s)));
}

absl::Status ChainClient::LearnTime() {
  SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list, exchange_.ListRounds());
  State& state = store_->state();
  for (const wire::RoundInfo& info : list.rounds()) {
    const uint64_t announced_s = info.header().header().announced_s();
    if (announced_s > state.signed_s && VerifyRound(info.header()).ok()) {
      state.SawSignedTime(announced_s);
    }
  }
  const uint64_t now_s = environment_.clock->NowSeconds();
  const uint32_t tolerance_s = deployment_->roster().clock_tolerance_s();
  state.DropExpired(now_s > tolerance_s ? now_s - tolerance_s : 0);
  return store_->Save();
}

absl::Status ChainClient::CheckCaps(const absl::Status& last) {
  const auto check = [&]() -> absl::Status {
    SHOAL_RETURN_IF_ERROR(CheckAttempts(last));
    return CheckEnrolments();
  };
  if (check().ok()) return absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(LearnTime());
  return check();
}

absl::Status ChainClient::TellEnrolled(const HeldRound& held, const round::Round& round) const {
  const std::vector<OnionRange> ranges = held.Onions(0, held.rows.size());
  const SecretVector<uint8_t> seeds = TermSeedsOf(round, ranges, environment_.pool);
  std::vector<uint32_t> slots;
  for (const OnionRange& range : ranges) {
    for (uint32_t i = 0; i < range.count; ++i) {
      slots.push_back(*range.submission->first_slot + range.first + i);
    }
  }
  return options_.term->enrolled(
      {.header = held.header, .rows = held.rows, .slots = slots, .seeds = seeds});
}

absl::Status ChainClient::Leave(HeldRound& held, absl::string_view why) {
  SHOAL_RETURN_IF_ERROR(held.rows.empty() ? Lose(held) : GiveUp(held));
  return absl::AbortedError(absl::StrCat(RoundName(held), " ", why));
}

absl::StatusOr<round::Round> ChainClient::VerifyHeld(HeldRound& held) {
  absl::StatusOr<round::Round> round = VerifyRound(held.header);
  // It was valid when it was entered: it has expired since then.
  if (!round.ok()) return Leave(held, absl::StrCat("is over: ", round.status().message()));
  return round;
}

absl::Status ChainClient::AfterFailure(HeldRound& held, const absl::Status& failed) {
  // Whoever cancels a lookup may go on with it later, as after a crash.
  if (absl::IsUnavailable(failed) || absl::IsCancelled(failed)) return failed;
  if (absl::IsFailedPrecondition(failed) || absl::IsNotFound(failed)) {
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundState state, StateOf(held));
    if (state == wire::ABORTED) return Leave(held, "was aborted");
    if (state == wire::CLOSED) return Leave(held, "was closed before its answers were fetched");
    if (state == wire::ANSWERED) return Leave(held, "was answered without all of the queries");
  }
  SHOAL_RETURN_IF_ERROR(GiveUp(held));
  return failed;
}

absl::StatusOr<ChainClient::Way*> ChainClient::WayOf(const HeldRound& held, uint32_t other) {
  if (!held.machine) return nullptr;
  const uint32_t machine = (*held.machine + other) % machines();
  const auto made = ways_.find(machine);
  if (made != ways_.end()) return made->second.get();
  const std::string& address = deployment_->roster().party(1).ClientAddress(machine);
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, environment_.connect_to(address));
  SHOAL_RETURN_IF_ERROR(transport->RequireParty(deployment_->roster(), 1));
  return (ways_[machine] = std::make_unique<Way>(std::move(transport), address, *this)).get();
}

absl::Status ChainClient::AfterSilence(HeldRound& held, const absl::Status& silence, bool obtains) {
  constexpr uint32_t kPauseMs = 5000;
  const wire::RoundHeader& header = held.header.header();
  // The last state in which the round is worth waiting for, and until when it can be in it.
  wire::RoundState last = wire::ANSWERED;
  uint64_t until_s = header.expires_s();
  if (obtains) {
    last = wire::OPEN_FOR_ONIONS;
    until_s = header.onions_close_s();
  } else if (held.rows.empty()) {
    last = wire::OPEN_FOR_QUERIES;
    until_s = header.queries_close_s();
  }
  const uint32_t other =
      machines() == 1 ? 0 : static_cast<uint32_t>(1 + environment_.random->Below(machines() - 1));
  SHOAL_ASSIGN_OR_RETURN(Way* const way, WayOf(held, other));
  const absl::StatusOr<wire::RoundState> state = way->exchange.StateOf(held.id);
  absl::string_view why;
  if (state.ok() && *state == wire::ABORTED) {
    why = "was aborted";
  } else if (state.ok() && *state == wire::CLOSED) {
    why = "is over";
  } else if ((state.ok() && *state > last) || environment_.clock->NowSeconds() >= until_s) {
    why = "is given up, as its machine does not answer";
  }
  if (!why.empty()) {
    if (obtains && !held.has_slots()) {
      // Its machine may have taken the onions.
      store_->state().ledger.AddIdleRound();
    }
    return Leave(held, why);
  }
  if (!options_.waits) return silence;
  environment_.Tell(absl::StrCat("the machine that has this client's slots in ", RoundName(held),
                                 " does not answer"));
  environment_.sleep(kPauseMs);
  return absl::OkStatus();
}

namespace {
const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}
}  // namespace

template <typename Call>
auto ChainClient::AtMachine(HeldRound& held, const Call& call, bool obtains) -> decltype(call()) {
  for (;;) {
    auto result = call();
    if (!held.machine || !absl::IsUnavailable(StatusOf(result))) return result;
    SHOAL_RETURN_IF_ERROR(AfterSilence(held, StatusOf(result), obtains));
  }
}

absl::StatusOr<wire::RoundState> ChainClient::StateOf(HeldRound& held) {
  SHOAL_ASSIGN_OR_RETURN(Way* const way, WayOf(held));
  if (way == nullptr) return exchange_.StateOf(held.id);
  return AtMachine(held, [&] { return way->exchange.StateOf(held.id); });
}

absl::StatusOr<wire::RoundState> ChainClient::WaitFor(HeldRound& held, wire::RoundState state,
                                                      uint64_t deadline_s) {
  SHOAL_ASSIGN_OR_RETURN(Way* const way, WayOf(held));
  if (way == nullptr) return exchange_.WaitFor(held.id, state, deadline_s);
  return AtMachine(held, [&] { return way->exchange.WaitFor(held.id, state, deadline_s); });
}

void ChainClient::WaitForRound(const HeldRound& held) {
  if (!options_.waits) return;
  patience_.Until(held.header.header().expires_s(), absl::StrCat(RoundName(held), " ends"));
}

void ChainClient::WaitForAnyRound(uint64_t deadline_s) {
  if (!options_.waits) return;
  patience_.Until(deadline_s, "this lookup gives up waiting for a round");
}

void ChainClient::Show(const HeldRound* held) const {
  if (!options_.under_way) return;
  if (held == nullptr) return options_.under_way(std::nullopt);
  const bool charged = !held->rows.empty();
  const wire::RoundHeader& header = held->header.header();
  options_.under_way(UnderWay{.round_counter = held->counter(),
                              .charged = charged,
                              .until_s = charged ? header.expires_s() : header.queries_close_s()});
}

// True when the client holds `slots` slots in the round; false if the round takes no more.
absl::StatusOr<bool> ChainClient::TryObtain(const wire::RoundInfo& info, uint32_t slots,
                                            Digest& round_id, std::string& refusal) {
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(info.header()));
  State& state = store_->state();
  state.SawSignedTime(round.header().announced_s());
  for (const HeldRound& held : state.rounds) {
    if (held.counter() == round.counter().value() && held.id != round.id()) {
      // Not UNAUTHENTICATED: no newer roster explains it.
      return absl::InvalidArgumentError(
          absl::StrCat(RoundName(held), " has two headers: the parties are not to be trusted"));
    }
  }
  round_id = round.id();
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, PrepareOnions(round, info.header(), slots));
  environment_.Tell(
      absl::StrCat("obtaining ", slots - held->slots(), " slots in ", RoundName(*held)));
  // Submissions are answered in any order.
  struct {
    Mutex mutex;
    SlotSet given ABSL_GUARDED_BY(mutex);
    size_t come ABSL_GUARDED_BY(mutex) = 0;
    size_t unsaved ABSL_GUARDED_BY(mutex) = 0;
  } slots_of;
  std::vector<OnionSubmission*> missing;
  {
    const MutexLock lock(slots_of.mutex);
    for (OnionSubmission& submission : held->submissions) {
      if (submission.first_slot) {
        slots_of.given.Add(*submission.first_slot, submission.count);
      } else if (submission.first < slots) {
        missing.push_back(&submission);
      }
    }
  }
  const size_t save_every = missing.size() / kSlotSaves + 1;
  const auto obtain = [&](Exchange& exchange, size_t i, size_t) -> absl::Status {
    OnionSubmission submission = *missing[i];
    if (submission.first_slot) return absl::OkStatus();  // before its machine fell silent
    const Stopwatch sealing;
    const SubmissionToMake to_make{&held->master, &submission};
    std::vector<std::string> sealed = MakeSubmissions(round, {&to_make, 1}, environment_.pool);
    const double seconds = sealing.Seconds();
    SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> first_slots,
                           exchange.SubmitOnions(round, std::move(sealed)));
    submission.first_slot = first_slots[0];
    const MutexLock lock(slots_of.mutex);
    if (!slots_of.given.Add(first_slots[0], submission.count)) {
      return absl::DataLossError("the frontend gave a slot twice");
    }
    *missing[i] = submission;
    costs_.query_seconds += seconds / slots;
    environment_.Count("obtaining slots", ++slots_of.come, missing.size());
    if (++slots_of.unsaved < save_every) return absl::OkStatus();
    slots_of.unsaved = 0;
    return store_->Save();
  };
  const absl::Status obtained = AtMachine(
      *held, [&] { return ForPieces(*held, missing.size(), 1, obtain); }, /*obtains=*/true);
  if (absl::IsAborted(obtained)) return obtained;  // the round is given up
  if (RoundTakesNoMore(obtained)) {
    refusal = std::string(obtained.message());
    return false;
  }
  // Keeps slots after an error too, so that their onions are not sent again.
  const MutexLock lock(slots_of.mutex);
  const absl::Status saved = slots_of.unsaved > 0 ? store_->Save() : absl::OkStatus();
  SHOAL_RETURN_IF_ERROR(obtained);
  SHOAL_RETURN_IF_ERROR(saved);
  return true;
}

absl::StatusOr<HeldRound*> ChainClient::PrepareOnions(const round::Round& round,
                                                      const wire::SignedHeader& header,
                                                      uint32_t slots) {
  State& state = store_->state();
  if (state.FindRound(round.id()) == nullptr) {
    if (state.rounds.size() >= State::kMaxRounds) {
      // Otherwise a frontend that shows header after header could make the state too large to be
      // read.
      return absl::ResourceExhaustedError(
          absl::StrCat("this client keeps ", state.rounds.size(),
                       " rounds that have not expired, and takes no more: ask again later, or tell "
                       "the operators"));
    }
    HeldRound held;
    held.header = header;
    held.id = round.id();
    held.master = environment_.random->NewSeed();
    if (machines() > 1 && environment_.connect_to) {
      held.machine = static_cast<uint32_t>(environment_.random->Below(machines()));
    }
    state.rounds.push_back(std::move(held));
  }
  HeldRound* const held = state.FindRound(round.id());
  SHOAL_CHECK(!held->over && held->rows.empty());  // its seed is wiped, or its slots carry rows
  held->for_lookup = !options_.term;
  if (held->onions() < slots) {
    // What an earlier run cut stays as it is.
    const std::vector<OnionSubmission> more =
        Split(held->onions(), slots, OnionsPerPiece(round, options_.piece_bytes));
    held->submissions.insert(held->submissions.end(), more.begin(), more.end());
    // Saves seed and cut first, so that a submission repeated after a crash has the same bytes.
    if (absl::Status saved = store_->Save(); !saved.ok()) {
      state.End(*held);  // what is on disk is unknown, so nothing may be sent
      return saved;
    }
  }
  return held;
}

absl::Status ChainClient::CheckEpoch() {
  SHOAL_ASSIGN_OR_RETURN(const wire::GetDeploymentResponse response, exchange_.GetDeployment());
  // Whoever acts on the error fetches the deployment again and verifies all of it. What does not
  // verify even here is no reason to stop waiting.
  if (deployment_->IsFollowedBy(response.roster(), environment_.clock->NowSeconds())) {
    return NewEpochError("roster", response.roster().roster().epoch());
  }
  const auto manifest = table::Manifest::Verify(response.manifest(), deployment_->roster(),
                                                environment_.clock->NowSeconds());
  if (!manifest.ok() || manifest->epoch() <= deployment_->manifest().epoch()) {
    return absl::OkStatus();
  }
  return NewEpochError("table", manifest->epoch());
}

absl::StatusOr<Digest> ChainClient::ObtainNew(uint32_t slots, bool only_new_rounds) {
  if (options_.term) SHOAL_RETURN_IF_ERROR(CheckTermsExist(*deployment_));
  uint64_t next_check_s = 0;
  const uint64_t asked_from_s = environment_.clock->NowSeconds();
  const uint64_t deadline_s = asked_from_s + options_.timeout_s;
  WaitForAnyRound(deadline_s);
  bool told = false;
  std::string refusal;  // the latest round's
  // A round that has refused these slots refuses them for ever.
  std::set<Digest> without_room;
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list, exchange_.ListRounds());
    const uint64_t now_s = environment_.clock->NowSeconds();
    std::vector<const wire::RoundInfo*> candidates;
    bool of_another_epoch = false;
    bool out_of_terms = false;  // left rounds with a term to others
    for (const wire::RoundInfo& info : list.rounds()) {
      const wire::RoundHeader& header = info.header().header();
      if (info.state() != wire::OPEN_FOR_ONIONS) continue;
      if (!TermSuits(header, options_.term.has_value(), asked_from_s, now_s)) {
        out_of_terms |= !options_.term;
        continue;
      }
      // Skips rounds of another epoch of the table or of the roster. Those of the table before and
      // of the next one run beside this one's for a while.
      if (header.manifest_digest() != AsText(deployment_->manifest().digest()) ||
          header.roster_digest() != AsText(deployment_->roster().digest())) {
        of_another_epoch = true;
        continue;
      }
      const Digest id = round::RoundId(header);
      if (without_room.contains(id)) continue;
      const HeldRound* const held = store_->state().FindRound(id);
      if (held != nullptr && (only_new_rounds || held->over || !held->rows.empty())) continue;
      // Only checks the room of rounds that are new here. In others the frontend may have onions of
      // this client whose slots an interruption lost, so the frontend decides whether there is
      // room.
      if (held == nullptr && info.onions() + slots > header.max_slots()) continue;
      candidates.push_back(&info);
    }
    std::sort(candidates.begin(), candidates.end(), [](const auto* a, const auto* b) {
      return a->header().header().counter() < b->header().header().counter();
    });
    absl::Status refused;
    for (const wire::RoundInfo* info : candidates) {
      Digest round_id;
      const auto obtained = TryObtain(*info, slots, round_id, refusal);
      if (obtained.ok() && *obtained) return round_id;
      if (obtained.ok()) without_room.insert(round_id);
      if (!obtained.ok()) {
        if (!absl::IsUnauthenticated(obtained.status()) &&
            !absl::IsInvalidArgument(obtained.status())) {
          return obtained.status();
        }
        refused = obtained.status();  // another round may do
      }
    }
    if (!refused.ok()) return refused;
    if (of_another_epoch && now_s >= next_check_s) {
      SHOAL_RETURN_IF_ERROR(CheckEpoch());
      next_check_s = now_s + kEpochCheckS;
    }
    if (now_s >= deadline_s) {
      return absl::DeadlineExceededError(absl::StrCat(
          "no round ", options_.term ? "with a term " : "", "took ", slots, " onions within ",
          options_.timeout_s, " seconds", refusal.empty() ? "" : "; the last one refused: ",
          refusal, out_of_terms ? kOutOfTerms : ""));
    }
    // The wait may be over that kept this lookup out of a term's round in which it holds slots.
    if (!options_.term && !only_new_rounds && now_s >= asked_from_s + kOutOfTermsS) {
      SHOAL_ASSIGN_OR_RETURN(const std::optional<Digest> unused, FindUnused(slots, asked_from_s));
      if (unused) return *unused;
      WaitForAnyRound(deadline_s);
    }
    if (!std::exchange(told, true)) {
      options_.term
          ? environment_.Wait("waiting for a round with a term", deadline_s)
          : environment_.Tell(out_of_terms
                                  ? "waiting for a round without a term; if there is none for "
                                    "60 seconds, one with a term is entered"
                                  : "waiting for a round that takes onions");
    }
    // Rounds with a term may be far apart.
    const bool seldom = options_.term && now_s >= asked_from_s + kOftenS;
    environment_.sleep(seldom ? kSeldomPollMs : kPollMs);
  }
}

absl::Status ChainClient::DropUnusable() {
  for (HeldRound& held : store_->state().rounds) {
    // The round is of another table or roster, or has expired: its slots are lost.
    if (!held.over && !VerifyRound(held.header).ok()) SHOAL_RETURN_IF_ERROR(GiveUp(held));
  }
  return absl::OkStatus();
}

absl::StatusOr<Division> ChainClient::Divide(size_t distinct_rows) const {
  const uint32_t queries = Padded(distinct_rows);
  const uint32_t phi = deployment_->roster().noise().phi;
  const bool all_in_one = queries <= phi || options_.beyond_phi == BeyondPhi::kAcceptMore ||
                          (phi == 1 && options_.beyond_phi == BeyondPhi::kRefuse);
  const Division division{.queries = queries, .in_each = all_in_one ? queries : phi};
  if (!all_in_one && options_.beyond_phi == BeyondPhi::kRefuse) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this lookup takes ", queries,
        " queries, padding included, and a round of this deployment "
        "protects only ",
        phi,
        " queries of a device together; nothing was sent. --over-rounds "
        "spreads them over ",
        division.rounds(), " rounds, ", phi,
        " at most in each; --accept-more "
        "sends them all in one round, with less protection, which is printed first; a smaller "
        "pad_to in the configuration may make them fewer"));
  }
  if (division.rounds() > kMaxRoundsOfLookup) {
    return absl::FailedPreconditionError(
        absl::StrCat("this lookup takes ", queries, " queries, padding included, which are ",
                     division.rounds(), " rounds with ", phi, " queries in each: more than ",
                     kMaxRoundsOfLookup, "; nothing was sent"));
  }
  return division;
}

Ledger ChainClient::LedgerWith(uint64_t queries, const Division& division) const {
  const State& state = store_->state();
  Ledger ledger = state.ledger;
  uint32_t usable = queries == 0 ? 0 : division.rounds();
  for (const HeldRound& held : state.rounds) {
    if (!held.IsIdle()) continue;
    if (usable > 0 && held.slots() >= division.in_each &&
        Suits(held, environment_.clock->NowSeconds())) {
      --usable;
    } else {
      ledger.AddIdleRound();
    }
  }
  while (queries > 0) {
    const auto part = static_cast<uint32_t>(std::min<uint64_t>(queries, division.in_each));
    ledger.Add({.sent_s = environment_.clock->NowSeconds(),
                .round_counter = 0,
                .queries = part,
                .noise = deployment_->roster().noise()});
    queries -= part;
  }
  return ledger;
}

absl::Status ChainClient::CheckLimit(uint64_t queries, const Division& division) const {
  if (!options_.max_epsilon) return absl::OkStatus();
  Ledger ledger = LedgerWith(queries, division);
  if (queries == 0) ledger.AddIdleRound();  // a round with slots alone
  // Where the ledger would be: rounds that came to nothing have made its delta larger, and whoever
  // can abort rounds must not be able to lock clients out.
  const double delta = ledger.Grown(deployment_->roster().noise().delta);
  SHOAL_ASSIGN_OR_RETURN(const TotalLoss loss, ledger.LossAt(delta));
  if (loss.epsilon && *loss.epsilon <= *options_.max_epsilon) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "max_epsilon of the configuration is ", *options_.max_epsilon, ", and with ", queries,
      " more queries everything that this device has asked would have ",
      loss.epsilon ? absl::StrCat("epsilon ", *loss.epsilon) : std::string("no epsilon at all"),
      " at delta ", delta, ", which is the deployment's",
      ledger.idle_rounds() == 0
          ? std::string()
          : absl::StrCat(", ", 1 + ledger.idle_rounds(), "-fold for ", ledger.idle_rounds(),
                         " rounds with slots and without queries"),
      "; nothing was sent. ",
      loss.epsilon ? "Ask for less, or allow more: a larger max_epsilon, or none"
                   : "No max_epsilon helps any more: to go on all the same, take it out",
      ". shoal status shows what this device has asked"));
}

Digest ChainClient::SpreadDigest(const Division& division, std::span<const uint32_t> rows) const {
  return Transcript("shoal client spread list v1")
      .Blob(deployment_->manifest().digest())
      .Blob(BytesOf(rows))
      .U64(division.queries)
      .U64(division.in_each)
      .Finish();
}

absl::StatusOr<std::vector<uint32_t>> ChainClient::Spread(const Division& division,
                                                          std::span<const uint32_t> rows) {
  State& state = store_->state();
  const Digest digest = SpreadDigest(division, rows);
  const bool drawn = state.FindSpread(digest) != nullptr;
  const SpreadLookup& spread = state.AddSpread(digest, TimeOfAttempt(), *environment_.random);
  if (!drawn) {
    if (absl::Status saved = store_->Save(); !saved.ok()) {
      state.DropSpread(digest);
      return saved;
    }
  }
  SeededRandom draws(spread.seed.view(), "shoal client spread v1");
  return PadRows(rows, division.queries, deployment_->manifest().rows(), draws);
}

std::vector<ChainClient::Portion> ChainClient::PartsOf(const Division& division,
                                                       std::span<const uint32_t> rows,
                                                       std::span<uint32_t> spread) {
  std::vector<Portion> parts;
  for (uint32_t number = 0; number < division.rounds(); ++number) {
    const uint32_t queries = division.InRound(number);
    const size_t first = std::min(spread.size(), size_t{number} * division.in_each);
    const std::span<uint32_t> share =
        spread.subspan(first, std::min<size_t>(queries, spread.size() - first));
    std::ranges::sort(share);  // the round has an order of its own
    parts.push_back({.rows = share,
                     .queries = queries,
                     .lookup = rows,
                     .number = number,
                     .parts = division.rounds()});
  }
  return parts;
}

// The digest by which the state knows what a round is for. A lookup for other rows does not match,
// even if some are the same, and neither does another part of the same lookup, which may be for no
// row but padding.
// Nor does a lookup of the other kind: a term's round answers the watch that has enrolled in it.
Digest ChainClient::WantedDigest(const HeldRound& held, const Portion& part) const {
  return Transcript("shoal client wanted v2", held.master.view())
      .U64(options_.term.has_value())
      .Blob(BytesOf(part.lookup))
      .Blob(BytesOf(part.rows))
      .U64(part.number)
      .U64(part.parts)
      .Finish();
}

uint64_t ChainClient::EnrolmentLasts(const wire::RoundHeader& header) const {
  // For as long as terms may last by what all parties have signed: the frontend alone chooses how
  // long this one does, and short ones must not bring more histograms.
  return std::max(header.term_expires_s(),
                  header.announced_s() + deployment_->roster().term_limit_s());
}

bool ChainClient::IsFor(const HeldRound& held, const Portion& part) const {
  if (held.rows.empty()) return false;
  if (held.wanted == WantedDigest(held, part)) return true;
  // Version 0.2 did not store the kind. A round is gone on with where it can be of this kind alone:
  // of a lookup where there is no term, of a watch if an enrolment in it was counted. What is left
  // stays charged.
  const Digest of_02 =
      Transcript("shoal client wanted v1", held.master.view()).Blob(BytesOf(part.lookup)).Finish();
  if (part.parts > 1 || held.wanted != of_02) return false;
  const wire::RoundHeader& header = held.header.header();
  if (!options_.term) return header.max_refreshes() == 0;
  return header.max_refreshes() > 0 &&
         std::ranges::count(store_->state().enrolments, EnrolmentLasts(header)) > 0;
}

std::optional<Digest> ChainClient::FindBegun(const Portion& part) {
  for (const HeldRound& held : store_->state().rounds) {
    if (IsFor(held, part)) return held.id;
  }
  return std::nullopt;
}

bool ChainClient::Suits(const HeldRound& held, uint64_t begun_s) const {
  if (!options_.term && held.for_lookup) return true;  // it has waited, if it had to
  return TermSuits(held.header.header(), options_.term.has_value(), begun_s,
                   environment_.clock->NowSeconds());
}

absl::StatusOr<Digest> ChainClient::Obtain(uint32_t queries) {
  SHOAL_RETURN_IF_ERROR(DropUnusable());
  SHOAL_ASSIGN_OR_RETURN(const std::optional<Digest> unused,
                         FindUnused(queries, environment_.clock->NowSeconds()));
  if (unused) return *unused;
  return ObtainNew(queries, /*only_new_rounds=*/false);
}

absl::StatusOr<std::optional<Digest>> ChainClient::FindUnused(uint32_t queries, uint64_t begun_s) {
  std::vector<HeldRound*> unused;
  for (HeldRound& held : store_->state().rounds) {
    if (!held.over && held.rows.empty() && held.slots() >= queries && Suits(held, begun_s)) {
      unused.push_back(&held);
    }
  }
  std::sort(unused.begin(), unused.end(),
            [](const auto* a, const auto* b) { return a->counter() < b->counter(); });
  for (HeldRound* held : unused) {
    WaitForRound(*held);
    const absl::StatusOr<wire::RoundState> state = StateOf(*held);
    if (absl::IsAborted(state.status())) continue;  // given up
    if (!state.ok()) return state.status();
    if (*state <= wire::OPEN_FOR_QUERIES) return std::optional<Digest>(held->id);
    SHOAL_RETURN_IF_ERROR(Lose(*held));
  }
  return std::optional<Digest>();
}

absl::StatusOr<Digest> ChainClient::ObtainAhead(uint32_t slots) {
  if (slots == 0) return absl::InvalidArgumentError("no slots asked for");
  const uint32_t phi = deployment_->roster().noise().phi;
  if (phi > 1 && slots > phi && options_.beyond_phi != BeyondPhi::kAcceptMore) {
    return absl::FailedPreconditionError(
        absl::StrCat(slots, " slots in one round, and a round of this deployment protects only ",
                     phi, " queries of a device together; nothing was sent. Take ", phi,
                     " slots at most, or --accept-more"));
  }
  for (uint32_t tries = 1;; ++tries) {
    SHOAL_RETURN_IF_ERROR(CheckLimit(0, {.queries = slots, .in_each = slots}));
    absl::StatusOr<Digest> round_id = ObtainNew(slots, /*only_new_rounds=*/true);
    if (round_id.ok()) return round_id;
    if (!absl::IsAborted(round_id.status()) || tries == kMaxLostRounds) {
      return MarkAsPerhapsOfNewRoster(round_id.status());
    }
    environment_.Tell(absl::StrCat(round_id.status().message(), "; taking another round"));
  }
}

absl::Status ChainClient::Submit(const Digest& round_id, std::span<const uint32_t> rows) {
  const std::vector<uint32_t> rising = Sorted({rows.begin(), rows.end()});
  return SubmitPart(round_id, {.rows = rising, .queries = Padded(rising.size()), .lookup = rising});
}

absl::Status ChainClient::SubmitPart(const Digest& round_id, const Portion& part) {
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, FindHeld(round_id));
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyHeld(*held));
  const uint32_t tolerance_s = deployment_->roster().clock_tolerance_s();
  WaitForRound(*held);
  Show(held);
  environment_.Wait(absl::StrCat("waiting for ", RoundName(*held), " to take queries"),
                    round.header().onions_close_s());
  const absl::StatusOr<wire::RoundState> state =
      WaitFor(*held, wire::OPEN_FOR_QUERIES, round.header().queries_close_s() + tolerance_s);
  const bool begun = !held->rows.empty();
  // As long as nothing was sent, only the slots are lost.
  if (absl::IsDeadlineExceeded(state.status())) return Leave(*held, "took no queries in its time");
  if (!state.ok()) return state.status();
  if (*state == wire::ABORTED) {
    return Leave(*held, begun ? "was aborted" : "was aborted before this client sent its queries");
  }
  if (*state != wire::OPEN_FOR_QUERIES) {
    if (begun) return absl::OkStatus();  // Collect finds out whether the queries arrived
    return Leave(*held, "closed before this client could send its queries");
  }
  if (!begun) {
    const uint32_t count = part.queries;
    if (count > held->slots()) {
      return absl::FailedPreconditionError(absl::StrCat(count, " queries, but only ", held->slots(),
                                                        " slots in ", RoundName(*held)));
    }
    SHOAL_RETURN_IF_ERROR(CheckLimit(count, {.queries = count, .in_each = count}));
    SHOAL_RETURN_IF_ERROR(CheckEnrolments());
    if (options_.term && round.header().max_refreshes() == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(RoundName(*held), " has no term, and a watched list asks in one that has"));
    }
    held->rows = PadRows(part.rows, count, deployment_->manifest().rows(), *environment_.random);
    held->wanted = WantedDigest(*held, part);
    store_->state().ledger.Add({.sent_s = environment_.clock->NowSeconds(),
                                .round_counter = held->counter(),
                                .queries = count,
                                .noise = deployment_->roster().noise()});
    if (TriedLookup* const tried = Tried(); tried != nullptr) ++tried->submissions;
    if (options_.term) {
      store_->state().enrolments.push_back(EnrolmentLasts(held->header.header()));
    }
    // Saves the rows, the charge and the attempt first. From here on these slots carry these rows
    // for ever.
    if (absl::Status saved = store_->Save(); !saved.ok()) {
      held->End();  // what is on disk is unknown, so the slots must not be used
      return saved;
    }
    Show(held);
  } else {
    const std::vector<uint32_t> asked = Sorted(held->rows);
    if (!std::includes(asked.begin(), asked.end(), part.rows.begin(), part.rows.end())) {
      return absl::FailedPreconditionError(
          absl::StrCat("the slots in ", RoundName(*held), " carry other rows"));
    }
  }
  environment_.Tell(absl::StrCat("sending ", held->rows.size(), " queries"));
  const size_t total = held->rows.size();
  struct {
    Mutex mutex;
    size_t done ABSL_GUARDED_BY(mutex) = 0;
  } queries;
  const auto send = [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
    const Stopwatch making;
    const wire::SubmitQueriesRequest request =
        MakeQueries(round, held->Onions(first, count), std::span(held->rows).subspan(first, count),
                    environment_.pool);
    const double seconds = making.Seconds();
    SHOAL_RETURN_IF_ERROR(exchange.SubmitQueries(request));
    const MutexLock lock(queries.mutex);
    costs_.query_seconds += seconds / static_cast<double>(total);
    environment_.Count("sending queries", queries.done += count, total);
    return absl::OkStatus();
  };
  const absl::Status sent = AtMachine(*held, [&] {
    {
      const MutexLock lock(queries.mutex);
      queries.done = 0;
    }
    return ForPieces(*held, total, QueriesPerPiece(options_.piece_bytes), send);
  });
  if (sent.ok() || absl::IsAborted(sent)) return sent;
  if (absl::IsFailedPrecondition(sent)) {
    SHOAL_ASSIGN_OR_RETURN(const wire::RoundState now, StateOf(*held));
    // The window closed. The queries can be in all the same, if only the response was lost: Collect
    // finds out.
    if (now == wire::ANSWERING || now == wire::ANSWERED) return absl::OkStatus();
  }
  return Annotate(AfterFailure(*held, sent), "sending queries");
}

absl::StatusOr<std::unique_ptr<AnswerSpool>> ChainClient::OpenSpool(const HeldRound& held) {
  return AnswerSpool::Open(store_->AnswersPath(held.counter()), held.id, held.rows.size(),
                           round::TaggedAnswerBytes(held.header.header()), options_.piece_bytes);
}

absl::Status ChainClient::Collect(const Digest& round_id, AnswerSpool& spool) {
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, FindHeld(round_id));
  if (held->rows.empty()) return absl::FailedPreconditionError("no queries were sent");
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyHeld(*held));
  WaitForRound(*held);
  Show(held);
  environment_.Wait(absl::StrCat("waiting for the answers of ", RoundName(*held)),
                    round.header().queries_close_s());
  const uint32_t tolerance_s = deployment_->roster().clock_tolerance_s();
  const absl::StatusOr<wire::RoundState> state =
      WaitFor(*held, wire::ANSWERED, round.header().expires_s() + tolerance_s);
  if (absl::IsDeadlineExceeded(state.status())) return Leave(*held, "was not answered in its time");
  if (!state.ok()) return state.status();
  if (*state == wire::ABORTED) return Leave(*held, "was aborted");
  if (*state != wire::ANSWERED) return Leave(*held, "was closed before its answers were fetched");
  const size_t total = held->rows.size();
  environment_.Tell(absl::StrCat("fetching ", total, " answers"));
  std::atomic<size_t> done = 0;
  std::atomic<bool> disk_failed = false;
  const auto fetch = [&](Exchange& exchange, size_t first, size_t count) -> absl::Status {
    const size_t piece = first / spool.per_piece();
    if (!spool.Has(piece)) {
      Bytes answers(count * round.tagged_bytes());
      SHOAL_RETURN_IF_ERROR(exchange.FetchAnswers(round, held->Onions(first, count), answers));
      if (absl::Status put = spool.Put(piece, answers); !put.ok()) {
        disk_failed = true;
        return put;
      }
    }
    environment_.Count("fetching answers", done += count, total);
    return absl::OkStatus();
  };
  const absl::Status fetched = AtMachine(*held, [&] {
    done = 0;
    return ForPieces(*held, total, spool.per_piece(), fetch);
  });
  if (absl::IsAborted(fetched)) return fetched;
  // If the disk failed, missing answers can still be fetched later.
  return fetched.ok() || disk_failed ? Annotate(fetched, "fetching answers")
                                     : Annotate(AfterFailure(*held, fetched), "fetching answers");
}

absl::StatusOr<std::unique_ptr<RowAnswers>> ChainClient::Ask(const Wanted& wanted) {
  lookup_ = wanted.lookup;
  Show(nullptr);
  absl::StatusOr<std::unique_ptr<RowAnswers>> answers = AskOn(wanted);
  lookup_.reset();
  patience_.Until(0, "");
  if (!answers.ok()) return MarkAsPerhapsOfNewRoster(answers.status());
  return answers;
}

absl::StatusOr<std::unique_ptr<RowAnswers>> ChainClient::AskOn(const Wanted& wanted) {
  SHOAL_ASSIGN_OR_RETURN(const Division division, Divide(wanted.rows.size()));
  if (options_.term && division.rounds() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("a watched list goes into one round, and this one takes ", division.queries,
                     " queries, padding included, where a round protects ", division.in_each,
                     " together; nothing was sent. Watch fewer keys, or --accept-more"));
  }
  if (options_.announce) options_.announce(division);
  costs_.query_seconds = costs_.answer_seconds = 0;
  std::vector<uint32_t> spread(wanted.rows.begin(), wanted.rows.end());
  if (division.rounds() > 1) {
    SHOAL_ASSIGN_OR_RETURN(spread, Spread(division, wanted.rows));
  }
  const std::vector<Portion> parts = PartsOf(division, wanted.rows, spread);
  // Checks for all rounds at once what Submit checks for each. Parts that were begun before an
  // interruption are charged already, and again if their round is of another table or roster.
  SHOAL_RETURN_IF_ERROR(DropUnusable());
  uint64_t uncharged = 0;
  for (const Portion& part : parts) {
    if (!FindBegun(part)) uncharged += part.queries;
  }
  if (uncharged > 0) SHOAL_RETURN_IF_ERROR(CheckLimit(uncharged, division));
  if (parts.size() == 1) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<RowAnswers> answers, AskPart(parts[0]));
    return answers;
  }
  auto all = std::make_unique<AnswersOfRounds>(this, SpreadDigest(division, wanted.rows));
  double answer_seconds = 0;
  for (const Portion& part : parts) {
    environment_.Tell(
        absl::StrCat("asking in round ", part.number + 1, " of ", part.parts, " of this lookup"));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Answers> answers, AskPart(part));
    SHOAL_RETURN_IF_ERROR(all->Add(*answers));
    answer_seconds += costs_.answer_seconds * part.queries;
  }
  costs_.query_seconds /= static_cast<double>(parts.size());
  costs_.answer_seconds = answer_seconds / division.queries;
  return all;
}

absl::StatusOr<std::unique_ptr<ChainClient::Answers>> ChainClient::AskPart(const Portion& part) {
  const uint32_t count = part.queries;
  absl::Status aborted;
  for (;;) {
    SHOAL_RETURN_IF_ERROR(DropUnusable());
    std::optional<Digest> round_id = FindBegun(part);  // begun before an interruption
    if (!round_id) {
      SHOAL_RETURN_IF_ERROR(CheckCaps(aborted));
      // Another attempt must not take slots in vain.
      if (!aborted.ok()) {
        SHOAL_RETURN_IF_ERROR(CheckLimit(count, {.queries = count, .in_each = count}));
      }
      // Checks for room first, as a submission whose answers have none would be charged in vain.
      SHOAL_RETURN_IF_ERROR(AnswerSpool::CheckRoom(
          store_->AnswersPath(0),
          uint64_t{count} * round::FetchedBytes(deployment_->manifest().answer_bytes())));
      const absl::StatusOr<Digest> obtained = Obtain(count);
      if (absl::IsAborted(obtained.status())) {
        aborted = obtained.status();
        environment_.Tell(absl::StrCat(aborted.message(), "; asking in another round"));
        continue;
      }
      if (!obtained.ok()) return obtained.status();
      round_id = *obtained;
    }
    HeldRound* const held = store_->state().FindRound(*round_id);
    std::optional<round::Round> round;
    std::unique_ptr<AnswerSpool> spool;
    const Stopwatch asking;
    bool was_complete = false;
    const auto ask = [&]() -> absl::Status {
      SHOAL_ASSIGN_OR_RETURN(round, VerifyHeld(*held));
      if (!held->rows.empty()) {
        SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(*held));
        was_complete = spool->complete();
        if (was_complete) return absl::OkStatus();
      }
      SHOAL_RETURN_IF_ERROR(SubmitPart(*round_id, part));
      if (spool == nullptr) {
        SHOAL_ASSIGN_OR_RETURN(spool, OpenSpool(*held));
      }
      return Collect(*round_id, *spool);
    };
    aborted = ask();
    if (aborted.ok()) {
      // The next part of the lookup has attempts of its own. Not if this one was answered in an
      // earlier run: then the attempts are those of a later part.
      if (part.number + 1 < part.parts && !was_complete) {
        if (store_->state().DropLookup(*lookup_)) SHOAL_RETURN_IF_ERROR(store_->Save());
      }
      costs_.answer_seconds = asking.Seconds() / static_cast<double>(held->rows.size());
      if (options_.term) SHOAL_RETURN_IF_ERROR(TellEnrolled(*held, *round));
      return std::make_unique<Answers>(this, held, *std::move(round), std::move(spool));
    }
    if (!absl::IsAborted(aborted)) return aborted;
    Show(nullptr);
    environment_.Tell(absl::StrCat(aborted.message(), "; asking in another round"));
  }
}

absl::Status ChainClient::ForPieces(
    const HeldRound& held, size_t total, size_t piece,
    const std::function<absl::Status(Exchange&, size_t first, size_t count)>& work) {
  SHOAL_ASSIGN_OR_RETURN(Way* const way, WayOf(held));
  if (total <= piece || options_.connections == 1 || (way == nullptr && !environment_.connect)) {
    Exchange& exchange = way == nullptr ? exchange_ : way->exchange;
    for (size_t first = 0; first < total; first += piece) {
      SHOAL_RETURN_IF_ERROR(work(exchange, first, std::min(piece, total - first)));
    }
    return absl::OkStatus();
  }
  Connections& connections = way == nullptr ? connections_ : way->connections;
  Patience* const patience = way == nullptr ? &patience_ : nullptr;
  if (lanes_ == nullptr) lanes_ = std::make_unique<ThreadPool>(options_.connections - 1);
  const absl::Status status = client::ForPieces(
      total, piece, lanes_.get(), [&](size_t first, size_t count) -> absl::Status {
        SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, connections.Take());
        Exchange exchange(transport.get(), environment_.sleep, environment_.clock, patience);
        const absl::Status done = work(exchange, first, count);
        connections.Give(std::move(transport));
        return done;
      });
  // Closes the connections rather than leave them idle until the round's next state.
  connections.HangUp();
  return status;
}

void ChainClient::HangUp() {
  exchange_.HangUp();
  connections_.HangUp();
  for (const auto& [machine, way] : ways_) {
    way->exchange.HangUp();
    way->connections.HangUp();
  }
}

Traffic ChainClient::traffic() const {
  Traffic sum = past_ + transport_->traffic() + connections_.traffic();
  for (const auto& [machine, way] : ways_) sum = sum + way->traffic();
  return sum;
}

}  // namespace shoal::client
