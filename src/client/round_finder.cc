#include "src/client/round_finder.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/base/stopwatch.h"
#include "src/client/device.h"
#include "src/client/exchange.h"
#include "src/client/limits.h"
#include "src/client/refresh.h"
#include "src/parallel/mutex.h"
#include "src/table/manifest.h"

namespace shoal::client {
namespace {

constexpr uint32_t kPollMs = 250;
// For so long a client that needs a round with a term asks often, and seldom afterwards.
constexpr uint64_t kOftenS = 60;
constexpr uint32_t kSeldomPollMs = 10'000;
// How often a client that waits asks at most whether a newer epoch of the table is served.
constexpr uint64_t kEpochCheckS = 5;
// The number of times that slots are saved while they are obtained.
constexpr size_t kSlotSaves = 8;

bool RoundTakesNoMore(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsResourceExhausted(status) ||
         absl::IsNotFound(status);
}

}  // namespace

// The wait for a round.
struct RoundFinder::Search {
  const uint32_t slots;
  const bool only_new_rounds;
  const uint64_t asked_from_s;
  const uint64_t deadline_s;
  uint64_t next_epoch_check_s = 0;
  bool told = false;
  std::string refusal = {};  // why the latest round takes no more, in the frontend's words
  // A round that has refused these slots refuses them for ever.
  std::set<Digest> without_room = {};
};

struct RoundFinder::Candidates {
  std::vector<const wire::RoundInfo*> rounds;
  bool of_another_epoch = false;
  bool out_of_terms = false;  // left rounds with a term to others
};

RoundStatusOr<Digest> RoundFinder::Obtain(uint32_t slots) {
  SHOAL_RETURN_IF_ERROR(held_rounds_.DropUnusable());
  SHOAL_ASSIGN_OR_RETURN(const std::optional<Digest> unused, FindUnused(slots, call_.NowSeconds()));
  if (unused) return *unused;
  // That may have waited for as long as a round lives: the time for a new one begins only now.
  return ObtainNew(slots, /*only_new_rounds=*/false);
}

RoundStatusOr<Digest> RoundFinder::ObtainAhead(uint32_t slots) {
  return ObtainNew(slots, /*only_new_rounds=*/true);
}

void RoundFinder::BePatient(const Search& search) const {
  if (!call_.options.waits) return;
  call_.links.WaitUntil(search.deadline_s, "this lookup gives up waiting for a round");
}

RoundStatusOr<Digest> RoundFinder::ObtainNew(uint32_t slots, bool only_new_rounds) {
  const uint64_t begun_s = call_.NowSeconds();
  Search search{.slots = slots,
                .only_new_rounds = only_new_rounds,
                .asked_from_s = begun_s,
                .deadline_s = begun_s + call_.options.timeout_s};
  if (call_.options.term) SHOAL_RETURN_IF_ERROR(CheckTermsExist(call_.deployment));
  BePatient(search);
  for (;;) {
    SHOAL_ASSIGN_OR_RETURN(const wire::ListRoundsResponse list,
                           call_.links.frontend().ListRounds());
    const uint64_t now_s = call_.NowSeconds();
    const Candidates candidates = CandidatesOf(search, list, now_s);
    SHOAL_ASSIGN_OR_RETURN(const std::optional<Digest> obtained, TryAll(search, candidates));
    if (obtained) return *obtained;
    if (candidates.of_another_epoch && now_s >= search.next_epoch_check_s) {
      SHOAL_RETURN_IF_ERROR(CheckEpoch());
      search.next_epoch_check_s = now_s + kEpochCheckS;
    }
    SHOAL_RETURN_IF_ERROR(CheckTime(search, candidates, now_s));
    // The wait may be over that kept this lookup out of a term's round in which it holds slots.
    if (!call_.options.term && !search.only_new_rounds &&
        now_s >= search.asked_from_s + kOutOfTermsS) {
      SHOAL_ASSIGN_OR_RETURN(const std::optional<Digest> unused,
                             FindUnused(search.slots, search.asked_from_s));
      if (unused) return *unused;
      BePatient(search);
    }
    Pause(search, candidates, now_s);
  }
}

absl::Status RoundFinder::CheckTime(const Search& search, const Candidates& candidates,
                                    uint64_t now_s) const {
  if (now_s < search.deadline_s) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("no round ", call_.options.term ? "with a term " : "", "took ", search.slots,
                   " onions within ", call_.options.timeout_s, " seconds",
                   search.refusal.empty() ? "" : "; the last one refused: ", search.refusal,
                   candidates.out_of_terms ? kOutOfTerms : ""));
}

void RoundFinder::Pause(Search& search, const Candidates& candidates, uint64_t now_s) const {
  if (!std::exchange(search.told, true)) {
    call_.options.term
        ? call_.environment.Wait("waiting for a round with a term", search.deadline_s)
        : call_.environment.Tell(candidates.out_of_terms
                                     ? "waiting for a round without a term; if there is none for "
                                       "60 seconds, one with a term is entered"
                                     : "waiting for a round that takes onions");
  }
  // Rounds with a term may be far apart.
  const bool seldom = call_.options.term && now_s >= search.asked_from_s + kOftenS;
  call_.environment.sleep(seldom ? kSeldomPollMs : kPollMs);
}

