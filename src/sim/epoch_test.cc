// Tests that a chain changes to the next epoch of its table without a restart: parties take the
// epoch one after the other, open rounds end under the epoch that they began with, and no party
// goes back (guarantee 12 of docs/threat-model.md).
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/server/testing/deployment.h"

namespace shoal::sim {
namespace {

using server::Action;
using server::testing::Client;
using server::testing::Deployment;
using ::shoal::testing::StatusIs;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

constexpr uint64_t kRows = 40, kMoreRows = 70;
constexpr uint32_t kRowBytes = 64, kLongerRowBytes = 96;
const std::vector<uint64_t> kAsked = {0, 7, 39};

class EpochTest : public ::testing::Test {
 protected:
  EpochTest() : deployment_({.rows = kRows, .row_bytes = kRowBytes}) {}

  absl::Status Take(uint32_t party, uint64_t epoch) {
    return deployment_.party(party).TakeEpoch(deployment_.Epoch(epoch, party));
  }
  void TakeEverywhere(uint64_t epoch) {
    for (uint32_t party = 1; party <= 3; ++party) SHOAL_EXPECT_OK(Take(party, epoch));
  }
  void ExpectAnswers(Client& client, const std::vector<uint64_t>& rows, uint64_t epoch) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client.Fetch());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(std::ranges::equal(answers[i], deployment_.Answer(rows[i], epoch)))
          << "row " << rows[i] << " in epoch " << epoch;
    }
  }
  // A whole round, which must be of `epoch`.
  void ExpectARound(uint64_t epoch, const std::vector<uint64_t>& rows) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
    EXPECT_EQ(round.header().manifest_digest(),
              AsText(deployment_.Epoch(epoch, 1).facts.manifest_digest));
    Client client(&deployment_, round);
    SHOAL_ASSERT_OK(client.Obtain(rows.size()));
    SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
    SHOAL_ASSERT_OK(client.Query(rows));
    SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
    ExpectAnswers(client, rows, epoch);
    SHOAL_EXPECT_OK(deployment_.EndRound(round.id()));
  }

  Deployment deployment_;
};

// The parties take an epoch with more and longer rows, in each order, with rounds open in three
// stages. A round proposed meanwhile fails cleanly and names who is ahead or behind.
TEST_F(EpochTest, OpenRoundsEndUnderTheirEpochInWhateverOrderThePartiesTakeTheNext) {
  std::vector<uint32_t> order = {1, 2, 3};
  for (uint64_t epoch = 2;; ++epoch) {
    const uint64_t before = epoch - 1;
    struct Open {
      round::Round round;
      Client client;
    };
    std::vector<Open> open;
    for (int stage = 0; stage < 3; ++stage) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
      open.push_back({round, Client(&deployment_, round)});
      if (stage == 0) continue;
      SHOAL_ASSERT_OK(open[stage].client.Obtain(kAsked.size()));
      if (stage == 1) continue;
      SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
      SHOAL_ASSERT_OK(open[stage].client.Query(kAsked));
    }
    const bool longer = epoch % 2 == 0;
    ASSERT_EQ(
        deployment_.MakeEpoch(longer ? kMoreRows : kRows, longer ? kLongerRowBytes : kRowBytes),
        epoch);
    for (const uint32_t party : order) {
      SHOAL_ASSERT_OK(Take(party, epoch));
      if (party == order.back()) break;
      const std::string who = order.front() == 1 && party == order[0]
                                  ? "party 2: has another epoch of the table"
                                  : "has another epoch of the table";
      EXPECT_THAT(deployment_.Announce(), StatusIs(kRefused, who));
    }
    for (int stage = 0; stage < 3; ++stage) {
      Open& o = open[stage];
      if (stage == 0) {
        SHOAL_ASSERT_OK(o.client.Obtain(kAsked.size()));
      }
      if (stage <= 1) {
        SHOAL_ASSERT_OK(deployment_.RunOffline(o.round.id()));
        SHOAL_ASSERT_OK(o.client.Query(kAsked));
      }
      SHOAL_ASSERT_OK(deployment_.RunOnline(o.round.id()));
      ExpectAnswers(o.client, kAsked, before);
      SHOAL_EXPECT_OK(deployment_.EndRound(o.round.id()));
    }
    ExpectARound(epoch, longer ? std::vector<uint64_t>{kMoreRows - 1, 3} : kAsked);
    if (!std::ranges::next_permutation(order).found) break;
  }
}

// A proposal on whose way a party takes the next epoch is signed by nobody to the end, and leaves
// no draft behind.
TEST_F(EpochTest, ADraftOfTheEpochBeforeIsNotSigned) {
  deployment_.MakeEpoch(kMoreRows, kRowBytes);
  deployment_.tamper(1).draft = [&](wire::RoundHeader&) { SHOAL_EXPECT_OK(Take(1, 2)); };
  EXPECT_THAT(deployment_.Announce(),
              StatusIs(kRefused, "party 1: has taken epoch 2 of the table meanwhile"));
  deployment_.tamper(1).draft = nullptr;
  SHOAL_ASSERT_OK(Take(3, 2));
  SHOAL_ASSERT_OK(Take(2, 2));
  ExpectARound(2, kAsked);
  for (uint32_t party = 1; party <= 3; ++party) {
    EXPECT_EQ(deployment_.party(party).open_rounds(), 0u) << party;
  }
}

