#include "src/door/tokens.h"

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/door/spent_tokens.h"
#include "src/door/test_issuer.h"
#include "src/storage/file.h"

namespace shoal::door {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;

constexpr char kName[] = "issuer.example";
constexpr char kOrigin[] = "origin.example";

const TestIssuer& One() {
  static const TestIssuer issuer;
  return issuer;
}

TokenRules RulesOf(const std::vector<Issuer>& issuers) {
  auto rules = TokenRules::Create(issuers, kOrigin);
  SHOAL_CHECK(rules.ok());
  return *std::move(rules);
}

TEST(TokensTest, HasTheVectorsOfRfc9578) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string text,
                             ReadFile("src/door/testdata/rfc9578_tokens.txt"));
  int vectors = 0, checked = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (line.front() == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    ASSERT_EQ(words.size(), 3u);
    const auto bytes = [](const std::string& hex) {
      return ToBytes(AsBytes(absl::HexStringToBytes(hex)));
    };
    const Bytes key_der = bytes(words[0]), challenge = bytes(words[1]), token = bytes(words[2]);
    const TokenRules rules = RulesOf({{.name = kName, .public_key_der = key_der}});
    const BytesView key_id = BytesView(token).subspan(66, 32);
    EXPECT_TRUE(std::ranges::equal(rules.key_ids().front(), key_id));
    const uint8_t* at = key_der.data();
    const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
        d2i_PUBKEY(nullptr, &at, static_cast<long>(key_der.size())), &EVP_PKEY_free);
    EXPECT_TRUE(VerifyPss(key.get(), BytesView(token).first(98), BytesView(token).subspan(98)));
    ++vectors;
    // The door's own challenge is one of them.
    const auto whole = rules.Check(TestIssuer::Authorization(token));
    if (challenge == EncodeChallenge(kName, kOrigin)) {
      SHOAL_EXPECT_OK(whole.status());
      ++checked;
    } else {
      EXPECT_THAT(whole.status(), StatusIs(kDenied, "another challenge"));
    }
  }
  EXPECT_EQ(vectors, 5);
  EXPECT_EQ(checked, 1);
}

TEST(TokensTest, EveryByteOfATokenCounts) {
  const TokenRules rules = RulesOf({{.name = kName, .public_key_der = One().public_der()}});
  const Bytes token = One().Token(7, kName, kOrigin);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TokenRules::Checked good,
                             rules.Check(TestIssuer::Authorization(token)));
  EXPECT_EQ(good.issuer, 0u);
  for (size_t i = 0; i < token.size(); ++i) {
    Bytes other = token;
    other[i] ^= 1;
    EXPECT_FALSE(rules.Check(TestIssuer::Authorization(other)).ok()) << i;
  }
  // Another signature on the same nonce is the same token.
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const TokenRules::Checked again,
      rules.Check(TestIssuer::Authorization(One().Token(7, kName, kOrigin))));
  EXPECT_EQ(again.id, good.id);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const TokenRules::Checked next,
      rules.Check(TestIssuer::Authorization(One().Token(8, kName, kOrigin))));
  EXPECT_NE(next.id, good.id);
}

TEST(TokensTest, OnlyTokensForThisDoorAndItsIssuersAreTaken) {
  const TestIssuer two;
  const TokenRules rules = RulesOf({{.name = kName, .public_key_der = One().public_der()},
                                    {.name = "two.example", .public_key_der = two.public_der()}});
  const auto check = [&](const Bytes& token) {
    return rules.Check(TestIssuer::Authorization(token));
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const TokenRules::Checked second,
                             check(two.Token(1, "two.example", kOrigin)));
  EXPECT_EQ(second.issuer, 1u);
  EXPECT_THAT(check(One().Token(1, kName, "other.example")).status(),
              StatusIs(kDenied, "another challenge"));
  EXPECT_THAT(check(One().Token(1, "two.example", kOrigin)).status(),
              StatusIs(kDenied, "another challenge"));
  const TestIssuer stranger;
  EXPECT_THAT(check(stranger.Token(1, kName, kOrigin)).status(), StatusIs(kDenied, "not taken"));
}

