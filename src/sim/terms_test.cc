// Terms in whole chains, step by step: what parties answer in refreshes, what they refuse, and what
// a party gives out whose disk was set back. docs/threat-model.md, "Terms", names these tests.
#include "src/server/terms.h"

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/round/refresh.h"
#include "src/server/testing/deployment.h"
#include "src/storage/file.h"

namespace shoal::sim {
namespace {

using round::RefreshTag;
using server::RefreshAnswers;
using server::Terms;
using server::testing::Client;
using server::testing::Deployment;
using server::testing::DeploymentOptions;
using server::testing::Secret;
using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;
constexpr auto kNotFound = absl::StatusCode::kNotFound;
constexpr auto kUnauthenticated = absl::StatusCode::kUnauthenticated;
constexpr auto kPermission = absl::StatusCode::kPermissionDenied;

constexpr uint64_t kRows = 40;
constexpr uint32_t kRowBytes = 64;
constexpr size_t kTagged = kRowBytes + 48 + 16;

// What a party has answered.
struct Answered {
  Bytes answers;
  std::vector<RefreshTag> tags;
};

class TermsTest : public ::testing::Test {
 protected:
  explicit TermsTest(uint64_t spool_memory = 1 << 30) {
    DeploymentOptions options{.rows = kRows,
                              .row_bytes = kRowBytes,
                              .spool_memory_bytes = spool_memory,
                              .plan = {.stage_limit_s = 100},
                              .making_piece = [this] {
                                if (before_piece_) before_piece_();
                              }};
    options.term_limit.set_days(30);
    options.term_limit.set_refreshes(40);
    deployment_.emplace(std::move(options));
  }

  // A round with a term, and a client of it.
  void OpenRound(uint32_t max_refreshes) {
    SHOAL_ASSERT_OK_AND_ASSIGN(wire::RoundHeader draft, deployment_->frontend().NewDraft());
    draft.set_max_refreshes(max_refreshes);
    draft.set_term_expires_s(draft.announced_s() + 20 * 24 * 3600);
    SHOAL_ASSERT_OK_AND_ASSIGN(const wire::SignedHeader header,
                               deployment_->node(1).Propose(draft, deployment_->frontend().Live()));
    SHOAL_ASSERT_OK_AND_ASSIGN(round_, round::Round::Verify(header, deployment_->roster(),
                                                            deployment_->party(1).table()->facts,
                                                            deployment_->clock().now_s));
    SHOAL_ASSERT_OK(deployment_->frontend().Open(*round_));
    client_.emplace(&*deployment_, *round_);
  }
  // A round with a term, in which the clients' queries were answered.
  void Enrol(const std::vector<uint64_t>& rows, size_t unused = 2) {
    ASSERT_NO_FATAL_FAILURE(OpenRound(/*max_refreshes=*/7));
    rows_ = rows;
    SHOAL_ASSERT_OK(client_->Obtain(rows.size() + unused));
    SHOAL_ASSERT_OK(deployment_->RunOffline(round_->id()));
    SHOAL_ASSERT_OK(client_->Query(rows));
    SHOAL_ASSERT_OK(deployment_->RunOnline(round_->id()));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Bytes> answers, client_->Fetch());
    for (size_t i = 0; i < rows.size(); ++i)
      SHOAL_EXPECT_OK(deployment_->Verify(rows[i], answers[i]));
    // The round itself is over; its term is not.
    for (uint32_t j = 1; j <= 3; ++j) SHOAL_ASSERT_OK(deployment_->party(j).End(round_->id()));
  }

