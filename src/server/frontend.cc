#include "src/server/frontend.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/onion/onion.h"
#include "src/server/pieces.h"
#include "src/server/slot_quotas.h"
#include "src/server/slot_requests.h"
#include "src/sharing/halves.h"
#include "src/storage/spool.h"
#include "src/wire/frame.h"
#include "src/wire/query_batch.h"
#include "src/wire/visible.h"

namespace shoal::server {
namespace {

// Names the counters that were given out, in the journal.
constexpr char kCounters[] = "counters";
constexpr uint32_t kUnused = 0xffffffff;            // not a tally, as tallies are below p
constexpr std::chrono::milliseconds kLookAgain(5);  // whether a moment has come
// Closed rounds that `status` still shows.
constexpr size_t kRememberedRounds = 32;
// The most that a plan may set for a window or the stage limit.
constexpr uint32_t kMaxWindowS = 24 * 3600;

// From the announcement of a round until it expires.
uint64_t LifetimeS(const RoundPlan& plan) {
  return uint64_t{plan.onions_window_s} + plan.stage_limit_s + plan.queries_window_s +
         plan.stage_limit_s + plan.answers_window_s;
}

// Errors for clients.
absl::Status WrongState(wire::RoundState state, absl::string_view wanted) {
  return absl::FailedPreconditionError(
      absl::StrCat("the round is ", wire::RoundState_Name(state), ": ", wanted));
}
absl::Status UsedForAnother(uint32_t slot) {
  return absl::FailedPreconditionError(absl::StrCat("slot ", slot, ": was used for another query"));
}
absl::Status NoRound(const Digest& round_id) {
  return absl::NotFoundError(absl::StrCat("no round ", Hex(BytesView(round_id).first(8)), ".."));
}

// Reports are of whole parties. Even so, one number depends on how clients are spread over the
// machines of party 1: the sum of the lengths of their batches of queries, each of which is encoded
// for the slots of one machine.
void ClearLengthOfQueries(wire::RoundReport& report) {
  for (wire::StageReport& stage : *report.mutable_stages()) {
    if (stage.party() == 1 && stage.stage() == "online") stage.clear_bytes_in();
  }
}

// Identifies what a client has sent: 16 bytes of a digest under a key of this process, so that
// senders cannot aim at a table's buckets.
using Print = std::array<uint8_t, 16>;
struct PrintHash {
  size_t operator()(const Print& print) const { return LoadLe<size_t>(print.data()); }
};
Print PrintOf(absl::string_view domain, const Digest& key, BytesView bytes) {
  const Digest digest = Transcript(domain, key).Blob(bytes).Finish();
  Print print;
  std::copy_n(digest.begin(), print.size(), print.begin());
  return print;
}

// Of a submission: of its encapsulated key, or those of both its pieces, and of all its bytes.
struct Prints {
  std::array<Print, 2> of_encs;
  size_t count;
  Print whole;

  std::span<const Print> encs() const { return std::span(of_encs).first(count); }
};
// INVALID_ARGUMENT if there is none, or one that has not the length of a submission, or two pieces
// with one encapsulated key.
absl::StatusOr<std::vector<Prints>> PrintsOf(std::span<const BytesView> submissions,
                                             const round::Round& round, const Digest& key) {
  if (submissions.empty()) return absl::InvalidArgumentError("the request has no submission");
  const size_t pieces = round.buckets() ? 2 : 1;
  std::vector<Prints> prints;
  for (const BytesView submission : submissions) {
    if (round.SubmissionSlots(submission.size()) == 0) {
      const size_t around = round.SubmissionBytes(0);
      return absl::InvalidArgumentError(absl::StrCat(
          submission.size(), " bytes are not a submission, which has ", around,
          pieces == 1 ? " bytes and one or more onions of "
                      : " bytes of two pieces and one or more slots of ",
          round.SubmissionBytes(1) - around, ", at most ", onion::kMaxSubmissionBytes, " in all"));
    }
    Prints of = {
        .of_encs = {}, .count = pieces, .whole = PrintOf("shoal submission v1", key, submission)};
    for (size_t i = 0; i < pieces; ++i) {
      of.of_encs[i] =
          PrintOf("shoal encapsulated key v1", key,
                  submission.subspan(i * (submission.size() / pieces), onion::kEncBytes));
    }
    if (pieces == 2 && of.of_encs[0] == of.of_encs[1]) {
      return absl::InvalidArgumentError("both pieces of a submission have one encapsulated key");
    }
    prints.push_back(of);
  }
  return prints;
}

// Submissions as the journal has them, each behind its length; `bytes` in all.
Bytes RecordOf(std::span<const BytesView> submissions, uint64_t bytes) {
  Bytes record;
  record.reserve(bytes);
  for (const BytesView submission : submissions) {
    AppendLe(record, static_cast<uint32_t>(submission.size()));
    Append(record, submission);
  }
  return record;
}

// A submission that has its slots, by the print of its encapsulated key.
struct KnownSubmission {
  Print whole;  // of all its bytes
  uint32_t first_slot;
};
using KnownSubmissions = absl::flat_hash_map<Print, KnownSubmission, PrintHash>;
// One of them with an encapsulated key of these; null if there is none.
const KnownSubmission* FindOneOf(std::span<const Print> encs, const KnownSubmissions& known) {
  for (const Print& enc : encs) {
    if (const auto found = known.find(enc); found != known.end()) return &found->second;
  }
  return nullptr;
}

// What clients may send for a slot of a round of two tiers, by slot: nothing, or both parts.
class PartsOfSlots {
 public:
  PartsOfSlots(uint64_t slots, size_t each) : each_(each), used_(slots), parts_(slots * each) {}

  size_t slots() const { return used_.size(); }
  bool Has(uint32_t slot) const { return used_[slot] != 0; }
  BytesView Of(uint32_t slot) const { return BytesView(parts_).subspan(slot * each_, each_); }
  void Set(uint32_t slot, BytesView parts) {
    used_[slot] = 1;
    std::ranges::copy(parts, parts_.data() + slot * each_);
  }

 private:
  size_t each_;
  std::vector<uint8_t> used_;
  SecretVector<uint8_t> parts_;
};

// Reads all answers. Returns a list of them, in the memory where they lay, or else a copy.
absl::StatusOr<Spool> Collect(AnswerSource& answers, const Resources& resources) {
  if (!answers.in_memory()) {
    SHOAL_ASSIGN_OR_RETURN(Spool copy, resources.spools->Create(answers.size()));
    SHOAL_RETURN_IF_ERROR(FillSpool(answers, copy, resources.pool));
    return copy;
  }
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const BytesView piece, answers.Next());
    if (piece.empty()) return answers.TakeList();
  }
}

}  // namespace

// One round. All locks but `storing` are held briefly, on I/O threads too.
struct Frontend::Entry {
  // What a round holds in each stage. The remaining stages hold nothing.
  struct TakingOnions {
    KnownSubmissions known;
  };
  struct TakingQueries {
    SecretVector<uint32_t> tallies;  // by slot; kUnused: none
  };
  struct TakingParts {
    PartsOfSlots parts;
  };
  struct Online {                // until the answers are there
    std::vector<uint32_t> rank;  // by slot: its answer's index
  };
  struct Answers {
    std::vector<uint32_t> rank;
    std::vector<Spool> spools;  // one, or of half A and of half B; may go on behind the answers
  };
  // Answers are handed out without a lock. The last reference clears their memory.
  using AnswersPointer = std::shared_ptr<const Answers>;
  using Held = std::variant<std::monostate, TakingOnions, TakingQueries, TakingParts, Online,
                            AnswersPointer>;

