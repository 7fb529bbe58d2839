#include "src/client/retrieval.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/status_macros.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_clock.h"
#include "src/client/testing/fake_frontend.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
using testing::FakeFrontend;
using Outcome = Lookup::Outcome;

std::vector<Bytes> KeysOf(const std::vector<std::string>& texts) {
  std::vector<Bytes> keys;
  for (const std::string& text : texts) keys.push_back(ToBytes(AsBytes(text)));
  return keys;
}

// Answers from the table itself: every wanted row, the largest first, then some of them again and
// some that nobody wanted.
class FakeSource final : public RowSource {
 public:
  explicit FakeSource(const table::Table* table) : table_(*table) {}

  absl::Status Prepare() override {
    calls.push_back("Prepare");
    return prepare;
  }
  absl::StatusOr<std::unique_ptr<RowAnswers>> Ask(const Wanted& wanted) override {
    calls.push_back("Ask");
    asked = wanted;
    SHOAL_RETURN_IF_ERROR(ask);
    std::vector<uint32_t> rows(wanted.rows.rbegin(), wanted.rows.rend());
    for (uint32_t row = 0; row < 5; ++row) rows.push_back(row);
    return std::make_unique<Answers>(this, std::move(rows));
  }
  void HangUp() override { calls.push_back("HangUp"); }
  pir::Costs costs() const override { return {}; }
  Traffic traffic() const override { return {}; }

  // Calls in order; repeated reads count once.
  std::vector<std::string> calls;
  std::optional<Wanted> asked;
  absl::Status prepare, ask;
  // Spoils every answer to these rows.
  std::set<uint32_t> spoiled;
  // Gives these rows as they are, with the signature of another row.
  std::set<uint32_t> forged;

 private:
  class Answers final : public RowAnswers {
   public:
    Answers(FakeSource* source, std::vector<uint32_t> rows)
        : source_(*source), rows_(std::move(rows)) {}
    std::span<const uint32_t> rows() const override { return rows_; }
    absl::Status Read(size_t first, MutableBytes out) const override {
      const size_t each = source_.table_.manifest().answer_bytes();
      EXPECT_EQ(out.size() % each, 0u);
      EXPECT_EQ(source_.calls.back(), "HangUp")
          << "read while somebody could see how long it takes";
      for (; !out.empty(); out = out.subspan(each), ++first) {
        source_.table_.CopyAnswer(rows_[first], out.first(each));
        if (source_.spoiled.contains(rows_[first])) out[1] ^= 1;
        if (source_.forged.contains(rows_[first])) {
          Bytes other(each);
          source_.table_.CopyAnswer((rows_[first] + 1) % source_.table_.rows(), other);
          const size_t row_bytes = source_.table_.manifest().row_bytes();
          std::copy(other.begin() + static_cast<ptrdiff_t>(row_bytes), other.end(),
                    out.begin() + static_cast<ptrdiff_t>(row_bytes));
        }
      }
      return absl::OkStatus();
    }
    absl::Status Erase() override {
      source_.calls.push_back("Erase");
      return absl::OkStatus();
    }

   private:
    FakeSource& source_;
    const std::vector<uint32_t> rows_;
  };
  const table::Table& table_;
};

// Keys that can change between the first and the second reading.
class ChangingKeys final : public Keys {
 public:
  absl::Status ForEach(const std::function<absl::Status(BytesView)>& take) override {
    for (const Bytes& key : readings++ == 0 ? first : second) {
      SHOAL_RETURN_IF_ERROR(take(key));
    }
    return absl::OkStatus();
  }
  std::vector<Bytes> first, second;
  int readings = 0;
};

class KeptResults final : public Results {
 public:
  absl::Status Add(BytesView key, const Lookup& result) override {
    if (added.size() == room) return absl::ResourceExhaustedError("disk full");
    added.emplace_back(ToString(key), result);
    return absl::OkStatus();
  }
  absl::Status Finish() override { return finish; }
  std::vector<std::pair<std::string, Lookup>> added;
  size_t room = 1 << 20;
  absl::Status finish;
};

class RetrievalTest : public ::testing::Test {
 protected:
  void Start(testing::FakeOptions options = {}) {
    frontend_ = std::make_unique<FakeFrontend>(options);
    environment_ = {.clock = &frontend_->clock(),
                    .random = &frontend_->random(),
                    .pool = &frontend_->pool(),
                    .sleep = [](uint32_t) {}};
    Open();
  }
  // Takes the table that the frontend serves now.
  void Open() {
    MemoryStateStore store;
    auto deployment = Deployment::Open(*frontend_, frontend_->pins(), store, environment_);
    SHOAL_CHECK(deployment.ok());
    deployment_.emplace(*std::move(deployment));
    source_ = std::make_unique<FakeSource>(&frontend_->table());
  }
  absl::StatusOr<std::vector<Lookup>> LookUpAll(const std::vector<std::string>& keys) {
    return LookUp(*deployment_, *source_, KeysOf(keys), environment_);
  }
  uint32_t RowOf(absl::string_view key) {
    return static_cast<uint32_t>(*deployment_->map().RowOf(AsBytes(key)));
  }

