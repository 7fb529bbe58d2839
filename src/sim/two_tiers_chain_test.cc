// Rounds of two tiers through both parties in one process: what P1's frontend and both parties do
// with two halves, what they refuse, and what they never do twice (docs/protocol.md, section 11).
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/base/query_buckets.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/parallel/mutex.h"
#include "src/server/chain.h"
#include "src/server/testing/deployment.h"
#include "src/server/testing/two_tiers_client.h"
#include "src/sharing/halves.h"
#include "src/wire/query_batch.h"

namespace shoal::server {
namespace {

using sharing::Half;
using ::shoal::testing::StatusIs;
using testing::Break;
using testing::Deployment;
using testing::DeploymentOptions;
using testing::HeadCall;
constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

constexpr uint64_t kRows = 40;
constexpr uint32_t kBuckets = 8;

// Tells which reports came, in which order.
class Told {
 public:
  void Add(const wire::StageReport& report) {
    const MutexLock lock(mutex_);
    told_.push_back(absl::StrCat(report.party(), " ", report.stage(), " ", report.half()));
  }
  std::vector<std::string> all() const {
    const MutexLock lock(mutex_);
    return told_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
};

// Clients with a slot for each query, each in a submission of its own.
class TwoTiersTest : public ::testing::Test {
 protected:
  explicit TwoTiersTest(uint64_t spool_memory_bytes = 1 << 30)
      : deployment_({.parties = 2,
                     .rows = kRows,
                     .spool_memory_bytes = spool_memory_bytes,
                     .stage_done = [this](const wire::StageReport& r) { told_.Add(r); },
                     .query_buckets = kBuckets,
                     .most_in_bucket = 1}) {}

  absl::Status Announce() {
    SHOAL_ASSIGN_OR_RETURN(wire::RoundHeader draft, deployment_.frontend().NewDraft());
    draft.set_query_buckets(kBuckets);
    SHOAL_ASSIGN_OR_RETURN(header_,
                           deployment_.node(1).Propose(draft, deployment_.frontend().Live()));
    SHOAL_ASSIGN_OR_RETURN(round_,
                           round::Round::Verify(header_, deployment_.roster(), deployment_.table(),
                                                deployment_.clock().NowSeconds()));
    client_.emplace(&deployment_, *round_);
    return absl::OkStatus();
  }
  const Digest& id() const { return round_->id(); }
  sharing::HalfIds ids() const { return sharing::HalfIds(id()); }
  size_t selection_bytes() const { return buckets_.selection_bytes(); }
  size_t answer_bytes() const { return sharing::TaggedBytes(round_->answer_bytes()); }

  void Submit(size_t slots) {
    for (size_t i = 0; i < slots; ++i) client_->Submit();
  }

  absl::Status RunOffline() {
    return deployment_.node(1).OfflineOfHalves(header_, client_->ListA(), client_->ListB());
  }

  // z_A | T'_A | z_B | T'_B of each query.
  absl::StatusOr<Bytes> RunOnline() {
    const Bytes a = client_->BatchA(), b = client_->BatchB();
    SHOAL_ASSIGN_OR_RETURN(const HalvesAnswers answers,
                           deployment_.node(1).OnlineOfHalves(id(), a, b));
    SHOAL_ASSIGN_OR_RETURN(const Bytes of_a, ReadAll(*answers.a));
    SHOAL_ASSIGN_OR_RETURN(const Bytes of_b, ReadAll(*answers.b));
    // Whatever failed, every used slot has its bytes in both halves.
    EXPECT_EQ(of_a.size(), client_->rows.size() * answer_bytes());
    EXPECT_EQ(of_b.size(), client_->rows.size() * answer_bytes());
    Bytes all;
    for (size_t i = 0; i < client_->rows.size(); ++i) {
      Append(all, BytesView(of_a).subspan(i * answer_bytes(), answer_bytes()));
      Append(all, BytesView(of_b).subspan(i * answer_bytes(), answer_bytes()));
    }
    return all;
  }
  static std::vector<bool> AllBut(size_t count, std::vector<size_t> lost) {
    std::vector<bool> right(count, true);
    for (const size_t i : lost) right[i] = false;
    return right;
  }
  void ExpectAllRight() {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes tagged, RunOnline());
    EXPECT_EQ(client_->Right(tagged), AllBut(client_->rows.size(), {}));
  }
  // A round whose clients have their slots.
  void RunToQueries(size_t slots = 12) {
    SHOAL_ASSERT_OK(Announce());
    Submit(slots);
    SHOAL_ASSERT_OK(RunOffline());
    client_->Query(SomeRows(slots));
  }
  static std::vector<uint32_t> SomeRows(size_t count) {
    std::vector<uint32_t> rows;
    for (size_t i = 0; i < count; ++i) rows.push_back(static_cast<uint32_t>(i * 17 % kRows));
    return rows;
  }

