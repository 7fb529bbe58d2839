#include "src/plan/synthetic_term.h"

#include <algorithm>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/storage/spool.h"

namespace shoal::plan {
namespace {

// What benchmarks and the planner measure is a refresh that gives the right answers, to clients
// with the right tokens, from files of the size that the plan counts.
TEST(SyntheticTermTest, ItsRefreshesAreReal) {
  testing::TestRandom random(1);
  ThreadPool pool(2);
  SpoolPlace spools(::testing::TempDir(), 1 << 24);
  const server::Resources resources = {.pool = &pool, .spools = &spools};
  constexpr size_t kAnswer = 80;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto term,
      SyntheticTerm::Create({.queries = 300, .noise = 170, .rows = 7, .answer_bytes = kAnswer},
                            ::testing::TempDir(), random, resources));
  for (const uint32_t party : {1u, 2u}) {
    SHOAL_ASSERT_OK(term->MakeUp(party));
    SHOAL_ASSERT_OK(term->Keep());
  }
  const server::TermArrays first = {
      .positions = 300, .forwarded = 470, .slots = 300, .frontend = true};
  const server::TermArrays last = {.positions = 470, .backend = true};
  const uint64_t arrays = first.file_bytes() + last.file_bytes();
  // Beside them are two records, of keys and the header.
  EXPECT_GT(term->bytes_at_rest(), arrays);
  EXPECT_LT(term->bytes_at_rest(), arrays + 2000);

  for (int epoch = 0; epoch < 2; ++epoch) {
    term->NewTable();
    SHOAL_ASSERT_OK(term->SignRefresh());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto rows, term->Answer());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto answers, term->Return(*rows, rows->tags()));
    SHOAL_ASSERT_OK_AND_ASSIGN(Bytes all, ReadAll(*answers));
    constexpr size_t kTagged = sharing::TaggedBytes(kAnswer);
    ASSERT_EQ(all.size(), 300 * kTagged);
    for (uint64_t slot = 0; slot < 300; ++slot) {
      EXPECT_TRUE(
          term->TakesRow(slot, MutableBytes(all).subspan(slot * kTagged, kTagged), answers->tags()))
          << slot;
    }
    auto fetches = term->MakeFetches(answers->tags().front(), 64);
    ASSERT_EQ(fetches.size(), 5u);
    for (const auto& fetch : fetches) {
      SHOAL_EXPECT_OK(term->TakeFetch(fetch, answers->tags().front()));
    }
    std::swap(fetches[0].tokens[0], fetches[0].tokens[1]);
    EXPECT_THAT(term->TakeFetch(fetches[0], answers->tags().front()),
                testing::StatusIs(absl::StatusCode::kPermissionDenied, "slot 0"));
  }
}

}  // namespace
}  // namespace shoal::plan
