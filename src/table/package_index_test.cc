// On this machine's own package index: what apt says is upgradable is the truth. Tagged local: it
// runs apt's tools.
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "src/base/file.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/table/packages.h"
#include "src/table/table.h"

namespace shoal::table {
namespace {

using Versions = std::map<std::string, std::string>;

// "bash/oldstable 5.2.15-2+b13 amd64 [upgradable from: 5.2.15-2+b8]"
Versions AptListUpgradable(const std::string& native) {
  Versions versions;
  FILE* pipe = ::popen("LC_ALL=C apt list --upgradable 2>/dev/null", "r");
  char line[4096];
  while (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    const std::vector<std::string> names = absl::StrSplit(words[0], '/');
    if (words.size() < 4 || names.size() != 2) continue;
    versions[PackageKey(names[0], words[2], native)] = words[1];
  }
  if (pipe != nullptr) ::pclose(pipe);
  return versions;
}

// Names that the administrator has pinned, which a table does not follow; "*" among them when a pin
// is for a pattern.
std::set<std::string> PinnedNames() {
  std::set<std::string> names;
  std::vector<std::string> files = {"/etc/apt/preferences"};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/etc/apt/preferences.d", error)) {
    files.push_back(entry.path().string());
  }
  for (const std::string& file : files) {
    const absl::StatusOr<std::string> text = ReadFile(file);
    if (!text.ok()) continue;
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      if (!absl::StartsWith(line, "Package:")) continue;
      for (const absl::string_view name :
           absl::StrSplit(line.substr(8), ' ', absl::SkipWhitespace())) {
        const bool plain = name.find_first_of("*?[/:") == absl::string_view::npos;
        names.insert(plain ? std::string(name) : "*");
      }
    }
  }
  return names;
}

TEST(PackageIndex, GivesTheAnswerOfAptListUpgradable) {
  const absl::StatusOr<RecordSet> records = ReadPackageIndex();
  if (absl::IsFailedPrecondition(records.status())) {
    GTEST_SKIP() << "SKIPPED, no package index: " << records.status().message();
  }
  SHOAL_ASSERT_OK(records);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string native, NativeArchitecture());

  shoal::testing::TestRandom random(1);
  const TableOptions options{.name = "packages", .deployment = "test", .created_s = 1, .expires_s = 2};
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
  Versions upgradable;
  for (const Package& package : installed) {
    const std::string key = PackageKey(package.name, package.architecture, native);
    SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t row, table.map().RowOf(AsBytes(key)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto newest,
                               table.map().Find(row, table.row(row), AsBytes(key)));
    if (newest.has_value() && CompareVersions(package.version, ToString(*newest)) < 0) {
      upgradable[key] = ToString(*newest);
    }
  }
  Versions expected = AptListUpgradable(native);
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