  // Party 2's calls, as they come to it alone.
  absl::StatusOr<Bytes> HeadOffline(const Bytes& pieces, uint64_t slots) {
    SHOAL_ASSIGN_OR_RETURN(
        const auto list,
        deployment_.node(2).HeadOffline(
            header_, {}, {std::make_unique<BytesSource>(Bytes(pieces)), slots}, ~0ull));
    return ReadAll(*list);
  }
  absl::StatusOr<Bytes> HeadQueries(const Bytes& batch) {
    return deployment_.node(2).HeadQueries(id(), {}, batch, ~0ull);
  }
  absl::StatusOr<Bytes> HeadAnswers(const Bytes& answers) {
    SHOAL_ASSIGN_OR_RETURN(const auto back,
                           deployment_.node(2).HeadAnswers(
                               id(), {}, std::make_unique<BytesSource>(Bytes(answers)), ~0ull));
    return ReadAll(*back);
  }
  absl::StatusOr<Bytes> Online(const Bytes& batch) {
    SHOAL_ASSIGN_OR_RETURN(auto back, deployment_.node(2).Online(id(), {}, Bytes(batch)));
    return ReadAll(*back);
  }
  // What passes over the link to party 2 and back in the calls for half B, in the order of calls.
  void Record() {
    testing::Tamper& tamper = deployment_.tamper(1);
    tamper.to_head = [this](HeadCall call, Bytes& bytes) { sent_[call].push_back(bytes); };
    tamper.from_head = [this](HeadCall call, Bytes& bytes) { back_[call].push_back(bytes); };
    tamper.onions = [this](Bytes& bytes) { lists_of_a_.push_back(bytes); };
    tamper.queries = [this](Bytes& bytes) { batches_of_a_.push_back(bytes); };
    tamper.answers = [this](Bytes& bytes) { answers_of_a_.push_back(bytes); };
  }
  void StopRecording() {
    testing::Tamper& tamper = deployment_.tamper(1);
    tamper.to_head = tamper.from_head = nullptr;
    tamper.onions = tamper.queries = tamper.answers = nullptr;
  }
  size_t open(uint32_t party) { return deployment_.party(party).open_rounds(); }

