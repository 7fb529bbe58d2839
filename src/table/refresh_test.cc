#include "src/table/refresh.h"

#include <functional>
#include <string>

#include "src/base/testing/matchers.h"
#include "src/table/manifest.h"

namespace shoal::table {
namespace {

using shoal::testing::StatusIs;

class CanRefreshTest : public ::testing::Test {
 protected:
  CanRefreshTest() {
    hashed_.set_name("t");
    hashed_.set_table_id(std::string(32, 'i'));
    hashed_.set_epoch(5);
    hashed_.set_created_s(1000);
    hashed_.set_expires_s(2000);
    hashed_.set_records(100);
    hashed_.set_rows(50);
    hashed_.set_row_bytes(64);
    hashed_.set_rows_digest(std::string(32, 'r'));
    hashed_.set_deployment("test");
    wire::RowVersionLists& lists = *hashed_.mutable_row_versions();
    lists.set_base_digest(std::string(32, 'b'));
    lists.set_previous_digest(std::string(32, 'p'));
    lists.set_recent_digest(std::string(32, 'c'));
    dense_ = hashed_;
    hashed_.mutable_hashed()->set_hash_seed(std::string(16, 's'));
    hashed_.mutable_hashed()->set_buckets(40);
    hashed_.mutable_hashed()->set_placement_digest(std::string(32, 'd'));
    dense_.mutable_dense()->set_records_per_row(2);
    dense_.mutable_dense()->set_value_bytes(20);
    dense_.mutable_dense()->set_length_bytes(1);
  }

  // Whether the epoch after `before`, with one more change, can refresh its rows.
  absl::Status AfterChange(const wire::Manifest& before,
                           const std::function<void(wire::Manifest&)>& change) {
    wire::Manifest after = before;
    after.set_epoch(before.epoch() + 1);
    change(after);
    SHOAL_EXPECT_OK(CheckManifest(before));
    SHOAL_EXPECT_OK(CheckManifest(after));
    const absl::Status status = CanRefresh(before, after);
    if (after.epoch() > before.epoch()) {
      EXPECT_EQ(PlacesDigest(before) == PlacesDigest(after), status.ok()) << status;
    }
    return status;
  }
  void ExpectRefused(const wire::Manifest& before, absl::string_view why,
                     const std::function<void(wire::Manifest&)>& change) {
    EXPECT_THAT(AfterChange(before, change),
                StatusIs(absl::StatusCode::kFailedPrecondition, std::string(why)));
  }

  wire::Manifest hashed_, dense_;
};

TEST_F(CanRefreshTest, AcceptsALaterEpochWithTheSameRowForEveryKey) {
  for (const wire::Manifest& before : {hashed_, dense_}) {
    SHOAL_EXPECT_OK(AfterChange(before, [](wire::Manifest&) {}));
    SHOAL_EXPECT_OK(AfterChange(before, [](wire::Manifest& m) {
      m.set_epoch(m.epoch() + 30);
      m.set_created_s(m.created_s() + 7);
      m.set_expires_s(m.expires_s() + 7);
      m.set_rows_digest(std::string(32, 'q'));
      m.mutable_row_versions()->set_recent_digest(std::string(32, 'x'));
    }));
  }
  // Keys come and go; the map that gives a key its row is the same.
  SHOAL_EXPECT_OK(AfterChange(hashed_, [](wire::Manifest& m) { m.set_records(120); }));
}

// Each of these, believed, answers a position with the row of other keys, with bytes of another
// size, or with old news.
TEST_F(CanRefreshTest, RefusesAnythingElse) {
  for (const wire::Manifest& before : {hashed_, dense_}) {
    ExpectRefused(before, "not a later one", [](wire::Manifest& m) { m.set_epoch(5); });
    ExpectRefused(before, "not a later one", [](wire::Manifest& m) { m.set_epoch(4); });
    ExpectRefused(before, "another deployment",
                  [](wire::Manifest& m) { m.set_deployment("others"); });
    ExpectRefused(before, "another name", [](wire::Manifest& m) { m.set_name("u"); });
    ExpectRefused(before, "another id",
                  [](wire::Manifest& m) { m.set_table_id(std::string(32, 'j')); });
    ExpectRefused(before, "another size", [](wire::Manifest& m) { m.set_row_bytes(65); });
  }
  ExpectRefused(hashed_, "another number of rows", [](wire::Manifest& m) { m.set_rows(51); });
  ExpectRefused(hashed_, "another hash seed",
                [](wire::Manifest& m) { m.mutable_hashed()->set_hash_seed(std::string(16, 't')); });
  ExpectRefused(hashed_, "another number of buckets",
                [](wire::Manifest& m) { m.mutable_hashed()->set_buckets(41); });
  ExpectRefused(hashed_, "another placement", [](wire::Manifest& m) {
    m.mutable_hashed()->set_placement_digest(std::string(32, 'e'));
  });
  ExpectRefused(hashed_, "another layout",
                [&](wire::Manifest& m) { *m.mutable_dense() = dense_.dense(); });
  ExpectRefused(dense_, "another layout",
                [&](wire::Manifest& m) { *m.mutable_hashed() = hashed_.hashed(); });
  ExpectRefused(dense_, "another number of rows", [](wire::Manifest& m) {
    m.set_rows(51);
    m.set_records(102);
  });
  // The same rows, but for a key that had none.
  ExpectRefused(dense_, "another number of records", [](wire::Manifest& m) { m.set_records(99); });
  ExpectRefused(dense_, "another size",
                [](wire::Manifest& m) { m.mutable_dense()->set_value_bytes(21); });
  ExpectRefused(dense_, "another size",
                [](wire::Manifest& m) { m.mutable_dense()->set_length_bytes(2); });
  // The same row in another bucket.
  for (const wire::Manifest& before : {hashed_, dense_}) {
    ExpectRefused(before, "it has 5 query buckets in place of 0",
                  [](wire::Manifest& m) { m.set_query_buckets(5); });
    wire::Manifest of_buckets = before;
    of_buckets.set_query_buckets(5);
    SHOAL_EXPECT_OK(AfterChange(of_buckets, [](wire::Manifest&) {}));
    ExpectRefused(of_buckets, "it has 10 query buckets in place of 5",
                  [](wire::Manifest& m) { m.set_query_buckets(10); });
    ExpectRefused(of_buckets, "it has 0 query buckets in place of 5",
                  [](wire::Manifest& m) { m.clear_query_buckets(); });
  }
  // One row of one record becomes one with room for two: the key 0 is there in both.
  wire::Manifest one = dense_;
  one.set_records(1);
  one.set_rows(1);
  one.mutable_dense()->set_records_per_row(1);
  ExpectRefused(one, "another size",
                [](wire::Manifest& m) { m.mutable_dense()->set_records_per_row(2); });
}

}  // namespace
}  // namespace shoal::table