  // Times are on the steady clock.
  Entry(round::Round r, Journal* journal, const SlotQuotas& none_taken, uint64_t announced,
        const Clock* c, const FrontendMachine& machine)
      : round(std::move(r)),
        announced_ms(announced),
        clock(c),
        alone(machine.is_alone()),
        submissions(journal),
        stage_since_ms(c->SteadyMilliseconds()),
        held(TakingOnions()),
        shares(none_taken),
        shown(alone),
        others(machine.count - 1) {
    SystemRandom().Fill(print_key);
  }

  const round::Round round;
  const uint64_t announced_ms;
  const Clock* const clock;
  const bool alone;  // the party has one machine
  Digest print_key;  // constant

  // Held while slots are given out and onions appended to the journal, which must hold them in the
  // order of their slots. Held while the disk works, so never taken on an I/O thread.
  Mutex storing ABSL_ACQUIRED_BEFORE(mutex);
  Journal* const submissions ABSL_PT_GUARDED_BY(storing);

  mutable Mutex mutex;
  RoundStage<FrontendStage> stage ABSL_GUARDED_BY(mutex){FrontendStage::kTakingOnions};
  uint64_t stage_since_ms ABSL_GUARDED_BY(mutex);
  bool answered ABSL_GUARDED_BY(mutex) = false;  // at some time: the round leaves its term
  Held held ABSL_GUARDED_BY(mutex);
  // The journal's first error, in any stage, when storing what clients sent.
  absl::Status storage ABSL_GUARDED_BY(mutex);
  std::string abort_reason ABSL_GUARDED_BY(mutex);
  uint64_t slots ABSL_GUARDED_BY(mutex) = 0;
  uint64_t list_bytes ABSL_GUARDED_BY(mutex) = 0;  // of all submissions with their lengths
  uint64_t used ABSL_GUARDED_BY(mutex) = 0;
  // Who took the slots, until the round takes no queries any more.
  SlotQuotas shares ABSL_GUARDED_BY(mutex);
  StageReports reports ABSL_GUARDED_BY(mutex);
  Stopwatch chain_time ABSL_GUARDED_BY(mutex);  // since the running stage began
  // Time that the stages took over the whole chain.
  uint64_t offline_ms ABSL_GUARDED_BY(mutex) = 0, online_ms ABSL_GUARDED_BY(mutex) = 0;

  ShownRound shown ABSL_GUARDED_BY(mutex);
  // By rank - 1, at the head: what the other machines have said last.
  std::vector<Counts> others ABSL_GUARDED_BY(mutex);

  // Advances to stage `to`, which holds `content`. FAILED_PRECONDITION, naming both stages, and
  // nothing changes, if `to` may not come next. Leaves the old content in `content`, for the caller
  // to drop without the lock, as clearing it takes a while.
  absl::Status BecomeLocked(FrontendStage to, Held& content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    SHOAL_RETURN_IF_ERROR(stage.Advance(to));
    stage_since_ms = clock->SteadyMilliseconds();
    if (to == FrontendStage::kAnswered) answered = true;
    std::swap(held, content);
    shown.CameTo(to);
    if (to != FrontendStage::kOffline && to != FrontendStage::kTakingQueries) {
      shares = shares.Empty();
    }
    return absl::OkStatus();
  }

  void StartStageLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { chain_time = Stopwatch(); }
  uint64_t StageMsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return wire::VisibleMilliseconds(chain_time.Seconds());
  }

  Counts OwnLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return {.onions = slots,
            .queries = used,
            .counted_onions = shares.counted_onions(),
            .counted_queries = shares.counted_queries(),
            .storage = storage};
  }
  Counts TotalsLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Counts totals = OwnLocked();
    for (const Counts& other : others) {
      totals.onions += other.onions;
      totals.queries += other.queries;
      totals.counted_onions += other.counted_onions;
      totals.counted_queries += other.counted_queries;
      totals.storage.Update(other.storage);
    }
    return totals;
  }

  // What clients are to be shown, without the header.
  wire::RoundInfo InfoLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    wire::RoundInfo info;
    const Counts totals = TotalsLocked();
    info.set_state(shown.next());
    info.set_onions(totals.onions);
    info.set_queries(totals.queries);
    info.set_abort_reason(alone ? abort_reason : Cut(abort_reason, kMostToldReasonBytes));
    return info;
  }
  wire::RoundReport ReportLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    wire::RoundReport report;
    *report.mutable_round() = InfoLocked();
    report.mutable_stages()->Assign(reports.begin(), reports.end());
    if (!alone) ClearLengthOfQueries(report);
    report.set_offline_ms(offline_ms);
    report.set_online_ms(online_ms);
    return report;
  }

  // What clients are shown. Unspecified, or nothing, if they have not heard of the round.
  wire::RoundState ShownStateLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return shown.StateAt(clock->SteadyMilliseconds());
  }
  std::optional<wire::RoundReport> ShownReportLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    wire::RoundReport report;
    if (alone) {
      report = ReportLocked();
    } else if (const auto* const told = shown.ToldAt(clock->SteadyMilliseconds())) {
      report = *told;
    } else {
      return std::nullopt;
    }
    *report.mutable_round()->mutable_header() = round.wire();
    return report;
  }
  std::optional<wire::RoundInfo> ShownInfoLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    wire::RoundInfo info;
    if (alone) {
      info = InfoLocked();
    } else if (const auto* const told = shown.ToldAt(clock->SteadyMilliseconds())) {
      info = told->round();
    } else {
      return std::nullopt;
    }
    *info.mutable_header() = round.wire();
    return info;
  }

  // A slot gets its query.
  void UseLocked(uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    ++used;
    shares.Use(slot);
  }

  // FAILED_PRECONDITION if clients of this machine, which is one of several, are shown an earlier
  // state.
  absl::Status CheckShownLocked(wire::RoundState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (alone || ShownStateLocked() >= state) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("clients are not told yet that the round is ", wire::RoundState_Name(state)));
  }

  // OK if clients may do now what a round in stage `wanted` allows: they are shown so, and this
  // machine is in that stage.
  absl::Status AllowsLocked(FrontendStage wanted, absl::string_view otherwise) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const wire::RoundState state = ShownStateLocked();
    if (state == wire::ROUND_STATE_UNSPECIFIED) return NoRound(round.id());
    if (state != Shown(wanted)) return WrongState(state, otherwise);
    if (stage.get() == wanted) return absl::OkStatus();
    return absl::UnavailableError("this machine has ended the round");
  }

  // RESOURCE_EXHAUSTED if this machine, which gives out `room` slots, or `from` has no room for so
  // many more.
  absl::Status CheckRoomLocked(uint64_t room, const Origin& from, uint64_t more) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (slots + more > room) {
      // Not how many: that tells how many clients chose this machine.
      if (!alone) {
        return absl::ResourceExhaustedError("the round has not as much room at this machine");
      }
      return absl::ResourceExhaustedError(absl::StrCat("the round has ", slots, " of ", room,
                                                       " slots given out, and no room for ", more,
                                                       " more"));
    }
    if (shares.Fits(from, more)) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        from->ToString(), " has ", shares.SlotsOf(from), " of the ", shares.LimitsOf(*from).slots,
        " slots that one ", from->is_shared() ? "group of addresses" : "address",
        " may take in a round, and no room for ", more, " more"));
  }

  // What is due for the round, at the head, if anything. `most_onions`: the slots of all machines.
  std::optional<Due> DueLocked(const RoundPlan& plan, uint64_t most_onions, uint64_t now_ms) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  absl::Status StorageFailedLocked(absl::Status why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (absl::IsUnavailable(why)) {
      return absl::UnavailableError("the onions cannot be stored just now; try again later");
    }
    storage.Update(std::move(why));
    return absl::FailedPreconditionError(
        "the round takes no onions any more: they could not be stored");
  }
};