  Told told_;
  Deployment deployment_;
  const QueryBuckets buckets_{kRows, kBuckets};
  wire::SignedHeader header_;
  std::optional<round::Round> round_;
  std::optional<testing::TwoTiersClient> client_;
  std::map<HeadCall, std::vector<Bytes>> sent_, back_;
  std::vector<Bytes> lists_of_a_, batches_of_a_, answers_of_a_;
};

// What both parties refuse.
class TwoTiersGuardTest : public TwoTiersTest {};

TEST_F(TwoTiersTest, EveryQueryGetsItsRow) {
  RunToQueries(kRows);
  ExpectAllRight();
  // Of half A party 1 is the head, of half B party 2. Tails have no noise.
  std::vector<std::string> stages;
  SHOAL_ASSERT_OK_AND_ASSIGN(const StageReports reports, deployment_.node(1).Reports(id()));
  for (const wire::StageReport& report : reports) {
    stages.push_back(absl::StrCat(report.party(), " ", report.stage(), " ", report.half()));
  }
  EXPECT_THAT(stages, ::testing::UnorderedElementsAre("1 noise 1", "1 offline 1", "1 online 1",
                                                      "1 answers 1", "1 offline 2", "1 online 2",
                                                      "2 offline 1", "2 online 1", "2 noise 2",
                                                      "2 offline 2", "2 online 2", "2 answers 2"));
  EXPECT_THAT(told_.all(), ::testing::UnorderedElementsAreArray(stages));

  deployment_.frontend().Withdraw(round_->counter());
  SHOAL_ASSERT_OK(deployment_.SendList());
  for (const uint32_t party : {1u, 2u}) {
    EXPECT_EQ(open(party), 0u);
    EXPECT_THAT(deployment_.party(party).Stage(id()),
                StatusIs(absl::StatusCode::kNotFound, "not open here"));
    for (const Half half : {Half::kA, Half::kB}) {
      EXPECT_THAT(deployment_.party(party).BeginOffline(header_, 0, {.records = 0}, half),
                  StatusIs(absl::StatusCode::kNotFound, "not open here"));
    }
  }
}

class TwoTiersInFilesTest : public TwoTiersTest {
 protected:
  TwoTiersInFilesTest() : TwoTiersTest(0) {}
};

TEST_F(TwoTiersInFilesTest, ListsAndAnswersMayLieOnDisk) {
  RunToQueries(kRows);
  ExpectAllRight();
}

TEST_F(TwoTiersTest, ARoundWithoutSlotsAndOneWithoutQueriesRun) {
  SHOAL_ASSERT_OK(Announce());
  SHOAL_ASSERT_OK(RunOffline());
  ExpectAllRight();

  SHOAL_ASSERT_OK(Announce());
  Submit(3);
  SHOAL_ASSERT_OK(RunOffline());
  ExpectAllRight();
}

// Party 1 adds the first and the last key, party 2 those between them; each signs no header that
// came back with another change.
TEST_F(TwoTiersTest, ADraftGetsItsKeysFromBothParties) {
  std::vector<std::string> of_party_1;
  deployment_.tamper(1).draft = [&](wire::RoundHeader& draft) {
    of_party_1.assign(draft.onion_keys().begin(), draft.onion_keys().end());
  };
  SHOAL_ASSERT_OK(Announce());
  ASSERT_EQ(of_party_1.size(), 2u);
  ASSERT_EQ(header_.header().onion_keys_size(), 4);
  EXPECT_EQ(header_.header().onion_keys(0), of_party_1[0]);
  EXPECT_EQ(header_.header().onion_keys(3), of_party_1[1]);

  deployment_.tamper(1).draft = [](wire::RoundHeader& draft) { draft.add_onion_keys("x"); };
  EXPECT_THAT(Announce(), StatusIs(kInvalid, "party 2: round header: 3 onion keys instead of 2"));
  deployment_.tamper(1).draft = nullptr;
  const std::vector<std::function<void(wire::RoundHeader&)>> changes = {
      [](auto& h) { h.mutable_onion_keys()->SwapElements(0, 3); },
      [](auto& h) { h.mutable_onion_keys()->SwapElements(0, 1); },
      [](auto& h) { h.set_onion_keys(3, std::string(32, 'x')); }};
  for (size_t i = 0; i < changes.size(); ++i) {
    deployment_.tamper(1).signed_back = [&](wire::SignedHeader& h) {
      changes[i](*h.mutable_header());
    };
    EXPECT_THAT(Announce(), StatusIs(kInvalid, "its header came back changed")) << i;
  }
  // The parties have no round left of these but the first one.
  EXPECT_EQ(open(1), 1u);
}

// Condition 6. Roots, and so keys of digests, permutations and dead answers, differ between the
// halves: equal contents have different digests in the journal.
TEST_F(TwoTiersTest, HalvesShareNoSecret) {
  SHOAL_ASSERT_OK(Announce());
  std::set<std::string> keys(header_.header().onion_keys().begin(),
                             header_.header().onion_keys().end());
  EXPECT_EQ(keys.size(), 4u);
  for (const uint32_t party : {1u, 2u}) {
    const Seed root = deployment_.Root(party);
    std::set<Bytes> secrets;
    const RoundSecrets whole(root.Clone());
    for (const Half half : {Half::kA, Half::kB}) {
      const RoundSecrets of_half(sharing::HalfRoot(root.view(), half));
      EXPECT_TRUE(keys.erase(ToString(of_half.OnionKeyPair().public_key)) == 1) << party;
      for (const RoundSecrets* const each : {&of_half, &whole}) {
        secrets.insert(ToBytes(each->ContentKey()));
        secrets.insert(ToBytes(each->DeadAnswerKey()));
        secrets.insert(ToBytes(each->PermutationKey()));
        secrets.insert(ToBytes(each->FingerprintKey()));
      }
    }
    EXPECT_EQ(secrets.size(), 12u);
  }
  EXPECT_TRUE(keys.empty());
}

// Condition 11, and the order of the calls: party 2 takes nothing of queries before it has
// committed to both lists, and says nothing of its noise.
TEST_F(TwoTiersGuardTest, QueriesWaitForBothLists) {
  SHOAL_ASSERT_OK(Announce());
  Submit(5);
  client_->Query(SomeRows(5));
  deployment_.tamper(1).breaks_head = [](HeadCall, Break at) { return at == Break::kBefore; };
  // Half A alone.
  EXPECT_THAT(RunOffline(), StatusIs(kUnavailable, "the connection broke"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes forwarded, ([&]() -> absl::StatusOr<Bytes> {
                               wire::RecordBatchWriter none(0, 5, 28);
                               return std::move(none).Take();
                             }()));
  EXPECT_THAT(Online(forwarded), StatusIs(kRefused, "the list of the other half"));
  EXPECT_THAT(HeadQueries(client_->BatchB()),
              StatusIs(kRefused, "before the offline stage was done"));
  EXPECT_THAT(HeadAnswers({}), StatusIs(kRefused, "answers came before the queries"));
  EXPECT_THAT(deployment_.party(2).BeginHalfAnswers(id(), 0),
              StatusIs(kRefused, "answers came before the queries of half B"));
  EXPECT_TRUE(deployment_.party(2).Reports(id()).empty());
  EXPECT_TRUE(deployment_.party(1).Reports(id()).empty());
  EXPECT_TRUE(told_.all().empty());
  // Party 1 has not committed to the list of B either.
  EXPECT_THAT(deployment_.node(1).OnlineOfHalves(id(), client_->BatchA(), client_->BatchB()),
              StatusIs(kRefused, "the list of the other half"));
  EXPECT_NE(*deployment_.party(1).Stage(id()), PartyStage::kReady);
  deployment_.tamper(1).breaks_head = nullptr;

  SHOAL_ASSERT_OK(RunOffline());
  EXPECT_EQ(*deployment_.party(1).Stage(id()), PartyStage::kReady);
  EXPECT_EQ(*deployment_.party(2).Stage(id()), PartyStage::kReady);
  EXPECT_EQ(deployment_.party(1).Reports(id()).size(), 3u);
  EXPECT_THAT(told_.all(), ::testing::IsSupersetOf({"1 noise 1", "2 noise 2"}));
  // 75 before 74.
  EXPECT_THAT(HeadAnswers({}), StatusIs(kRefused, "answers came before the queries"));
  EXPECT_THAT(deployment_.party(2).BeginHalfAnswers(id(), 0),
              StatusIs(kRefused, "answers came before the queries of half B"));
  ExpectAllRight();
}

TEST_F(TwoTiersTest, NothingTellsOfTheNoiseBeforeBothLists) {
  SHOAL_ASSERT_OK(Announce());
  Submit(5);
  client_->Query(SomeRows(5));
  SHOAL_ASSERT_OK(HeadOffline(client_->pieces_b, 5));
  EXPECT_THAT(HeadQueries(client_->BatchB()), StatusIs(kRefused, "the list of the other half"));
  EXPECT_TRUE(deployment_.party(2).Reports(id()).empty());
  EXPECT_TRUE(told_.all().empty());
  SHOAL_ASSERT_OK(RunOffline());
  EXPECT_FALSE(deployment_.party(2).Reports(id()).empty());
}

// Wherever a link breaks, the same calls give the same bytes, and every query its row.
TEST_F(TwoTiersGuardTest, ABrokenLinkIsMadeGoodByTheSameBytes) {
  for (const HeadCall call : {HeadCall::kOffline, HeadCall::kQueries, HeadCall::kAnswers}) {
    for (const Break at : {Break::kBefore, Break::kHalfWay, Break::kAfter}) {
      SCOPED_TRACE(absl::StrCat(static_cast<int>(call), " ", static_cast<int>(at)));
      sent_.clear(), back_.clear();
      bool broke = false;
      deployment_.tamper(1).breaks_head = [&](HeadCall now, Break where) {
        return now == call && where == at && !std::exchange(broke, true);
      };
      Record();
      SHOAL_ASSERT_OK(Announce());
      Submit(9);
      absl::Status offline = RunOffline();
      if (call == HeadCall::kOffline) {
        EXPECT_THAT(offline, StatusIs(kUnavailable, "the connection broke"));
        offline = RunOffline();
      }
      SHOAL_ASSERT_OK(offline);
      client_->Query(SomeRows(9));
      absl::StatusOr<Bytes> answers = RunOnline();
      if (call != HeadCall::kOffline) {
        EXPECT_THAT(answers, StatusIs(kUnavailable, "the connection broke"));
        answers = RunOnline();
      }
      SHOAL_ASSERT_OK(answers);
      EXPECT_TRUE(broke);
      EXPECT_EQ(client_->Right(*answers), AllBut(9, {}));
      for (const auto* const lists : {&sent_, &back_}) {
        for (const auto& [which, contents] : *lists) {
          for (const Bytes& content : contents) EXPECT_EQ(content, contents.front());
        }
      }
      deployment_.frontend().Withdraw(round_->counter());
      SHOAL_ASSERT_OK(deployment_.SendList());
    }
  }
}

// The same at the calls of half A, which a chain for rows has, too.
TEST_F(TwoTiersGuardTest, ABrokenLinkOfHalfAIsMadeGood) {
  for (const Break at : {Break::kBefore, Break::kHalfWay, Break::kAfter}) {
    SCOPED_TRACE(static_cast<int>(at));
    bool offline_broke = false, online_broke = false;
    deployment_.tamper(1).breaks_offline = [&](Break where) {
      return where == at && !std::exchange(offline_broke, true);
    };
    deployment_.tamper(1).breaks_online = [&](Break where) {
      return where == at && !std::exchange(online_broke, true);
    };
    SHOAL_ASSERT_OK(Announce());
    Submit(9);
    EXPECT_THAT(RunOffline(), StatusIs(kUnavailable, "the connection broke"));
    SHOAL_ASSERT_OK(RunOffline());
    client_->Query(SomeRows(9));
    EXPECT_THAT(RunOnline(), StatusIs(kUnavailable, "the connection broke"));
    ExpectAllRight();
    deployment_.tamper(1).breaks_offline = deployment_.tamper(1).breaks_online = nullptr;
    deployment_.frontend().Withdraw(round_->counter());
    SHOAL_ASSERT_OK(deployment_.SendList());
  }
}

// Condition 8. Each direction has one content for ever, in each half by itself.
TEST_F(TwoTiersGuardTest, OneContentInEachHalfAndDirection) {
  Record();
  RunToQueries();
  SHOAL_ASSERT_OK(RunOnline());
  StopRecording();
  const auto changed = [](Bytes bytes, size_t at) {
    bytes[at] ^= 1;
    return bytes;
  };
  const Bytes parts = client_->BatchB(), y = sent_[HeadCall::kAnswers].at(0);
  EXPECT_THAT(HeadOffline(client_->pieces_b, client_->slots), StatusIs(kRefused, "answered"));
  EXPECT_THAT(HeadQueries(changed(parts, parts.size() - 1)),
              StatusIs(kRefused, "another queries of half B was taken before"));
  EXPECT_THAT(HeadAnswers(changed(y, 0)),
              StatusIs(kRefused, "another answers of half B was taken before"));
  Bytes batch = batches_of_a_.at(0);
  EXPECT_THAT(Online(changed(batch, batch.size() - 1)),
              StatusIs(kRefused, "another queries of half A was taken before"));
  // The same input gets the same bytes.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes v, HeadQueries(parts));
  EXPECT_EQ(v, back_[HeadCall::kQueries].at(0));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes z, HeadAnswers(y));
  EXPECT_EQ(z, back_[HeadCall::kAnswers].at(0));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes y_a, Online(batch));
  EXPECT_EQ(y_a, answers_of_a_.at(0));
}

TEST_F(TwoTiersGuardTest, Party2TakesNoOtherPieces) {
  SHOAL_ASSERT_OK(Announce());
  Submit(4);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes list, HeadOffline(client_->pieces_b, 4));
  EXPECT_EQ(*HeadOffline(client_->pieces_b, 4), list);
  Bytes others = client_->pieces_b;
  others.back() ^= 1;
  EXPECT_THAT(HeadOffline(others, 4), StatusIs(kRefused, "offline list of half B"));
  Submit(1);
  EXPECT_THAT(HeadOffline(client_->pieces_b, 5), StatusIs(kRefused, "another offline list"));
}

