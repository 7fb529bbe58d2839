#include "src/audit/findings.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/audit/osv.h"
#include "src/base/testing/matchers.h"

namespace shoal::audit {
namespace {

using shoal::testing::StatusIs;

Affected Below(const std::string& to) {
  return {.intervals = {{.from = {}, .to = to, .to_is_affected = false}},
          .versions = {},
          .unclear = false};
}

Item Of(const std::string& ecosystem, const std::string& name, const std::string& version,
        const std::string& file = "a.lock") {
  return {.ecosystem = ecosystem, .name = name, .version = version, .file = file};
}

using Table = std::map<std::string, Bytes>;

Table Sample() {
  PackageAdvisories django, big;
  django.listed = {{.id = "PYSEC-1", .alias = "CVE-1", .affected = Below("3.0")},
                   {.id = "PYSEC-2", .alias = "", .affected = Below("2.0")}};
  big.more = 7;
  big.rest = Below("5.0");
  PackageAdvisories bigger;
  bigger.more = 9;
  bigger.rest.unclear = true;
  return {{"PyPI", Encode(Coverage{.advisories = 18, .packages = 3, .modified = "2021"})},
          {"PyPI/django", Encode(django)},
          {"PyPI/big", Encode(big)},
          {"PyPI/bigger", Encode(bigger)}};
}

absl::Status AnswerAll(const Table& table, Audit& audit) {
  for (size_t i = 0; i < audit.keys().size(); ++i) {
    const auto found = table.find(audit.keys()[i]);
    const absl::Status status =
        found == table.end() ? audit.Answer(i, std::nullopt) : audit.Answer(i, found->second);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// "vulnerable PyPI/django 1.9 PYSEC-1 3.0", then the note if there is one.
std::vector<std::string> Lines(const std::vector<Finding>& findings) {
  std::vector<std::string> lines;
  for (const Finding& finding : findings) {
    lines.push_back(absl::StrCat(StatusName(finding.status), " ", finding.ecosystem, "/",
                                 finding.package, " ", finding.version, " ", finding.id, " ",
                                 finding.fixed, finding.note.empty() ? "" : " ", finding.note));
  }
  return lines;
}

TEST(FindingsTest, VersionsAreJudgedByTheirAdvisories) {
  Audit audit({.items = {Of("PyPI", "Django", "1.9", "x"), Of("PyPI", "django", "1.9", "y"),
                         Of("PyPI", "django", "2.5"), Of("PyPI", "django", "3.0"),
                         Of("PyPI", "flask", "0.1")},
               .unchecked = {},
               .own = 2});
  EXPECT_EQ(audit.keys(), (std::vector<std::string>{"PyPI", "PyPI/django", "PyPI/flask"}));
  SHOAL_ASSERT_OK(AnswerAll(Sample(), audit));
  const std::vector<Finding> findings = *audit.Findings();
  EXPECT_EQ(Lines(findings), (std::vector<std::string>{"vulnerable PyPI/django 1.9 PYSEC-1 3.0",
                                                       "vulnerable PyPI/django 1.9 PYSEC-2 2.0",
                                                       "vulnerable PyPI/django 2.5 PYSEC-1 3.0"}));
  EXPECT_EQ(findings[0].files, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(findings[0].alias, "CVE-1");
  EXPECT_EQ(audit.coverage().at("PyPI")->advisories, 18u);
  const Audit::Counts counts = audit.Count(findings);
  EXPECT_EQ(counts.packages, 4u);
  EXPECT_EQ(counts.vulnerable, 2u);
  EXPECT_EQ(counts.unclear + counts.unchecked + counts.unverified, 0u);
}

// Nothing that could not be judged reads as clean.
TEST(FindingsTest, WhatIsNotKnownIsSaid) {
  Audit audit(
      {.items = {Of("PyPI", "django", ""), Of("PyPI", "django", "master"), Of("PyPI", "flask", ""),
                 Of("PyPI", "big", "4.9"), Of("PyPI", "big", "5.0"), Of("PyPI", "bigger", "99"),
                 Of("npm", "lodash", "1.0.0")},
       .unchecked = {{.what = "x.whl", .why = "is a file", .file = "r.txt"}},
       .own = 0});
  SHOAL_ASSERT_OK(AnswerAll(Sample(), audit));
  const std::vector<Finding> findings = *audit.Findings();
  const std::string elsewhere =
      " of PyPI in a copy of the advisories, or at osv.dev, which then knows that you did";
  EXPECT_EQ(
      Lines(findings),
      (std::vector<std::string>{
          absl::StrCat("vulnerable PyPI/big 4.9   7 advisories more, of which at least one affects "
                       "this version, did not fit into the table: look for big",
                       elsewhere),
          absl::StrCat("unclear PyPI/bigger 99   9 advisories more did not fit into the table: "
                       "look for bigger",
                       elsewhere),
          "unclear PyPI/django    no version is pinned, and 2 advisories are about some",
          "unclear PyPI/django master PYSEC-1  the versions that it is about cannot be compared "
          "with this one",
          "unclear PyPI/django master PYSEC-2  the versions that it is about cannot be compared "
          "with this one",
          "unchecked npm/lodash 1.0.0   the table has no advisories of npm",
          "unchecked /x.whl    is a file"}));
  const Audit::Counts counts = audit.Count(findings);
  EXPECT_EQ(counts.packages, 8u);
  EXPECT_EQ(counts.vulnerable, 1u);
  EXPECT_EQ(counts.unclear, 3u);
  EXPECT_EQ(counts.unchecked, 2u);
}

// What the file leaves open is not certain, neither as clean nor as vulnerable.
TEST(FindingsTest, WhatAFileLeavesOpenIsUnclear) {
  const auto item = [](const std::string& name, const std::string& version, Certainty certainty) {
    Item of = Of("PyPI", name, version);
    of.certainty = certainty;
    of.doubt = "it may be another";
    return of;
  };
  const auto findings = [](std::vector<Item> items) {
    Audit audit({.items = std::move(items), .unchecked = {}, .own = 0});
    SHOAL_EXPECT_OK(AnswerAll(Sample(), audit));
    const std::vector<Finding> found = *audit.Findings();
    EXPECT_LE(audit.Count(found).packages, 1u);
    return Lines(found);
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(findings({item("django", "2.5", Certainty::kDoubtful)}),
            (Texts{"vulnerable PyPI/django 2.5 PYSEC-1 3.0"}));
  EXPECT_EQ(findings({item("django", "3.0", Certainty::kDoubtful)}),
            (Texts{"unclear PyPI/django 3.0   it may be another"}));
  EXPECT_EQ(findings({item("flask", "3.0", Certainty::kDoubtful)}),
            (Texts{"unclear PyPI/flask 3.0   it may be another"}));
  EXPECT_EQ(findings({item("flask", "", Certainty::kDoubtful)}),
            (Texts{"unclear PyPI/flask    it may be another"}));
  EXPECT_EQ(findings({item("django", "2.5", Certainty::kPossible)}),
            (Texts{"unclear PyPI/django 2.5 PYSEC-1 3.0 it may be another"}));
  EXPECT_EQ(findings({item("django", "3.0", Certainty::kPossible)}), Texts{});
  EXPECT_EQ(findings({item("django", "2.5", Certainty::kPossible),
                      shoal::audit::Item{
                          .ecosystem = "PyPI", .name = "django", .version = "2.5", .file = "x"}}),
            (Texts{"vulnerable PyPI/django 2.5 PYSEC-1 3.0"}));
}

// Any package may have an advisory that the table lacks.
TEST(FindingsTest, ATableThatLacksRecordsIsUnclear) {
  Table table = Sample();
  table["PyPI"] =
      Encode(Coverage{.advisories = 18, .packages = 3, .modified = "2021", .unread = 2});
  Audit audit({.items = {Of("PyPI", "flask", "1.0")}, .unchecked = {}, .own = 0});
  SHOAL_ASSERT_OK(AnswerAll(table, audit));
  const std::vector<Finding> findings = *audit.Findings();
  EXPECT_EQ(Lines(findings), (std::vector<std::string>{
                                 "unclear PyPI/    the table lacks 2 records that could not be "
                                 "read when it was built, and that may be about any package"}));
  EXPECT_EQ(audit.Count(findings).unclear, 1u);
  EXPECT_EQ(audit.Count(findings).packages, 1u);
}

TEST(FindingsTest, AKeyWithoutAnAnswerIsUnverified) {
  const Inventory inventory = {.items = {Of("PyPI", "django", "1.9"), Of("PyPI", "flask", "1.0")},
                               .unchecked = {},
                               .own = 0};
  Audit audit(inventory);
  SHOAL_ASSERT_OK(audit.Answer(0, Sample().at("PyPI")));
  SHOAL_ASSERT_OK(audit.Answer(1, Sample().at("PyPI/django")));
  EXPECT_EQ(Lines(*audit.Findings()).back(),
            "unverified PyPI/flask 1.0   no answer that could be verified");
  EXPECT_EQ(audit.Count(*audit.Findings()).unverified, 1u);
  // Without the ecosystem's record nobody knows whether an absent package has no advisories.
  Audit without(inventory);
  SHOAL_ASSERT_OK(without.Answer(1, std::nullopt));
  SHOAL_ASSERT_OK(without.Answer(2, std::nullopt));
  EXPECT_EQ(without.Count(*without.Findings()).unverified, 2u);
}

// What a full row may lack is not absent.
TEST(FindingsTest, AKeyThatItsRowMayLackIsUnclear) {
  const Inventory inventory = {
      .items = {Of("PyPI", "flask", "1.0"), Of("PyPI", "jinja", "1.0")}, .unchecked = {}, .own = 0};
  Audit audit(inventory);
  SHOAL_ASSERT_OK(audit.Answer(0, Sample().at("PyPI")));
  audit.Unknown(1);
  SHOAL_ASSERT_OK(audit.Answer(2, std::nullopt));
  EXPECT_EQ(Lines(*audit.Findings()),
            (std::vector<std::string>{"unclear PyPI/flask 1.0   its row of the table is full, and "
                                      "may lack it until the next term"}));
  Audit without(inventory);
  without.Unknown(0);
  SHOAL_ASSERT_OK(without.Answer(1, std::nullopt));
  SHOAL_ASSERT_OK(without.Answer(2, std::nullopt));
  EXPECT_EQ(without.Count(*without.Findings()).unclear, 2u);
}

// A lock file can name as many versions of a package as it likes, each with all its advisories.
TEST(FindingsTest, FindingsAreBounded) {
  const auto findings = [](size_t most, std::vector<Unchecked> unchecked) {
    Audit audit({.items = {Of("PyPI", "django", "1.8"), Of("PyPI", "django", "1.9")},
                 .unchecked = std::move(unchecked),
                 .own = 0},
                most);
    SHOAL_EXPECT_OK(AnswerAll(Sample(), audit));
    return audit.Findings();
  };
  EXPECT_EQ(findings(4, {})->size(), 4u);
  EXPECT_THAT(findings(3, {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "more than 3 findings"));
  EXPECT_THAT(findings(4, {{.what = "x", .why = "y", .file = "z"}}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "more than 4 findings"));
}

TEST(FindingsTest, AnotherTablesValuesAreRefused) {
  Audit audit({.items = {Of("PyPI", "django", "1.9")}, .unchecked = {}, .own = 0});
  EXPECT_THAT(audit.Answer(0, AsBytes("1.2.3")),
              StatusIs(absl::StatusCode::kDataLoss, "ecosystem"));
  EXPECT_THAT(audit.Answer(1, AsBytes("1.2.3")), StatusIs(absl::StatusCode::kDataLoss, "package"));
  EXPECT_EQ(audit.Count(*audit.Findings()).unverified, 1u);
  EXPECT_TRUE(IsAdvisoriesTable("advisories") && IsAdvisoriesTable("advisories-pypi"));
  EXPECT_FALSE(IsAdvisoriesTable("advisories2") || IsAdvisoriesTable("debian-packages-amd64"));
}

// The sample of the demo, from records and lock files to what is found.
TEST(FindingsTest, TheSampleProjectHasWhatItsAdvisoriesSay) {
  OsvRecords records;
  SHOAL_ASSERT_OK(records.AddDirectory("configs/audit/advisories"));
  const auto set = records.Finish(1024);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(records.counts().withdrawn, 1u);
  Table table;
  for (size_t i = 0; i < set->size(); ++i) table[ToString(set->key(i))] = ToBytes(set->value(i));
  Inventory inventory;
  SHOAL_ASSERT_OK(ReadInventory("configs/audit/project", {}, inventory));
  SHOAL_ASSERT_OK(ParseInventory(Format::kDpkgStatus,
                                 "Package: libssl3\nStatus: install ok installed\nSource: openssl\n"
                                 "Architecture: amd64\nVersion: 3.0.8-1\n",
                                 "status", {.stated = "Debian:12"}, inventory));
  EXPECT_EQ(inventory.own, 2u);
  Audit audit(inventory);
  SHOAL_ASSERT_OK(AnswerAll(table, audit));
  EXPECT_EQ(
      Lines(*audit.Findings()),
      (std::vector<std::string>{"vulnerable Debian:12/openssl 3.0.8-1 DEBIAN-CVE-2023-2650 3.0.9-1",
                                "vulnerable Go/golang.org/x/text v0.3.6 GO-2021-0113 0.3.7",
                                "vulnerable PyPI/Django 3.1.8 PYSEC-2021-98 3.1.9",
                                "vulnerable crates.io/http 0.1.19 RUSTSEC-2019-0033 0.1.20",
                                "vulnerable npm/lodash 4.17.20 GHSA-35jh-r3h4-6jhm 4.17.21"}));
}

}  // namespace
}  // namespace shoal::audit
