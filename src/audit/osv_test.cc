#include "src/audit/osv.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/audit/advisories.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::audit {
namespace {

using shoal::testing::StatusIs;

std::string Record(const std::string& id, const std::string& more) {
  return absl::StrCat(R"({"id":")", id, R"(","modified":"2021-03-08T16:02:43Z",)", more, "}");
}

std::string Package(const std::string& ecosystem, const std::string& name,
                    const std::string& ranges) {
  return absl::StrCat(R"("affected":[{"package":{"ecosystem":")", ecosystem, R"(","name":")", name,
                      R"("},)", ranges, "}]");
}

std::string Ranges(const std::string& events, const std::string& type = "ECOSYSTEM") {
  return absl::StrCat(R"("ranges":[{"type":")", type, R"(","events":[)", events, "]}]");
}

// The values of the table's records, by key.
std::map<std::string, Bytes> Finish(OsvRecords& records, size_t max_bytes = 1024) {
  const auto set = records.Finish(max_bytes);
  EXPECT_TRUE(set.ok()) << set.status();
  std::map<std::string, Bytes> values;
  if (!set.ok()) return values;
  for (size_t i = 0; i < set->size(); ++i) values[ToString(set->key(i))] = ToBytes(set->value(i));
  return values;
}

std::map<std::string, Bytes> Table(const std::vector<std::string>& jsons) {
  OsvRecords records;
  for (const std::string& json : jsons) SHOAL_EXPECT_OK(records.Add(json, "record.json"));
  return Finish(records);
}

// The advisories of one package whose record has these events.
Affected AffectedBy(const std::string& ecosystem, const std::string& ranges) {
  const auto table = Table({Record("X-1", Package(ecosystem, "p", ranges))});
  const auto package = DecodePackage(table.at(ecosystem + "/p"));
  EXPECT_TRUE(package.ok() && package->listed.size() == 1);
  return package->listed[0].affected;
}

Verdict Of(Order order, const std::string& version, const Affected& affected) {
  return Judge(order, version, affected).verdict;
}

// The examples of the schema's page (ossf.github.io/osv-schema, "Examples" of "Evaluation").
TEST(OsvTest, TheSchemasExamples) {
  const Affected every = AffectedBy("npm", Ranges(R"({"introduced":"0"})", "SEMVER"));
  for (const char* version : {"0.0.0-0", "0.0.1", "1.0.0", "99.0.0"}) {
    EXPECT_EQ(Of(Order::kSemver, version, every), Verdict::kAffected) << version;
  }
  const Affected fixed =
      AffectedBy("npm", Ranges(R"({"introduced":"0"},{"fixed":"1.0.2"})", "SEMVER"));
  const Affected several = AffectedBy(
      "npm",
      Ranges(R"({"introduced":"1.0.0"},{"fixed":"1.0.2"},{"introduced":"3.0.0"},{"fixed":"3.2.5"})",
             "SEMVER"));
  const Affected last =
      AffectedBy("npm", Ranges(R"({"introduced":"0"},{"last_affected":"2.1.214"})"));
  const Affected not_last =
      AffectedBy("npm", Ranges(R"({"introduced":"0"},{"fixed":"2.1.214"})", "SEMVER"));
  struct Case {
    const Affected& affected;
    std::string version;
    bool is;
  };
  for (const Case& c :
       {Case{fixed, "0.0.0", true}, Case{fixed, "1.0.1", true}, Case{fixed, "1.0.2-rc.1", true},
        Case{fixed, "1.0.2", false}, Case{several, "0.9.9", false},
        Case{several, "1.0.0-rc.1", false}, Case{several, "1.0.0", true},
        Case{several, "1.0.1", true}, Case{several, "1.0.2", false}, Case{several, "2.0.0", false},
        Case{several, "3.0.0", true}, Case{several, "3.2.4", true}, Case{several, "3.2.5", false},
        Case{several, "4.0.0", false}, Case{last, "2.1.214", true}, Case{last, "2.1.215", false},
        Case{not_last, "2.1.213", true}, Case{not_last, "2.1.214", false}}) {
    EXPECT_EQ(Of(Order::kSemver, c.version, c.affected),
              c.is ? Verdict::kAffected : Verdict::kNotAffected)
        << c.version;
  }
  EXPECT_EQ(Judge(Order::kSemver, "3.1.0", several).fixed, "3.2.5");

  // The records of the page's last section, as far as an audit reads them: names, times and ranges.
  const auto table = Table({
      R"({"schema_version":"1.2.0","id":"GHSA-r9p9-mrjm-926w","modified":"2021-03-08T16:02:43Z",
          "published":"2021-03-08T16:06:50Z","aliases":["CVE-2020-28498"],
          "affected":[{"package":{"ecosystem":"npm","name":"elliptic"},
          "ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},{"fixed":"6.5.4"}]}]}],
          "database_specific":{"severity":"MODERATE"}})",
      R"({"schema_version":"1.2.0","id":"RUSTSEC-2019-0033","published":"2019-11-16T00:00:00Z",
          "modified":"2021-01-04T19:02:00Z","aliases":["CVE-2020-25574","CVE-2019-25008"],
          "affected":[{"package":{"ecosystem":"crates.io","name":"http"},
          "ranges":[{"type":"SEMVER","events":[{"introduced":"0.0.0-0"},{"fixed":"0.1.20"}]}]}]})",
      R"({"schema_version":"1.2.0","id":"OSV-2020-584","modified":"2021-03-09T04:49:05.965964Z",
          "affected":[{"package":{"ecosystem":"OSS-Fuzz","name":"icu"},
          "ranges":[{"type":"GIT","repo":"https://example.org/icu.git",
          "events":[{"introduced":"6e57"},{"fixed":"c434"}]}]}]})",
  });
  const auto expect = [&](const std::string& key, const std::string& id, const std::string& alias,
                          const Interval& interval) {
    PackageAdvisories package;
    package.listed = {{.id = id,
                       .alias = alias,
                       .affected = {.intervals = {interval}, .versions = {}, .unclear = false}}};
    EXPECT_EQ(*DecodePackage(table.at(key)), package) << key;
  };
  expect("npm/elliptic", "GHSA-r9p9-mrjm-926w", "CVE-2020-28498",
         {.from = {}, .to = "6.5.4", .to_is_affected = false});
  expect("crates.io/http", "RUSTSEC-2019-0033", "CVE-2019-25008",
         {.from = "0.0.0-0", .to = "0.1.20", .to_is_affected = false});
  EXPECT_EQ(table.size(), 4u) << "two packages and their two ecosystems";
  EXPECT_EQ(*DecodeCoverage(table.at("npm")),
            (Coverage{.advisories = 1, .packages = 1, .modified = "2021-03-08T16:02:43Z"}));
}