// Party 1, too: what clients sent, and what party 2 has returned.
TEST_F(TwoTiersGuardTest, Party1TakesNoOtherSubmissions) {
  for (const bool of_a : {true, false}) {
    SHOAL_ASSERT_OK(Announce());
    Submit(4);
    deployment_.tamper(1).breaks_head = [](HeadCall, Break at) { return at == Break::kAfter; };
    EXPECT_THAT(RunOffline(), StatusIs(kUnavailable, "the connection broke"));
    deployment_.tamper(1).breaks_head = nullptr;
    (of_a ? client_->pieces_a : client_->pieces_b).back() ^= 1;
    EXPECT_THAT(RunOffline(), StatusIs(kRefused, "was taken before"));
  }
}

// A second complete response that differs ends the round. (Of party 1 as tail this pins the first
// batch of B: for another one it would have to sign again with its answer keys.)
TEST_F(TwoTiersGuardTest, AnotherResponseEndsTheRound) {
  struct Case {
    HeadCall call;
    size_t at_end;  // of the byte that differs
  };
  for (const Case& tried : {Case{HeadCall::kOffline, 1}, Case{HeadCall::kQueries, 1},
                            Case{HeadCall::kAnswers, 1}, Case{HeadCall::kAnswers, 30}}) {
    SCOPED_TRACE(static_cast<int>(tried.call));
    SHOAL_ASSERT_OK(Announce());
    Submit(6);
    SHOAL_ASSERT_OK(RunOffline());
    client_->Query(SomeRows(6));
    if (tried.call != HeadCall::kOffline) {
      // All of it is done, and the link of half A breaks at the end.
      SHOAL_ASSERT_OK(RunOnline());
    }
    deployment_.tamper(1).from_head = [&](HeadCall call, Bytes& bytes) {
      if (call == tried.call) bytes[bytes.size() - tried.at_end] ^= 1;
    };
    const absl::Status again =
        tried.call == HeadCall::kOffline ? RunOffline() : RunOnline().status();
    EXPECT_THAT(again, StatusIs(kRefused, "of half B was taken before"));
    EXPECT_EQ(open(1), 0u);
    deployment_.tamper(1).from_head = nullptr;
    deployment_.frontend().Withdraw(round_->counter());
    SHOAL_ASSERT_OK(deployment_.SendList());
    EXPECT_EQ(open(2), 0u);
  }
}