RoundFinder::Candidates RoundFinder::CandidatesOf(const Search& search,
                                                  const wire::ListRoundsResponse& list,
                                                  uint64_t now_s) {
  const Deployment& deployment = call_.deployment;
  Candidates candidates;
  for (const wire::RoundInfo& info : list.rounds()) {
    const wire::RoundHeader& header = info.header().header();
    if (info.state() != wire::OPEN_FOR_ONIONS) continue;
    if (!TermSuits(header, call_.options.term.has_value(), search.asked_from_s, now_s)) {
      candidates.out_of_terms |= !call_.options.term;
      continue;
    }
    // Skips rounds of another epoch of the table or of the roster. Those of the table before and
    // of the next one run beside this one's for a while.
    if (header.manifest_digest() != AsText(deployment.manifest().digest()) ||
        header.roster_digest() != AsText(deployment.roster().digest())) {
      candidates.of_another_epoch = true;
      continue;
    }
    const Digest id = round::RoundId(header);
    if (search.without_room.contains(id)) continue;
    const HeldRound* const held = call_.store.state().FindRound(id);
    if (held != nullptr && (search.only_new_rounds || held->over || !held->rows.empty())) continue;
    // Only checks the room of rounds that are new here. In others the frontend may have onions of
    // this client whose slots an interruption lost, so the frontend decides whether there is
    // room.
    if (held == nullptr && info.onions() + search.slots > header.max_slots()) continue;
    candidates.rounds.push_back(&info);
  }
  std::ranges::sort(candidates.rounds, {},
                    [](const wire::RoundInfo* info) { return info->header().header().counter(); });
  return candidates;
}

RoundStatusOr<std::optional<Digest>> RoundFinder::TryAll(Search& search,
                                                         const Candidates& candidates) {
  absl::Status refused;
  for (const wire::RoundInfo* info : candidates.rounds) {
    const RoundStatusOr<bool> obtained = TryObtain(search, *info);
    if (obtained.ok()) {
      if (*obtained) return std::optional(round::RoundId(info->header().header()));
      continue;
    }
    const absl::Status& why = obtained.status().reason();
    if (!absl::IsUnauthenticated(why) && !absl::IsInvalidArgument(why)) return obtained.status();
    refused = why;  // another round may do
  }
  if (!refused.ok()) return refused;
  return std::optional<Digest>();
}