// The schema's IsVulnerable, word for word, over random events.
TEST(OsvTest, RangesMeanWhatTheSchemaSays) {
  shoal::testing::TestRandom random(7);
  const auto below = [&](size_t n) {
    uint8_t byte;
    random.Fill(MutableBytes(&byte, 1));
    return byte % n;
  };
  struct Event {
    std::string kind, text;
  };
  const auto version = [](const std::string& text) {
    return *Version::Parse(Order::kPep440, text);
  };
  const auto at_or_after = [&](const std::string& v, const std::string& text) {
    return text == "0" || Compare(version(v), version(text)) >= 0;
  };
  const auto is_vulnerable = [&](const std::string& v, std::vector<Event> events) {
    bool limited = false, before = false;
    for (const Event& event : events) {
      if (event.kind != "limit") continue;
      limited = true;
      before |= event.text == "*" || Compare(version(v), version(event.text)) < 0;
    }
    if (limited && !before) return false;
    std::erase_if(events, [](const Event& event) { return event.kind == "limit"; });
    std::ranges::stable_sort(events, [&](const Event& a, const Event& b) {
      if (a.text == "0" || b.text == "0") return a.text == "0" && b.text != "0";
      const int compared = Compare(version(a.text), version(b.text));
      // Of one version, which the schema leaves open: what is introduced there is affected,
      // whatever else there is.
      const auto place = [](const Event& event) {
        return event.kind == "fixed" ? 0 : event.kind == "introduced" ? 1 : 2;
      };
      return compared != 0 ? compared < 0 : place(a) < place(b);
    });
    bool vulnerable = false;
    for (const Event& event : events) {
      if (event.kind == "introduced") {
        if (at_or_after(v, event.text)) vulnerable = true;
      } else if (event.kind == "fixed") {
        if (at_or_after(v, event.text)) vulnerable = false;
      } else if (Compare(version(v), version(event.text)) > 0) {
        vulnerable = false;
      }
    }
    return vulnerable;
  };
  size_t affected_count = 0, checked = 0;
  for (int round = 0; round < 400; ++round) {
    const std::string end = below(2) == 0 ? "fixed" : "last_affected";
    std::vector<Event> events = {{"introduced", below(2) == 0 ? "0" : absl::StrCat(1 + below(9))}};
    for (size_t more = below(6); more > 0; --more) {
      const std::string kind = below(8) == 0 ? "limit" : below(2) == 0 ? "introduced" : end;
      events.push_back({kind, kind == "limit" && below(4) == 0 ? "*" : absl::StrCat(1 + below(9))});
    }
    std::vector<std::string> texts;
    for (const Event& event : events) {
      texts.push_back(absl::StrCat(R"({")", event.kind, R"(":")", event.text, R"("})"));
    }
    const Affected affected = AffectedBy("PyPI", Ranges(absl::StrJoin(texts, ",")));
    for (const char* v :
         {"0", "0.5", "1", "1.5", "2", "3", "3.5", "4", "5", "6", "6.5", "7", "8", "9", "10"}) {
      const bool truth = is_vulnerable(v, events);
      const Verdict ours = Of(Order::kPep440, v, affected);
      if (affected.unclear && ours == Verdict::kUnclear) continue;
      EXPECT_EQ(ours, truth ? Verdict::kAffected : Verdict::kNotAffected)
          << v << " in " << absl::StrJoin(texts, ",");
      ++checked;
      affected_count += truth;
    }
  }
  EXPECT_GT(affected_count, checked / 5);
  EXPECT_LT(affected_count, checked * 4 / 5);
}

