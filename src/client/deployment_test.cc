#include "src/client/deployment.h"

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/secret.h"
#include "src/base/testing/matchers.h"
#include "src/client/testing/fake_frontend.h"
#include "src/storage/file.h"

namespace shoal::client {
namespace {

using shoal::testing::StatusIs;
using testing::FakeFrontend;

class DeploymentTest : public ::testing::Test {
 protected:
  DeploymentTest() {
    std::string name = ::testing::TempDir() + "/deployment.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
    frontend_.spoil_versions = [this](wire::RowVersionList list, wire::GetRowVersionsResponse&) {
      // Lists come in pieces.
      if (asked_.empty() || asked_.back() != list) asked_.push_back(list);
    };
  }
  // As a client with this name, which keeps its files between visits. Which lists it asked for.
  std::vector<wire::RowVersionList> Visit(const std::string& client) {
    asked_.clear();
    const auto deployment =
        Deployment::Fetch(frontend_, frontend_.pins(), states_[client], frontend_.clock().now_s,
                          absl::StrCat(directory_, "/", client));
    SHOAL_CHECK(deployment.ok());
    const table::RowVersions& versions = deployment->map().versions();
    const table::RowVersions& expected = frontend_.table().content().versions();
    for (uint64_t row = 0; row < expected.rows(); ++row) {
      EXPECT_EQ(versions.of(row), expected.of(row));
    }
    return asked_;
  }

  FakeFrontend frontend_{{.values_stay = true, .records = 30}};
  std::string directory_;
  std::map<std::string, State> states_;
  std::vector<wire::RowVersionList> asked_;
};

// A client that was here in this block of epochs or in the one before asks for the same, whenever
// it was; so do those that were not, new clients among them.
TEST_F(DeploymentTest, TheListsAreFetchedTheSameWayWheneverTheClientWasHereLast) {
  constexpr uint64_t kLast = 18;
  for (uint64_t epoch = 1; epoch <= kLast; ++epoch) {
    Visit(absl::StrCat("last-at-", epoch));
    Visit("at-every");
    if (epoch < kLast) frontend_.NextEpoch(30);
  }
  ASSERT_EQ(frontend_.table().manifest().epoch(), kLast);
  const std::vector<wire::RowVersionList> usual = {wire::ROW_VERSION_LIST_PREVIOUS,
                                                   wire::ROW_VERSION_LIST_RECENT};
  std::vector<wire::RowVersionList> all = usual;
  all.push_back(wire::ROW_VERSION_LIST_BASE);
  EXPECT_EQ(Visit("at-every"), usual);
  EXPECT_EQ(Visit("new"), all);
  EXPECT_EQ(Visit("new"), usual);
  for (uint64_t epoch = 1; epoch <= kLast; ++epoch) {
    EXPECT_EQ(Visit(absl::StrCat("last-at-", epoch)), epoch > 8 ? usual : all) << epoch;
  }
}

// The lists of another epoch, or damaged ones, are refused, whoever has them.
TEST_F(DeploymentTest, AnotherListIsRefused) {
  for (int i = 0; i < 9; ++i) frontend_.NextEpoch(30);
  for (const wire::RowVersionList bad :
       {wire::ROW_VERSION_LIST_BASE, wire::ROW_VERSION_LIST_PREVIOUS,
        wire::ROW_VERSION_LIST_RECENT}) {
    frontend_.spoil_versions = [&](wire::RowVersionList list,
                                   wire::GetRowVersionsResponse& response) {
      if (list == bad) (*response.mutable_data())[0] ^= 1;
    };
    State state;
    EXPECT_THAT(Deployment::Fetch(frontend_, frontend_.pins(), state, frontend_.clock().now_s),
                StatusIs(absl::StatusCode::kDataLoss, "not the manifest's"));
    EXPECT_FALSE(state.table.has_value());
  }
  frontend_.spoil_versions = [&](wire::RowVersionList, wire::GetRowVersionsResponse& response) {
    response.set_total_bytes(response.total_bytes() + 1);
  };
  State state;
  EXPECT_THAT(Deployment::Fetch(frontend_, frontend_.pins(), state, frontend_.clock().now_s),
              StatusIs(absl::StatusCode::kDataLoss, "the manifest has"));
}

TEST_F(DeploymentTest, TheKeptListIsNotTrusted) {
  for (int i = 0; i < 9; ++i) frontend_.NextEpoch(30);
  Visit("client");
  for (const std::string& content :
       {std::string(), std::string("spoiled"), std::string(1 << 20, '\xff')}) {
    SHOAL_ASSERT_OK(
        WriteFileAtomically(directory_ + "/client.versions", AsBytes(content), FileMode::kPublic));
    EXPECT_EQ(Visit("client").size(), 3u);
    EXPECT_EQ(Visit("client").size(), 2u);
  }
}

// A client keeps no secret of a round that has expired, even if it never asks there again.
TEST_F(DeploymentTest, SecretsOfExpiredRoundsGoWhenTheDeploymentIsOpened) {
  MemoryStateStore store;
  const uint64_t now_s = frontend_.clock().now_s;
  for (const uint64_t expires_s : {now_s - 3600, now_s + 3600}) {
    HeldRound& round = store.state().rounds.emplace_back();
    round.header.mutable_header()->set_counter(expires_s);
    round.header.mutable_header()->set_expires_s(expires_s);
    round.master = frontend_.random().NewSeed();
  }
  const Environment environment = {.clock = &frontend_.clock(),
                                   .random = &frontend_.random(),
                                   .pool = &frontend_.pool(),
                                   .sleep = [](uint32_t) {}};
  SHOAL_ASSERT_OK(Deployment::Open(frontend_, frontend_.pins(), store, environment));
  ASSERT_EQ(store.state().rounds.size(), 2u);
  EXPECT_TRUE(store.state().rounds[0].over);
  EXPECT_EQ(ToBytes(store.state().rounds[0].master.view()), Bytes(Seed::size()));
  EXPECT_FALSE(store.state().rounds[1].over);
}

// A table for one kind of query under a roster for the other: the noise that the roster promises is
// not the noise that such a table's rounds would have. Nothing is kept of such a deployment.
TEST(TwoTiersTest, RosterAndTableThatDisagreeAreRefused) {
  struct Case {
    uint32_t most_in_bucket, query_buckets;
  };
  for (const Case& c : {Case{0, 2}, Case{1, 0}}) {
    FakeFrontend frontend({.parties = 2,
                           .records = 100,
                           .most_in_bucket = c.most_in_bucket,
                           .query_buckets = c.query_buckets});
    State state;
    EXPECT_THAT(
        Deployment::Fetch(frontend, frontend.pins(), state, frontend.clock().now_s).status(),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 absl::StrCat("the table: its query_buckets are ", c.query_buckets,
                              ", and most_in_bucket is ", c.most_in_bucket,
                              " in the roster of 2 parties: both are for two tiers, or neither")));
    EXPECT_FALSE(state.roster.has_value() || state.table.has_value());
    EXPECT_TRUE(state.deployment.empty());
  }
}

}  // namespace
}  // namespace shoal::client
