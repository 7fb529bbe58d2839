// What the parties say of themselves: a chain of three, some of which do not answer or lie.
#include "src/shoald/chain_states.h"

#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/soon.h"
#include "src/base/testing/test_clock.h"

namespace shoal::shoald {
namespace {

using ::shoal::testing::TestClock;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

class ChainStatesTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kParties = 3;

  ChainStates Make(uint32_t party, decltype(ChainStates::Options::next) next) {
    return ChainStates({.party = party,
                        .parties = kParties,
                        .self =
                            [party] {
                              wire::PartyState state;
                              state.set_party(party);
                              state.set_version(absl::StrCat("0.2.", party));
                              return state;
                            },
                        .next = std::move(next),
                        .clock = &clocks_[party - 1]});
  }
  static auto Asks(ChainStates& next) {
    return [&next](const wire::PartyStatesRequest& request)
               -> absl::StatusOr<wire::PartyStatesResponse> { return next.Answer(request); };
  }

  TestClock clocks_[kParties];
};

TEST_F(ChainStatesTest, EveryPartyIsHeardAndItsClockMeasuredAgainstTheCallers) {
  clocks_[1].now_s += 7;
  clocks_[2].now_s -= 20;
  ChainStates third = Make(3, nullptr);
  ChainStates second = Make(2, Asks(third));
  ChainStates first = Make(1, Asks(second));
  const PartyStates states = first.Ask();
  ASSERT_EQ(states.size(), kParties);
  for (uint32_t party = 1; party <= kParties; ++party) {
    EXPECT_EQ(states[party - 1].party(), party);
    EXPECT_EQ(states[party - 1].version(), absl::StrCat("0.2.", party));
    EXPECT_THAT(states[party - 1].problem(), IsEmpty());
    EXPECT_EQ(states[party - 1].clock_offset_s(),
              static_cast<int64_t>(clocks_[party - 1].now_s - testing::kNowS));
  }
  EXPECT_THAT(first.next_offset_s(), Optional(7));
  EXPECT_EQ(first.previous_offset_s(), std::nullopt);
  EXPECT_THAT(second.previous_offset_s(), Optional(-7));
  EXPECT_THAT(second.next_offset_s(), Optional(-27));
  EXPECT_THAT(third.previous_offset_s(), Optional(27));
}

// The last party is missing, two hops away from who asks: the one between is heard all the same.
TEST_F(ChainStatesTest, AMissingPartyHidesNobodyBeforeIt) {
  ChainStates second = Make(2, [](const wire::PartyStatesRequest&) {
    return absl::UnavailableError("reaching party 3: refused");
  });
  ChainStates first = Make(1, Asks(second));
  PartyStates states = first.Ask();
  ASSERT_EQ(states.size(), kParties);
  EXPECT_EQ(states[1].version(), "0.2.2");
  EXPECT_EQ(states[2].party(), 3u);
  EXPECT_EQ(states[2].problem(), "reaching party 3: refused");

  ChainStates alone = Make(1, [](const wire::PartyStatesRequest&) {
    return absl::InvalidArgumentError("frame: a message of Shoal 0.2 came to one of Shoal 0.3");
  });
  states = alone.Ask();
  ASSERT_EQ(states.size(), kParties);
  EXPECT_EQ(states[1].problem(), "frame: a message of Shoal 0.2 came to one of Shoal 0.3");
  EXPECT_EQ(states[2].problem(), "not known, because of party 2");
}

// Files of another party's disk are named in no answer.
TEST_F(ChainStatesTest, ProblemsNameNoFile) {
  ChainStates first = Make(1, [](const wire::PartyStatesRequest&) {
    return StorageError(absl::StatusCode::kInternal, "/home/alice/state: broken");
  });
  EXPECT_EQ(first.Ask()[1].problem(), "storage failed");
}

TEST_F(ChainStatesTest, WhatNoHonestPartySaysCountsAsNoAnswer) {
  struct Lie {
    const char* what;
    std::function<void(wire::PartyStatesResponse&)> tell;
  };
  const Lie lies[] = {
      {"one too few", [](auto& r) { r.mutable_parties()->RemoveLast(); }},
      {"one too many", [](auto& r) { r.add_parties()->set_party(4); }},
      {"twice the same", [](auto& r) { r.mutable_parties(1)->set_party(2); }},
      {"a version for terminals", [](auto& r) { r.mutable_parties(1)->set_version("\x1b[2J"); }},
      {"a long problem",
       [](auto& r) { r.mutable_parties(1)->set_problem(std::string(2000, 'x')); }},
      {"no clock", [](auto& r) { r.set_clock_s(~uint64_t{0}); }},
      {"no offset",
       [](auto& r) {
         r.mutable_parties(1)->set_clock_offset_s(std::numeric_limits<int64_t>::min());
       }},
  };
  ChainStates third = Make(3, nullptr);
  ChainStates second = Make(2, Asks(third));
  for (const Lie& lie : lies) {
    ChainStates first = Make(1, [&](const wire::PartyStatesRequest& request) {
      absl::StatusOr<wire::PartyStatesResponse> response = second.Answer(request);
      lie.tell(*response);
      return response;
    });
    const PartyStates states = first.Ask();
    ASSERT_EQ(states.size(), kParties) << lie.what;
    EXPECT_THAT(states[1].problem(), HasSubstr("states of parties: ")) << lie.what;
    EXPECT_FALSE(states[2].problem().empty()) << lie.what;
  }
  wire::PartyStatesRequest request;
  request.set_clock_s(~uint64_t{0});
  ChainStates fresh = Make(2, Asks(third));
  fresh.Answer(request);
  EXPECT_EQ(fresh.previous_offset_s(), std::nullopt);
}

TEST_F(ChainStatesTest, TheWatchKnowsTheChainOnceItHasAsked) {
  ChainStates third = Make(3, nullptr);
  ChainStates second = Make(2, Asks(third));
  ChainStates first = Make(1, Asks(second));
  const ChainWatch watch(&first, &clocks_[0]);
  ASSERT_TRUE(::shoal::testing::Soon([&] { return !watch.Last().parties.empty(); }));
  EXPECT_EQ(watch.Last().parties.size(), kParties);
  EXPECT_EQ(watch.Last().age_s, 0u);
}

}  // namespace
}  // namespace shoal::shoald
