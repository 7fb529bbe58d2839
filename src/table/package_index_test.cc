// Compares an update check on this machine's own package index with what apt says is upgradable.
// Tagged `local`, as it runs apt's tools.
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/table/packages.h"
#include "src/table/table.h"

namespace shoal::table {
namespace {

TEST(PackageIndex, GivesTheAnswerOfAptListUpgradable) {
  const absl::StatusOr<RecordSet> records = ReadPackageIndex();
  if (absl::IsFailedPrecondition(records.status())) {
    GTEST_SKIP() << "SKIPPED, no package index: " << records.status().message();
  }
  SHOAL_ASSERT_OK(records);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string native, NativeArchitecture());

  shoal::testing::TestRandom random(1);
  const TableOptions options{
      .name = "packages", .deployment = "test", .created_s = 1, .expires_s = 2};
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnsignedTable table, BuildHashed(*records, options, random));
  SHOAL_EXPECT_OK(table.CheckContent());
  if (records->size() > 10'000) {
    EXPECT_GE(table.fill(), 0.9);
    EXPECT_LT(table.map().placement().size(), records->size());
  }

  const std::set<std::string> pinned = PinnedNames();
  if (pinned.count("*") > 0) {
    GTEST_SKIP() << "SKIPPED, the comparison with apt: this machine pins whole sets of packages";
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Package> installed, ReadInstalled());
  std::map<std::string, std::string> upgradable;
  for (const Package& package : installed) {
    const std::string key = PackageKey(package.name, package.architecture, native);
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t row, table.map().RowOf(AsBytes(key)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto newest,
                               table.map().Find(row, table.row(row), AsBytes(key)));
    if (newest.has_value() && CompareVersions(package.version, ToString(*newest)) < 0) {
      upgradable[key] = ToString(*newest);
    }
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(auto expected, AptUpgradable(native));
  for (const std::string& name : pinned) {
    upgradable.erase(name);
    expected.erase(name);
  }
  EXPECT_EQ(upgradable, expected);
  std::printf("%zu packages in the index, %zu installed, %zu upgradable\n", records->size(),
              installed.size(), upgradable.size());
}

}  // namespace
}  // namespace shoal::table