std::optional<Due> Frontend::Entry::DueLocked(const RoundPlan& plan, uint64_t most_onions,
                                              uint64_t now_ms) const {
  const FrontendStage now = stage.get();
  const uint64_t since_ms = stage_since_ms;
  const auto passed = [&](uint64_t window_s) { return now_ms >= since_ms + 1000 * window_s; };
  if (IsWorkedOn(now) || shown.next() != Shown(now)) {
    if (!passed(plan.stage_limit_s)) return std::nullopt;
    // What the machines are on their way to, if that is not this one's stage.
    const bool named = IsWorkedOn(now) || shown.next() == wire::ROUND_STATE_UNSPECIFIED;
    const std::string what = named ? std::string(Name(now)) : wire::RoundState_Name(shown.next());
    return Due{Action::kAbort, round.id(),
               absl::StrCat(what, " for more than ", plan.stage_limit_s, " s")};
  }
  const Counts totals = TotalsLocked();
  if (!totals.storage.ok()) {
    return Due{Action::kAbort, round.id(), "what clients sent could not be stored", totals.storage};
  }
  // Other machines may have got more since they have told.
  const auto unless_empty = [&](uint64_t count, Action action) {
    return Due{alone && count == 0 ? Action::kClose : action, round.id()};
  };
  const wire::RoundHeader& header = round.header();
  // A time of the header.
  const auto reached = [&](uint64_t time_s) {
    return now_ms >= announced_ms + 1000 * (time_s - header.announced_s());
  };
  const auto full = [](uint64_t count, uint64_t goal) { return goal != 0 && count >= goal; };
  if (now == FrontendStage::kTakingOnions) {
    if (reached(header.onions_close_s()) || full(totals.counted_onions, plan.onions_count) ||
        totals.onions == most_onions) {
      // A round without onions has nothing to do.
      return unless_empty(totals.onions, Action::kSeal);
    }
  } else if (now == FrontendStage::kTakingQueries) {
    if (passed(plan.queries_window_s) || reached(header.queries_close_s()) ||
        full(totals.counted_queries, plan.queries_count) || totals.queries == totals.onions) {
      return unless_empty(totals.queries, Action::kAnswer);
    }
  } else if (now == FrontendStage::kAnswered) {
    if (passed(plan.answers_window_s) || reached(header.expires_s())) {
      return Due{Action::kClose, round.id()};
    }
  }
  return std::nullopt;
}

absl::Status CheckPlan(const RoundPlan& plan, const roster::Roster& roster) {
  const auto in_range = [](absl::string_view name, uint64_t value, uint64_t least, uint64_t most) {
    if (value >= least && value <= most) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("rounds: ", std::string(name), " is ", value,
                                                   "; allowed are ", least, " to ", most));
  };
  SHOAL_RETURN_IF_ERROR(in_range("open_ahead", plan.open_ahead, 1, 64));
  SHOAL_RETURN_IF_ERROR(in_range("onions_window_s", plan.onions_window_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(in_range("queries_window_s", plan.queries_window_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(in_range("answers_window_s", plan.answers_window_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(in_range("stage_limit_s", plan.stage_limit_s, 1, kMaxWindowS));
  SHOAL_RETURN_IF_ERROR(
      in_range("max_slots", plan.max_slots, roster.party(1).machines, roster.max_slots()));
  SHOAL_RETURN_IF_ERROR(in_range("max_rounds", plan.max_rounds, plan.open_ahead, 256));
  SHOAL_RETURN_IF_ERROR(in_range("block_percent", plan.block_percent, 1, 100));
  SHOAL_RETURN_IF_ERROR(in_range("group_percent", plan.group_percent, 1, 100));
  const TermPlan& terms = plan.terms;
  if (terms.refreshes == 0) return absl::OkStatus();
  if (roster.most_in_bucket() != 0) {
    return absl::FailedPreconditionError(absl::StrCat("rounds: terms.refreshes is ",
                                                      terms.refreshes,
                                                      ", and the roster is of two tiers "
                                                      "(most_in_bucket ",
                                                      roster.most_in_bucket(),
                                                      "), whose rounds have no terms yet: take "
                                                      "`terms` out of the plan"));
  }
  if (roster.max_refreshes() == 0) {
    return absl::FailedPreconditionError(
        "rounds: terms need a roster with a term_limit, which all parties have signed");
  }
  SHOAL_RETURN_IF_ERROR(in_range("terms.refreshes", terms.refreshes, 1, roster.max_refreshes()));
  SHOAL_RETURN_IF_ERROR(in_range("terms.days", terms.days, 1, roster.term_limit_s() / (24 * 3600)));
  SHOAL_RETURN_IF_ERROR(in_range("terms.every_hours", terms.every_hours, 1, 24 * 366));
  SHOAL_RETURN_IF_ERROR(
      in_range("terms.open_minutes", terms.open_minutes, 1, uint64_t{60} * terms.every_hours));
  if (LifetimeS(plan) <= uint64_t{24 * 3600} * terms.days) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rounds: terms.days is ", terms.days,
                                                 ", and rounds may live for ", LifetimeS(plan),
                                                 " seconds"));
}

absl::StatusOr<std::unique_ptr<Frontend>> Frontend::Create(RoundPlan plan, Party* party,
                                                           Journal* journal, const Clock* clock,
                                                           const Resources& resources,
                                                           FrontendMachine machine) {
  SHOAL_CHECK(machine.rank < machine.count && machine.count <= roster::kMaxMachines);
  if (party->number() != PartyNumber(1)) {
    return absl::InvalidArgumentError("only party 1 is a frontend");
  }
  SHOAL_RETURN_IF_ERROR(CheckPlan(plan, party->roster()));
  if (!machine.is_head()) {
    return std::unique_ptr<Frontend>(
        new Frontend(plan, party, journal, clock, resources, machine, 0, EarlierRounds(false)));
  }
  // No counter that this process gives out is at or below one that an earlier process gave out, or
  // spoke of in a list. The time counts too, for a frontend that has lost its journal.
  const uint64_t highest =
      std::max({journal->highest_epoch(kCounters), journal->highest_round().value(),
                round::kCountersPerSecond * clock->NowSeconds()});
  SHOAL_RETURN_IF_ERROR(journal->CommitEpoch(kCounters, highest, Digest()));
  SHOAL_ASSIGN_OR_RETURN(const Bytes kept, journal->LoadRounds());
  EarlierRounds earlier(machine.is_alone());
  earlier.Load(kept, party->roster(), clock->NowSeconds());
  return std::unique_ptr<Frontend>(
      new Frontend(plan, party, journal, clock, resources, machine, highest, std::move(earlier)));
}

absl::StatusOr<wire::RoundHeader> Frontend::NewDraft() {
  SHOAL_CHECK(machine_.is_head());
  const uint64_t now_s = clock_->NowSeconds();
  wire::RoundHeader draft;
  {
    const MutexLock drafting(drafting_);
    // What the disk has refused counts for the journal all the same.
    const uint64_t used = journal_->highest_epoch(kCounters);
    uint64_t counter;
    {
      const MutexLock lock(mutex_);
      // Counters only rise: those of a clock that jumped ahead by days would be too high once it is
      // right. Those of a frontend that began with an empty journal under a clock that was behind
      // would be too low if they did not follow it.
      const uint64_t passed_s = clock_->SteadySeconds() - started_steady_s_;
      const uint64_t time_s = std::min(now_s, started_s_ + passed_s + round::kMaxCounterLeadS / 2);
      counter = std::max({highest_counter_ + 1, used, round::kCountersPerSecond * time_s});
    }
    SHOAL_RETURN_IF_ERROR(journal_->CommitEpoch(kCounters, counter, Digest()));
    const MutexLock lock(mutex_);
    highest_counter_ = counter;
    drafts_.emplace(counter, clock_->SteadyMilliseconds());
    draft.set_counter(counter);
  }
  const roster::Roster& roster = party_->roster();
  draft.set_roster_digest(ToString(roster.digest()));
  const round::TableFacts table = party_->table()->facts;
  draft.set_manifest_digest(ToString(table.manifest_digest));
  draft.set_max_rows(table.rows);
  draft.set_query_buckets(table.query_buckets);
  draft.set_answer_bytes(table.row_bytes + static_cast<uint32_t>(signature::kSignatureBytes));
  *draft.mutable_noise() = roster.wire().roster().noise();
  for (const roster::Party& party : roster.parties()) draft.add_machines(party.machines);
  draft.set_max_slots(plan_.max_slots);
  draft.set_onion_suite(roster.wire().roster().onion_suite());
  draft.set_announced_s(now_s);
  draft.set_onions_close_s(now_s + plan_.onions_window_s);
  draft.set_queries_close_s(draft.onions_close_s() + plan_.stage_limit_s + plan_.queries_window_s);
  draft.set_expires_s(draft.queries_close_s() + plan_.stage_limit_s + plan_.answers_window_s);
  AddTerm(draft);
  return draft;
}

void Frontend::AddTerm(wire::RoundHeader& draft) const {
  const TermPlan& plan = plan_.terms;
  const Terms* const terms = party_->terms();
  if (plan.refreshes == 0 || terms == nullptr) return;
  const uint64_t into_period_s = draft.announced_s() % (uint64_t{3600} * plan.every_hours);
  if (into_period_s >= uint64_t{60} * plan.open_minutes) return;
  // A round whose term nobody keeps would be refused, and with it every other one.
  size_t terms_to_come;
  {
    const MutexLock lock(mutex_);
    terms_to_come = drafts_.size();
    for (const auto& [id, entry] : rounds_) {
      if (entry->round.header().max_refreshes() == 0) continue;
      const MutexLock entry_lock(entry->mutex);
      terms_to_come += !IsFinal(entry->stage.get()) && !terms->Find(id).ok();
    }
  }
  if (!terms->CheckRoom().ok() || terms->All().size() + terms_to_come > kMaxTerms) return;
  draft.set_max_refreshes(plan.refreshes);
  draft.set_term_expires_s(draft.announced_s() + uint64_t{24 * 3600} * plan.days);
}

void Frontend::Withdraw(RoundCounter counter) {
  const MutexLock lock(mutex_);
  drafts_.erase(counter.value());
}

wire::SignedLiveRounds Frontend::Live() const {
  SHOAL_CHECK(machine_.is_head());
  wire::LiveRounds list;
  {
    const MutexLock lock(mutex_);
    list.set_highest_counter(highest_counter_);
    for (const auto& [counter, announced_ms] : drafts_) list.add_drafts(counter);
    for (const auto& [id, entry] : rounds_) {
      const MutexLock entry_lock(entry->mutex);
      if (!IsFinal(entry->stage.get())) list.add_rounds(entry->round.counter().value());
    }
    // After the rounds: a round that is not among them has left its term already, if it has.
    if (party_->terms() != nullptr) {
      for (const Terms::Known& term : party_->terms()->All()) {
        const uint64_t counter = term.header.counter();
        if (counter <= highest_counter_ && TermLivesLocked(term.round_id)) list.add_terms(counter);
      }
    }
  }
  std::ranges::sort(*list.mutable_rounds());
  std::ranges::sort(*list.mutable_terms());
  return party_->SignLive(std::move(list));
}

bool Frontend::TermLivesLocked(const Digest& round_id) const {
  const auto found = rounds_.find(round_id);
  if (found == rounds_.end()) return true;
  const MutexLock lock(found->second->mutex);
  return IsFinal(found->second->stage.get()) && found->second->answered;
}

std::vector<Digest> Frontend::AbortLacked(const LackedRounds& lacked) {
  SHOAL_CHECK(machine_.is_head());
  std::map<RoundCounter, Digest> ids;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, entry] : rounds_) {
      const MutexLock entry_lock(entry->mutex);
      // Its answers are all here, and clients have paid for them.
      if (entry->stage.get() == FrontendStage::kAnswered) continue;
      ids.emplace(entry->round.counter(), id);
    }
  }
  std::vector<Digest> aborted;
  for (const LackedRound& lack : lacked) {
    const auto found = ids.find(lack.counter);
    if (found == ids.end()) continue;
    if (End(found->second, FrontendStage::kAborted,
            absl::StrCat("party ", lack.party.value(), " has lost the round"))) {
      aborted.push_back(found->second);
    }
  }
  return aborted;
}

