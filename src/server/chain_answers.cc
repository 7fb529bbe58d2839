#include "src/server/chain_answers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/roster/roster.h"

namespace shoal::server {

StageReports StageReportsOf(const wire::RoundReportsResponse& response) {
  return StageReports(response.stages().begin(), response.stages().end());
}

ListAnswer ListAnswerOf(const wire::LiveRoundsResponse& response) {
  ListAnswer answer = {.lacked = {}, .reached = response.reached()};
  for (const wire::LackedRound& lack : response.lacked()) {
    answer.lacked.push_back({PartyNumber(lack.party()), RoundCounter(lack.counter())});
  }
  return answer;
}

absl::StatusOr<signature::Signature> SumOf(const wire::ProposeRefreshResponse& response) {
  return signature::Signature::FromBytes(AsBytes(response.signature()));
}

absl::StatusOr<std::vector<round::RefreshTag>> TagsOf(const wire::RefreshResponse& response) {
  const BytesView bytes = AsBytes(response.tags());
  const size_t count = bytes.size() / sizeof(round::RefreshTag);
  if (bytes.size() % sizeof(round::RefreshTag) != 0 || count > roster::kMaxParties) {
    return absl::InvalidArgumentError(
        absl::StrCat("tags of a refresh in ", bytes.size(), " bytes"));
  }
  std::vector<round::RefreshTag> tags(count);
  for (size_t i = 0; i < count; ++i) {
    std::ranges::copy(bytes.subspan(i * sizeof(round::RefreshTag), sizeof(round::RefreshTag)),
                      tags[i].begin());
  }
  return tags;
}

absl::StatusOr<StageReports> CheckReports(const Asker& own, StageReports reports) {
  constexpr std::array<absl::string_view, 5> kStages = {"noise", "offline", "online", "answers",
                                                        "refresh"};
  // Of a round for rows, of half A, of half B.
  constexpr uint32_t kMostHalf = 2;
  std::set<std::tuple<uint32_t, uint32_t, std::string>> seen;
  for (wire::StageReport& report : reports) {
    if (report.party() <= own.number.value() || report.party() > own.parties ||
        std::ranges::find(kStages, report.stage()) == kStages.end() || report.half() > kMostHalf ||
        !seen.emplace(report.party(), report.half(), report.stage()).second) {
      return absl::InvalidArgumentError(
          "stage reports: one of no later party, of no stage or half, or that comes twice");
    }
    // `shoal status` writes them as JSON, which has no other numbers.
    for (const double seconds : {report.seconds(), report.cpu_seconds()}) {
      if (!std::isfinite(seconds) || seconds < 0) {
        return absl::InvalidArgumentError("stage reports: a time that is none");
      }
    }
    report.DiscardUnknownFields();
  }
  return reports;
}

absl::StatusOr<ListAnswer> CheckListAnswer(const Asker& own, const wire::LiveRounds& list,
                                           ListAnswer answer) {
  if (answer.reached <= own.number.value() || answer.reached > own.parties) {
    return absl::InvalidArgumentError(
        absl::StrCat("a list of live rounds cannot have reached party ", answer.reached));
  }
  std::set<std::pair<PartyNumber, RoundCounter>> seen;
  for (const LackedRound& lack : answer.lacked) {
    if (lack.party <= own.number || lack.party.value() > answer.reached ||
        !std::ranges::binary_search(list.rounds(), lack.counter.value()) ||
        !seen.emplace(lack.party, lack.counter).second) {
      return absl::InvalidArgumentError(
          "lacked rounds: one of no later party, of no live round, or that comes twice");
    }
  }
  return answer;
}

}  // namespace shoal::server