TEST(TokensTest, WhatIsNoTokenIsRefused) {
  const TokenRules rules = RulesOf({{.name = kName, .public_key_der = One().public_der()}});
  const Bytes token = One().Token(1, kName, kOrigin);
  const std::string good = TestIssuer::Authorization(token);
  SHOAL_EXPECT_OK(rules.Check(good).status());
  // As browsers and libraries write it: without quotes, with padding, the scheme in another case.
  std::string bare = good;
  std::erase(bare, '"');
  SHOAL_EXPECT_OK(rules.Check(bare).status());
  SHOAL_EXPECT_OK(rules.Check("privatetoken" + good.substr(12)).status());
  for (const std::string& text :
       {std::string(), std::string("PrivateToken"), std::string("PrivateToken token="),
        std::string("PrivateToken token=\""), std::string("Bearer ") + good.substr(13),
        good.substr(0, good.size() - 5) + "\"", good + "x", std::string(5000, 'x'),
        "PrivateToken token=\"" + std::string(5000, 'A') + "\""}) {
    EXPECT_THAT(rules.Check(text).status(), StatusIs(kInvalid, "expected PrivateToken")) << text;
  }
  Bytes longer = token;
  longer.push_back(0);
  EXPECT_FALSE(rules.Check(TestIssuer::Authorization(longer)).ok());
}

TEST(TokensTest, OnlyKeysOfTheTokenTypeAreTaken) {
  const TestIssuer small(1024);
  const auto create = [](const std::vector<Issuer>& issuers, const std::string& origin = kOrigin) {
    return TokenRules::Create(issuers, origin).status();
  };
  const Issuer good{.name = kName, .public_key_der = One().public_der()};
  SHOAL_EXPECT_OK(create({good}));
  EXPECT_THAT(create({{.name = kName, .public_key_der = small.public_der()}}),
              StatusIs(kInvalid, "2048 bits"));
  EXPECT_THAT(create({{.name = kName, .public_key_der = {1, 2, 3}}}), StatusIs(kInvalid, "key"));
  Bytes longer = One().public_der();
  longer.push_back(0);
  EXPECT_THAT(create({{.name = kName, .public_key_der = longer}}), StatusIs(kInvalid, "key"));
  EXPECT_THAT(create({good, good}), StatusIs(kInvalid, "same key"));
  EXPECT_THAT(create({{.name = "An Issuer", .public_key_der = One().public_der()}}),
              StatusIs(kInvalid, "host's name"));
  EXPECT_THAT(create({good}, "a\"b"), StatusIs(kInvalid, "host's name"));
}

class SpentTokensTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(directory_);
    SHOAL_ASSERT_OK(SpentTokens::Begin(directory_, kKey));
  }
  absl::StatusOr<std::unique_ptr<SpentTokens>> Open(size_t most = 1000) {
    return SpentTokens::Open(directory_, {kKey}, most);
  }
  std::string path() const { return absl::StrCat(directory_, "/spent-", Hex(kKey)); }
  static TokenId Id(uint32_t number) {
    TokenId id = {};
    StoreLe<uint32_t>(id.data(), number);
    return id;
  }
  static absl::Status Spend(SpentTokens& store, const TokenId& id) {
    std::promise<absl::Status> done;
    store.Spend(0, id, [&](const absl::Status& status) {
      // A copy of its own: the thread sanitizer does not see the counts of Abseil's library.
      done.set_value(absl::Status(status.code(), status.message()));
    });
    return done.get_future().get();
  }

  const Digest kKey = {1, 2, 3};
  const std::string directory_ = absl::StrCat(
      ::testing::TempDir(), ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(SpentTokensTest, ATokenIsSpentOnceAlsoAfterARestart) {
  SHOAL_ASSERT_OK_AND_ASSIGN(auto store, Open());
  SHOAL_EXPECT_OK(Spend(*store, Id(1)));
  EXPECT_THAT(Spend(*store, Id(1)), StatusIs(absl::StatusCode::kAlreadyExists, "spent before"));
  SHOAL_EXPECT_OK(Spend(*store, Id(2)));
  for (int run = 0; run < 2; ++run) {
    store.reset();
    SHOAL_ASSERT_OK_AND_ASSIGN(store, Open());
    EXPECT_EQ(store->count(0), 2u + run);
    EXPECT_FALSE(Spend(*store, Id(1)).ok());
    EXPECT_FALSE(Spend(*store, Id(2)).ok());
    SHOAL_EXPECT_OK(Spend(*store, Id(10 + run)));
  }
}

// Of many calls with few tokens on several threads, each token has one that succeeds.
TEST_F(SpentTokensTest, OfTwoAtTheSameTimeOneIsRefused) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  std::atomic<int> taken = 0, refused = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (uint32_t id = 0; id < 100; ++id) {
        const absl::Status status = Spend(*store, Id(id));
        ++(status.ok() ? taken : refused);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 100);
  EXPECT_EQ(refused, 300);
}