TEST_F(TwoTiersGuardTest, AnotherAnswerOfHalfAEndsTheRound) {
  RunToQueries();
  SHOAL_ASSERT_OK(RunOnline());
  deployment_.tamper(1).answers = [](Bytes& bytes) { bytes[3] ^= 1; };
  EXPECT_THAT(RunOnline(), StatusIs(kRefused, "another answers of half A was taken before"));
  EXPECT_EQ(open(1), 0u);
}

// What a party has lost it never does again.
TEST_F(TwoTiersGuardTest, ARestartLosesTheRound) {
  for (const uint32_t party : {1u, 2u}) {
    RunToQueries();
    SHOAL_ASSERT_OK(RunOnline());
    deployment_.Restart(party);
    EXPECT_THAT(RunOnline(), StatusIs(absl::StatusCode::kNotFound, "not open here")) << party;
    if (party == 1) {
      EXPECT_THAT(RunOffline(), StatusIs(absl::StatusCode::kNotFound, "not open here"));
    } else {
      EXPECT_THAT(HeadQueries(client_->BatchB()),
                  StatusIs(absl::StatusCode::kNotFound, "not open here"));
    }
    // Nor after its header comes again.
    EXPECT_THAT(deployment_.party(party).SignHeader(header_),
                StatusIs(kRefused, "not drafted here"));
    deployment_.frontend().Withdraw(round_->counter());
    SHOAL_ASSERT_OK(deployment_.SendList());
    deployment_.clock().now_s += 1;
  }
}

// Condition 9. Party 2 finds a seed that comes again itself: a piece of B that party 1 sends twice
// costs the second slot, as in half A, and no other.
TEST_F(TwoTiersGuardTest, PiecesThatComeTwiceAreDead) {
  SHOAL_ASSERT_OK(Announce());
  Submit(6);
  const size_t piece = client_->pieces_b.size() / 6;
  std::copy_n(client_->pieces_b.begin() + static_cast<ptrdiff_t>(2 * piece), piece,
              client_->pieces_b.begin() + static_cast<ptrdiff_t>(4 * piece));
  SHOAL_ASSERT_OK(RunOffline());
  client_->Query(SomeRows(6));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes tagged, RunOnline());
  EXPECT_EQ(client_->Right(tagged), AllBut(6, {4}));
}

// The tails do so, too: two onions of one seed, each behind a layer of its own.
TEST_F(TwoTiersGuardTest, TailsFindSeedsThatComeTwice) {
  SHOAL_ASSERT_OK(Announce());
  ::shoal::testing::TestRandom& random = deployment_.random();
  const Seed of_a = random.NewSeed(), of_b = random.NewSeed();
  for (int i = 0; i < 2; ++i) {
    client_->Submit(random.NewSeed(), of_a.Clone(), random.NewSeed(), random.NewSeed());
  }
  for (int i = 0; i < 2; ++i) {
    client_->Submit(random.NewSeed(), random.NewSeed(), random.NewSeed(), of_b.Clone());
  }
  Submit(2);
  SHOAL_ASSERT_OK(RunOffline());
  client_->Query(SomeRows(6));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes tagged, RunOnline());
  const std::vector<bool> right = client_->Right(tagged);
  // The shuffle says which of them comes second.
  EXPECT_EQ(right[0] + right[1], 1);
  EXPECT_EQ(right[2] + right[3], 1);
  EXPECT_TRUE(right[4] && right[5]);
}