// The order in the file must not decide what several events of one version mean.
TEST(OsvTest, EventsOfOneVersionHaveNoOrder) {
  std::vector<std::string> events = {R"({"introduced":"0"})", R"({"introduced":"1.5"})",
                                     R"({"fixed":"1.5.0"})", R"({"fixed":"2.0"})"};
  std::ranges::sort(events);
  do {
    const Affected affected = AffectedBy("PyPI", Ranges(absl::StrJoin(events, ",")));
    for (const char* version : {"1.2", "1.5", "1.7"}) {
      EXPECT_EQ(Of(Order::kPep440, version, affected), Verdict::kAffected) << version;
    }
    EXPECT_EQ(Of(Order::kPep440, "2.0", affected), Verdict::kNotAffected);
  } while (std::ranges::next_permutation(events).found);
  // Alone, such a pair says nothing.
  for (const char* pair :
       {R"({"introduced":"1.5"},{"fixed":"1.5"})", R"({"fixed":"1.5"},{"introduced":"1.5"})"}) {
    const Affected affected = AffectedBy("PyPI", Ranges(pair));
    EXPECT_EQ(Of(Order::kPep440, "1.5", affected), Verdict::kUnclear) << pair;
    EXPECT_EQ(Of(Order::kPep440, "9", affected), Verdict::kUnclear) << pair;
  }
  // What is fixed and last affected there is affected.
  for (const char* two : {R"({"fixed":"1.5"},{"last_affected":"1.5"})",
                          R"({"last_affected":"1.5"},{"fixed":"1.5"})"}) {
    const Affected affected =
        AffectedBy("PyPI", Ranges(absl::StrCat(R"({"introduced":"0"},)", two)));
    EXPECT_EQ(Of(Order::kPep440, "1.5", affected), Verdict::kAffected) << two;
    EXPECT_EQ(Of(Order::kPep440, "1.6", affected), Verdict::kNotAffected) << two;
  }
  // A fix of what was not introduced before is none.
  const Affected stray =
      AffectedBy("PyPI", Ranges(R"({"introduced":"6.13"},{"fixed":"6.12.81"},{"fixed":"6.16.5"})"));
  EXPECT_EQ(Of(Order::kPep440, "6.14", stray), Verdict::kAffected);
  EXPECT_EQ(Of(Order::kPep440, "6.12.81", stray), Verdict::kNotAffected);
}

// Versions that are listed count as well as those of ranges, and take no room where a range has
// them.
TEST(OsvTest, ListedVersionsCount) {
  const Affected affected =
      AffectedBy("PyPI", absl::StrCat(R"("versions":["1.0","1.1","2.0","3.0-x"],)",
                                      Ranges(R"({"introduced":"1.0"},{"fixed":"1.2"})")));
  EXPECT_EQ(affected.versions, (std::vector<std::string>{"2.0", "3.0-x"}));
  EXPECT_EQ(Of(Order::kPep440, "1.1", affected), Verdict::kAffected);
  EXPECT_EQ(Of(Order::kPep440, "2.0.0", affected), Verdict::kAffected);
  EXPECT_EQ(Of(Order::kPep440, "3.0-x", affected), Verdict::kAffected);
  EXPECT_EQ(Of(Order::kPep440, "1.2", affected), Verdict::kNotAffected);
}

// A record that does not say which versions must not read as one that affects none.
TEST(OsvTest, WhatCannotBeComparedIsUnclear) {
  for (const std::string& ranges :
       {Ranges(R"({"introduced":"0"},{"fixed":"1.x"})"), Ranges(R"({"introduced":"abc"})"),
        Ranges(R"({"introduced":"0"},{"limit":"none"})"), Ranges(R"({"introduced":"0"})", "SEMVER"),
        Ranges(R"({"introduced":"6e57"},{"fixed":"c434"})", "GIT"), std::string(R"("ranges":[])"),
        std::string(R"("versions":[])"), std::string(R"("versions":["<= 1.5"])"),
        std::string(R"("versions":["2.0","<1.5"])"),
        std::string(R"("versions":["all-of-them"])")}) {
    const Affected affected = AffectedBy("PyPI", ranges);
    EXPECT_EQ(Of(Order::kPep440, "1.0", affected), Verdict::kUnclear) << ranges;
  }
  // Commits are left out where versions are there.
  const Affected both = AffectedBy(
      "PyPI", R"("versions":["1.0"],"ranges":[{"type":"GIT","events":[{"introduced":"0"}]}])");
  EXPECT_EQ(Of(Order::kPep440, "1.0", both), Verdict::kAffected);
  EXPECT_EQ(Of(Order::kPep440, "1.1", both), Verdict::kNotAffected);
}