TEST_F(SpentTokensTest, ATokenIsDurableBeforeItIsTaken) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  for (uint32_t id = 0; id < 20; ++id) {
    SHOAL_EXPECT_OK(Spend(*store, Id(id)));
    EXPECT_EQ(std::filesystem::file_size(path()), 72 + 16 * (id + 1));
  }
}

TEST_F(SpentTokensTest, ARecordThatIsNotCompleteWasNeverAcknowledged) {
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    SHOAL_EXPECT_OK(Spend(*store, Id(1)));
  }
  SHOAL_ASSERT_OK(AppendToFile(path(), 72 + 16, Bytes(7, 1)));
  for (int run = 0; run < 2; ++run) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    EXPECT_EQ(store->count(0), 1u + run);
    SHOAL_EXPECT_OK(Spend(*store, Id(2 + run)));
  }
}

TEST_F(SpentTokensTest, AKeyWithoutItsRecordIsNotTaken) {
  std::filesystem::remove(path());
  EXPECT_THAT(Open().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, "the issuer must change its key"));
  std::filesystem::remove_all(directory_);
  EXPECT_THAT(Open().status(), StatusIs(absl::StatusCode::kFailedPrecondition, "begin-keys"));
}

TEST_F(SpentTokensTest, ARecordThatWasPutBackIsNotTaken) {
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    SHOAL_EXPECT_OK(Spend(*store, Id(1)));
  }
  const std::string backup = path() + ".backup";
  std::filesystem::copy_file(path(), backup);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    SHOAL_EXPECT_OK(Spend(*store, Id(2)));
  }
  std::filesystem::rename(backup, path());
  EXPECT_THAT(Open().status(), StatusIs(absl::StatusCode::kFailedPrecondition, "a copy"));
}

TEST_F(SpentTokensTest, AKeyIsBegunOnce) {
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
    SHOAL_EXPECT_OK(Spend(*store, Id(1)));
  }
  EXPECT_THAT(SpentTokens::Begin(directory_, kKey),
              StatusIs(absl::StatusCode::kAlreadyExists, "begun before"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  EXPECT_EQ(store->count(0), 1u);
}

TEST_F(SpentTokensTest, AnotherKeysRecordIsNotTaken) {
  const Digest other = {9};
  std::filesystem::rename(path(), absl::StrCat(directory_, "/spent-", Hex(other)));
  EXPECT_THAT(SpentTokens::Open(directory_, {other}, 10).status(),
              StatusIs(absl::StatusCode::kDataLoss, ""));
}

TEST_F(SpentTokensTest, OnlyOneDoorRunsWithAState) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  EXPECT_THAT(Open().status(), StatusIs(absl::StatusCode::kFailedPrecondition, "another door"));
}

TEST_F(SpentTokensTest, WhatIsRememberedIsBounded) {
  SHOAL_ASSERT_OK_AND_ASSIGN(auto store, Open(3));
  for (uint32_t id = 0; id < 3; ++id) SHOAL_EXPECT_OK(Spend(*store, Id(id)));
  EXPECT_THAT(Spend(*store, Id(3)), StatusIs(absl::StatusCode::kResourceExhausted, ""));
  EXPECT_THAT(Spend(*store, Id(2)), StatusIs(absl::StatusCode::kAlreadyExists, ""));
  store.reset();
  SHOAL_ASSERT_OK_AND_ASSIGN(store, Open(3));
  EXPECT_THAT(Spend(*store, Id(3)), StatusIs(absl::StatusCode::kResourceExhausted, ""));
}

TEST_F(SpentTokensTest, AStorageThatFailsTakesNoTokens) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto store, Open());
  SHOAL_EXPECT_OK(Spend(*store, Id(1)));
  std::filesystem::remove(path());
  EXPECT_THAT(Spend(*store, Id(2)), StatusIs(absl::StatusCode::kUnavailable, ""));
  EXPECT_THAT(Spend(*store, Id(3)), StatusIs(absl::StatusCode::kUnavailable, ""));
}

}  // namespace
}  // namespace shoal::door
