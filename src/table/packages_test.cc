#include "src/table/packages.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::table {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(CompareVersions, FollowsDebVersion) {
  // In rising order.
  const std::vector<const char*> order = {
      "0~~",       "0~~a",    "0~",     "0",       "0a",       "0a1",      "0+",
      "1.0~rc1",   "1.0-0~1", "1.0",    "1.0-0.1", "1.0-1",    "1.0-1+b1", "1.0-1+b2",
      "1.0-1+b10", "1.0-2",   "1.0-10", "1.0a",    "1.0+dfsg", "1.0.1",    "1.2",
      "1.09",      "1.10",    "10",     "1:0~",    "1:0",      "2:0~"};
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < order.size(); ++j) {
      const int expected = i < j ? -1 : i > j ? 1 : 0;
      const int got = CompareVersions(order[i], order[j]);
      EXPECT_EQ(got < 0 ? -1 : got > 0 ? 1 : 0, expected) << order[i] << " " << order[j];
    }
  }
  // Different texts of one version.
  EXPECT_EQ(CompareVersions("1.0", "1.0-0"), 0);
  EXPECT_EQ(CompareVersions("0:1.0", "1.0"), 0);
  EXPECT_EQ(CompareVersions("1.00", "1.0"), 0);
  EXPECT_EQ(CompareVersions("1.007", "1.7"), 0);
}

// Compares with dpkg itself. One shell runs many comparisons.
TEST(CompareVersions, AgreesWithDpkg) {
  TestRandom random(1);
  const std::string characters = "0019ab~+.-:A";
  std::vector<std::pair<std::string, std::string>> pairs;
  const auto part = [&](bool hyphen) {
    std::string text(1, static_cast<char>('0' + random.Below(3)));
    for (uint64_t n = random.Below(6); n > 0; --n) {
      char c = characters[random.Below(characters.size())];
      if (c == ':' || (c == '-' && !hyphen)) c = '0';
      text += c;
    }
    return text;
  };
  const auto version = [&] {
    std::string text = random.Below(4) == 0 ? absl::StrCat(random.Below(3), ":") : "";
    absl::StrAppend(&text, part(true));
    if (random.Below(2) == 0) absl::StrAppend(&text, "-", part(false));
    if (text.back() == '-') text += '1';
    return text;
  };
  std::string script;
  for (int i = 0; i < 400; ++i) {
    pairs.emplace_back(version(), version());
    for (const char* relation : {"lt", "eq", "gt"}) {
      absl::StrAppend(&script, "dpkg --compare-versions '", pairs.back().first, "' ", relation,
                      " '", pairs.back().second, "' && printf ", relation, "'\\n'\n");
    }
  }
  const std::string path = std::string(::getenv("TEST_TMPDIR")) + "/compare.sh";
  FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs(script.c_str(), file);
  std::fclose(file);
  FILE* pipe = ::popen(("PATH=/usr/bin:/bin sh " + path + " 2>&1").c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char line[256];
  for (const auto& [a, b] : pairs) {
    ASSERT_NE(std::fgets(line, sizeof line, pipe), nullptr);
    const int got = CompareVersions(a, b);
    EXPECT_STREQ(line, got < 0 ? "lt\n" : got > 0 ? "gt\n" : "eq\n") << a << " " << b;
  }
  ::pclose(pipe);
}

TEST(PackageKey, QualifiesForeignArchitectures) {
  EXPECT_EQ(PackageKey("bash", "amd64", "amd64"), "bash");
  EXPECT_EQ(PackageKey("adduser", "all", "amd64"), "adduser");
  EXPECT_EQ(PackageKey("libc6", "i386", "amd64"), "libc6:i386");
}

// A table for another architecture says of every package here that it is absent.
TEST(PackagesTableName, IsKnownWithAndWithoutAnEnding) {
  EXPECT_TRUE(IsPackagesTableName(PackagesTableName("amd64"), "amd64"));
  EXPECT_TRUE(IsPackagesTableName("debian-packages-amd64-bookworm", "amd64"));
  EXPECT_FALSE(IsPackagesTableName("debian-packages-amd64x", "amd64"));
  EXPECT_FALSE(IsPackagesTableName("debian-packages-arm64", "amd64"));
  EXPECT_FALSE(IsPackagesTableName("debian-packages-", "amd64"));
  EXPECT_FALSE(IsPackagesTableName("", "amd64"));
}

TEST(ParsePackages, ReadsStanzas) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const std::vector<Package> packages,
      ParsePackages("Package: a\nVersion: 1\nArchitecture: all\nDescription: x\n more: text\n"
                    "\n\nVersion: 2-1\npackage: b\nARCHITECTURE: amd64",
                    "f"));
  EXPECT_EQ(packages, (std::vector<Package>{{"a", "1", "all"}, {"b", "2-1", "amd64"}}));
}