  // All parties take a next epoch with rows at the same places, unless said otherwise.
  uint64_t NextEpoch(uint64_t rows = kRows, uint32_t row_bytes = kRowBytes, uint8_t places = 0) {
    const uint64_t epoch = deployment_->MakeEpoch(rows, row_bytes, places);
    for (uint32_t j = 1; j <= 3; ++j) {
      SHOAL_EXPECT_OK(deployment_->party(j).TakeEpoch(deployment_->Epoch(epoch, j)));
    }
    return epoch;
  }
  wire::RefreshHeader HeaderOf(uint32_t number, uint64_t epoch) {
    wire::RefreshHeader header;
    header.set_round_id(ToString(round_->id()));
    header.set_number(number);
    header.set_epoch(epoch);
    header.set_manifest_digest(ToString(deployment_->Epoch(epoch, 1).facts.manifest_digest));
    return header;
  }
  absl::StatusOr<wire::SignedRefreshHeader> Sign(const wire::RefreshHeader& header) {
    std::optional<signature::Signature> sum;
    for (uint32_t j = 3; j >= 1; --j) {
      SHOAL_ASSIGN_OR_RETURN(sum, deployment_->terms(j).Sign(header, sum));
    }
    wire::SignedRefreshHeader out;
    *out.mutable_header() = header;
    out.set_signature(ToString(sum->bytes()));
    return out;
  }
  static absl::StatusOr<Answered> Read(absl::StatusOr<std::unique_ptr<RefreshAnswers>> source) {
    SHOAL_RETURN_IF_ERROR(source.status());
    Answered out;
    SHOAL_ASSIGN_OR_RETURN(out.answers, ReadAll(**source));
    out.tags = (*source)->tags();
    return out;
  }
  // What party `number` answers on this input of the next party (none at the backend).
  absl::StatusOr<Answered> AnswerOf(uint32_t number, const wire::SignedRefreshHeader& refresh,
                                    const Answered& next = {}) {
    if (number == 3) return Read(deployment_->terms(3).Answer(refresh));
    BytesSource answers(next.answers);
    return Read(deployment_->terms(number).Return(refresh, answers, next.tags));
  }
  absl::StatusOr<Answered> Refresh(const wire::SignedRefreshHeader& refresh) {
    Answered answered;
    for (uint32_t j = 3; j >= 1; --j) {
      SHOAL_ASSIGN_OR_RETURN(answered, AnswerOf(j, refresh, answered));
    }
    return answered;
  }
  absl::StatusOr<Answered> Refresh(uint32_t number, uint64_t epoch) {
    SHOAL_ASSIGN_OR_RETURN(const auto refresh, Sign(HeaderOf(number, epoch)));
    return Refresh(refresh);
  }
  // The answer to the client's i-th query, unmasked as docs/protocol.md says.
  Bytes Unmask(const wire::RefreshHeader& header, const Answered& answered, size_t i) {
    const Secret& secret = client_->secrets()[i];
    Bytes answer = ToBytes(BytesView(answered.answers).subspan(i * kTagged, kTagged));
    std::vector<Digest> ids;
    for (const round::RefreshTag& tag : answered.tags) {
      ids.push_back(round::RefreshMasksId(header, tag));
    }
    secret.OfTerm(round_->id()).Unmask(ids, answer);
    return answer;
  }
  void ExpectRows(const wire::RefreshHeader& header, const Answered& answered) {
    ASSERT_EQ(answered.answers.size(), rows_.size() * kTagged);
    ASSERT_EQ(answered.tags.size(), 3u);
    for (size_t i = 0; i < rows_.size(); ++i) {
      EXPECT_EQ(Unmask(header, answered, i),
                ToBytes(deployment_->Answer(rows_[i], header.epoch())));
    }
  }
  // The number of equal bytes of two answers at their places: about one in 256 of independent ones.
  static size_t Equal(BytesView a, BytesView b) {
    size_t equal = 0;
    for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i] ? 1 : 0;
    return equal;
  }
  static bool Independent(BytesView a, BytesView b) {
    return a.size() == b.size() && Equal(a, b) < a.size() / 16;
  }

  std::function<void()> before_piece_;
  std::optional<Deployment> deployment_;
  std::optional<round::Round> round_;
  std::optional<Client> client_;
  std::vector<uint64_t> rows_;
};

