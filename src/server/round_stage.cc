#include "src/server/round_stage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/base/status_macros.h"

namespace shoal::server {

absl::string_view Name(PartyStage stage) {
  switch (stage) {
    case PartyStage::kDrafted:
      return "drafted";
    case PartyStage::kSigned:
      return "signed";
    case PartyStage::kPrepared:
      return "prepared";
    case PartyStage::kOffline:
      return "in its offline stage";
    case PartyStage::kReady:
      return "ready";
    case PartyStage::kQueried:
      return "queried";
    case PartyStage::kAnswered:
      return "answered";
    case PartyStage::kEnded:
      return "ended";
  }
  SHOAL_CHECK(false);
}

absl::string_view Name(FrontendStage stage) {
  switch (stage) {
    case FrontendStage::kTakingOnions:
      return "taking onions";
    case FrontendStage::kOffline:
      return "in its offline stage";
    case FrontendStage::kTakingQueries:
      return "taking queries";
    case FrontendStage::kOnline:
      return "in its online stage";
    case FrontendStage::kCollecting:
      return "collecting answers";
    case FrontendStage::kBrokenOff:
      return "waiting for answers that broke off";
    case FrontendStage::kAnswered:
      return "answered";
    case FrontendStage::kClosed:
      return "closed";
    case FrontendStage::kAborted:
      return "aborted";
  }
  SHOAL_CHECK(false);
}

std::span<const PartyStage> After(PartyStage stage) {
  using enum PartyStage;
  static constexpr PartyStage kAfterDrafted[] = {kSigned, kEnded};
  static constexpr PartyStage kAfterSigned[] = {kPrepared, kOffline, kEnded};
  static constexpr PartyStage kAfterPrepared[] = {kOffline, kEnded};
  static constexpr PartyStage kAfterOffline[] = {kOffline, kReady, kEnded};
  static constexpr PartyStage kAfterReady[] = {kReady, kQueried, kEnded};
  static constexpr PartyStage kAfterQueried[] = {kReady, kQueried, kAnswered, kEnded};
  static constexpr PartyStage kAfterAnswered[] = {kReady, kQueried, kAnswered, kEnded};
  switch (stage) {
    case kDrafted:
      return kAfterDrafted;
    case kSigned:
      return kAfterSigned;
    case kPrepared:
      return kAfterPrepared;
    case kOffline:
      return kAfterOffline;
    case kReady:
      return kAfterReady;
    case kQueried:
      return kAfterQueried;
    case kAnswered:
      return kAfterAnswered;
    case kEnded:
      return {};
  }
  SHOAL_CHECK(false);
}

std::span<const FrontendStage> After(FrontendStage stage) {
  using enum FrontendStage;
  static constexpr FrontendStage kAfterTakingOnions[] = {kOffline, kClosed, kAborted};
  static constexpr FrontendStage kAfterOffline[] = {kTakingQueries, kClosed, kAborted};
  static constexpr FrontendStage kAfterTakingQueries[] = {kOnline, kClosed, kAborted};
  static constexpr FrontendStage kAfterOnline[] = {kCollecting, kClosed, kAborted};
  static constexpr FrontendStage kAfterCollecting[] = {kBrokenOff, kAnswered, kClosed, kAborted};
  static constexpr FrontendStage kAfterBrokenOff[] = {kCollecting, kClosed, kAborted};
  static constexpr FrontendStage kAfterAnswered[] = {kClosed, kAborted};
  switch (stage) {
    case kTakingOnions:
      return kAfterTakingOnions;
    case kOffline:
      return kAfterOffline;
    case kTakingQueries:
      return kAfterTakingQueries;
    case kOnline:
      return kAfterOnline;
    case kCollecting:
      return kAfterCollecting;
    case kBrokenOff:
      return kAfterBrokenOff;
    case kAnswered:
      return kAfterAnswered;
    case kClosed:
    case kAborted:
      return {};
  }
  SHOAL_CHECK(false);
}

wire::RoundState Shown(FrontendStage stage) {
  switch (stage) {
    case FrontendStage::kTakingOnions:
      return wire::OPEN_FOR_ONIONS;
    case FrontendStage::kOffline:
      return wire::SEALED;
    case FrontendStage::kTakingQueries:
      return wire::OPEN_FOR_QUERIES;
    case FrontendStage::kOnline:
    case FrontendStage::kCollecting:
    case FrontendStage::kBrokenOff:
      return wire::ANSWERING;
    case FrontendStage::kAnswered:
      return wire::ANSWERED;
    case FrontendStage::kClosed:
      return wire::CLOSED;
    case FrontendStage::kAborted:
      return wire::ABORTED;
  }
  SHOAL_CHECK(false);
}

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