TEST_F(EpochTest, AnEpochIsNeverGivenUpForAnOlderOneNorForAnotherContent) {
  deployment_.MakeEpoch(kMoreRows, kRowBytes);
  deployment_.MakeEpoch(kRows, kRowBytes);
  EXPECT_THAT(Take(2, 1), StatusIs(kRefused, "epoch 1 of the table is not after epoch 1"));
  TakeEverywhere(3);
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_THAT(Take(2, epoch), StatusIs(kRefused, "is not after epoch 3, which is served"));
  }
  server::TableEpoch other = deployment_.Epoch(2, 1);
  other.epoch = 4;
  other.id[0] ^= 1;
  EXPECT_THAT(deployment_.party(1).TakeEpoch(other), StatusIs(kRefused, "another table"));
  other.id = {};
  other.facts.rows = 0;  // fewer than phi
  EXPECT_THAT(deployment_.party(1).TakeEpoch(other), StatusIs(kInvalid, "phi"));
  // The backend's answers are those of another epoch.
  other = deployment_.Epoch(2, 3);
  other.epoch = 4;
  other.facts.rows = kRows;
  EXPECT_THAT(deployment_.party(3).TakeEpoch(other), StatusIs(kInvalid, "does not fit"));
  ExpectARound(3, kAsked);
  // After a restart, too: the journal has the epoch.
  for (uint32_t party = 1; party <= 3; ++party) deployment_.Restart(party);
  ExpectARound(3, kAsked);
}

// What cannot be written down is not served. Later the same epoch can be taken, and no other
// content of it.
TEST_F(EpochTest, AnEpochThatTheJournalDoesNotHoldIsNotServed) {
  deployment_.MakeEpoch(kMoreRows, kRowBytes);
  deployment_.disk(2).writes_left = 0;
  EXPECT_THAT(Take(2, 2), StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
  deployment_.disk(2).writes_left = -1;
  EXPECT_EQ(deployment_.party(2).table()->epoch, 1u);
  ExpectARound(1, kAsked);
  server::TableEpoch other = deployment_.Epoch(2, 2);
  other.facts.manifest_digest[0] ^= 1;
  EXPECT_THAT(deployment_.party(2).TakeEpoch(other), StatusIs(kRefused, "epoch 2"));
  TakeEverywhere(2);
  ExpectARound(2, kAsked);
}

// An old table's answers are in memory as long as a round of it is open, and no longer.
TEST_F(EpochTest, AnOldTableIsDroppedWithItsLastRound) {
  deployment_.MakeEpoch(kRows, kRowBytes);
  deployment_.MakeEpoch(kRows, kRowBytes);
  deployment_.MakeEpoch(kRows, kRowBytes);
  std::vector<std::weak_ptr<const Bytes>> held;
  const auto take_with_holder = [&](uint64_t epoch) {
    server::TableEpoch table = deployment_.Epoch(epoch, 3);
    table.holder = std::make_shared<const Bytes>(ToBytes(table.answers.bytes));
    table.answers.bytes = *table.holder;
    held.push_back(table.holder);
    SHOAL_EXPECT_OK(Take(1, epoch));
    SHOAL_EXPECT_OK(Take(2, epoch));
    SHOAL_EXPECT_OK(deployment_.party(3).TakeEpoch(std::move(table)));
  };
  take_with_holder(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  Client client(&deployment_, round);
  SHOAL_ASSERT_OK(client.Obtain(kAsked.size()));
  take_with_holder(3);
  EXPECT_FALSE(held[0].expired());
  SHOAL_ASSERT_OK(deployment_.RunOffline(round.id()));
  SHOAL_ASSERT_OK(client.Query(kAsked));
  SHOAL_ASSERT_OK(deployment_.RunOnline(round.id()));
  ExpectAnswers(client, kAsked, 2);
  EXPECT_FALSE(held[0].expired());
  SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
  EXPECT_TRUE(held[0].expired());
  take_with_holder(4);  // no round was of epoch 3
  EXPECT_TRUE(held[1].expired());
  EXPECT_FALSE(held[2].expired());
}

// How much a party reads is bounded by the largest table of an open round.
TEST_F(EpochTest, ReceiversAllowForTheLargestTableWithOpenRounds) {
  const uint64_t small = deployment_.party(3).MaxInput().offline_bytes;
  deployment_.MakeEpoch(kMoreRows, kRowBytes);
  deployment_.MakeEpoch(kRows, kRowBytes);
  TakeEverywhere(2);
  const uint64_t large = deployment_.party(3).MaxInput().offline_bytes;
  EXPECT_GT(large, small);
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, deployment_.Announce());
  TakeEverywhere(3);
  EXPECT_EQ(deployment_.party(3).MaxInput().offline_bytes, large);
  SHOAL_ASSERT_OK(deployment_.EndRound(round.id()));
  EXPECT_EQ(deployment_.party(3).MaxInput().offline_bytes, small);
}

// The frontend opens a round of the new epoch at once, beside one of the old that still takes
// onions: clients of the new epoch do not wait for its window.
TEST_F(EpochTest, ARoundOfTheOldEpochHoldsUpNoneOfTheNew) {
  const auto announces = [&] {
    const std::vector<server::Due> due = deployment_.frontend().WhatIsDue();
    return std::ranges::any_of(due, [](const auto& d) { return d.action == Action::kAnnounce; });
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round old, deployment_.Announce());
  EXPECT_FALSE(announces());
  deployment_.MakeEpoch(kMoreRows, kRowBytes);
  TakeEverywhere(2);
  EXPECT_TRUE(announces());
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round next, deployment_.Announce());
  EXPECT_FALSE(announces());
  Client early(&deployment_, old), late(&deployment_, next);
  SHOAL_EXPECT_OK(early.Obtain(2));
  SHOAL_EXPECT_OK(late.Obtain(2));
}

}  // namespace
}  // namespace shoal::sim