TEST(OsvTest, WithdrawnRecordsAreLeftOut) {
  OsvRecords records;
  const std::string package = Package("PyPI", "p", Ranges(R"({"introduced":"0"})"));
  SHOAL_EXPECT_OK(records.Add(
      Record("X-1", absl::StrCat(R"("withdrawn":"2022-01-01T00:00:00Z",)", package)), "one"));
  SHOAL_EXPECT_OK(records.Add(Record("X-2", absl::StrCat(R"("withdrawn":null,)", package)), "two"));
  SHOAL_EXPECT_OK(
      records.Add(Record("X-3", Package("Maven", "a:b", R"("versions":["1"])")), "three"));
  const auto table = Finish(records);
  const PackageAdvisories left = *DecodePackage(table.at("PyPI/p"));
  ASSERT_EQ(left.listed.size(), 1u);
  EXPECT_EQ(left.listed[0].id, "X-2");
  EXPECT_EQ(records.counts().records, 3u);
  EXPECT_EQ(records.counts().withdrawn, 1u);
  EXPECT_EQ(records.counts().packages, 1u);
  EXPECT_EQ(records.counts().advisories, 1u);
  EXPECT_EQ(records.counts().unknown, (std::map<std::string, uint64_t>{{"Maven", 1}}));
}

// What is no time, or one that is to come, takes no advisory away; nor does it make a copy the
// newer one.
TEST(OsvTest, OnlyATimeThatHasComeWithdraws) {
  const std::string package = Package("PyPI", "p", Ranges(R"({"introduced":"0"})"));
  for (const char* time :
       {"2099-01-01T00:00:00Z", "no", "false", "0", "infinite-past", "infinite-future",
        "2022-01-01", "2022-13-01T00:00:00Z", "2022-01-01T00:0:00Z"}) {
    const std::string withdrawn = absl::StrCat(R"("withdrawn":")", time, R"(",)");
    OsvRecords records;
    SHOAL_EXPECT_OK(records.Add(Record("X-1", withdrawn + package), "one"));
    EXPECT_TRUE(Finish(records).contains("PyPI/p")) << time;
    EXPECT_EQ(records.counts().withdrawn, 0u) << time;
    // A record that cannot be read for another reason.
    OsvRecords odd;
    SHOAL_EXPECT_OK(odd.Add(Record("X-1", absl::StrCat(withdrawn, R"("aliases":7,)", package)),
                            "one", OsvRecords::Odd::kLeaveOut));
    EXPECT_TRUE(Finish(odd).contains("PyPI/p")) << time;
  }
  OsvRecords copies;
  SHOAL_EXPECT_OK(copies.Add(Record("X-1", package), "one"));
  SHOAL_EXPECT_OK(copies.Add(R"({"id":"X-1","modified":"infinite-future",)"
                             R"("withdrawn":"2022-01-01T00:00:00Z"})",
                             "two"));
  EXPECT_TRUE(Finish(copies).contains("PyPI/p"));
}

// An older copy of a record, from another place, must not bring back what was withdrawn; nor may
// one hide what holds.
TEST(OsvTest, OfSeveralCopiesTheNewestCounts) {
  const std::string package = Package("PyPI", "p", Ranges(R"({"introduced":"0"})"));
  const auto record = [&](const std::string& modified, const std::string& more) {
    return absl::StrCat(R"({"id":"X-1","modified":")", modified, R"(",)", more, package, "}");
  };
  const std::string withdrawn = R"("withdrawn":"2022-01-01T00:00:00Z",)";
  struct Case {
    std::string first, second;
    bool holds;
  };
  for (const Case& c : {
           Case{record("2021-01-01T00:00:00Z", ""), record("2022-01-01T00:00:00Z", withdrawn),
                false},
           Case{record("2021-01-01T00:00:00Z", withdrawn), record("2022-01-01T00:00:00Z", ""),
                true},
           // With and without parts of a second, which sort otherwise as texts.
           Case{record("2022-01-01T00:00:00Z", ""), record("2022-01-01T00:00:00.5Z", withdrawn),
                false},
           Case{record("2022-01-01T01:00:00+02:00", ""), record("2022-01-01T00:00:00Z", withdrawn),
                false},
           // Which is newer, nobody knows.
           Case{record("2022-01-01T00:00:00Z", ""), record("2022-01-01T00:00:00Z", withdrawn),
                true},
           Case{record("2022", ""), record("2023", withdrawn), true},
       }) {
    for (const bool turned : {false, true}) {
      OsvRecords records;
      SHOAL_EXPECT_OK(records.Add(turned ? c.second : c.first, "one"));
      SHOAL_EXPECT_OK(records.Add(turned ? c.first : c.second, "two"));
      EXPECT_EQ(Finish(records).contains("PyPI/p"), c.holds) << c.first << c.second;
      EXPECT_EQ(records.counts().withdrawn, c.holds ? 0u : 1u);
    }
  }
  OsvRecords twice;
  for (int i = 0; i < 2; ++i) SHOAL_EXPECT_OK(twice.Add(record("2022-01-01T00:00:00Z", ""), "x"));
  EXPECT_EQ(DecodePackage(Finish(twice).at("PyPI/p"))->listed.size(), 1u);
}

