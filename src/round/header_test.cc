// Headers of two tiers: what they are bound to, and what has to agree.
#include "src/round/header.h"

#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/onion/hpke.h"
#include "src/roster/testing/parties.h"
#include "src/round/testing/headers.h"

namespace shoal::round {
namespace {

using roster::testing::kNowS;
using ::shoal::roster::testing::Parties;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDisagree = absl::StatusCode::kFailedPrecondition;

class TwoTiersHeaderTest : public ::testing::Test {
 protected:
  TwoTiersHeaderTest() : parties_(std::vector<uint32_t>{1, 1}, random_) {
    wire::NoiseParameters& noise = *parties_.draft().mutable_noise();
    noise.set_phi(4);
    noise.set_mode(300);
    noise.set_left_scale(15);
    noise.set_right_scale(60);
    parties_.draft().set_most_in_bucket(4);
    facts_ = {.manifest_digest = {5}, .rows = 100, .row_bytes = 64, .query_buckets = 10};
  }

  roster::Roster roster() const { return parties_.roster(); }
  wire::RoundHeader Header(const roster::Roster& roster) {
    wire::RoundHeader header = testing::DraftOf(kNowS * kCountersPerSecond, roster, facts_, kNowS);
    for (uint32_t i = 0; i < kTwoTiersKeys; ++i) {
      header.add_onion_keys(std::string(32, static_cast<char>(9 + i)));
    }
    return header;
  }
  absl::StatusOr<Round> SignAndVerify(const wire::RoundHeader& header) {
    return Round::Verify(testing::SignByAll(parties_, header), roster(), facts_, kNowS);
  }
  absl::Status Verify(const wire::RoundHeader& header) { return SignAndVerify(header).status(); }

