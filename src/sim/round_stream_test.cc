// Rounds that end while a party makes a piece of what it sends: what the piece is made of is still
// there, and the piece does not leave (docs/threat-model.md, guarantees 2 and 5).
#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/byte_source.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/sanitized.h"
#include "src/base/testing/soon.h"
#include "src/server/testing/deployment.h"
#include "src/wire/query_batch.h"

namespace shoal::sim {
namespace {

using server::testing::Client;
using server::testing::Deployment;
using server::testing::Offline;
using server::testing::Queries;
using server::testing::Seal;
using server::testing::SealedRound;
using ::shoal::testing::StatusIs;

constexpr size_t kSlots = 6;
// A list of answers takes several pieces.
constexpr uint32_t kRowBytes = 40'000;

// How a round ends.
enum class End { kCall, kList, kExpiry, kAll };
constexpr End kEnds[] = {End::kCall, End::kList, End::kExpiry, End::kAll};

class RoundStreamTest : public ::testing::Test {
 protected:
  RoundStreamTest()
      : deployment_({.rows = 20,
                     .row_bytes = kRowBytes,
                     .plan = {.stage_limit_s = 100},
                     .making_piece = [this](const Digest&) {
                       if (before_piece_) before_piece_();
                     }}) {}

  void Begin() {
    auto round = deployment_.Announce();
    ASSERT_THAT(round, testing::IsOk());
    round_.emplace(*std::move(round));
    client_.emplace(&deployment_, *round_);
    SHOAL_ASSERT_OK(client_->Obtain(kSlots));
    SHOAL_ASSERT_OK_AND_ASSIGN(sealed_, Seal(deployment_.frontend(), id()));
  }
  const Digest& id() const { return round_->id(); }
  server::Party& party(uint32_t number) { return deployment_.party(number); }

  // What goes from party to party until all have their queries.
  void BringToQueries() {
    Begin();
    if (HasFatalFailure()) return;
    SHOAL_ASSERT_OK_AND_ASSIGN(Bytes list, Offline(party(1), round_->wire(), sealed_));
    SHOAL_ASSERT_OK_AND_ASSIGN(list, Offline(party(2), round_->wire(), list));
    SHOAL_ASSERT_OK(Offline(party(3), round_->wire(), list));
    wire::QueryBatch batch;
    for (uint32_t i = 0; i < kSlots; ++i) {
      batch.positions.push_back(i);
      batch.tallies.push_back(1000 + i);
    }
    queries_ = EncodeQueryBatch(batch, kSlots);
    for (uint32_t j = 1; j <= 2; ++j) {
      SHOAL_ASSERT_OK_AND_ASSIGN(queries_, Queries(party(j), id(), queries_));
    }
  }

  // The answers of party `number`, as it will hand them out.
  absl::StatusOr<std::unique_ptr<ByteSource>> AnswersOf(uint32_t number) {
    if (number == 3) return party(3).AnswerQueries(id(), BytesView(queries_));
    SHOAL_ASSIGN_OR_RETURN(auto later, AnswersOf(number + 1));
    server::OnePart whole(std::move(later));
    return party(number).Answers(id(), whole);
  }

  // Ends the round at a party. Returns when it is no longer open there, although a call may work on
  // it; the end itself may wait for that call.
  void EndAt(uint32_t number, End how) {
    ending_ = std::async(std::launch::async, [this, number, how] {
      server::Party& ended = party(number);
      switch (how) {
        case End::kCall:
          SHOAL_EXPECT_OK(ended.End(id()));
          break;
        case End::kList:
          deployment_.frontend().Close(id());
          SHOAL_EXPECT_OK(ended.TakeLive(deployment_.frontend().Live()));
          break;
        case End::kExpiry:
          deployment_.clock().steady_s += 1'000'000;
          ended.EndExpired();
          break;
        case End::kAll:
          ended.EndAll();
          break;
      }
    });
    ASSERT_TRUE(::shoal::testing::Soon([&] { return !party(number).Stage(id()).ok(); }));
  }