absl::Status Frontend::Open(const round::Round& round) {
  const auto ended = [](const Entry& other) {
    const MutexLock lock(other.mutex);
    return IsFinal(other.stage.get());
  };
  // Stored before a client can hear of it.
  const MutexLock keeping(keeping_);
  if (machine_.is_head()) SHOAL_RETURN_IF_ERROR(KeepRoundsLocked(&round));
  {
    const MutexLock lock(mutex_);
    const auto draft = drafts_.find(round.counter().value());
    const uint64_t announced_ms =
        draft == drafts_.end() ? clock_->SteadyMilliseconds() : draft->second;
    const auto share = [&](uint32_t percent) {
      return SlotQuotas::PercentOf(percent, RoomOf(round), plan_.onions_count / machine_.count,
                                   plan_.queries_count / machine_.count);
    };
    const SlotQuotas none_taken(share(plan_.block_percent), share(plan_.group_percent));
    auto entry =
        std::make_shared<Entry>(round, journal_, none_taken, announced_ms, clock_, machine_);
    if (!rounds_.emplace(round.id(), std::move(entry)).second) {
      return absl::AlreadyExistsError("the round is open already");
    }
    drafts_.erase(round.counter().value());
    order_.push_back(round.id());
    // Forgets the oldest ended rounds.
    size_t remembered = 0;
    for (const Digest& id : order_) remembered += ended(*rounds_.at(id)) ? 1 : 0;
    for (auto it = order_.begin(); it != order_.end() && remembered > kRememberedRounds;) {
      const auto found = rounds_.find(*it);
      if (!ended(*found->second)) {
        ++it;
        continue;
      }
      rounds_.erase(found);
      it = order_.erase(it);
      --remembered;
    }
  }
  return absl::OkStatus();
}

absl::Status Frontend::KeepRoundsLocked(const round::Round* opening) {
  wire::ListRoundsResponse list;
  {
    const MutexLock lock(mutex_);
    for (const Digest& id : order_) {
      const Entry& entry = *rounds_.at(id);
      const MutexLock entry_lock(entry.mutex);
      // Shown to nobody, as not all machines have opened it.
      if (IsFinal(entry.stage.get()) && entry.shown.next() == wire::ROUND_STATE_UNSPECIFIED) {
        continue;
      }
      wire::RoundInfo& info = *list.add_rounds();
      info = entry.InfoLocked();
      info.set_state(Shown(entry.stage.get()));
      *info.mutable_header() = entry.round.wire();
    }
    for (wire::RoundInfo& info : earlier_.All()) *list.add_rounds() = std::move(info);
  }
  if (opening != nullptr) *list.add_rounds()->mutable_header() = opening->wire();
  // A closed round gives nobody a reason to ask again. What has expired goes at the next start: a
  // clock that is wrong now must not make anybody forget the others.
  auto& rounds = *list.mutable_rounds();
  rounds.erase(
      std::remove_if(rounds.begin(), rounds.end(),
                     [](const wire::RoundInfo& info) { return info.state() == wire::CLOSED; }),
      rounds.end());
  return journal_->StoreRounds(AsBytes(list.SerializeAsString()));
}