TEST_F(TermsTest, EveryRefreshAnswersTheSameRowsFromTheNewTable) {
  Enrol({3, 17, 0, 39, 3});
  for (uint32_t number = 1; number <= 7; ++number) {
    const uint64_t epoch = NextEpoch();
    SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(number, epoch));
    ExpectRows(HeaderOf(number, epoch), answered);
  }
  // The round's header has a term of seven.
  EXPECT_THAT(Sign(HeaderOf(8, NextEpoch())), StatusIs(kInvalid, "of a term with 7"));
}

class SpilledTermsTest : public TermsTest {
 protected:
  SpilledTermsTest() : TermsTest(0) {}
};

TEST_F(SpilledTermsTest, AnswersMayBeInFiles) {
  Enrol({3, 17, 0, 39, 3});
  const uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(1, epoch));
  ExpectRows(HeaderOf(1, epoch), answered);
}

TEST_F(TermsTest, TermsOutliveTheirParties) {
  Enrol({5, 6, 7});
  uint32_t number = 0;
  for (uint32_t j = 1; j <= 3; ++j) {
    deployment_->Restart(j);
    const uint64_t epoch = NextEpoch();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(++number, epoch)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(refresh));
    ExpectRows(refresh.header(), answered);
    // The same again after a restart, byte for byte.
    deployment_->Restart(j);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Answered again, Refresh(refresh));
    EXPECT_EQ(again.answers, answered.answers);
    EXPECT_EQ(again.tags, answered.tags);
  }
}

TEST_F(TermsTest, EveryUsedPositionIsAnsweredAtOneSize) {
  Enrol({1, 1, 2, 3, 4, 5, 6});
  uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, epoch)));
  SHOAL_ASSERT_OK_AND_ASSIGN(Answered third, AnswerOf(3, refresh));
  SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t bytes,
                             deployment_->terms(2).AnswerBytesFromNext(round_->id()));
  EXPECT_EQ(third.answers.size(), bytes);
  for (const size_t size : {third.answers.size() - 1, third.answers.size() - kTagged,
                            third.answers.size() + kTagged, size_t{0}}) {
    Answered other = third;
    other.answers.resize(size);
    EXPECT_THAT(AnswerOf(2, refresh, other), StatusIs(kInvalid, "bytes, where"));
  }
  Answered other = third;
  other.tags.clear();
  EXPECT_THAT(AnswerOf(2, refresh, other), StatusIs(kInvalid, "0 tags"));
  other.tags = {third.tags[0], third.tags[0]};
  EXPECT_THAT(AnswerOf(2, refresh, other), StatusIs(kInvalid, "2 tags"));
  SHOAL_EXPECT_OK(AnswerOf(2, refresh, third));
}

// Gives the first half of its bytes, then an error.
class Broken final : public ByteSource {
 public:
  explicit Broken(Bytes bytes) : bytes_(std::move(bytes)) {}
  uint64_t size() const override { return bytes_.size(); }
  absl::StatusOr<BytesView> Next() override {
    if (given_) return absl::UnavailableError("the connection broke");
    given_ = true;
    return BytesView(bytes_).first(bytes_.size() / 2);
  }

 private:
  const Bytes bytes_;
  bool given_ = false;
};

TEST_F(TermsTest, NothingLeavesBeforeAllHasCome) {
  Enrol({1, 2, 3});
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, NextEpoch())));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered third, AnswerOf(3, refresh));
  Broken broken(third.answers);
  // There is no source whose bytes could be read.
  EXPECT_THAT(deployment_->terms(2).Return(refresh, broken, third.tags),
              StatusIs(absl::StatusCode::kUnavailable, "broke"));
  // It has not committed to that half, and takes the whole.
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered second, AnswerOf(2, refresh, third));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered first, AnswerOf(1, refresh, second));
  ExpectRows(refresh.header(), first);
}

