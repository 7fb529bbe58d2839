#include "src/server/round_stage.h"

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::server {

namespace {

struct PartyFacts {
  absl::string_view name;
  std::vector<PartyStage> after;
};
struct FrontendFacts {
  absl::string_view name;
  wire::RoundState shown;
  std::vector<FrontendStage> after;
};

const PartyFacts& Of(PartyStage stage) {
  using enum PartyStage;
  static const auto* const facts =
      new std::map<PartyStage, PartyFacts>{{kDrafted, {"drafted", {kSigned, kEnded}}},
                                           {kSigned, {"signed", {kPrepared, kEnded}}},
                                           // Whether noise is made is told to nobody.
                                           {kPrepared, {"signed", {kOffline, kEnded}}},
                                           {kOffline, {"in its offline stage", {kReady, kEnded}}},
                                           {kReady, {"ready", {kReady, kQueried, kEnded}}},
                                           {kQueried, {"queried", {kQueried, kAnswered, kEnded}}},
                                           {kAnswered, {"answered", {kQueried, kAnswered, kEnded}}},
                                           {kEnded, {"ended", {}}}};
  const auto found = facts->find(stage);
  SHOAL_CHECK(found != facts->end());
  return found->second;
}

const FrontendFacts& Of(FrontendStage stage) {
  using enum FrontendStage;
  static const auto* const facts = new std::map<FrontendStage, FrontendFacts>{
      {kTakingOnions, {"taking onions", wire::OPEN_FOR_ONIONS, {kOffline, kClosed, kAborted}}},
      {kOffline, {"in its offline stage", wire::SEALED, {kTakingQueries, kClosed, kAborted}}},
      {kTakingQueries, {"taking queries", wire::OPEN_FOR_QUERIES, {kOnline, kClosed, kAborted}}},
      {kOnline, {"in its online stage", wire::ANSWERING, {kCollecting, kClosed, kAborted}}},
      {kCollecting,
       {"collecting answers", wire::ANSWERING, {kBrokenOff, kAnswered, kClosed, kAborted}}},
      {kBrokenOff,
       {"waiting for answers that broke off", wire::ANSWERING, {kCollecting, kClosed, kAborted}}},
      {kAnswered, {"answered", wire::ANSWERED, {kClosed, kAborted}}},
      {kClosed, {"closed", wire::CLOSED, {}}},
      {kAborted, {"aborted", wire::ABORTED, {}}}};
  const auto found = facts->find(stage);
  SHOAL_CHECK(found != facts->end());
  return found->second;
}

}  // namespace

absl::string_view Name(PartyStage stage) { return Of(stage).name; }
absl::string_view Name(FrontendStage stage) { return Of(stage).name; }

std::span<const PartyStage> After(PartyStage stage) { return Of(stage).after; }
std::span<const FrontendStage> After(FrontendStage stage) { return Of(stage).after; }

wire::RoundState Shown(FrontendStage stage) { return Of(stage).shown; }

bool IsWorkedOn(FrontendStage stage) {
  return stage == FrontendStage::kOffline || stage == FrontendStage::kOnline ||
         stage == FrontendStage::kCollecting || stage == FrontendStage::kBrokenOff;
}

bool IsFinal(FrontendStage stage) { return After(stage).empty(); }

template <typename Stage>
absl::Status RoundStage<Stage>::Check(Stage to) const {
  const std::span<const Stage> after = After(stage_);
  if (std::ranges::find(after, to) != after.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a round that is ", Name(stage_), " does not become one that is ", Name(to)));
}

template <typename Stage>
absl::Status RoundStage<Stage>::Advance(Stage to) {
  SHOAL_RETURN_IF_ERROR(Check(to));
  stage_ = to;
  return absl::OkStatus();
}

template class RoundStage<PartyStage>;
template class RoundStage<FrontendStage>;

}  // namespace shoal::server
