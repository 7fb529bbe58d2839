#include "src/shoald/table_epochs.h"

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/roster/testing/parties.h"
#include "src/server/table_epoch.h"
#include "src/table/records.h"
#include "src/table/refresh.h"
#include "src/table/table.h"
#include "src/table/testing/signed_table.h"

namespace shoal::shoald {
namespace {

// What headers of rounds are checked against is what the manifest says, query buckets included.
TEST(ChainEpochTest, HasTheFactsOfTheManifest) {
  shoal::testing::TestRandom random(1);
  ThreadPool pool(1);
  const roster::testing::Parties parties(2, random);
  const roster::Roster roster = parties.roster();
  table::RecordSet records("words");
  for (int i = 0; i < 100; ++i) {
    SHOAL_CHECK(records.Add(AsBytes(absl::StrCat("key-", i)), AsBytes("value"), i + 1).ok());
  }
  for (const uint32_t query_buckets : {0u, 3u}) {
    const table::Table table = table::testing::MakeTable(
        records,
        {.name = "words",
         .deployment = "test",
         .epoch = 7,
         .created_s = roster::testing::kNowS - 100,
         .expires_s = roster::testing::kNowS + 1000,
         .row_bytes = 128,
         .query_buckets = query_buckets},
        table::testing::Layout::kHashed, parties, roster, roster::testing::kNowS, random, pool);
    const wire::Manifest& manifest = table.manifest().content();
    ASSERT_EQ(manifest.query_buckets(), query_buckets);
    const server::TableEpoch epoch = ChainEpoch(table);
    EXPECT_EQ(epoch.facts.manifest_digest, table.manifest().digest());
    EXPECT_EQ(epoch.facts.rows, manifest.rows());
    EXPECT_EQ(epoch.facts.row_bytes, 128u);
    EXPECT_EQ(epoch.facts.places, table::PlacesDigest(manifest));
    EXPECT_EQ(epoch.facts.query_buckets, query_buckets);
    EXPECT_EQ(ToBytes(epoch.id), ToBytes(AsBytes(manifest.table_id())));
    EXPECT_EQ(epoch.epoch, 7u);
  }
}

}  // namespace
}  // namespace shoal::shoald