absl::StatusOr<std::shared_ptr<Frontend::Entry>> Frontend::Find(const Digest& round_id) const {
  const MutexLock lock(mutex_);
  const auto found = rounds_.find(round_id);
  if (found != rounds_.end()) return found->second;
  if (earlier_.Find(round_id, clock_->SteadyMilliseconds()) != nullptr) {
    return WrongState(wire::ABORTED, "the frontend was restarted");
  }
  return UnknownLocked(round_id);
}

absl::Status Frontend::UnknownLocked(const Digest& round_id) const {
  if (earlier_.AllAreKnown(clock_->SteadyMilliseconds())) return NoRound(round_id);
  return absl::UnavailableError("this machine does not know yet which rounds there were");
}

bool Frontend::HasToldBefore() const {
  const MutexLock lock(mutex_);
  return earlier_.AllAreTold();
}

void Frontend::BeforeIsTold(uint64_t from_ms) {
  const MutexLock lock(mutex_);
  earlier_.AllAreKnownFrom(from_ms);
}

std::vector<Due> Frontend::WhatIsDue() {
  SHOAL_CHECK(machine_.is_head());
  const uint64_t now_ms = clock_->SteadyMilliseconds();
  std::vector<Due> due;
  uint32_t taking_onions = 0, unfinished = 0;
  const Digest newest = party_->table()->facts.manifest_digest;
  const MutexLock lock(mutex_);
  for (const Digest& id : order_) {
    const Entry& entry = *rounds_.at(id);
    const MutexLock entry_lock(entry.mutex);
    const FrontendStage stage = entry.stage.get();
    if (IsFinal(stage)) continue;
    ++unfinished;
    // A round of an earlier epoch of the table takes onions beside those of the newest one, for
    // clients that have not heard of it yet.
    if (stage == FrontendStage::kTakingOnions && entry.shown.next() <= wire::OPEN_FOR_ONIONS &&
        entry.round.header().manifest_digest() == AsText(newest)) {
      ++taking_onions;
    }
    if (auto of_round = entry.DueLocked(plan_, RoomOf(entry.round) * machine_.count, now_ms)) {
      due.push_back(*std::move(of_round));
    }
  }
  if (taking_onions < plan_.open_ahead && unfinished < plan_.max_rounds) {
    due.push_back({Action::kAnnounce, {}});
  }
  return due;
}

absl::Status Frontend::Decide(const Digest& round_id, wire::RoundState state) {
  SHOAL_CHECK(machine_.is_head());
  // From which stage the driver may go on to a state.
  const auto stage_for = [state] {
    switch (state) {
      case wire::OPEN_FOR_ONIONS:
      case wire::SEALED:
        return FrontendStage::kTakingOnions;
      case wire::OPEN_FOR_QUERIES:
      case wire::ANSWERING:
        return FrontendStage::kTakingQueries;
      default:
        return FrontendStage::kAnswered;
    }
  };
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const MutexLock lock(entry->mutex);
  if (state <= entry->shown.next() || state > wire::ANSWERED || entry->stage.get() != stage_for()) {
    return absl::FailedPreconditionError(
        absl::StrCat("a round that is ", Name(entry->stage.get()), ", and ",
                     wire::RoundState_Name(entry->shown.next()), " for clients, does not become ",
                     wire::RoundState_Name(state)));
  }
  entry->shown.Decide(state);
  entry->stage_since_ms = clock_->SteadyMilliseconds();
  return absl::OkStatus();
}

absl::Status Frontend::SealOnions(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  Entry::Held nothing;
  const MutexLock storing(entry->storing);
  const MutexLock lock(entry->mutex);
  SHOAL_RETURN_IF_ERROR(entry->CheckShownLocked(wire::SEALED));
  SHOAL_RETURN_IF_ERROR(entry->BecomeLocked(FrontendStage::kOffline, nothing));
  entry->StartStageLocked();
  return absl::OkStatus();
}

absl::StatusOr<Submissions> Frontend::Seal(const Digest& round_id) {
  SHOAL_RETURN_IF_ERROR(SealOnions(round_id));
  return SubmissionsAgain(round_id);
}

absl::StatusOr<HalvesSubmissions> Frontend::SealHalves(const Digest& round_id) {
  SHOAL_RETURN_IF_ERROR(SealOnions(round_id));
  return PiecesAgain(round_id);
}

absl::StatusOr<HalvesSubmissions> Frontend::PiecesAgain(const Digest& round_id) {
  HalvesSubmissions pieces;
  for (const sharing::Half half : {sharing::Half::kA, sharing::Half::kB}) {
    SHOAL_ASSIGN_OR_RETURN(Submissions of, SubmissionsAgain(round_id));
    of.list = std::make_unique<PieceSource>(std::move(of.list), of.onions, half);
    (half == sharing::Half::kA ? pieces.a : pieces.b) = std::move(of);
  }
  return pieces;
}

absl::StatusOr<Submissions> Frontend::SubmissionsAgain(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  uint64_t list_bytes;
  Submissions submissions;
  {
    const MutexLock lock(entry->mutex);
    if (entry->stage.get() != FrontendStage::kOffline) {
      return WrongState(Shown(entry->stage.get()), "its submissions are not asked for");
    }
    submissions.onions = entry->slots;
    list_bytes = entry->list_bytes;
  }
  if (list_bytes == 0) {  // at one of several machines: there is no file
    submissions.list = std::make_unique<BytesSource>(Bytes());
    return submissions;
  }
  // Reads the submissions back: all were written before they were acknowledged.
  SHOAL_ASSIGN_OR_RETURN(submissions.list,
                         journal_->ReadSubmissions(entry->round.counter(), list_bytes));
  return submissions;
}

absl::Status Frontend::OfflineDone(const Digest& round_id, StageReports reports) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const MutexLock lock(entry->mutex);
  SHOAL_RETURN_IF_ERROR(entry->stage.Check(FrontendStage::kTakingQueries));
  // Clients pay for a query as soon as the round takes queries.
  SHOAL_ASSIGN_OR_RETURN(const PartyStage here, party_->Stage(round_id));
  if (here != PartyStage::kReady) {
    return absl::FailedPreconditionError(
        absl::StrCat("party 1's round is ", std::string(Name(here)), ", and takes no queries"));
  }
  Entry::Held none;
  if (entry->round.buckets()) {
    none = Entry::TakingParts{PartsOfSlots(entry->slots, entry->round.parts_bytes())};
  } else {
    none = Entry::TakingQueries{SecretVector<uint32_t>(entry->slots, kUnused)};
  }
  SHOAL_RETURN_IF_ERROR(entry->BecomeLocked(FrontendStage::kTakingQueries, none));
  entry->reports = std::move(reports);
  entry->offline_ms = entry->StageMsLocked();
  return absl::OkStatus();
}

// What came while queries were taken, and by slot which of them it is.
struct Frontend::ClosedQueries {
  std::shared_ptr<Entry> entry;
  Entry::Held held;
  uint32_t used = 0, slots = 0;
  std::vector<uint32_t> rank;

  // Calls put(number, slot) for every used slot in order, and gives the round its ranks.
  template <typename IsUsed, typename Put>
  void ForUsed(const IsUsed& is_used, const Put& put) {
    rank.assign(slots, kUnused);
    uint32_t next = 0;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      if (!is_used(slot)) continue;
      put(next, slot);
      rank[slot] = next++;
    }
    const MutexLock lock(entry->mutex);
    // If the round has ended meanwhile, drops the ranks.
    if (auto* const online = std::get_if<Entry::Online>(&entry->held)) {
      online->rank = std::move(rank);
    }
  }
};