// Conditions 1, 5 and 12. A flipped bit at any hop loses its slot alone, and every slot gets its
// bytes (RunOnline).
TEST_F(TwoTiersGuardTest, AFlippedBitLosesItsSlotAlone) {
  const std::vector<std::function<void(testing::Tamper&)>> hops = {
      [](testing::Tamper& t) {
        t.to_head = [](HeadCall call, Bytes& b) {
          if (call == HeadCall::kQueries) b.back() ^= 1;
        };
      },
      [](testing::Tamper& t) {
        t.to_head = [](HeadCall call, Bytes& b) {
          if (call == HeadCall::kAnswers) b.back() ^= 1;
        };
      },
      [](testing::Tamper& t) {
        t.from_head = [](HeadCall call, Bytes& b) {
          if (call == HeadCall::kQueries) b.back() ^= 1;
        };
      },
      [](testing::Tamper& t) {
        t.from_head = [](HeadCall call, Bytes& b) {
          if (call == HeadCall::kAnswers) b.back() ^= 1;
        };
      },
      [](testing::Tamper& t) { t.queries = [](Bytes& b) { b.back() ^= 1; }; },
      [](testing::Tamper& t) { t.answers = [](Bytes& b) { b.back() ^= 1; }; },
  };
  for (size_t hop = 0; hop < hops.size(); ++hop) {
    SCOPED_TRACE(hop);
    RunToQueries(kRows);
    hops[hop](deployment_.tamper(1));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes tagged, RunOnline());
    const std::vector<bool> right = client_->Right(tagged);
    // What a head or a tail gets last may be noise; a slot is lost, or none.
    EXPECT_LE(std::ranges::count(right, false), 1);
    if (hop == 0 || hop == 3) {
      EXPECT_EQ(right, AllBut(kRows, {kRows - 1}));
    }
    StopRecording();
    deployment_.frontend().Withdraw(round_->counter());
    SHOAL_ASSERT_OK(deployment_.SendList());
  }
}

// Condition 1. Nothing of a part that party 1 has changed is in the batch of B that it gets: else
// it would find the position whose tag is wrong, and so the link.
TEST_F(TwoTiersGuardTest, AHeadDropsAChangedPartBeforeItsShuffle) {
  const auto queries_of = [&](bool changed) {
    EXPECT_TRUE(Announce().ok());
    Submit(12);
    EXPECT_TRUE(RunOffline().ok());
    client_->Query(SomeRows(12));
    Bytes parts = client_->BatchB();
    if (changed) parts[parts.size() - 40] ^= 1;  // of the last but one
    const absl::StatusOr<Bytes> batch = HeadQueries(parts);
    EXPECT_TRUE(batch.ok());
    // Without the noise.
    uint64_t noise = 0;
    for (const wire::StageReport& report : deployment_.party(2).Reports(id())) {
      if (report.stage() == "noise") noise = report.noise_queries();
    }
    const uint64_t all = wire::EncodedQueries(*batch);
    // Answers to what went on are all that it takes, and every part sent gets one.
    const absl::StatusOr<Bytes> back = HeadAnswers(Bytes(all * answer_bytes()));
    EXPECT_TRUE(back.ok());
    EXPECT_EQ(back->size(), 12 * answer_bytes());
    return all - noise;
  };
  EXPECT_EQ(queries_of(false), 12u);
  EXPECT_EQ(queries_of(true), 11u);
}

// Condition 12, where a head or a tail of either half has a dead position, or gets a wrong tag.
TEST_F(TwoTiersTest, EveryUsedSlotIsAnsweredInBothHalves) {
  SHOAL_ASSERT_OK(Announce());
  Submit(8);
  // The piece B of slot 1 does not open. (Nobody queries in a slot whose piece A does not.)
  client_->pieces_b[2 * client_->pieces_b.size() / 8 - 1] ^= 1;
  SHOAL_ASSERT_OK(RunOffline());
  client_->Query(SomeRows(8));
  testing::Tamper& tamper = deployment_.tamper(1);
  tamper.to_head = [&](HeadCall call, Bytes& bytes) {
    if (call == HeadCall::kQueries) bytes[bytes.size() - 36] ^= 1;  // slot 7
    if (call == HeadCall::kAnswers) std::ranges::fill(bytes, 0);
  };
  tamper.queries = [&](Bytes& bytes) { std::fill(bytes.end() - 28, bytes.end(), 0); };
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes tagged, RunOnline());
  EXPECT_EQ(tagged.size(), 8 * sharing::HalvesAnswerBytes(round_->answer_bytes()));
  // Nothing of half B is left.
  EXPECT_EQ(client_->Right(tagged), std::vector<bool>(8, false));
  // No answer has the zeros that party 1 has made up, or those of another slot.
  std::set<Bytes> different;
  for (size_t i = 0; i < 16; ++i) {
    different.insert(ToBytes(BytesView(tagged).subspan(i * answer_bytes(), answer_bytes())));
  }
  EXPECT_EQ(different.size(), 16u);
}

// Condition 14. Both halves are answered from the epoch that the header names.
TEST_F(TwoTiersTest, BothAnswerFromTheHeadersEpoch) {
  RunToQueries();
  const uint64_t next = deployment_.MakeEpoch(kRows, 64);
  SHOAL_ASSERT_OK(deployment_.Take(2, next));
  SHOAL_ASSERT_OK(deployment_.Take(1, next));
  ExpectAllRight();
}

// Both parties are tails and need the rows.
TEST_F(TwoTiersTest, APartyWithoutTheRowsTakesNoEpoch) {
  const uint64_t next = deployment_.MakeEpoch(kRows, 64);
  for (const uint32_t party : {1u, 2u}) {
    TableEpoch epoch = deployment_.Epoch(next, party);
    epoch.answers = {};
    EXPECT_THAT(deployment_.party(party).TakeEpoch(epoch),
                StatusIs(kInvalid, "does not fit its manifest"));
  }
}