// A name that a record writes otherwise, and releases and pockets of a distribution.
TEST(OsvTest, EcosystemsHaveOneName) {
  const std::string versions = R"("versions":["1"])";
  const auto table = Table({Record("A-1", Package("pypi", "a", versions)),
                            Record("A-2", Package("npm:https://h", "JSONStream", versions)),
                            Record("U-1", Package("Ubuntu:16.04", "a", versions)),
                            Record("U-2", Package("Ubuntu:Pro:16.04:LTS", "a", versions)),
                            Record("U-3", Package("Ubuntu:Pro:FIPS:16.04:LTS", "a", versions)),
                            Record("D-1", Package("Debian:12", "a", versions)),
                            Record("D-2", Package("Debian:11", "b", versions)),
                            Record("D-3", Package("Debian", "a", versions))});
  std::vector<std::string> keys;
  for (const auto& [key, value] : table) keys.push_back(key);
  EXPECT_EQ(absl::StrJoin(keys, " "),
            "Debian:11 Debian:11/a Debian:11/b Debian:12 Debian:12/a PyPI PyPI/a Ubuntu:16.04:LTS "
            "Ubuntu:16.04:LTS/a Ubuntu:Pro:FIPS:16.04:LTS Ubuntu:Pro:FIPS:16.04:LTS/a npm "
            "npm/jsonstream");
  EXPECT_EQ(DecodePackage(table.at("Ubuntu:16.04:LTS/a"))->listed.size(), 2u);
  // Of which release's versions it speaks, a record without a release does not say.
  EXPECT_EQ(DecodePackage(table.at("Debian:12/a"))->listed.size(), 2u);
  EXPECT_TRUE(DecodePackage(table.at("Debian:11/a"))->listed[0].affected.unclear);
}

// One odd record must neither stop the build of a table nor make its packages read as clean.
// It may be about any package, and must not be lost.
TEST(OsvTest, APackageWithoutANameIsRefused) {
  for (const char* ecosystem : {"PyPI", "npm", "crates.io", "Go", "Debian:12", "Debian"}) {
    EXPECT_THAT(
        OsvRecords().Add(Record("X-2", absl::StrCat(R"("affected":[{"package":{"ecosystem":")",
                                                    ecosystem, R"("},"versions":["1.0.0"]}])")),
                         "odd.json"),
        StatusIs(absl::StatusCode::kInvalidArgument, "is no name of a package of "))
        << ecosystem;
  }
}