absl::StatusOr<Frontend::ClosedQueries> Frontend::StopQueries(const Digest& round_id) {
  ClosedQueries closed;
  SHOAL_ASSIGN_OR_RETURN(closed.entry, Find(round_id));
  closed.held = Entry::Online();
  Entry& entry = *closed.entry;
  const MutexLock lock(entry.mutex);
  SHOAL_RETURN_IF_ERROR(entry.CheckShownLocked(wire::ANSWERING));
  SHOAL_RETURN_IF_ERROR(entry.BecomeLocked(FrontendStage::kOnline, closed.held));
  entry.StartStageLocked();
  closed.used = static_cast<uint32_t>(entry.used);
  closed.slots = static_cast<uint32_t>(entry.slots);
  return closed;
}

absl::StatusOr<Bytes> Frontend::CloseQueries(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(ClosedQueries closed, StopQueries(round_id));
  const SecretVector<uint32_t>& tallies = std::get<Entry::TakingQueries>(closed.held).tallies;
  wire::QueryBatchWriter writer(closed.used, closed.slots);
  closed.ForUsed([&](uint32_t slot) { return tallies[slot] != kUnused; },
                 [&](uint32_t next, uint32_t slot) { writer.Put(next, slot, tallies[slot]); });
  return std::move(writer).Take();
}

absl::StatusOr<HalvesQueries> Frontend::CloseParts(const Digest& round_id) {
  SHOAL_ASSIGN_OR_RETURN(ClosedQueries closed, StopQueries(round_id));
  const PartsOfSlots& parts = std::get<Entry::TakingParts>(closed.held).parts;
  const size_t both = closed.entry->round.parts_bytes();
  const size_t of_b =
      sharing::PartBytes(sharing::Half::kB, closed.entry->round.buckets()->selection_bytes());
  wire::RecordBatchWriter a(closed.used, closed.slots, both);
  wire::RecordBatchWriter b(closed.used, closed.slots, of_b);
  closed.ForUsed([&](uint32_t slot) { return parts.Has(slot); },
                 [&](uint32_t next, uint32_t slot) {
                   a.Put(next, slot, parts.Of(slot));
                   b.Put(next, slot, parts.Of(slot).last(of_b));
                 });
  return HalvesQueries{.a = std::move(a).Take(), .b = std::move(b).Take()};
}

absl::Status Frontend::AnswersReady(const Digest& round_id, AnswerSource& answers,
                                    const std::function<StageReports()>& reports) {
  AnswerSource* const all[] = {&answers};
  return TakeAnswers(round_id, all, reports);
}

absl::Status Frontend::AnswersReady(const Digest& round_id, AnswerSource& a, AnswerSource& b,
                                    const std::function<StageReports()>& reports) {
  AnswerSource* const all[] = {&a, &b};
  return TakeAnswers(round_id, all, reports);
}

absl::Status Frontend::TakeAnswers(const Digest& round_id, std::span<AnswerSource* const> halves,
                                   const std::function<StageReports()>& reports) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  {
    const MutexLock lock(entry->mutex);
    SHOAL_RETURN_IF_ERROR(entry->stage.Advance(FrontendStage::kCollecting));
    SHOAL_CHECK(halves.size() == (entry->round.buckets() ? 2 : 1));
    for (const AnswerSource* const answers : halves) {
      SHOAL_CHECK(answers->size() == entry->used * entry->round.tagged_bytes());
    }
  }
  // Reads without the lock: clients ask how far the round is.
  std::vector<Spool> spools;
  absl::Status failed;
  for (size_t i = 0; i < halves.size() && failed.ok(); ++i) {
    absl::StatusOr<Spool> all = Collect(*halves[i], resources_);
    failed = all.status();
    if (all.ok()) spools.push_back(*std::move(all));
  }
  StageReports stages;
  uint64_t online_ms = 0;
  if (failed.ok()) {
    {
      const MutexLock lock(entry->mutex);
      online_ms = entry->StageMsLocked();
    }
    stages = reports();
  }
  const MutexLock lock(entry->mutex);
  if (!failed.ok()) {
    // The same answers may come again, if the round has not ended.
    entry->stage.Advance(FrontendStage::kBrokenOff).IgnoreError();
    return failed;
  }
  SHOAL_RETURN_IF_ERROR(entry->stage.Check(FrontendStage::kAnswered));
  Entry::Held held = std::make_shared<const Entry::Answers>(
      std::move(std::get<Entry::Online>(entry->held).rank), std::move(spools));
  SHOAL_RETURN_IF_ERROR(entry->BecomeLocked(FrontendStage::kAnswered, held));
  entry->reports = std::move(stages);
  entry->online_ms = online_ms;
  return absl::OkStatus();
}

bool Frontend::BecomeEnded(Entry& entry, FrontendStage end, absl::string_view reason) {
  Entry::Held nothing;
  const MutexLock lock(entry.mutex);
  // A round that has ended stays as it is.
  if (!entry.BecomeLocked(end, nothing).ok()) return false;
  entry.abort_reason = std::string(reason);
  return true;
}

bool Frontend::End(const Digest& round_id, FrontendStage end, absl::string_view reason) {
  const auto entry = Find(round_id);
  if (!entry.ok()) return false;
  if (!machine_.is_head()) {
    // The party deletes the head's with the round. No submission comes to the disk after that.
    const MutexLock storing((*entry)->storing);
    if (!BecomeEnded(**entry, end, reason)) return false;
    journal_->EndRound((*entry)->round.counter()).IgnoreError();
    return true;
  }
  if (!BecomeEnded(**entry, end, reason)) return false;
  if (Terms* const terms = party_->terms(); terms != nullptr) {
    const bool lives = [&] {
      const MutexLock lock((*entry)->mutex);
      return (*entry)->answered;
    }();
    if (!lives) terms->End(round_id, "its round was not answered");
  }
  // If this fails, a restarted frontend shows the round as aborted for another reason.
  const MutexLock keeping(keeping_);
  KeepRoundsLocked(nullptr).IgnoreError();
  return true;
}

void Frontend::Close(const Digest& round_id) { End(round_id, FrontendStage::kClosed, ""); }

void Frontend::Abort(const Digest& round_id, absl::string_view reason) {
  End(round_id, FrontendStage::kAborted, reason);
}

std::string Frontend::AbortReason(const Digest& round_id) const {
  const auto entry = Find(round_id);
  if (!entry.ok()) return "";
  const MutexLock lock((*entry)->mutex);
  return (*entry)->abort_reason;
}

absl::StatusOr<wire::SignedHeader> Frontend::Header(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  return entry->round.wire();
}

std::vector<Digest> Frontend::OpenRounds() const {
  std::vector<Digest> open;
  const MutexLock lock(mutex_);
  for (const Digest& id : order_) {
    const Entry& entry = *rounds_.at(id);
    const MutexLock entry_lock(entry.mutex);
    if (!IsFinal(entry.stage.get())) open.push_back(id);
  }
  return open;
}

absl::StatusOr<Counts> Frontend::Own(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const MutexLock lock(entry->mutex);
  return entry->OwnLocked();
}

absl::StatusOr<Counts> Frontend::Totals(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const MutexLock lock(entry->mutex);
  return entry->TotalsLocked();
}

void Frontend::TakeCounts(uint32_t rank, const Digest& round_id, const Counts& counts) {
  SHOAL_CHECK(machine_.is_head() && rank > 0 && rank < machine_.count);
  const auto entry = Find(round_id);
  if (!entry.ok()) return;
  const MutexLock lock((*entry)->mutex);
  (*entry)->others[rank - 1] = counts;
}