TEST(ParsePackages, NamesTheMalformedLine) {
  EXPECT_THAT(ParsePackages("Package: a\nVersion: 1\n\n", "f"),
              StatusIs(kInvalid, "f:1: a package without the field Architecture"));
  EXPECT_THAT(ParsePackages("Package: a\nwhat\n", "f"), StatusIs(kInvalid, "f:2: not a field"));
  EXPECT_THAT(ParsePackages("\n continued\n", "f"), StatusIs(kInvalid, "f:2: a continuation"));
  // A line with nothing but a blank does not end a package.
  EXPECT_THAT(ParsePackages("Package: a\nVersion: 1\nArchitecture: all\n \nPackage: b\n", "f"),
              StatusIs(kInvalid, "f:5: a second field Package"));
  EXPECT_THAT(ParsePackages(": x\n", "f"), StatusIs(kInvalid, "f:1: not a field"));
}

// An index comes from outside: any bytes are either read or refused.
TEST(ParsePackages, SurvivesAnyBytes) {
  TestRandom random(2);
  const std::vector<std::string> pieces = {
      "Package:", "Version: 1", "Architecture: all", "Status: a b", "\n", "\n\n", " ", ":",
      "\t",       "x",          std::string(1, '\0')};
  int read = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint64_t n = random.Below(14); n > 0; --n) text += pieces[random.Below(pieces.size())];
    const auto packages = ParsePackages(text, "f");
    (void)ParseInstalled(text, "f");
    if (!packages.ok()) continue;
    ++read;
    for (const Package& package : *packages) {
      EXPECT_FALSE(package.name.empty() || package.version.empty() || package.architecture.empty());
    }
  }
  EXPECT_GT(read, 100);
}

// Whoever looks for updates is not to miss a package because its installation was interrupted.
TEST(ParseInstalled, TakesWhatAptMayUpgrade) {
  std::string text;
  for (const char* state : {"ok not-installed", "ok config-files", "reinstreq half-installed",
                            "ok unpacked", "reinstreq half-configured", "ok triggers-awaited",
                            "ok triggers-pending", "reinstreq installed", "ok of-a-later-dpkg"}) {
    absl::StrAppend(&text, "Package: ", state, "\nStatus: install ", state,
                    "\nArchitecture: all\nVersion: 1\n\n");
  }
  absl::StrAppend(&text, "Package: new\nStatus: install reinstreq half-installed\n");
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Package> packages, ParseInstalled(text, "status"));
  std::vector<std::string> names;
  for (const Package& package : packages) names.push_back(package.name);
  EXPECT_EQ(names, (std::vector<std::string>{"reinstreq half-installed", "ok unpacked",
                                             "reinstreq half-configured", "ok triggers-awaited",
                                             "ok triggers-pending", "reinstreq installed",
                                             "ok of-a-later-dpkg"}));
  EXPECT_THAT(ParseInstalled("Package: a\nStatus: install ok unpacked\nArchitecture: all\n", "s"),
              StatusIs(kInvalid, "without the field Version"));
}