// The answers of a term that ends, or whose refresh begins again, while they are made stay here.
TEST_F(TermsTest, NoAnswersLeaveATermThatEndsWhileTheyAreMade) {
  Enrol({1, 2, 3});
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, NextEpoch())));
  const auto begin_again = [&] { SHOAL_EXPECT_OK(deployment_->terms(3).Answer(refresh).status()); };
  const auto end = [&] { deployment_->terms(3).End(round_->id(), "for a test"); };
  for (const std::function<void()>& meanwhile :
       {std::function<void()>(begin_again), std::function<void()>(end)}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, deployment_->terms(3).Answer(refresh));
    bool done = false;
    before_piece_ = [&] {
      if (!std::exchange(done, true)) meanwhile();
    };
    EXPECT_THAT(answers->Next(), StatusIs(kFailed, "has ended, or its refresh was begun again"));
    EXPECT_TRUE(done);
    before_piece_ = nullptr;
  }
}

TEST_F(TermsTest, ANumberHasOneContent) {
  Enrol({1, 2, 3});
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, NextEpoch())));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered third, AnswerOf(3, refresh));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered second, AnswerOf(2, refresh, third));
  for (const bool restart : {false, true}) {
    if (restart) deployment_->Restart(2);
    Answered changed = third;
    changed.answers[kTagged] ^= 1;
    EXPECT_THAT(AnswerOf(2, refresh, changed), StatusIs(kFailed, "another"));
    changed = third;
    changed.tags[0][5] ^= 1;
    EXPECT_THAT(AnswerOf(2, refresh, changed), StatusIs(kFailed, "another"));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Answered again, AnswerOf(2, refresh, third));
    EXPECT_EQ(again.answers, second.answers);
    EXPECT_EQ(again.tags, second.tags);
  }
}

TEST_F(TermsTest, NumbersAndEpochsRise) {
  Enrol({1, 2, 3});
  EXPECT_THAT(Sign(HeaderOf(1, 1)), StatusIs(kInvalid, "the round's table"));
  const uint64_t second = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(2, second)));
  // The same again, and no other of this number or of this epoch.
  SHOAL_EXPECT_OK(Sign(HeaderOf(2, second)));
  EXPECT_THAT(Sign(HeaderOf(1, second)), StatusIs(kFailed, "number 2 of epoch"));
  EXPECT_THAT(Sign(HeaderOf(3, second)), StatusIs(kFailed, "another"));
  const uint64_t third = NextEpoch();
  EXPECT_THAT(Sign(HeaderOf(2, third)), StatusIs(kFailed, "number 2 of epoch"));
  // An epoch that is no longer the newest, or not yet known.
  EXPECT_THAT(Sign(HeaderOf(3, second)), StatusIs(kFailed, "another epoch"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto next, Sign(HeaderOf(4, third)));
  // What was signed before is no longer answered.
  EXPECT_THAT(AnswerOf(3, refresh), StatusIs(kFailed, "signed last"));
  for (uint32_t j = 1; j <= 3; ++j) deployment_->Restart(j);
  EXPECT_THAT(AnswerOf(3, refresh), StatusIs(kFailed, "signed last"));
  EXPECT_THAT(Sign(HeaderOf(3, third)), StatusIs(kFailed, "number 4 of epoch"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(next));
  ExpectRows(next.header(), answered);
}

TEST_F(TermsTest, AnotherLayoutIsRefused) {
  Enrol({1, 2, 3});
  EXPECT_THAT(Sign(HeaderOf(1, NextEpoch(kRows + 1, kRowBytes))), StatusIs(kFailed, "other rows"));
  EXPECT_THAT(Sign(HeaderOf(1, NextEpoch(kRows, kRowBytes + 8))), StatusIs(kFailed, "other rows"));
  EXPECT_THAT(Sign(HeaderOf(1, NextEpoch(kRows, kRowBytes, 1))),
              StatusIs(kFailed, "other places of keys"));
  const uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(1, epoch));
  ExpectRows(HeaderOf(1, epoch), answered);
}

TEST_F(TermsTest, OnlyWhatAllHaveSignedIsAnswered) {
  Enrol({1, 2, 3});
  const uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, epoch)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered third, AnswerOf(3, refresh));
  wire::SignedRefreshHeader forged = refresh;
  forged.mutable_header()->set_number(2);
  EXPECT_THAT(AnswerOf(3, forged), StatusIs(kUnauthenticated, "does not match"));
  EXPECT_THAT(AnswerOf(2, forged, third), StatusIs(kUnauthenticated, "does not match"));
  // Signed by this party alone.
  forged = refresh;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto alone,
                             deployment_->terms(3).Sign(refresh.header(), std::nullopt));
  forged.set_signature(ToString(alone.bytes()));
  EXPECT_THAT(AnswerOf(3, forged), StatusIs(kUnauthenticated, "does not match"));
  SHOAL_EXPECT_OK(AnswerOf(3, refresh));
}