  // Reads pieces; the round ends while piece `at`, from 0 on, is made: `middle` of it says whether
  // the piece has what it is made of by then, of a source of answers.
  void ExpectNoPieceOfAnEndedRound(uint32_t number, ByteSource& source, int at, End how,
                                   bool middle = false) {
    for (int piece = 0; piece < at; ++piece) {
      const auto given = source.Next();
      ASSERT_THAT(given, testing::IsOk());
      ASSERT_FALSE(given->empty());
    }
    bool ended = false, begun = false;
    before_piece_ = [&] {
      if (middle && !std::exchange(begun, true)) return;
      if (!std::exchange(ended, true)) EndAt(number, how);
    };
    EXPECT_THAT(source.Next(), StatusIs(absl::StatusCode::kFailedPrecondition, "ended"))
        << "party " << number << ", piece " << at << ", end " << static_cast<int>(how)
        << (middle ? ", in the middle" : "");
    EXPECT_TRUE(ended) << "the test would not see it";
    before_piece_ = nullptr;
    ending_.wait();
    const auto after = source.Next();
    EXPECT_TRUE(!after.ok() || after->empty());
  }

  std::function<void()> before_piece_;  // set while nothing makes pieces
  Deployment deployment_;
  std::optional<round::Round> round_;
  std::optional<Client> client_;
  SealedRound sealed_;
  Bytes queries_;
  std::future<void> ending_;
};

TEST_F(RoundStreamTest, NoAnswersLeaveARoundThatEndsWhileTheyAreMade) {
  for (const uint32_t number : {3u, 2u, 1u}) {
    for (const End how : kEnds) {
      for (const int at : {0, 1}) {
        // The answers to clients alone, at party 1, are one piece.
        if (number == 1 && at > 0) continue;
        for (const bool middle : {false, true}) {
          if (kSanitized && !middle && how != End::kCall) continue;
          BringToQueries();
          ASSERT_FALSE(HasFatalFailure());
          SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, AnswersOf(number));
          ExpectNoPieceOfAnEndedRound(number, *answers, at, how, middle);
          SHOAL_ASSERT_OK(deployment_.EndRound(id()));
        }
      }
    }
  }
}

TEST_F(RoundStreamTest, NoListLeavesARoundThatEndsWhileItIsRead) {
  for (const uint32_t number : {1u, 2u}) {
    for (const End how : kEnds) {
      Begin();
      ASSERT_FALSE(HasFatalFailure());
      BytesSource submissions(sealed_.list);
      SHOAL_ASSERT_OK_AND_ASSIGN(
          auto intake,
          party(1).BeginOffline(round_->wire(), submissions.size(), {.records = sealed_.onions}));
      SHOAL_ASSERT_OK_AND_ASSIGN(auto list, party(1).Offline(std::move(intake), &submissions));
      if (number == 2) {
        SHOAL_ASSERT_OK_AND_ASSIGN(intake, party(2).BeginOffline(round_->wire(), list->size()));
        SHOAL_ASSERT_OK_AND_ASSIGN(list, party(2).Offline(std::move(intake), list.get()));
      }
      ExpectNoPieceOfAnEndedRound(number, *list, 0, how);
      SHOAL_ASSERT_OK(deployment_.EndRound(id()));
    }
  }
}

// The last piece leaves after the commitment to all, which waits for the disk.
TEST_F(RoundStreamTest, NoLastPieceLeavesARoundThatEndsWhileItIsCommittedTo) {
  for (const uint32_t number : {3u, 2u, 1u}) {
    BringToQueries();
    ASSERT_FALSE(HasFatalFailure());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, AnswersOf(number));
    std::atomic<bool> ended = false;
    deployment_.disk(number).before_write = [&] {
      if (!ended.exchange(true)) EndAt(number, End::kCall);
    };
    uint64_t given = 0;
    for (;;) {
      const auto piece = answers->Next();
      if (!piece.ok() || piece->empty()) break;
      given += piece->size();
    }
    EXPECT_TRUE(ended);
    EXPECT_LT(given, answers->size());
    ending_.wait();
    deployment_.disk(number).before_write = nullptr;
    SHOAL_ASSERT_OK(deployment_.EndRound(id()));
  }
}

}  // namespace
}  // namespace shoal::sim