TEST(ParseInstalled, TakesWhatIsInstalled) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const std::vector<Package> packages,
      ParseInstalled(
          "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n"
          "Package: held\nStatus: hold ok installed\nArchitecture: all\nVersion: 2\n\n"
          "Package: gone\nStatus: deinstall ok config-files\nArchitecture: all\nVersion: 3\n\n"
          "Package: never\nStatus: unknown ok not-installed\nArchitecture: all\n",
          "status"));
  EXPECT_EQ(packages, (std::vector<Package>{{"a", "1", "amd64"}, {"held", "2", "all"}}));
  EXPECT_THAT(ParseInstalled("Package: a\nStatus: installed\n", "status"),
              StatusIs(kInvalid, "status:1"));
  EXPECT_THAT(ParseInstalled("Package: a\nStatus: install ok installed\nArchitecture: all\n"
                             "Version: 1.2",
                             "status"),
              StatusIs(kInvalid, "status: ends within a line"));
}

TEST(ParseUnpacked, TakesWhatHasItsFilesOnDisk) {
  std::string text;
  for (const char* state :
       {"not-installed", "config-files", "half-installed", "unpacked", "half-configured",
        "triggers-awaited", "triggers-pending", "installed"}) {
    absl::StrAppend(&text, "Package: ", state, "\nStatus: install ok ", state,
                    "\nArchitecture: all\nVersion: 1\n\n");
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<Package> packages, ParseUnpacked(text, "status"));
  std::vector<std::string> names;
  for (const Package& package : packages) names.push_back(package.name);
  EXPECT_EQ(names, (std::vector<std::string>{"unpacked", "half-configured", "triggers-awaited",
                                             "triggers-pending", "installed"}));
  // As dpkg has it, states have no case, and a value that ends for it alone is none.
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const std::vector<Package> none,
      ParseUnpacked("Package: a\nStatus: purge ok Not-Installed\nArchitecture: all\nVersion: 1\n",
                    "status"));
  EXPECT_TRUE(none.empty());
  EXPECT_THAT(ParseUnpacked(std::string("Package: a\nVersion: 1\0.2\n", 25), "status"),
              StatusIs(absl::StatusCode::kInvalidArgument, "status:2: is no text"));
}

TEST(CandidateVersions, TakesTheNewestOfTheHighestPriority) {
  const std::vector<IndexedPackage> indexed = {
      {{"a", "1.9", "amd64"}, 500},    {{"a", "1.10", "amd64"}, 500},
      {{"a", "1.2", "amd64"}, 500},    {{"a", "7", "i386"}, 500},
      {{"b", "9~bpo", "all"}, 100},    {{"b", "8", "all"}, 500},
      {{"only", "1~bpo", "all"}, 100}, {{"turned", "1", "all"}, 500},
      {{"turned", "2", "amd64"}, 500}};
  SHOAL_ASSERT_OK_AND_ASSIGN(const RecordSet records, CandidateVersions(indexed, "amd64", "f"));
  std::string text;
  for (size_t i = 0; i < records.size(); ++i) {
    absl::StrAppend(&text, ToString(records.key(i)), " ", ToString(records.value(i)), "\n");
  }
  EXPECT_EQ(text, "a 1.10\na:i386 7\nb 8 9~bpo\nonly 1~bpo\nturned 2\n");
}

// What was installed from backports is updated from there; nothing else is.
TEST(NewerCandidate, IsThatOfApt) {
  const auto newer = [](absl::string_view installed, absl::string_view value) {
    return NewerCandidate(installed, value);
  };
  EXPECT_EQ(newer("1.0", "1.1"), "1.1");
  EXPECT_EQ(newer("1.1", "1.1"), "");
  EXPECT_EQ(newer("1.2", "1.1"), "");
  const std::string with_backports = "1.0-2 2.1-1~bpo12+1";
  EXPECT_EQ(newer("1.0-1", with_backports), "1.0-2");
  EXPECT_EQ(newer("1.0-2", with_backports), "") << "backports have a lower priority";
  EXPECT_EQ(newer("2.0-1~bpo12+1", with_backports), "2.1-1~bpo12+1");
  EXPECT_EQ(newer("2.1-1~bpo12+1", with_backports), "");
  EXPECT_EQ(newer("3", with_backports), "");
}

}  // namespace
}  // namespace shoal::table