std::vector<Told> Frontend::Tell(size_t most_bytes) {
  SHOAL_CHECK(machine_.is_head() && !machine_.is_alone());
  std::vector<Told> out;
  size_t bytes = 0;
  const FitsTold fits = [&](size_t more) {
    if (!out.empty() && bytes + more > most_bytes) return false;
    bytes += more;
    return true;
  };
  const MutexLock lock(mutex_);
  ++tells_;
  struct Changed {
    bool new_state;
    uint64_t last_tell;
    Entry* entry;
  };
  std::vector<Changed> changed;
  for (const Digest& id : order_) {
    Entry& entry = *rounds_.at(id);
    const MutexLock entry_lock(entry.mutex);
    if (entry.shown.next() == wire::ROUND_STATE_UNSPECIFIED) continue;
    changed.push_back({entry.shown.has_new_state(), entry.shown.last_tell(), &entry});
  }
  std::ranges::stable_sort(changed, {}, &Changed::last_tell);
  const auto tell = [&](bool new_states) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& [new_state, last_tell, entry] : changed) {
      if (new_state != new_states) continue;
      const MutexLock entry_lock(entry->mutex);
      Told told{.round_id = entry->round.id(), .report = entry->ReportLocked()};
      if (entry->shown.Tell(told.report, tells_, fits)) out.push_back(std::move(told));
    }
  };
  tell(/*new_states=*/true);
  earlier_.Tell(fits, out);
  tell(/*new_states=*/false);
  return out;
}

absl::Status Frontend::WaitUntilShown(const Digest& round_id, wire::RoundState state) const {
  SHOAL_CHECK(!machine_.is_alone());
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const uint64_t until_ms = clock_->SteadyMilliseconds() + kMostLateMs;
  for (;;) {
    {
      const MutexLock lock(entry->mutex);
      absl::Status shown = entry->CheckShownLocked(state);
      const bool late = clock_->SteadyMilliseconds() >= until_ms;
      if (shown.ok() || late || IsFinal(entry->stage.get())) return shown;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

void Frontend::Show(const Told& told, uint64_t from_ms) {
  SHOAL_CHECK(!machine_.is_alone());
  std::shared_ptr<Entry> entry;
  {
    const MutexLock lock(mutex_);
    const auto found = rounds_.find(told.round_id);
    if (found == rounds_.end()) return earlier_.Take(told, from_ms);
    entry = found->second;
  }
  const MutexLock lock(entry->mutex);
  // Windows begin when clients hear of them.
  if (entry->shown.Take(told.report, from_ms, clock_->SteadyMilliseconds())) {
    entry->stage_since_ms = from_ms;
  }
}

wire::ListRoundsResponse Frontend::ListRounds() const {
  wire::ListRoundsResponse response;
  const MutexLock lock(mutex_);
  for (const Digest& id : order_) {
    const Entry& entry = *rounds_.at(id);
    const MutexLock entry_lock(entry.mutex);
    if (auto info = entry.ShownInfoLocked()) *response.add_rounds() = *std::move(info);
  }
  return response;
}

std::vector<wire::RoundReport> Frontend::Reports() const {
  std::vector<wire::RoundReport> out;
  const MutexLock lock(mutex_);
  for (wire::RoundInfo& info : earlier_.ShownAt(clock_->SteadyMilliseconds())) {
    *out.emplace_back().mutable_round() = std::move(info);
  }
  for (const Digest& id : order_) {
    const Entry& entry = *rounds_.at(id);
    const MutexLock entry_lock(entry.mutex);
    if (auto report = entry.ShownReportLocked()) out.push_back(*std::move(report));
  }
  return out;
}

absl::StatusOr<FrontendStage> Frontend::Stage(const Digest& round_id) const {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const MutexLock lock(entry->mutex);
  return entry->stage.get();
}

absl::StatusOr<wire::RoundState> Frontend::State(const Digest& round_id) const {
  const auto entry = Find(round_id);
  if (absl::IsFailedPrecondition(entry.status())) return wire::ABORTED;  // of before
  if (!entry.ok()) return entry.status();
  const MutexLock lock((*entry)->mutex);
  const wire::RoundState shown = (*entry)->ShownStateLocked();
  if (shown == wire::ROUND_STATE_UNSPECIFIED) return NoRound(round_id);
  return shown;
}

absl::StatusOr<wire::RoundInfo> Frontend::Info(const Digest& round_id) const {
  const auto entry = Find(round_id);
  if (!entry.ok()) {
    const MutexLock lock(mutex_);
    const wire::RoundInfo* const before = earlier_.Find(round_id, clock_->SteadyMilliseconds());
    if (before == nullptr) return entry.status();
    return *before;
  }
  const MutexLock lock((*entry)->mutex);
  std::optional<wire::RoundInfo> info = (*entry)->ShownInfoLocked();
  if (!info) return NoRound(round_id);
  return *std::move(info);
}

absl::StatusOr<Frontend::Submitted> Frontend::SubmitOnions(const Digest& round_id,
                                                           std::span<const BytesView> submissions,
                                                           const Origin& from) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Prints> prints,
                         PrintsOf(submissions, entry->round, entry->print_key));
  const MutexLock storing(entry->storing);
  // Collects new submissions, in order and once. Only these are written, so that a client that
  // repeats itself does not fill the disk. A full round still acknowledges what it has.
  KnownSubmissions fresh;
  std::vector<BytesView> added;
  uint64_t slots = 0, list_bytes = 0;  // of the new ones
  {
    const MutexLock lock(entry->mutex);
    SHOAL_RETURN_IF_ERROR(entry->AllowsLocked(FrontendStage::kTakingOnions, "takes no onions"));
    if (!entry->storage.ok()) return entry->StorageFailedLocked(entry->storage);
    const KnownSubmissions& known = std::get<Entry::TakingOnions>(entry->held).known;
    for (size_t i = 0; i < submissions.size(); ++i) {
      const std::span<const Print> encs = prints[i].encs();
      const KnownSubmission* same_key = FindOneOf(encs, known);
      if (same_key == nullptr) same_key = FindOneOf(encs, fresh);
      if (same_key == nullptr) {
        for (const Print& enc : encs) {
          fresh[enc] = {prints[i].whole, static_cast<uint32_t>(entry->slots + slots)};
        }
        added.push_back(submissions[i]);
        slots += entry->round.SubmissionSlots(submissions[i].size());
        list_bytes += kSubmissionLengthBytes + submissions[i].size();
      } else if (same_key->whole != prints[i].whole) {
        // Two plaintexts under one key would be sealed with one nonce.
        return absl::InvalidArgumentError(
            "another submission came with the same encapsulated key before");
      }
    }
    SHOAL_RETURN_IF_ERROR(entry->CheckRoomLocked(RoomOf(entry->round), from, slots));
  }
  absl::Status kept;
  if (!added.empty()) {
    const Bytes record = RecordOf(added, list_bytes);
    kept = entry->submissions->AppendSubmission(entry->round.counter(), record);
  }
  const MutexLock lock(entry->mutex);
  if (!kept.ok()) return entry->StorageFailedLocked(std::move(kept));
  // The round may have ended meanwhile. It cannot have been sealed, as that takes `storing`.
  auto* const taking = std::get_if<Entry::TakingOnions>(&entry->held);
  if (taking == nullptr) {
    return entry->AllowsLocked(FrontendStage::kTakingOnions, "takes no onions");
  }
  entry->slots += slots;
  entry->shares.Add(from, slots);
  entry->list_bytes += list_bytes;
  taking->known.merge(fresh);
  Submitted submitted{.first_slots = {}, .counter = entry->round.counter()};
  for (const Prints& print : prints) {
    submitted.first_slots.push_back(taking->known.at(print.of_encs[0]).first_slot);
  }
  return submitted;
}

absl::Status Frontend::StorageFailed(const Digest& round_id, absl::Status why) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  const MutexLock lock(entry->mutex);
  return entry->StorageFailedLocked(std::move(why));
}