RoundStatusOr<bool> RoundFinder::TryObtain(Search& search, const wire::RoundInfo& info) {
  SHOAL_ASSIGN_OR_RETURN(const round::Round round, VerifyRound(call_, info.header()));
  State& state = call_.store.state();
  state.SawSignedTime(round.header().announced_s());
  for (const HeldRound& held : state.rounds) {
    if (held.counter() == round.counter().value() && held.id != round.id()) {
      // Not UNAUTHENTICATED: no newer roster explains it.
      return absl::InvalidArgumentError(
          absl::StrCat(RoundName(held), " has two headers: the parties are not to be trusted"));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(HeldRound* const held, PrepareOnions(round, info.header(), search.slots));
  call_.environment.Tell(
      absl::StrCat("obtaining ", search.slots - held->slots(), " slots in ", RoundName(*held)));
  return SendOnions(search, round, *held);
}

RoundStatusOr<bool> RoundFinder::SendOnions(Search& search, const round::Round& round,
                                            HeldRound& held) {
  // Submissions are answered in any order.
  struct {
    Mutex mutex;
    SlotSet given ABSL_GUARDED_BY(mutex);
    size_t come ABSL_GUARDED_BY(mutex) = 0;
    size_t unsaved ABSL_GUARDED_BY(mutex) = 0;
    absl::Status saved ABSL_GUARDED_BY(mutex);
  } slots_of;
  std::vector<OnionSubmission*> missing;
  {
    const MutexLock lock(slots_of.mutex);
    for (OnionSubmission& submission : held.submissions) {
      if (submission.first_slot) {
        slots_of.given.Add(*submission.first_slot, submission.count);
      } else if (submission.first < search.slots) {
        missing.push_back(&submission);
      }
    }
  }
  const size_t save_every = missing.size() / kSlotSaves + 1;
  const auto obtain = [&](Exchange& exchange, size_t i, size_t) -> absl::Status {
    OnionSubmission submission = *missing[i];
    if (submission.first_slot) return absl::OkStatus();  // before its machine fell silent
    const Stopwatch sealing;
    const SubmissionToMake to_make{&held.master, &submission};
    std::vector<std::string> sealed = MakeSubmissions(round, {&to_make, 1}, call_.environment.pool);
    const double seconds = sealing.Seconds();
    SHOAL_ASSIGN_OR_RETURN(const std::vector<uint32_t> first_slots,
                           exchange.SubmitOnions(round, std::move(sealed)));
    submission.first_slot = first_slots[0];
    const MutexLock lock(slots_of.mutex);
    if (!slots_of.given.Add(first_slots[0], submission.count)) {
      return absl::DataLossError("the frontend gave a slot twice");
    }
    *missing[i] = submission;
    call_.costs.query_seconds += seconds / search.slots;
    call_.environment.Count("obtaining slots", ++slots_of.come, missing.size());
    if (++slots_of.unsaved < save_every) return absl::OkStatus();
    slots_of.unsaved = 0;
    return slots_of.saved = call_.store.Save();
  };
  const RoundStatus obtained = held_rounds_.AtMachine(
      held, [&] { return call_.links.ForPieces(held, missing.size(), 1, obtain); },
      /*obtains=*/true);
  if (obtained.left_round()) return obtained;
  const MutexLock lock(slots_of.mutex);
  SHOAL_RETURN_IF_ERROR(slots_of.saved);  // a disk that is full is no refusal
  if (RoundTakesNoMore(obtained.reason())) {
    search.refusal = std::string(obtained.reason().message());
    search.without_room.insert(held.id);
    return false;
  }
  // Keeps slots after an error too, so that their onions are not sent again.
  const absl::Status saved = slots_of.unsaved > 0 ? call_.store.Save() : absl::OkStatus();
  if (!obtained.ok()) return obtained;
  SHOAL_RETURN_IF_ERROR(saved);
  return true;
}

absl::StatusOr<HeldRound*> RoundFinder::PrepareOnions(const round::Round& round,
                                                      const wire::SignedHeader& header,
                                                      uint32_t slots) {
  State& state = call_.store.state();
  if (state.FindRound(round.id()) == nullptr) {
    if (state.rounds.size() >= State::kMaxRounds) {
      // Otherwise a frontend that shows header after header could make the state too large to be
      // read.
      return absl::ResourceExhaustedError(
          absl::StrCat("this client keeps ", state.rounds.size(),
                       " rounds that have not expired, and takes no more: ask again later, or tell "
                       "the operators"));
    }
    const uint32_t machines = call_.links.machines();
    HeldRound held;
    held.header = header;
    held.id = round.id();
    held.master = call_.environment.random->NewSeed();
    if (machines > 1 && call_.environment.connect_to) {
      held.machine = static_cast<uint32_t>(call_.environment.random->Below(machines));
    }
    state.rounds.push_back(std::move(held));
  }
  HeldRound* const held = state.FindRound(round.id());
  SHOAL_CHECK(!held->over && held->rows.empty());  // its seed is wiped, or its slots carry rows
  held->for_lookup = !call_.options.term;
  if (held->onions() < slots) {
    // What an earlier run cut stays as it is.
    const std::vector<OnionSubmission> more =
        Split(held->onions(), slots, OnionsPerPiece(round, call_.options.piece_bytes));
    held->submissions.insert(held->submissions.end(), more.begin(), more.end());
    // Saves seed and cut first, so that a submission repeated after a crash has the same bytes.
    if (absl::Status saved = call_.store.Save(); !saved.ok()) {
      // What is on disk is unknown, so nothing more may be sent, and these were not.
      held->submissions.resize(held->submissions.size() - more.size());
      state.End(*held);
      return saved;
    }
  }
  return held;
}

absl::Status RoundFinder::CheckEpoch() const {
  SHOAL_ASSIGN_OR_RETURN(const wire::GetDeploymentResponse response,
                         call_.links.frontend().GetDeployment());
  // Whoever acts on the error fetches the deployment again and verifies all of it. What does not
  // verify even here is no reason to stop waiting.
  if (call_.deployment.IsFollowedBy(response.roster(), call_.NowSeconds())) {
    return NewEpochError("roster", response.roster().roster().epoch());
  }
  const auto manifest =
      table::Manifest::Verify(response.manifest(), call_.deployment.roster(), call_.NowSeconds());
  if (!manifest.ok() || manifest->epoch() <= call_.deployment.manifest().epoch()) {
    return absl::OkStatus();
  }
  return NewEpochError("table", manifest->epoch());
}

RoundStatusOr<std::optional<Digest>> RoundFinder::FindUnused(uint32_t queries, uint64_t begun_s) {
  std::vector<HeldRound*> unused;
  for (HeldRound& held : call_.store.state().rounds) {
    if (!held.over && held.rows.empty() && held.slots() >= queries &&
        Suits(call_.options, held, begun_s, call_.NowSeconds())) {
      unused.push_back(&held);
    }
  }
  std::ranges::sort(unused, {}, &HeldRound::counter);
  for (HeldRound* held : unused) {
    held_rounds_.BePatient(*held);
    const RoundStatusOr<wire::RoundState> state = held_rounds_.StateOf(*held);
    if (state.status().left_round()) continue;
    if (!state.ok()) return state.status();
    if (*state <= wire::OPEN_FOR_QUERIES) return std::optional<Digest>(held->id);
    SHOAL_RETURN_IF_ERROR(held_rounds_.Lose(*held));
  }
  return std::optional<Digest>();
}

}  // namespace shoal::client