// The disk of a party is set back to before a refresh, so that its journal and record know nothing
// of it. It gives out the refresh of this number a second time, for another input.
TEST_F(TermsTest, APartyThatWasSetBackGivesNothingAway) {
  Enrol({1, 2, 3, 4, 5, 6, 7, 8});
  for (uint32_t j = 1; j <= 3; ++j) {
    const std::string directory = deployment_->TermsDirectory(j), copy = directory + "-copy";
    std::vector<Bytes> records;
    {
      const MutexLock lock(deployment_->disk(j).mutex);
      records = deployment_->disk(j).records;
    }
    std::filesystem::copy(directory, copy, std::filesystem::copy_options::recursive);

    const uint64_t epoch = NextEpoch();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(2 * j - 1, epoch)));
    std::map<uint32_t, Answered> before;
    for (uint32_t k = 3; k >= 1; --k) {
      SHOAL_ASSERT_OK_AND_ASSIGN(before[k], AnswerOf(k, refresh, before[k + 1]));
    }
    {
      const MutexLock lock(deployment_->disk(j).mutex);
      deployment_->disk(j).records = records;
    }
    std::filesystem::remove_all(directory);
    std::filesystem::rename(copy, directory);
    deployment_->Restart(j);

    // It signs another header of this number, for another table; or, where a neighbour may choose
    // its input, it gets one changed answer of all.
    const uint64_t other_epoch = NextEpoch();
    SHOAL_ASSERT_OK(deployment_->terms(j).CheckProposal(HeaderOf(2 * j - 1, other_epoch)));
    Answered after;
    if (j == 3) {
      wire::SignedRefreshHeader other;
      *other.mutable_header() = HeaderOf(2 * j - 1, other_epoch);
      std::optional<signature::Signature> sum;
      // The others collude: they sign whatever they like.
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto own, deployment_->terms(3).Sign(other.header(), sum));
      const Digest digest = round::RefreshDigest(other.header());
      const std::vector<signature::Signature> all = {own, deployment_->key(1).Sign(digest),
                                                     deployment_->key(2).Sign(digest)};
      SHOAL_ASSERT_OK_AND_ASSIGN(sum, signature::AggregateSignatures(all));
      other.set_signature(ToString(sum->bytes()));
      SHOAL_ASSERT_OK_AND_ASSIGN(after, AnswerOf(3, other));
    } else {
      const std::optional<signature::Signature> later = deployment_->key(3).Sign(BytesView());
      // It takes an epoch back no more than a header: the journal that was set back has signed
      // none.
      SHOAL_ASSERT_OK_AND_ASSIGN(
          const auto own, deployment_->terms(j).Sign(HeaderOf(2 * j - 1, other_epoch), later));
      (void)own;
      wire::SignedRefreshHeader other;
      *other.mutable_header() = HeaderOf(2 * j - 1, other_epoch);
      const Digest digest = round::RefreshDigest(other.header());
      std::vector<signature::Signature> all;
      for (uint32_t k = 1; k <= 3; ++k) all.push_back(deployment_->key(k).Sign(digest));
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto sum, signature::AggregateSignatures(all));
      other.set_signature(ToString(sum.bytes()));
      SHOAL_ASSERT_OK_AND_ASSIGN(after, AnswerOf(j, other, before[j + 1]));
    }
    // With equal masks the XOR of both outputs would be that of both inputs at these positions:
    // zeros where the same input came, and what all tables have in common where another one did.
    EXPECT_TRUE(Independent(before[j].answers, after.answers)) << "party " << j;
    EXPECT_NE(before[j].tags.front(), after.tags.front());
    // All sign the next number, so that the chain goes on.
    const uint64_t last = NextEpoch();
    SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(2 * j, last));
    ExpectRows(HeaderOf(2 * j, last), answered);
  }
}

