#include "src/shoald/chain_states.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/roster/roster.h"
#include "src/wire/frame.h"

namespace shoal::shoald {
namespace {

constexpr std::chrono::seconds kBetweenQuestions(5);

// Why nothing is known of a party that was asked.
std::string ProblemOf(const absl::Status& status) {
  return wire::Printable(ForOthers(status).message());
}

wire::PartyState Missing(uint32_t party, std::string problem) {
  wire::PartyState state;
  state.set_party(party);
  state.set_problem(std::move(problem));
  return state;
}

bool IsTime(uint64_t seconds) { return seconds <= roster::kMaxTimeS; }

}  // namespace

// Of any two clocks that IsTime holds for, no sum of these overflows.
int64_t ChainStates::OffsetOf(uint64_t clock_s) const {
  return static_cast<int64_t>(clock_s) - static_cast<int64_t>(options_.clock->NowSeconds());
}

absl::Status ChainStates::Check(const wire::PartyStatesResponse& response) const {
  const auto bad = [](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("states of parties: ", what));
  };
  if (!IsTime(response.clock_s())) return bad("a clock that is none");
  if (static_cast<uint32_t>(response.parties_size()) != options_.parties - options_.party) {
    return bad("not one for every later party");
  }
  uint32_t party = options_.party;
  for (const wire::PartyState& state : response.parties()) {
    if (state.party() != ++party) return bad("not in the parties' order");
    for (const std::string& text : {state.problem(), state.version()}) {
      if (text != wire::Printable(text)) return bad("text that cannot be shown");
    }
    constexpr auto kMost = static_cast<int64_t>(roster::kMaxTimeS);
    if (state.clock_offset_s() < -kMost || state.clock_offset_s() > kMost) {
      return bad("a clock that is none");
    }
  }
  return absl::OkStatus();
}

PartyStates ChainStates::Ask() {
  PartyStates states = {options_.self()};
  if (options_.next == nullptr) return states;
  wire::PartyStatesRequest request;
  request.set_clock_s(options_.clock->NowSeconds());
  absl::StatusOr<wire::PartyStatesResponse> later = options_.next(request);
  if (later.ok()) {
    if (absl::Status good = Check(*later); !good.ok()) later = good;
  }
  if (!later.ok()) {
    const uint32_t next = options_.party + 1;
    states.push_back(Missing(next, ProblemOf(later.status())));
    for (uint32_t party = next + 1; party <= options_.parties; ++party) {
      states.push_back(Missing(party, absl::StrCat("not known, because of party ", next)));
    }
    return states;
  }
  const int64_t offset_s = OffsetOf(later->clock_s());
  for (wire::PartyState& state : *later->mutable_parties()) {
    state.DiscardUnknownFields();
    if (state.problem().empty()) state.set_clock_offset_s(state.clock_offset_s() + offset_s);
    states.push_back(std::move(state));
  }
  const MutexLock lock(mutex_);
  next_offset_s_ = offset_s;
  return states;
}

wire::PartyStatesResponse ChainStates::Answer(const wire::PartyStatesRequest& request) {
  if (request.clock_s() != 0 && IsTime(request.clock_s())) {
    const MutexLock lock(mutex_);
    previous_offset_s_ = OffsetOf(request.clock_s());
  }
  wire::PartyStatesResponse response;
  for (wire::PartyState& state : Ask()) *response.add_parties() = std::move(state);
  // As late as possible, so that only the way back counts as an offset.
  response.set_clock_s(options_.clock->NowSeconds());
  return response;
}

std::optional<int64_t> ChainStates::previous_offset_s() const {
  const MutexLock lock(mutex_);
  return previous_offset_s_;
}
std::optional<int64_t> ChainStates::next_offset_s() const {
  const MutexLock lock(mutex_);
  return next_offset_s_;
}

ChainWatch::ChainWatch(ChainStates* states, const Clock* clock)
    : states_(states), clock_(clock), thread_([this] { Loop(); }) {}

ChainWatch::~ChainWatch() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

void ChainWatch::Loop() {
  for (;;) {
    PartyStates parties = states_->Ask();
    Tell(parties);
    const auto next = std::chrono::steady_clock::now() + kBetweenQuestions;
    const MutexLock lock(mutex_);
    parties_ = std::move(parties);
    heard_s_ = clock_->SteadySeconds();
    while (!stopping_ && wake_.WaitUntil(mutex_, next)) {
    }
    if (stopping_) return;
  }
}

void ChainWatch::Tell(const PartyStates& parties) {
  missing_.resize(parties.size());
  for (size_t i = 0; i < parties.size(); ++i) {
    const bool missing = !parties[i].problem().empty();
    if (missing == missing_[i]) continue;
    missing_[i] = missing;
    if (missing) {
      spdlog::warn("party {} is missing: {}", parties[i].party(), parties[i].problem());
    } else {
      spdlog::info("party {} answers again", parties[i].party());
    }
  }
}

ChainWatch::View ChainWatch::Last() const {
  const MutexLock lock(mutex_);
  return {parties_, parties_.empty() ? 0 : clock_->SteadySeconds() - heard_s_};
}

}  // namespace shoal::shoald
