// Tests which stage may follow which, for every pair.
#include "src/server/round_stage.h"

#include <set>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::server {
namespace {

using ::shoal::testing::StatusIs;

// Tries every pair of the first `count` stages. Only the pairs in `legal` may follow each other.
template <typename Stage>
void TryAllPairs(size_t count, const std::set<std::pair<Stage, Stage>>& legal) {
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      const Stage from = static_cast<Stage>(i), to = static_cast<Stage>(j);
      RoundStage<Stage> stage(from);
      const absl::Status checked = stage.Check(to);
      EXPECT_EQ(stage.get(), from);
      const absl::Status advanced = stage.Advance(to);
      EXPECT_EQ(checked, advanced);
      if (legal.contains({from, to})) {
        SHOAL_EXPECT_OK(advanced);
        EXPECT_EQ(stage.get(), to);
      } else {
        EXPECT_EQ(stage.get(), from);
        for (const Stage named : {from, to}) {
          EXPECT_THAT(advanced, StatusIs(absl::StatusCode::kFailedPrecondition,
                                         "is " + std::string(Name(named))));
        }
      }
    }
  }
}

TEST(RoundStageTest, APartysRoundGoesOnByTheTableAlone) {
  using enum PartyStage;
  TryAllPairs<PartyStage>(8, {{kDrafted, kSigned},
                              {kDrafted, kEnded},
                              {kSigned, kPrepared},
                              {kSigned, kEnded},
                              {kPrepared, kOffline},
                              {kPrepared, kEnded},
                              {kOffline, kReady},
                              {kOffline, kEnded},
                              {kReady, kReady},
                              {kReady, kQueried},
                              {kReady, kEnded},
                              {kQueried, kQueried},
                              {kQueried, kAnswered},
                              {kQueried, kEnded},
                              {kAnswered, kQueried},
                              {kAnswered, kAnswered},
                              {kAnswered, kEnded}});
}

TEST(RoundStageTest, AFrontendsRoundGoesOnByTheTableAlone) {
  using enum FrontendStage;
  TryAllPairs<FrontendStage>(
      9, {{kTakingOnions, kOffline},  {kTakingOnions, kClosed},  {kTakingOnions, kAborted},
          {kOffline, kTakingQueries}, {kOffline, kClosed},       {kOffline, kAborted},
          {kTakingQueries, kOnline},  {kTakingQueries, kClosed}, {kTakingQueries, kAborted},
          {kOnline, kCollecting},     {kOnline, kClosed},        {kOnline, kAborted},
          {kCollecting, kBrokenOff},  {kCollecting, kAnswered},  {kCollecting, kClosed},
          {kCollecting, kAborted},    {kBrokenOff, kCollecting}, {kBrokenOff, kClosed},
          {kBrokenOff, kAborted},     {kAnswered, kClosed},      {kAnswered, kAborted}});
}

// Clients wait for a state by its number, so the number never goes back.
TEST(RoundStageTest, WhatClientsSeeNeverGoesBack) {
  for (uint8_t i = 0; i < 9; ++i) {
    const auto stage = static_cast<FrontendStage>(i);
    for (const FrontendStage next : After(stage))
      EXPECT_GE(Shown(next), Shown(stage)) << Name(stage);
    EXPECT_EQ(IsFinal(stage), i >= 7);
  }
}

}  // namespace
}  // namespace shoal::server
