// Searches the memory of both parties of a round of two tiers for what they no longer need: both
// tails' lists together give all rows, so each tail erases what it had once it has answered
// (docs/threat-model.md, "Two tiers", condition 20).
#include <unistd.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/byte_source.h"
#include "src/base/testing/matchers.h"
#include "src/round/header.h"
#include "src/server/chain.h"
#include "src/server/round_context.h"
#include "src/server/testing/deployment.h"
#include "src/server/testing/two_tiers_client.h"
#include "src/sharing/halves.h"
#include "src/sim/memory_scan.h"

namespace shoal::sim {
namespace {

using server::testing::Deployment;
using server::testing::TwoTiersClient;

constexpr size_t kSlots = 30;
constexpr uint32_t kBuckets = 8;

class TwoTiersErasureTest : public ::testing::Test {
 protected:
  TwoTiersErasureTest()
      : deployment_({.parties = 2, .rows = 40, .query_buckets = kBuckets, .most_in_bucket = 1}) {}

  void RunToQueries() {
    SHOAL_ASSERT_OK_AND_ASSIGN(wire::RoundHeader draft, deployment_.frontend().NewDraft());
    draft.set_query_buckets(kBuckets);
    SHOAL_ASSERT_OK_AND_ASSIGN(header_,
                               deployment_.node(1).Propose(draft, deployment_.frontend().Live()));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const round::Round round,
        round::Round::Verify(header_, deployment_.roster(), deployment_.table(),
                             deployment_.clock().NowSeconds()));
    id_ = round.id();
    client_.emplace(&deployment_, round);
    for (size_t slot = 0; slot < kSlots; ++slot) client_->Submit();
    SHOAL_ASSERT_OK(
        deployment_.node(1).OfflineOfHalves(header_, client_->ListA(), client_->ListB()));
    std::vector<uint32_t> rows;
    for (uint32_t slot = 0; slot < kSlots; ++slot) rows.push_back(slot);
    client_->Query(std::move(rows));
    const char* const names[] = {"head A", "tail A", "head B", "tail B"};
    for (size_t i = 0; i < kSlots * sharing::kSeedsPerQuery; ++i) {
      secrets_.Add(names[i % sharing::kSeedsPerQuery],
                   BytesView(client_->seeds).subspan(32 * i, 32));
    }
    // The client's own are not to be found.
    for (uint8_t& byte : client_->seeds) byte ^= 0xff;
    for (const uint32_t party : {1u, 2u}) {
      const Seed root = deployment_.Root(party);
      for (const sharing::Half half : {sharing::Half::kA, sharing::Half::kB}) {
        const server::LastingSecrets lasting(sharing::HalfRoot(root.view(), half));
        secrets_.Add("lasting", lasting.ContentKey());
        secrets_.Add("lasting", lasting.DeadAnswerKey());
      }
    }
  }
  std::map<std::string, uint64_t> Found() const {
    auto found = ScanMemory(getpid(), secrets_);
    EXPECT_THAT(found, ::shoal::testing::IsOk());
    return found.ok() ? *std::move(found) : std::map<std::string, uint64_t>();
  }

  Deployment deployment_;
  wire::SignedHeader header_;
  Digest id_ = {};
  std::optional<TwoTiersClient> client_;
  Secrets secrets_;
};

TEST_F(TwoTiersErasureTest, ATailErasesItsSeedsWhenItHasAnswered) {
  RunToQueries();
  std::map<std::string, uint64_t> found = Found();
  for (const std::string which : {"head A", "tail A", "head B", "tail B", "lasting"}) {
    EXPECT_GT(found[which], 0u) << which;
  }
  const Bytes a = client_->BatchA(), b = client_->BatchB();
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const server::HalvesAnswers answers,
                               deployment_.node(1).OnlineOfHalves(id_, a, b));
    SHOAL_ASSERT_OK(ReadAll(*answers.a));
    SHOAL_ASSERT_OK(ReadAll(*answers.b));
  }
  found = Found();
  EXPECT_EQ(found["tail A"], 0u);
  EXPECT_EQ(found["tail B"], 0u);
  // Heads mask their answers once more if the call is repeated.
  EXPECT_EQ(found["head A"], kSlots);
  EXPECT_EQ(found["head B"], kSlots);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto again, deployment_.node(1).OnlineOfHalves(id_, a, b));
  SHOAL_ASSERT_OK(ReadAll(*again.b));

  deployment_.frontend().Withdraw(RoundCounter(header_.header().counter()));
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(Found(), (std::map<std::string, uint64_t>()));
}

TEST_F(TwoTiersErasureTest, ARoundThatEndsBeforeItsQueriesLeavesNothing) {
  RunToQueries();
  deployment_.frontend().Withdraw(RoundCounter(header_.header().counter()));
  SHOAL_ASSERT_OK(deployment_.SendList());
  EXPECT_EQ(Found(), (std::map<std::string, uint64_t>()));
}

}  // namespace
}  // namespace shoal::sim
