#include "src/server/shown_rounds.h"

#include <algorithm>
#include <utility>

#include "src/round/header.h"

namespace shoal::server {
namespace {

// No plan allows more rounds at a time.
constexpr size_t kMostEarlierRounds = 256;

uint64_t CounterOf(const wire::RoundInfo& info) { return info.header().header().counter(); }

bool IsExpired(const wire::RoundInfo& info, const roster::Roster& roster, uint64_t now_s) {
  return info.header().header().expires_s() + roster.clock_tolerance_s() < now_s;
}

}  // namespace

std::string Cut(std::string text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<uint8_t>(text[most]) & 0xc0) == 0x80) --most;
  text.resize(most);
  return text;
}

void ShownRound::CameTo(FrontendStage stage) {
  // An end needs nobody's consent. A round that clients have not heard of has none for them.
  if (alone_ || (IsFinal(stage) && next_ != wire::ROUND_STATE_UNSPECIFIED)) next_ = Shown(stage);
}

bool ShownRound::Tell(wire::RoundReport& report, uint64_t tell, const FitsTold& fits) {
  if (report.ByteSizeLong() > kMostToldReportBytes) report.clear_stages();
  std::string encoded = report.SerializeAsString();
  if (encoded == last_told_ || !fits(encoded.size())) return false;
  last_told_ = std::move(encoded);
  told_state_ = report.round().state();
  last_tell_ = tell;
  return true;
}

bool ShownRound::Take(wire::RoundReport report, uint64_t from_ms, uint64_t now_ms) {
  while (told_.size() > 1 && told_[1].from_ms <= now_ms) told_.pop_front();
  const bool is_new =
      told_.empty() || told_.back().report.round().state() != report.round().state();
  told_.push_back({from_ms, std::move(report)});
  return is_new;
}

const wire::RoundReport* ShownRound::ToldAt(uint64_t now_ms) const {
  const wire::RoundReport* now = nullptr;
  for (const From& one : told_) {
    if (one.from_ms <= now_ms) now = &one.report;
  }
  return now;
}

wire::RoundState ShownRound::StateAt(uint64_t now_ms) const {
  if (alone_) return next_;
  const wire::RoundReport* const now = ToldAt(now_ms);
  return now == nullptr ? wire::ROUND_STATE_UNSPECIFIED : now->round().state();
}

void EarlierRounds::Load(BytesView kept, const roster::Roster& roster, uint64_t now_s) {
  wire::ListRoundsResponse list;
  if (!list.ParseFromArray(kept.data(), static_cast<int>(kept.size()))) return;
  for (wire::RoundInfo& info : *list.mutable_rounds()) {
    if (IsExpired(info, roster, now_s)) continue;
    if (info.state() != wire::ABORTED) info.set_abort_reason("the frontend was restarted");
    if (!alone_) info.set_abort_reason(Cut(info.abort_reason(), kMostToldReasonBytes));
    info.set_state(wire::ABORTED);
    const Digest id = round::RoundId(info.header().header());
    rounds_.emplace(id, Earlier{.info = std::move(info), .from_ms = alone_ ? 0 : kNever});
  }
  while (rounds_.size() > kMostEarlierRounds) {
    rounds_.erase(std::ranges::min_element(
        rounds_, {}, [](const auto& one) { return CounterOf(one.second.info); }));
  }
}

const wire::RoundInfo* EarlierRounds::Find(const Digest& round_id, uint64_t now_ms) const {
  const auto found = rounds_.find(round_id);
  return found == rounds_.end() || now_ms < found->second.from_ms ? nullptr : &found->second.info;
}

std::vector<wire::RoundInfo> EarlierRounds::ShownAt(uint64_t now_ms) const {
  std::vector<wire::RoundInfo> shown;
  for (const auto& [id, one] : rounds_) {
    if (now_ms >= one.from_ms) shown.push_back(one.info);
  }
  std::ranges::sort(shown, {}, CounterOf);
  return shown;
}

std::vector<wire::RoundInfo> EarlierRounds::All() const {
  std::vector<wire::RoundInfo> all;
  for (const auto& [id, one] : rounds_) all.push_back(one.info);
  return all;
}

void EarlierRounds::AllAreKnownFrom(uint64_t from_ms) {
  known_from_ms_ = std::min(known_from_ms_, from_ms);
}

void EarlierRounds::Tell(const FitsTold& fits, std::vector<Told>& out) {
  for (auto& [id, one] : rounds_) {
    Told told{.round_id = id, .report = {}};
    *told.report.mutable_round() = one.info;
    if (one.told || !fits(told.report.ByteSizeLong())) continue;
    one.told = true;
    out.push_back(std::move(told));
  }
}

bool EarlierRounds::AllAreTold() const {
  return std::ranges::all_of(rounds_, [](const auto& one) { return one.second.told; });
}

void EarlierRounds::Take(const Told& told, uint64_t from_ms) {
  const wire::RoundInfo& info = told.report.round();
  if (!info.has_header()) return;
  Earlier& one = rounds_.try_emplace(told.round_id, Earlier{info, kNever}).first->second;
  one.from_ms = std::min(one.from_ms, from_ms);
}

}  // namespace shoal::server