TEST_F(TwoTiersGuardTest, WrongLengthsAreRefused) {
  SHOAL_ASSERT_OK(Announce());
  Submit(4);
  Party& party2 = deployment_.party(2);
  const uint32_t most = header_.header().max_slots();
  EXPECT_THAT(party2.BeginOffline(header_, 84ull * (most + 1), {.records = most + 1}, Half::kB),
              StatusIs(kInvalid, "where the header allows"));
  // Another number of slots than the pieces have; a piece that is cut.
  EXPECT_THAT(HeadOffline(client_->pieces_b, 3), StatusIs(kInvalid, "offline list"));
  EXPECT_THAT(HeadOffline(client_->pieces_b, 5), StatusIs(kInvalid, "offline list"));
  Bytes cut = client_->pieces_b;
  cut.resize(cut.size() - 1);
  EXPECT_THAT(HeadOffline(cut, 4), StatusIs(kInvalid, "offline list"));
  Bytes longer = client_->pieces_b;
  longer[0] += 1;
  EXPECT_THAT(HeadOffline(longer, 4), StatusIs(kInvalid, "offline list"));
  // The list of A comes as onions, and no submissions.
  EXPECT_THAT(party2.BeginOffline(header_, 33), StatusIs(kInvalid, "offline list"));
  // Nothing of that counts: the right ones are taken.
  SHOAL_ASSERT_OK(RunOffline());
  client_->Query(SomeRows(4));
  const Bytes parts = client_->BatchB();
  EXPECT_THAT(HeadQueries({}), StatusIs(kInvalid, "query batch"));
  EXPECT_THAT(HeadQueries(Bytes(parts.begin(), parts.end() - 1)),
              StatusIs(kInvalid, "query batch"));
  EXPECT_THAT(HeadQueries(client_->BatchA()), StatusIs(kInvalid, "query batch"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes batch, HeadQueries(parts));
  const uint64_t y = wire::EncodedQueries(batch) * answer_bytes();
  for (const uint64_t wrong : {uint64_t{0}, y - 1, y + 1, y + answer_bytes()}) {
    EXPECT_THAT(HeadAnswers(Bytes(wrong)), StatusIs(kInvalid, " bytes each were asked")) << wrong;
    EXPECT_THAT(party2.BeginHalfAnswers(id(), wrong), StatusIs(kInvalid, " bytes each were asked"))
        << wrong;
  }
  ExpectAllRight();
}

TEST_F(TwoTiersGuardTest, Party1RefusesResponsesOfAWrongLength) {
  for (const HeadCall call : {HeadCall::kOffline, HeadCall::kQueries, HeadCall::kAnswers}) {
    SCOPED_TRACE(static_cast<int>(call));
    deployment_.tamper(1).from_head = [&](HeadCall now, Bytes& bytes) {
      if (now == call) bytes.pop_back();
    };
    SHOAL_ASSERT_OK(Announce());
    Submit(4);
    const absl::Status offline = RunOffline();
    if (call == HeadCall::kOffline) {
      EXPECT_THAT(offline, StatusIs(kInvalid, "party 1: offline list"));
    } else {
      client_->Query(SomeRows(4));
      EXPECT_THAT(RunOnline(), StatusIs(kInvalid, "party 1: "));
    }
    EXPECT_EQ(open(1), 0u);
    deployment_.tamper(1).from_head = nullptr;
    deployment_.frontend().Withdraw(round_->counter());
    SHOAL_ASSERT_OK(deployment_.SendList());
  }
}

// Answers that come anew take the place of those that are on their way in, and what has ended takes
// none.
TEST_F(TwoTiersTest, AnswersThatComeAnewReplaceOthers) {
  RunToQueries();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes batch, HeadQueries(client_->BatchB()));
  const uint64_t bytes = wire::EncodedQueries(batch) * answer_bytes();
  Party& party2 = deployment_.party(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto first, party2.BeginHalfAnswers(id(), bytes));
  SHOAL_ASSERT_OK(first->Take(Bytes(10)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto second, party2.BeginHalfAnswers(id(), bytes));
  EXPECT_THAT(first->Take(Bytes(10)), StatusIs(kRefused, "came anew"));
  EXPECT_THAT(first->TakeAll(), StatusIs(kRefused, "came anew"));
  EXPECT_THAT(second->TakeAll(), StatusIs(kInvalid, "not all of them came"));
  EXPECT_THAT(second->Take(Bytes(bytes + 1)), StatusIs(kInvalid, "more bytes"));
  SHOAL_ASSERT_OK(second->Take(Bytes(bytes)));
  SHOAL_ASSERT_OK(party2.End(id()));
  EXPECT_THAT(second->TakeAll(), StatusIs(kRefused, "the round has ended"));
}

// Whoever ends a round ends both halves, in any stage.
TEST_F(TwoTiersTest, BothHalvesEndTogether) {
  SHOAL_ASSERT_OK(Announce());
  Submit(4);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto list_a, deployment_.party(2).BeginOffline(header_, 320));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto pieces,
                             deployment_.party(2).BeginOffline(header_, client_->pieces_b.size(),
                                                               {.records = 4}, Half::kB));
  EXPECT_EQ(open(2), 1u);
  SHOAL_ASSERT_OK(deployment_.party(2).End(id()));
  EXPECT_EQ(open(2), 0u);
  EXPECT_THAT(list_a->Take(Bytes(32)), StatusIs(kRefused, "the round has ended"));
  EXPECT_THAT(pieces->Take(Bytes(32)), StatusIs(kRefused, "the round has ended"));
}

