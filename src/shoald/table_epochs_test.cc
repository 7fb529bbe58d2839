#include "src/shoald/table_epochs.h"

#include "gtest/gtest.h"
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

using table::testing::Layout;

// What headers of rounds are checked against is what the manifest says, query buckets included.
TEST(ChainEpochTest, HasTheFactsOfTheManifest) {
  shoal::testing::TestRandom random(1);
  ThreadPool pool(1);
  const roster::testing::Parties parties(2, random);
  const roster::Roster roster = parties.roster();
  const table::RecordSet records =
      table::testing::Records(100, Layout::kHashed, [](size_t) { return "value"; });
  for (const uint32_t query_buckets : {0u, 3u}) {
    table::TableOptions options = table::testing::Options(128, /*epoch=*/7);
    options.query_buckets = query_buckets;
    const table::Table table = table::testing::MakeTable(
        records, options, Layout::kHashed, parties, roster, roster::testing::kNowS, random, pool);
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