TEST(OsvTest, WhatIsNoRecordIsLeftOutAndItsPackagesAreUnclear) {
  const std::string good = Record("X-1", Package("PyPI", "p", R"("versions":["1"])"));
  const std::string events = R"({"introduced":"0"})";
  struct Case {
    std::string json, id;  // of the unclear advisory; empty where nobody knows what it is about
  };
  for (const Case& c : {
           Case{Record("X-2", Package("PyPI", "q", Ranges(events, "OTHER"))), "X-2"},
           Case{Record("X-2", Package("PyPI", "q", Ranges(R"({"fixed":"1.0"})"))), "X-2"},
           Case{Record("X-2", Package("PyPI", "Q", Ranges(R"({"introduced":"0","fixed":"1"})"))),
                "X-2"},
           Case{Record("X-2", Package("PyPI", "q", R"("versions":[7])")), "X-2"},
           Case{Record("X-2",
                       absl::StrCat(R"("aliases":"x",)", Package("PyPI", "q", Ranges(events)))),
                "X-2"},
           Case{absl::StrCat(R"({"id":"X-2",)", Package("PyPI", "q", Ranges(events)), "}"), "X-2"},
           Case{absl::StrCat(R"({"id":"X 2",)", Package("PyPI", "q", Ranges(events)), "}"), "odd"},
           Case{"{", ""},
           Case{"", ""},
           Case{"[]", ""},
           Case{Record("X-2", R"("affected":{})"), ""},
           Case{absl::StrCat(R"({"Id":"X-2","Affected":)",
                             Package("PyPI", "q", Ranges(events)).substr(11), "}"),
                ""},
           Case{Record("X-2", R"("affected":[7])"), ""},
           Case{Record("X-2", R"("aliases":7)"), ""},
           Case{Record("X-2", Package("PyPI", "", Ranges(events))), ""},
           Case{Record("X-2", Package("", "q", Ranges(events))), ""},
       }) {
    EXPECT_THAT(OsvRecords().Add(c.json, "odd.json"),
                StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
    OsvRecords records;
    SHOAL_EXPECT_OK(records.Add(good, "good.json"));
    SHOAL_EXPECT_OK(records.Add(c.json, "odd.json", OsvRecords::Odd::kLeaveOut));
    const auto table = Finish(records);
    EXPECT_EQ(records.counts().records, 1u);
    EXPECT_EQ(records.counts().left_out, 1u) << c.json;
    EXPECT_EQ(records.counts().first_left_out.substr(0, 8), "odd.json");
    EXPECT_EQ(DecodeCoverage(table.at("PyPI"))->unread, c.id.empty() ? 1u : 0u) << c.json;
    if (c.id.empty()) continue;
    const PackageAdvisories odd = *DecodePackage(table.at("PyPI/q"));
    ASSERT_EQ(odd.listed.size(), 1u);
    EXPECT_EQ(odd.listed[0].id, c.id);
    EXPECT_EQ(Of(Order::kPep440, "1.0", odd.listed[0].affected), Verdict::kUnclear);
  }
  // What is withdrawn, is of another ecosystem or is no record at all concerns no package.
  for (const std::string& json :
       {Record("X-2", absl::StrCat(R"("withdrawn":"2022-01-01T00:00:00Z",)",
                                   Package("PyPI", "q", Ranges(events, "OTHER")))),
        Record("X-2", absl::StrCat(R"("aliases":7,)", Package("Maven", "q", Ranges(events)))),
        std::string(R"({"modules":[]})")}) {
    OsvRecords records;
    SHOAL_EXPECT_OK(records.Add(good, "good.json"));
    SHOAL_EXPECT_OK(records.Add(json, "odd.json", OsvRecords::Odd::kLeaveOut));
    const auto table = Finish(records);
    EXPECT_EQ(table.size(), 2u) << json;
    EXPECT_EQ(DecodeCoverage(table.at("PyPI"))->unread, 0u) << json;
    EXPECT_EQ(records.counts().left_out, 1u);
  }
}

// Aliases are symmetric and transitive, as the schema says.
TEST(OsvTest, RecordsAboutTheSameAreOneAdvisory) {
  const auto of = [](const std::string& id, const std::string& aliases, const std::string& fixed) {
    return Record(
        id, absl::StrCat(
                R"("aliases":[)", aliases, "],",
                Package("PyPI", "P_p",
                        Ranges(absl::StrCat(R"({"introduced":"0"},{"fixed":")", fixed, R"("})")))));
  };
  const auto table =
      Table({of("GHSA-a", R"("CVE-2021-1")", "1.0"), of("CVE-2021-2", R"("GHSA-b")", "3"),
             of("PYSEC-1", R"("GHSA-b","CVE-2021-1")", "2.0"), of("CVE-2021-9", "", "9")});
  const PackageAdvisories package = *DecodePackage(table.at("PyPI/p-p"));
  ASSERT_EQ(package.listed.size(), 2u);
  EXPECT_EQ(package.listed[1].id, "PYSEC-1");
  EXPECT_EQ(package.listed[1].alias, "CVE-2021-1");
  EXPECT_EQ(package.listed[1].affected.intervals[0].to, "3") << "what any of them affects";
  EXPECT_EQ(package.listed[0].id, "CVE-2021-9");
}

TEST(OsvTest, DebiansAdvisoryNamesTheCve) {
  const auto table =
      Table({Record("DEBIAN-CVE-2023-0464",
                    absl::StrCat(R"("upstream":["CVE-2023-0464"],)",
                                 Package("Debian:12", "openssl",
                                         Ranges(R"({"introduced":"0"},{"fixed":"3.0.9-1"})"))))});
  const PackageAdvisories package = *DecodePackage(table.at("Debian:12/openssl"));
  EXPECT_EQ(package.listed[0].alias, "CVE-2023-0464");
  EXPECT_EQ(Of(Order::kDebian, "3.0.8-1", package.listed[0].affected), Verdict::kAffected);
  EXPECT_EQ(Of(Order::kDebian, "3.0.9-1", package.listed[0].affected), Verdict::kNotAffected);
}

// The newest are listed, and the others are counted; a row holds every record.
TEST(OsvTest, ManyAdvisoriesAreCut) {
  OsvRecords records;
  for (int i = 0; i < 200; ++i) {
    SHOAL_EXPECT_OK(records.Add(
        Record(absl::StrCat("PYSEC-", i),
               absl::StrCat(R"("published":")", 1900 + i, R"(-01-01T00:00:00Z",)",
                            Package("PyPI", "p",
                                    Ranges(absl::StrCat(R"({"introduced":"0"},{"fixed":")", i + 1,
                                                        R"("})"))))),
        "record"));
  }
  const auto table = Finish(records, 300);
  EXPECT_LE(table.at("PyPI/p").size() + 6, 300u);
  const PackageAdvisories package = *DecodePackage(table.at("PyPI/p"));
  EXPECT_EQ(package.listed[0].id, "PYSEC-199");
  EXPECT_GT(package.listed.size(), 10u);
  EXPECT_EQ(package.listed.size() + package.more, 200u);
  EXPECT_EQ(records.counts().cut, 1u);
  EXPECT_EQ(records.counts().not_listed, package.more);
  EXPECT_EQ(Of(Order::kPep440, "0.5", package.rest), Verdict::kAffected);
  EXPECT_THAT(OsvRecords().Add("{}", "x"), StatusIs(absl::StatusCode::kInvalidArgument, "no id"));
}

// What is no OSV record is refused with its place, and nothing of it is taken.
TEST(OsvTest, WhatIsNoRecordIsRefusedWithItsPlace) {
  const std::string events = R"({"introduced":"0"})";
  struct Case {
    std::string json, where;
  };
  for (const Case& c : {
           Case{"", "a.json:1:1: not JSON"},
           Case{"{\"id\":\n  nope}", "a.json:2:"},
           Case{"{} {}", "a.json:1:4: not JSON"},
           Case{Record("a", R"("aliases":[":\":"],"id":"b")"),
                "a.json:1: an object has two members"},
           Case{std::string(100, '['), "a.json:1:65: not JSON"},
           Case{"[]", "a.json: the whole: is not an object"},
           Case{"{}", "no id"},
           Case{R"({"id":7})", "a.json: id: is not a text"},
           Case{R"({"id":"a b","modified":"x"})", "a.json: id: has something other"},
           Case{R"({"id":"a"})", "modified"},
           Case{Record("a", R"("aliases":"x")"), "a.json: aliases: is not an array"},
           Case{Record("a", R"("aliases":["x",1])"), "a.json: aliases[1]: is not a text"},
           Case{Record("a", R"("affected":[7])"), "a.json: affected[0]: is not an object"},
           Case{Record("a", Package("npm", "", Ranges(events))),
                "affected[0].package.name: is no name"},
           Case{Record("a", Package("npm", "x", Ranges(events, "OTHER"))),
                "affected[0].ranges[0].type: is SEMVER"},
           Case{Record("a", Package("npm", "x", Ranges(R"({"fixed":"1.0.0"})"))),
                "affected[0].ranges[0].events: nothing is introduced"},
           Case{Record("a", Package("npm", "x", Ranges(R"({"introduced":"0","fixed":"1"})"))),
                "events[0]: an event has one member"},
           Case{Record("a", Package("npm", "x", Ranges(events + R"(,{"until":"1"})"))),
                "events[1]: an event is introduced"},
           Case{Record("a",
                       Package("npm", "x",
                               absl::StrCat(R"("versions":[")", std::string(300, '1'), R"("])"))),
                "affected[0].versions[0]: a version has 1 to 256 bytes"},
       }) {
    OsvRecords records;
    const absl::Status status = records.Add(c.json, "a.json");
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, c.where)) << c.json;
    EXPECT_EQ(records.counts().records, 0u);
    EXPECT_EQ(records.Finish(1024)->size(), 0u);
  }
  EXPECT_THAT(OsvRecords().Add(std::string(OsvRecords::kMaxRecordBytes + 1, ' '), "a.json"),
              StatusIs(absl::StatusCode::kResourceExhausted, "a.json"));
}