// Tokens and tags at party 1, of half A.
TEST_F(TwoTiersTest, Party1TellsWrongTokensAndParts) {
  RunToQueries(6);
  const Party& party1 = deployment_.party(1);
  std::vector<uint32_t> slots = {0, 1, 2, 3, 4, 5};
  EXPECT_EQ(party1.FirstWrongPart(id(), slots, client_->parts), 6u);
  const size_t each = sharing::PartsBytes(selection_bytes());
  for (const size_t at : {size_t{0}, each - 1, size_t{40}}) {  // of part A and of part B
    Bytes parts = client_->parts;
    parts[3 * each + at] ^= 1;
    EXPECT_EQ(party1.FirstWrongPart(id(), slots, parts), 3u) << at;
  }
  slots[2] = 6;  // there is no such slot
  EXPECT_EQ(party1.FirstWrongPart(id(), slots, client_->parts), 2u);
  slots[2] = 2;
  std::vector<sharing::Token> tokens;
  for (size_t i = 0; i < 6; ++i) {
    tokens.push_back(
        sharing::Expand(BytesView(client_->seeds).subspan(i * 128, 32), ids().a).token);
  }
  EXPECT_EQ(party1.FirstWrongToken(id(), slots, tokens), 6u);
  std::swap(tokens[4], tokens[5]);
  EXPECT_EQ(party1.FirstWrongToken(id(), slots, tokens), 4u);
}

TEST_F(TwoTiersTest, ARoundForRowsHasNoHalves) {
  Deployment rows({.parties = 2});
  SHOAL_ASSERT_OK_AND_ASSIGN(const round::Round round, rows.Announce());
  EXPECT_THAT(rows.party(2).Queries(round.id(), Bytes(), {}, Half::kB),
              StatusIs(kRefused, "is for rows, and has no half"));
  EXPECT_THAT(rows.party(2).BeginOffline(round.wire(), 84, {.records = 1}, Half::kB),
              StatusIs(kRefused, "is for rows, and has no half"));
  EXPECT_THAT(rows.party(2).BeginHalfAnswers(round.id(), 0), StatusIs(kRefused, "is for rows"));
}

// Which half a link breaks in is up to party 2. A second content in the other half ends the round
// all the same.
TEST_F(TwoTiersGuardTest, AnotherListEndsTheRoundAlsoIfTheOtherHalfFailsFirst) {
  SHOAL_ASSERT_OK(Announce());
  Submit(6);
  std::atomic<int> tries = 0, broken = 0;
  deployment_.tamper(1).breaks_offline = [&](Break at) {
    if (at == Break::kBefore) ++broken;
    return at == Break::kBefore;
  };
  deployment_.tamper(1).from_head = [&](HeadCall, Bytes& bytes) {
    while (broken <= tries) std::this_thread::yield();
    if (++tries > 1) bytes.back() ^= 1;
  };
  EXPECT_THAT(RunOffline(), StatusIs(kUnavailable, "broke"));
  EXPECT_FALSE(RunOffline().ok());
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(open(1), 0u);
}

TEST_F(TwoTiersGuardTest, AListThatComesAgainLeavesOneReport) {
  SHOAL_ASSERT_OK(Announce());
  Submit(2);
  for (int i = 0; i < 20; ++i) SHOAL_ASSERT_OK(HeadOffline(client_->pieces_b, 2));
  SHOAL_ASSERT_OK(RunOffline());
  EXPECT_LE(std::ranges::count(told_.all(), "2 offline 2"), 2);
}

// Calls something before its first piece.
class Interrupted final : public ByteSource {
 public:
  Interrupted(std::unique_ptr<ByteSource> inner, std::function<void()> meanwhile)
      : inner_(std::move(inner)), meanwhile_(std::move(meanwhile)) {}
  uint64_t size() const override { return inner_->size(); }
  absl::StatusOr<BytesView> Next() override {
    if (const auto now = std::exchange(meanwhile_, nullptr)) now();
    return inner_->Next();
  }

 private:
  std::unique_ptr<ByteSource> inner_;
  std::function<void()> meanwhile_;
};

// The link breaks when all answers of half B have come, and the call comes again. If the first
// call's thread is late, the second one, whose caller waits, is asked for once more, and the round
// goes on.
TEST_F(TwoTiersGuardTest, ALateCallEndsNoRound) {
  RunToQueries(12);
  Record();
  SHOAL_ASSERT_OK(RunOnline());
  StopRecording();
  const Bytes y = sent_[HeadCall::kAnswers].at(0);
  Party& party2 = deployment_.party(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto first, party2.BeginHalfAnswers(id(), y.size()));
  SHOAL_ASSERT_OK(first->Take(y));
  SHOAL_ASSERT_OK_AND_ASSIGN(auto all_of_first, first->TakeAll());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto second, party2.BeginHalfAnswers(id(), y.size()));
  SHOAL_ASSERT_OK(second->Take(y));
  SHOAL_ASSERT_OK_AND_ASSIGN(auto all_of_second, second->TakeAll());
  auto source = std::make_unique<Interrupted>(std::move(all_of_second), [&] {
    deployment_.node(2)
        .HeadAnswers(id(), {}, std::move(all_of_first), ~0ull)
        .status()
        .IgnoreError();
  });
  EXPECT_EQ(deployment_.node(2).HeadAnswers(id(), {}, std::move(source), ~0ull).status().code(),
            kUnavailable);
}

}  // namespace
}  // namespace shoal::server