  std::unique_ptr<FakeFrontend> frontend_;
  Environment environment_ = {};
  std::optional<Deployment> deployment_;
  std::unique_ptr<FakeSource> source_;
};

TEST_F(RetrievalTest, AsksHangsUpLooksAndErases) {
  Start();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUpAll({"key-7", "nobody", "key-7", "key-12"}));
  EXPECT_EQ(source_->calls, (std::vector<std::string>{"Prepare", "Ask", "HangUp", "Erase"}));
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(ToString(results[0].value), "value of key-7");
  EXPECT_EQ(results[1].outcome, Outcome::kAbsent);
  EXPECT_EQ(ToString(results[2].value), "value of key-7");
  EXPECT_EQ(ToString(results[3].value), "value of key-12");
}

TEST_F(RetrievalTest, WantsEveryRowOnceInRisingOrder) {
  Start({.dense = true});
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUpAll({"299", "0", "299", "5000", "1"}));
  EXPECT_EQ(source_->asked->keys, 5u) << "impossible and repeated ones count";
  const std::set<uint32_t> rows = {RowOf("0"), RowOf("1"), RowOf("299")};
  EXPECT_EQ(source_->asked->rows, std::vector<uint32_t>(rows.begin(), rows.end()));
  EXPECT_EQ(results[3].outcome, Outcome::kAbsent);
  EXPECT_EQ(ToString(results[4].value), "value of key-1");
}

// A key whose row has no room for it: its answer is right, and proves nothing.
TEST_F(RetrievalTest, AKeyWithoutRoomIsUnknownAndNeverAbsent) {
  Start();
  frontend_->NextEpoch(360, /*keep_rows=*/true);
  Open();
  const table::Table& table = frontend_->table();
  std::vector<std::string> keys;
  for (size_t i = 0; i < 360; ++i) keys.push_back(FakeFrontend::Key(i));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUpAll(keys));
  size_t unknown = 0;
  for (size_t i = 0; i < 360; ++i) {
    SHOAL_EXPECT_OK(results[i].error);
    if (results[i].outcome == Outcome::kUnknown) {
      ++unknown;
      EXPECT_TRUE(results[i].value.empty());
      continue;
    }
    ASSERT_EQ(results[i].outcome, Outcome::kFound) << keys[i];
    EXPECT_EQ(ToString(results[i].value), FakeFrontend::Value(i, 2));
  }
  EXPECT_EQ(unknown + table.manifest().content().records(), 360u);
  EXPECT_GT(unknown, 20u);
  // Whoever spoils the answer makes it fail: nobody can make a key unknown that is not.
  for (const std::string& key : keys) source_->spoiled.insert(RowOf(key));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto failed, LookUpAll(keys));
  for (const Lookup& result : failed) EXPECT_EQ(result.outcome, Outcome::kFailed);
}

TEST_F(RetrievalTest, AKeyThatCannotBeIsFoundBeforeAnythingIsAsked) {
  Start({.dense = true});
  EXPECT_THAT(LookUpAll({"7", "07"}), StatusIs(absl::StatusCode::kInvalidArgument, "key 2"));
  EXPECT_TRUE(source_->calls.empty());
}

// A wrong signature fails the keys in that row and no others.
TEST_F(RetrievalTest, AWrongAnswerFailsItsKeysAlone) {
  Start();
  source_->spoiled = {RowOf("key-3")};
  std::vector<std::string> keys;
  for (size_t i = 0; i < 100; ++i) keys.push_back(FakeFrontend::Key(i));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUpAll(keys));
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool hit = RowOf(keys[i]) == RowOf("key-3");
    EXPECT_EQ(results[i].outcome, hit ? Outcome::kFailed : Outcome::kFound) << i;
    EXPECT_EQ(results[i].error.code(),
              hit ? absl::StatusCode::kUnauthenticated : absl::StatusCode::kOk);
  }
  EXPECT_EQ(source_->calls.back(), "Erase") << "it is not asked again";
}