TEST(OsvTest, ADirectoryIsReadToTheBottom) {
  namespace fs = std::filesystem;
  std::string name = ::testing::TempDir() + "/osv.XXXXXX";
  SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
  const fs::path directory = name;
  EXPECT_THAT(OsvRecords().AddDirectory(directory),
              StatusIs(absl::StatusCode::kNotFound, "no OSV"));
  EXPECT_FALSE(OsvRecords().AddDirectory(directory / "none").ok());
  fs::create_directories(directory / "PyPI");
  const auto write = [&](const fs::path& path, const std::string& id) {
    std::ofstream(directory / path) << Record(id, Package("PyPI", "p", R"("versions":["1"])"));
  };
  write("one.json", "X-1");
  write("PyPI/two.json", "X-2");
  std::ofstream(directory / "PyPI" / "readme.txt") << "Which versions are affected is in *.json.\n";
  fs::create_symlink(directory, directory / "PyPI" / "loop");
  OsvRecords records;
  SHOAL_EXPECT_OK(records.AddDirectory(directory));
  EXPECT_EQ(records.counts().records, 2u);
  std::ofstream(directory / "PyPI" / "bad.json") << "{";
  EXPECT_THAT(OsvRecords().AddDirectory(directory),
              StatusIs(absl::StatusCode::kInvalidArgument, "/PyPI/bad.json:1:2: not JSON"));
  const auto unread = [&] {
    OsvRecords lenient;
    SHOAL_EXPECT_OK(lenient.AddDirectory(directory, OsvRecords::Odd::kLeaveOut));
    EXPECT_EQ(lenient.counts().records, 2u);
    return lenient.counts().unread;
  };
  EXPECT_EQ(unread(), 1u);
  fs::remove(directory / "PyPI" / "bad.json");
  EXPECT_EQ(unread(), 0u);
  // What else may hold records: YAML whose record is not there in JSON, packed files where no file
  // is unpacked, lines of JSON, links to elsewhere.
  std::ofstream(directory / "X-1.yaml") << "id: \"X-1\"\nmodified: 2021\n";
  std::ofstream(directory / ".pre-commit.yml") << "repos:\n- id: x\n";
  std::ofstream(directory / "PyPI" / "all.zip") << "PK";
  EXPECT_EQ(unread(), 0u);
  std::ofstream(directory / "X-9.YML") << "id: X-9\n";
  EXPECT_EQ(unread(), 1u);
  EXPECT_THAT(OsvRecords().AddDirectory(directory),
              StatusIs(absl::StatusCode::kInvalidArgument, "X-9.YML: is a record in YAML"));
  fs::create_directories(directory / "npm");
  std::ofstream(directory / "npm" / "all.zip") << "PK";
  EXPECT_EQ(unread(), 2u);
  std::ofstream(directory / "all.jsonl") << "{}";
  EXPECT_EQ(unread(), 3u);
  fs::create_symlink("/usr", directory / "elsewhere");
  EXPECT_EQ(unread(), 4u);
  fs::create_symlink("/nowhere", directory / "gone.json");
  EXPECT_EQ(unread(), 5u);
  // RustSec's own notation, and other names of records.
  std::ofstream(directory / "X-2.md") << "```toml\n[advisory]\nid = \"X-2\"\n```\n# Two\n";
  std::ofstream(directory / "X-1.toml") << "[advisory]\nid='X-1'\n";
  std::ofstream(directory / "README.md") << "id = \"X-8\"\n";
  EXPECT_EQ(unread(), 5u);
  std::ofstream(directory / "X-8.md") << "```toml\r\n[ advisory ]\r\nid = \"X-8\"\r\n```\r\n";
  std::ofstream(directory / "X-7.toml") << "[advisory]\npackage = \"p\"\n";
  EXPECT_EQ(unread(), 7u);
  std::ofstream(directory / "X-6.osv") << Record("X-6", Package("PyPI", "p", R"("versions":[])"));
  EXPECT_EQ(unread(), 8u);
  // A packed file beside another record than its own.
  std::ofstream(directory / "one.json.gz") << "x";
  std::ofstream(directory / "one.zip") << "x";
  std::ofstream(directory / "PyPI.tar.xz") << "x";
  EXPECT_EQ(unread(), 8u);
  std::ofstream(directory / "new.json.gz") << "x";
  std::ofstream(directory / "PyPI" / "new.zip") << "x";
  EXPECT_EQ(unread(), 10u);
  EXPECT_EQ(::mkfifo((directory / "pipe.md").c_str(), 0600), 0);
  EXPECT_EQ(unread(), 11u);
  // What is not known to be harmless is looked into.
  write("PyPI/three.txt", "X-3");
  write("X-3.JSON5", "X-3");
  write("X-3", "X-3");
  std::ofstream(directory / "five.json5") << "{id: 'X-5', affected: []}\n";
  std::ofstream(directory / "records.rar") << "Rar!\x1a\x07\x01";
  std::ofstream(directory / "seven.json.lz") << "LZIP\x01";
  std::ofstream(directory / "four.yaml") << R"({"id":"X-4","affected":[]})";
  std::ofstream(directory / "two.yaml") << "id: X-1\n---\nid: X-4\n";
  std::ofstream(directory / "six.toml") << "id = 'X-6'\n[[affected]]\n";
  EXPECT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(unread(), 21u);
  fs::create_directories(directory / ".git/objects");
  std::ofstream(directory / ".git/objects/pack") << "PACK\x01";
  std::ofstream(directory / "tool.py") << "affected = {}\n";
  std::ofstream(directory / "logo.png") << "\x89PNG\x01";
  std::ofstream(directory / "LICENSE") << "Whoever is affected by this, is.\n";
  std::ofstream(directory / "empty.lock") << "";
  EXPECT_EQ(unread(), 21u);
  fs::remove_all(directory);
}

}  // namespace
}  // namespace shoal::audit