// Under one header, at a party whose journal was set back: any change of the input, of one answer
// or of a later party's tag, changes all masks.
TEST_F(TermsTest, EveryPartOfTheInputChangesTheMasks) {
  Enrol({1, 2, 3, 4, 5, 6, 7, 8});
  const uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, epoch)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered third, AnswerOf(3, refresh));
  std::vector<Bytes> records;
  {
    const MutexLock lock(deployment_->disk(2).mutex);
    records = deployment_->disk(2).records;
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered before, AnswerOf(2, refresh, third));
  const auto set_back = [&] {
    const MutexLock lock(deployment_->disk(2).mutex);
    deployment_->disk(2).records = records;
  };
  Answered changed = third;
  changed.answers.back() ^= 0x80;
  set_back();
  deployment_->Restart(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(Answered after, AnswerOf(2, refresh, changed));
  EXPECT_TRUE(Independent(before.answers, after.answers));
  changed = third;
  changed.tags[0][0] ^= 1;
  set_back();
  deployment_->Restart(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(after, AnswerOf(2, refresh, changed));
  EXPECT_TRUE(Independent(before.answers, after.answers));
  // And the same input the same bytes.
  set_back();
  deployment_->Restart(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(after, AnswerOf(2, refresh, third));
  EXPECT_EQ(after.answers, before.answers);
}

TEST_F(TermsTest, RefreshesHaveMasksOfTheirOwn) {
  Enrol({1, 2, 3, 4, 5, 6, 7, 8});
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered one, Refresh(1, NextEpoch()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered two, Refresh(2, NextEpoch()));
  EXPECT_TRUE(Independent(one.answers, two.answers));
}

TEST_F(TermsTest, NoSeedOfTheRoundIsOnTheDisk) {
  Enrol({1, 2, 3});
  for (uint32_t j = 1; j <= 3; ++j) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(deployment_->TermsDirectory(j))) {
      ++files;
      SHOAL_ASSERT_OK_AND_ASSIGN(const std::string content, ReadFile(entry.path().string()));
      for (const Secret& secret : client_->secrets()) {
        const BytesView seed = secret.seeds[j - 1].view();
        EXPECT_EQ(content.find(std::string(AsText(seed))), std::string::npos);
        // The arrays are sealed.
        const Seed term = round::TermSeed(seed, round_->id());
        EXPECT_EQ(content.find(std::string(AsText(term.view()))), std::string::npos);
      }
    }
    EXPECT_EQ(files, 2);
  }
}

TEST_F(TermsTest, ATermThatHasEndedIsErased) {
  Enrol({1, 2, 3});
  wire::LiveRounds list;
  list.set_highest_counter(round_->counter().value());
  list.add_rounds(round_->counter().value());
  Terms& terms = deployment_->terms(2);
  terms.TakeLive(list);  // the round lives
  list.clear_rounds();
  list.add_terms(round_->counter().value());
  terms.TakeLive(list);  // its term does
  list.clear_terms();
  list.set_highest_counter(round_->counter().value() - 1);
  terms.TakeLive(list);  // a list that is older than the round
  SHOAL_EXPECT_OK(terms.Find(round_->id()));
  const uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, epoch)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered third, AnswerOf(3, refresh));
  BytesSource answers(third.answers);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto source, terms.Return(refresh, answers, third.tags));
  list.set_highest_counter(round_->counter().value());
  terms.TakeLive(list);
  EXPECT_THAT(terms.Find(round_->id()), StatusIs(kNotFound, "no term here"));
  EXPECT_THAT(source->Next(), StatusIs(kFailed, "has ended"));
  EXPECT_THAT(AnswerOf(2, refresh, third), StatusIs(kNotFound, "no term here"));
  EXPECT_TRUE(std::filesystem::is_empty(deployment_->TermsDirectory(2)));
  deployment_->Restart(2);
  EXPECT_TRUE(deployment_->terms(2).All().empty());
}