// Also a row that is well formed, and even right, is not believed without its own signature.
TEST_F(RetrievalTest, ARowWithAnotherSignatureIsNotBelieved) {
  Start();
  source_->forged = {RowOf("key-3")};
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto results, LookUpAll({"key-3"}));
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].outcome, Outcome::kFailed);
  EXPECT_THAT(results[0].error, StatusIs(absl::StatusCode::kUnauthenticated, "not signed by all"));
  EXPECT_TRUE(results[0].value.empty());
}

TEST_F(RetrievalTest, ErrorsOfTheSourceEndTheLookup) {
  Start();
  source_->prepare = absl::UnavailableError("no hint");
  EXPECT_THAT(LookUpAll({"key-1"}), StatusIs(absl::StatusCode::kUnavailable, "no hint"));
  source_->prepare = absl::OkStatus();
  source_->ask = absl::AbortedError("no answers");
  EXPECT_THAT(LookUpAll({"key-1"}), StatusIs(absl::StatusCode::kAborted, "no answers"));
  EXPECT_EQ(source_->calls, (std::vector<std::string>{"Prepare", "Prepare", "Ask"}));
}

// Answers of an expired table are neither believed nor erased (LookUp in retrieval.h).
TEST_F(RetrievalTest, AnExpiredTableGivesNoResultAtAll) {
  Start();
  const shoal::testing::TestClock later(1'900'000'000);
  environment_.clock = &later;
  ChangingKeys keys;
  keys.first = keys.second = KeysOf({"key-1", "nobody"});
  KeptResults results;
  EXPECT_THAT(LookUp(*deployment_, *source_, keys, results, environment_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "expired"));
  EXPECT_TRUE(results.added.empty());
  EXPECT_EQ(source_->calls, (std::vector<std::string>{"Prepare", "Ask", "HangUp"}));
}

TEST_F(RetrievalTest, KeysMustNotChangeMeanwhile) {
  Start();
  ChangingKeys keys;
  keys.first = KeysOf({"key-1", "key-2"});
  keys.second = KeysOf({"key-1", "key-200"});
  ASSERT_NE(RowOf("key-1"), RowOf("key-200"));
  ASSERT_NE(RowOf("key-2"), RowOf("key-200"));
  KeptResults results;
  EXPECT_THAT(LookUp(*deployment_, *source_, keys, results, environment_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "key 2: was not among the keys"));
  EXPECT_EQ(source_->calls.back(), "HangUp");
}

// A row that was asked only as padding proves nothing, as its signature was not verified.
TEST_F(RetrievalTest, PaddingIsNoAnswer) {
  Start({.dense = true});
  ChangingKeys keys;
  keys.first = KeysOf({"299"});
  keys.second = KeysOf({"0"});
  ASSERT_EQ(RowOf("0"), 0u);
  KeptResults results;
  EXPECT_THAT(LookUp(*deployment_, *source_, keys, results, environment_),
              StatusIs(absl::StatusCode::kFailedPrecondition, "was not among the keys"));
}

// Nothing is erased until the caller has stored the results.
TEST_F(RetrievalTest, ResultsThatWereNotKeptLeaveTheAnswers) {
  Start();
  for (const bool at_the_end : {false, true}) {
    source_->calls.clear();
    ChangingKeys keys;
    keys.first = keys.second = KeysOf({"key-1", "key-2"});
    KeptResults results;
    if (at_the_end) {
      results.finish = absl::ResourceExhaustedError("disk full");
    } else {
      results.room = 1;
    }
    EXPECT_THAT(LookUp(*deployment_, *source_, keys, results, environment_),
                StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
    EXPECT_EQ(source_->calls.back(), "HangUp");
  }
}

// More keys and answers than a block holds.
TEST_F(RetrievalTest, ResultsComeInTheKeysOrder) {
  Start({.dense = true, .records = 60'000, .row_bytes = 4096});
  ASSERT_GT(frontend_->table().rows() * 4096, 1u << 20);
  std::vector<std::string> texts;
  for (size_t i = 0; i < 60'000; ++i) texts.push_back(absl::StrCat(i * 7919 % 60'001));
  ChangingKeys keys;
  keys.first = keys.second = KeysOf(texts);
  KeptResults results;
  SHOAL_ASSERT_OK(LookUp(*deployment_, *source_, keys, results, environment_));
  ASSERT_EQ(results.added.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& [key, result] = results.added[i];
    ASSERT_EQ(key, texts[i]);
    if (key == "60000") {
      EXPECT_EQ(result.outcome, Outcome::kAbsent);
    } else {
      ASSERT_EQ(ToString(result.value), "value of key-" + key);
    }
  }
}

}  // namespace
}  // namespace shoal::client