  TestRandom random_{1};
  Parties parties_;
  TableFacts facts_;
};

TEST_F(TwoTiersHeaderTest, AllThatAgreesIsTaken) {
  const wire::RoundHeader header = Header(roster());
  SHOAL_EXPECT_OK(CheckHeader(header, OnionKeysOf(header, roster()), roster(), facts_, kNowS));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Round round, SignAndVerify(header));
  EXPECT_EQ(round.parties(), 2u);
  EXPECT_EQ(round.recipients().size(), kTwoTiersKeys);
}

TEST_F(TwoTiersHeaderTest, WhatDoesNotAgreeIsRefused) {
  const auto refused = [&](absl::StatusCode code, const std::string& why,
                           const std::function<void(wire::RoundHeader&)>& change) {
    wire::RoundHeader header = Header(roster());
    change(header);
    EXPECT_THAT(Verify(header), StatusIs(code, why));
  };
  refused(kDisagree, "its query_buckets are 11, and the table's 10",
          [](auto& h) { h.set_query_buckets(11); });
  refused(kDisagree, "its query_buckets are 0, and the table's 10",
          [](auto& h) { h.clear_query_buckets(); });
  refused(kInvalid, "2 onion keys instead of 4",
          [](auto& h) { h.mutable_onion_keys()->DeleteSubrange(2, 2); });
  refused(kInvalid, "5 onion keys instead of 4",
          [](auto& h) { h.add_onion_keys(std::string(32, 77)); });
  // One key for both roles of a party would make one context of two layers.
  for (int i = 1; i < 4; ++i) {
    refused(kInvalid, "the same onion key", [i](auto& h) { h.set_onion_keys(i, h.onion_keys(0)); });
  }
  refused(kInvalid, "a term of 3 refreshes", [](auto& h) {
    h.set_max_refreshes(3);
    h.set_term_expires_s(h.expires_s() + 1);
  });
  refused(kInvalid, "a term of 0 refreshes",
          [](auto& h) { h.set_term_expires_s(h.expires_s() + 1); });
  refused(kInvalid, "noise for 10 rows of a table of 100", [](auto& h) { h.set_max_rows(10); });

  // The table is for rows, and the round is not, and the other way round.
  const wire::RoundHeader buckets = Header(roster());
  facts_.query_buckets = 0;
  EXPECT_THAT(Verify(buckets), StatusIs(kDisagree, "its query_buckets are 10, and the table's 0"));
  wire::RoundHeader rows = Header(roster());
  rows.mutable_onion_keys()->DeleteSubrange(2, 2);
  EXPECT_THAT(Verify(rows), StatusIs(kDisagree,
                                     "its query_buckets are 0, and most_in_bucket is 4 in "
                                     "the roster of 2 parties"));
  facts_.query_buckets = 10;
  parties_.draft().clear_most_in_bucket();
  EXPECT_THAT(Verify(Header(roster())),
              StatusIs(kDisagree, "its query_buckets are 10, and most_in_bucket is 0"));
}

// A client sends phi queries: they need as many places.
TEST_F(TwoTiersHeaderTest, TheNoiseIsForNoMoreThanThereIsRoomFor) {
  parties_.draft().set_most_in_bucket(1);
  facts_.query_buckets = 3;
  facts_.rows = 12;
  wire::RoundHeader header = Header(roster());
  EXPECT_THAT(Verify(header), StatusIs(kDisagree,
                                       "the noise is for 4 queries of a client, and 3 "
                                       "buckets with 1 queries each take 3"));
  facts_.query_buckets = 4;
  header.set_query_buckets(4);
  SHOAL_EXPECT_OK(Verify(header));
  parties_.draft().set_most_in_bucket(4);
  facts_.query_buckets = 1u << 30;
  facts_.rows = 1u << 30;
  header = Header(roster());
  SHOAL_EXPECT_OK(Verify(header));
  facts_.query_buckets += 1;
  facts_.rows += 1;
  header.set_max_rows(facts_.rows);
  header.set_query_buckets(facts_.query_buckets);
  EXPECT_THAT(Verify(header), StatusIs(kDisagree, "4294967300 places, and 4294967296 is the most"));
}

// Whoever has verified a header divides rows by its buckets, and allots a query a bit for each row
// of one.
TEST_F(TwoTiersHeaderTest, ABucketHasNoMoreRowsThanAQueryHasBitsFor) {
  facts_.rows = 2048;
  facts_.query_buckets = 2;
  wire::RoundHeader header = Header(roster());
  header.set_max_rows(2048);
  header.set_query_buckets(2);
  SHOAL_EXPECT_OK(Verify(header));
  facts_.rows = 2049;
  header.set_max_rows(2049);
  EXPECT_THAT(Verify(header),
              StatusIs(kInvalid, "round header: query_buckets: 2 buckets for 2049"));
}

TEST_F(TwoTiersHeaderTest, SubmissionsHaveAPieceForEachHalf) {
  const wire::RoundHeader header = Header(roster());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Round round, SignAndVerify(header));
  ASSERT_TRUE(round.buckets().has_value());
  EXPECT_EQ(round.buckets()->count(), 10u);
  EXPECT_EQ(round.buckets()->rows(), 100u);
  EXPECT_EQ(round.recipients().size(), 4u);
  EXPECT_EQ(round.parts_bytes(), 72u + 8);
  EXPECT_EQ(round.tagged_bytes(), header.answer_bytes() + 16);
  EXPECT_EQ(round.fetched_bytes(), 2 * (header.answer_bytes() + 16));
  EXPECT_EQ(round.SubmissionBytes(1), 96u + 64);
  EXPECT_EQ(round.MaxSubmissionSlots(), 16'382u);
  for (const auto& [bytes, slots] :
       std::vector<std::pair<size_t, size_t>>{{0, 0},
                                              {80, 0},
                                              {96, 0},
                                              {112, 0},
                                              {128, 0},
                                              {159, 0},
                                              {160, 1},
                                              {161, 0},
                                              {192, 0},
                                              {224, 2},
                                              {round.SubmissionBytes(16'382), 16'382},
                                              {round.SubmissionBytes(16'383), 0}}) {
    EXPECT_EQ(round.SubmissionSlots(bytes), slots) << bytes;
  }
}

// The keys are in the order of the halves, whoever adds them, and each party knows its draft again.
TEST_F(TwoTiersHeaderTest, EachPartyAddsItsKeysInTheMiddle) {
  wire::RoundHeader whole = Header(roster());
  const std::vector<std::string> keys(whole.onion_keys().begin(), whole.onion_keys().end());
  wire::RoundHeader draft = whole;
  draft.clear_onion_keys();
  EXPECT_EQ(OnionKeysBefore(draft, 1), 0u);
  AddOnionKeys(std::vector<std::string>{keys[0], keys[3]}, draft);
  EXPECT_EQ(OnionKeysBefore(draft, 2), 2u);
  SHOAL_EXPECT_OK(CheckHeader(draft, 2, roster(), facts_, kNowS));
  const wire::RoundHeader of_party_1 = draft;
  AddOnionKeys(std::vector<std::string>{keys[1], keys[2]}, draft);
  EXPECT_EQ(RoundId(draft), RoundId(whole));
  EXPECT_TRUE(Completes(of_party_1, whole));
  EXPECT_TRUE(Completes(draft, whole));
  const auto changed = [&](const std::function<void(wire::RoundHeader&)>& change) {
    wire::RoundHeader header = whole;
    change(header);
    return !Completes(of_party_1, header);
  };
  for (const int own : {0, 3}) {
    EXPECT_TRUE(changed([&](auto& h) { h.set_onion_keys(own, std::string(32, 'x')); })) << own;
  }
  EXPECT_TRUE(changed([](auto& h) { h.mutable_onion_keys()->SwapElements(2, 3); }));
  EXPECT_TRUE(changed([](auto& h) { h.mutable_onion_keys()->DeleteSubrange(1, 3); }));
  EXPECT_TRUE(changed([](auto& h) { h.set_query_buckets(11); }));

  // In a round for rows they follow each other.
  wire::RoundHeader rows = of_party_1;
  rows.clear_query_buckets();
  EXPECT_EQ(OnionKeysBefore(rows, 3), 2u);
  const wire::RoundHeader before = rows;
  AddOnionKeys(std::vector<std::string>{keys[1]}, rows);
  EXPECT_EQ(rows.onion_keys(2), keys[1]);
  EXPECT_TRUE(Completes(before, rows));
  rows.mutable_onion_keys()->SwapElements(1, 2);
  EXPECT_FALSE(Completes(before, rows));
}

// A roster of three parties, or of several machines, has no most_in_bucket, and so no such rounds.
TEST_F(TwoTiersHeaderTest, ThreePartiesHaveNone) {
  TestRandom random(2);
  const Parties three(std::vector<uint32_t>{1, 1, 1}, random);
  const roster::Roster roster = three.roster();
  wire::RoundHeader header = Header(roster);
  header.add_machines(1);
  EXPECT_THAT(CheckHeader(header, OnionKeysOf(header, roster), roster, facts_, kNowS),
              StatusIs(kDisagree, "most_in_bucket is 0 in the roster of 3 parties"));
}

// Rounds for rows have the ids that they always had, and no round of one kind has the id of one of
// another kind: each optional field follows all those before it.
TEST_F(TwoTiersHeaderTest, OptionalFieldsDoNotStandInForEachOther) {
  wire::RoundHeader header;
  header.set_counter(7);
  header.set_max_slots(3);
  EXPECT_EQ(Hex(RoundId(header)),
            "685877643ad63cdc0fab776644b677cf376018fb224e206d41704570f7123426");
  header.set_query_buckets(5);
  EXPECT_EQ(Hex(RoundId(header)),
            "95c27c0f6505d2806a78519fc6e1ee42e4a8ede3388fb442ca85fcb947c426be");
  std::set<Digest> ids;
  for (const uint32_t refreshes : {0, 5}) {
    for (const uint64_t expires : {0, 5}) {
      for (const uint32_t buckets : {0, 5, 6}) {
        header.set_max_refreshes(refreshes);
        header.set_term_expires_s(expires);
        header.set_query_buckets(buckets);
        ids.insert(RoundId(header));
      }
    }
  }
  EXPECT_EQ(ids.size(), 12u);
}

}  // namespace
}  // namespace shoal::round