TEST_F(TermsTest, TermsExpireOnBothClocks) {
  for (const bool steady : {false, true}) {
    Enrol({1, 2, 3});
    auto& clock = deployment_->clock();
    const uint64_t day_s = 24 * 3600;
    Terms& terms = deployment_->terms(3);
    (steady ? clock.steady_s : clock.now_s) += 19 * day_s;
    terms.EndExpired();
    SHOAL_EXPECT_OK(terms.Find(round_->id()));
    (steady ? clock.steady_s : clock.now_s) += 2 * day_s;
    EXPECT_THAT(terms.CheckProposal(HeaderOf(1, NextEpoch())), StatusIs(kFailed, "expired"));
    terms.EndExpired();
    EXPECT_THAT(terms.Find(round_->id()), StatusIs(kNotFound, "no term here"));
    EXPECT_TRUE(std::filesystem::is_empty(deployment_->TermsDirectory(3)));
    if (!steady) clock.now_s -= 21 * day_s;
  }
}

TEST_F(TermsTest, DamagedTermsEnd) {
  Enrol({1, 2, 3});
  const std::string record =
      absl::StrCat(deployment_->TermsDirectory(2), "/term-", round_->counter().value());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string data, ReadFile(record + ".data"));
  // Cut off: found at the start.
  SHOAL_ASSERT_OK(
      WriteFileAtomically(record + ".data", AsBytes(data.substr(1)), FileMode::kPrivate));
  deployment_->Restart(2);
  EXPECT_TRUE(deployment_->terms(2).All().empty());
  EXPECT_TRUE(std::filesystem::is_empty(deployment_->TermsDirectory(2)));
  // Damaged somewhere: found when it is read.
  Enrol({1, 2, 3});
  const std::string other =
      absl::StrCat(deployment_->TermsDirectory(3), "/term-", round_->counter().value(), ".data");
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string changed, ReadFile(other));
  changed.back() = static_cast<char>(changed.back() ^ 1);
  SHOAL_ASSERT_OK(WriteFileAtomically(other, AsBytes(changed), FileMode::kPrivate));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, NextEpoch())));
  EXPECT_THAT(AnswerOf(3, refresh), StatusIs(absl::StatusCode::kDataLoss, "not what was written"));
}

TEST_F(TermsTest, WhatWasHalfWrittenIsErasedAtTheStart) {
  Enrol({1, 2, 3});
  const std::string directory = deployment_->TermsDirectory(2);
  for (const char* const name : {"term-77.data", "term-78.tmp-abcdef", "term-79.refresh"}) {
    SHOAL_ASSERT_OK(
        WriteFileAtomically(absl::StrCat(directory, "/", name), AsBytes("x"), FileMode::kPrivate));
  }
  deployment_->Restart(2);
  EXPECT_EQ(deployment_->terms(2).All().size(), 1u);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files += entry.exists();
  EXPECT_EQ(files, 2);
}

TEST_F(TermsTest, TokensAreThoseOfTheRefresh) {
  Enrol({1, 2, 3, 4});
  const uint64_t epoch = NextEpoch();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, epoch)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(refresh));
  const RefreshTag& tag = answered.tags[0];
  const Digest masks = round::RefreshMasksId(refresh.header(), tag);
  std::vector<uint32_t> slots;
  std::vector<sharing::Token> tokens;
  for (const size_t i : {2, 0, 1, 3}) {
    const Secret& secret = client_->secrets()[i];
    slots.push_back(secret.slot);
    const Seed seed = round::TermSeed(secret.seeds[0].view(), round_->id());
    tokens.push_back(sharing::Expand(seed.view(), masks).token);
  }
  Terms& terms = deployment_->terms(1);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<uint64_t> places,
                             terms.Places(refresh.header(), tag, slots, tokens));
  EXPECT_EQ(places, (std::vector<uint64_t>{2, 0, 1, 3}));
  std::swap(tokens[0], tokens[1]);
  EXPECT_THAT(terms.Places(refresh.header(), tag, slots, tokens),
              StatusIs(kPermission, "not the slot's"));
  std::swap(tokens[0], tokens[1]);
  // A token of the round is none of the term.
  tokens[3] = client_->secrets()[3].token(round_->id());
  EXPECT_THAT(terms.Places(refresh.header(), tag, slots, tokens),
              StatusIs(kPermission, absl::StrCat("slot ", slots[3])));
  slots[3] = client_->secrets()[4].slot;  // never used
  EXPECT_THAT(terms.Places(refresh.header(), tag, slots, tokens), StatusIs(kInvalid, "not used"));
  slots[3] = 1'000'000;
  EXPECT_THAT(terms.Places(refresh.header(), tag, slots, tokens), StatusIs(kInvalid, "not used"));
}