absl::Status Frontend::CheckGivenOut(const Entry& entry, std::span<const uint32_t> slots) const {
  // At one of several machines, a slot that it has not given out has a wrong token: nobody learns
  // from a refusal how many it gave out.
  uint64_t limit = RoomOf(entry.round);
  if (machine_.is_alone()) {
    const MutexLock lock(entry.mutex);
    limit = entry.slots;
  }
  for (const uint32_t slot : slots) {
    if (slot < limit) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "slot ", slot, machine_.is_alone() ? ": the round gave out " : ": a machine has ", limit));
  }
  return absl::OkStatus();
}

absl::Status Frontend::WrongSecret(const Entry& entry, FrontendStage stage, uint32_t slot,
                                   absl::string_view what) const {
  const MutexLock lock(entry.mutex);
  SHOAL_RETURN_IF_ERROR(entry.AllowsLocked(stage, "came too late"));
  // The next list of live rounds aborts the round.
  if (!party_->Stage(entry.round.id()).ok()) {
    return absl::UnavailableError("party 1 has lost the round");
  }
  return absl::PermissionDeniedError(absl::StrCat("slot ", slot, ": ", std::string(what)));
}

absl::StatusOr<SlotRequest> Frontend::ParseRequest(const Entry& entry, FrontendStage stage,
                                                   const std::string& slots,
                                                   const std::string& tokens) const {
  SHOAL_ASSIGN_OR_RETURN(SlotRequest request, ParseSlots(slots, tokens));
  SHOAL_RETURN_IF_ERROR(CheckGivenOut(entry, request.slots));
  if (const size_t wrong = party_->FirstWrongToken(entry.round.id(), request.slots, request.tokens);
      wrong < request.slots.size()) {
    return WrongSecret(entry, stage, request.slots[wrong], "the token is not this slot's");
  }
  SHOAL_RETURN_IF_ERROR(CheckDistinct(request.slots));
  return request;
}

absl::StatusOr<uint32_t> Frontend::SubmitQueries(const wire::SubmitQueriesRequest& request) {
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, ParseRoundId(request.round_id()));
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  {
    const MutexLock lock(entry->mutex);
    SHOAL_RETURN_IF_ERROR(entry->AllowsLocked(FrontendStage::kTakingQueries, "takes no queries"));
  }
  return entry->round.buckets() ? SubmitParts(*entry, request) : SubmitTallies(*entry, request);
}

absl::StatusOr<uint32_t> Frontend::SubmitTallies(Entry& entry,
                                                 const wire::SubmitQueriesRequest& request) {
  constexpr FrontendStage kStage = FrontendStage::kTakingQueries;
  if (!request.parts().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.parts().size(),
                     " bytes of parts, which are for rounds of two tiers: "
                     "this round is for rows, and takes tokens and tallies"));
  }
  SHOAL_ASSIGN_OR_RETURN(const SlotRequest parsed,
                         ParseRequest(entry, kStage, request.slots(), request.tokens()));
  const size_t count = parsed.slots.size();
  if (count == 0 || request.tallies().size() != 4 * count) {
    return absl::InvalidArgumentError("slots and tallies are arrays of different lengths");
  }
  // Checks everything before it takes anything.
  SecretVector<uint32_t> tallies(count);
  for (size_t i = 0; i < count; ++i) {
    tallies[i] = LoadLe<uint32_t>(AsBytes(request.tallies()).data() + 4 * i);
    if (tallies[i] >= wire::kTallyModulus) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", parsed.slots[i], ": its tally is not below 2^31 - 1"));
    }
  }
  const MutexLock lock(entry.mutex);
  SHOAL_RETURN_IF_ERROR(entry.AllowsLocked(kStage, "takes no queries"));
  SecretVector<uint32_t>& taken = std::get<Entry::TakingQueries>(entry.held).tallies;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t before = taken[parsed.slots[i]];
    if (before != kUnused && before != tallies[i]) return UsedForAnother(parsed.slots[i]);
  }
  for (size_t i = 0; i < count; ++i) {
    uint32_t& tally = taken[parsed.slots[i]];
    if (tally == kUnused) entry.UseLocked(parsed.slots[i]);
    tally = tallies[i];
  }
  return static_cast<uint32_t>(count);
}

absl::StatusOr<uint32_t> Frontend::SubmitParts(Entry& entry,
                                               const wire::SubmitQueriesRequest& request) {
  constexpr FrontendStage kStage = FrontendStage::kTakingQueries;
  const size_t each = entry.round.parts_bytes();
  if (!request.tokens().empty() || !request.tallies().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.tokens().size(), " bytes of tokens and ", request.tallies().size(),
                     " of tallies, which are for rounds for rows: this round is of two tiers, and "
                     "takes parts"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> slots, ParseSlotNumbers(request.slots()));
  const BytesView parts = AsBytes(request.parts());
  if (slots.empty() || parts.size() != slots.size() * each) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.size(), " bytes of parts for ", slots.size(), " slots, of ", each,
                     " bytes each: part A and part B of a query in this round"));
  }
  SHOAL_RETURN_IF_ERROR(CheckGivenOut(entry, slots));
  if (const size_t wrong = party_->FirstWrongPart(entry.round.id(), slots, parts);
      wrong < slots.size()) {
    return WrongSecret(entry, kStage, slots[wrong],
                       "the tag of its part A is not this slot's, or its piece A did not open");
  }
  SHOAL_RETURN_IF_ERROR(CheckDistinct(slots));
  const MutexLock lock(entry.mutex);
  SHOAL_RETURN_IF_ERROR(entry.AllowsLocked(kStage, "takes no queries"));
  PartsOfSlots& taken = std::get<Entry::TakingParts>(entry.held).parts;
  // All or nothing: other parts for a slot would tell two questions apart.
  for (size_t i = 0; i < slots.size(); ++i) {
    if (taken.Has(slots[i]) &&
        !std::ranges::equal(taken.Of(slots[i]), parts.subspan(i * each, each))) {
      return UsedForAnother(slots[i]);
    }
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (taken.Has(slots[i])) continue;
    entry.UseLocked(slots[i]);
    taken.Set(slots[i], parts.subspan(i * each, each));
  }
  return static_cast<uint32_t>(slots.size());
}

absl::StatusOr<wire::FetchAnswersResponse> Frontend::FetchAnswers(
    const wire::FetchAnswersRequest& request) const {
  SHOAL_ASSIGN_OR_RETURN(const Digest round_id, ParseRoundId(request.round_id()));
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<Entry> entry, Find(round_id));
  // Keeps the answers until this call has read them, even if the round ends.
  Entry::AnswersPointer held;
  {
    const MutexLock lock(entry->mutex);
    SHOAL_RETURN_IF_ERROR(entry->AllowsLocked(FrontendStage::kAnswered, "has no answers to give"));
    held = std::get<Entry::AnswersPointer>(entry->held);
  }
  SHOAL_RETURN_IF_ERROR(CheckFetch(request.slots().size() / 4, entry->round.fetched_bytes()));
  SHOAL_ASSIGN_OR_RETURN(const SlotRequest parsed, ParseRequest(*entry, FrontendStage::kAnswered,
                                                                request.slots(), request.tokens()));
  std::vector<uint64_t> numbers;
  for (const uint32_t slot : parsed.slots) {
    if (held->rank[slot] == kUnused) {
      return absl::FailedPreconditionError(absl::StrCat("slot ", slot, ": was not used"));
    }
    numbers.push_back(held->rank[slot]);
  }
  std::vector<const Spool*> spools;
  for (const Spool& spool : held->spools) spools.push_back(&spool);
  wire::FetchAnswersResponse response;
  SHOAL_ASSIGN_OR_RETURN(*response.mutable_answers(),
                         ReadAnswers(spools, numbers, entry->round.tagged_bytes()));
  return response;
}

}  // namespace shoal::server