TEST_F(TermsTest, ARepeatTakesThePlaceOfTheCallBefore) {
  Enrol({1, 2, 3});
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(1, NextEpoch())));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto earlier, deployment_->terms(3).Answer(refresh));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(refresh));
  EXPECT_THAT(earlier->Next(), StatusIs(kFailed, "begun again"));
  ExpectRows(refresh.header(), answered);
}

TEST_F(TermsTest, ADeadPositionLooksLikeAnyOther) {
  // Two slots with the same secrets: party 1 takes one of them, the other is dead.
  ASSERT_NO_FATAL_FAILURE(OpenRound(/*max_refreshes=*/5));
  // The layer for party 2 comes twice: dead at party 2, alive at party 1.
  const Secret first = client_->Make();
  std::vector<Seed> ephemeral;
  for (const Seed& seed : first.ephemeral) ephemeral.push_back(seed.Clone());
  ephemeral[0] = deployment_->random().NewSeed();
  Secret second = client_->Make(std::move(ephemeral));
  Secret one;
  for (const Seed& seed : first.ephemeral) one.ephemeral.push_back(seed.Clone());
  client_->Add(client_->Make(std::move(one.ephemeral)));
  client_->Add(std::move(second));
  SHOAL_ASSERT_OK(client_->Submit());
  SHOAL_ASSERT_OK(deployment_->RunOffline(round_->id()));
  SHOAL_ASSERT_OK(client_->Query({8, 9}));
  SHOAL_ASSERT_OK(deployment_->RunOnline(round_->id()));
  rows_ = {8, 9};
  std::vector<Bytes> dead;
  for (uint32_t number = 1; number <= 2; ++number) {
    const uint64_t epoch = NextEpoch();
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(number, epoch)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Answered answered, Refresh(refresh));
    EXPECT_EQ(Unmask(refresh.header(), answered, 0), ToBytes(deployment_->Answer(8, epoch)));
    // Nothing that the client takes; and no byte of answer or tag is like another refresh's.
    EXPECT_EQ(Unmask(refresh.header(), answered, 1), Bytes(kTagged - 16, 0));
    dead.push_back(ToBytes(BytesView(answered.answers).subspan(kTagged, kTagged)));
  }
  EXPECT_TRUE(Independent(dead[0], dead[1]));
  EXPECT_LT(Equal(BytesView(dead[0]).last(16), BytesView(dead[1]).last(16)), 4u);
  // A dead position has no seed: what zeros in its place give, anybody can compute.
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto refresh, Sign(HeaderOf(3, NextEpoch())));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered third, AnswerOf(3, refresh));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Answered sent, AnswerOf(2, refresh, third));
  Bytes known(kTagged);
  sharing::MaskAnswer(Bytes(32), round::RefreshMasksId(refresh.header(), sent.tags[0]),
                      sharing::TagCovers::kAnswerAndTag, known);
  for (size_t at = 0; at < sent.answers.size(); at += kTagged) {
    EXPECT_LT(Equal(BytesView(sent.answers).subspan(at, kTagged), known), kTagged / 16);
    EXPECT_LT(
        Equal(BytesView(sent.answers).subspan(at + kTagged - 16, 16), BytesView(known).last(16)),
        4u);
  }
}

}  // namespace
}  // namespace shoal::sim
