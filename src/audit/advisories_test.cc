#include "src/audit/advisories.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::audit {
namespace {

using shoal::testing::StatusIs;

Interval Below(const std::string& to) { return {.from = {}, .to = to, .to_is_affected = false}; }
Interval Between(const std::string& from, const std::string& to, bool to_is_affected = false) {
  return {.from = from, .to = to, .to_is_affected = to_is_affected};
}
Interval From(const std::string& from) { return {.from = from, .to = {}, .to_is_affected = false}; }
Affected Of(std::vector<Interval> intervals, std::vector<std::string> versions = {}) {
  return {.intervals = std::move(intervals), .versions = std::move(versions), .unclear = false};
}

Affected Joined(const Affected& affected) { return Union(Order::kPep440, {&affected}); }

PackageAdvisories Sample() {
  return {.listed = {{.id = "PYSEC-2021-98",
                      .alias = "CVE-2021-31542",
                      .affected = Of({Below("2.2.21"), Between("3.0", "3.1.9")}, {"1.0-special"})},
                     {.id = "GHSA-x", .alias = "", .affected = Of({Between("2.0", "3.0", true)})}},
          .more = 3,
          .rest = {.intervals = {From("4.0")}, .versions = {}, .unclear = true}};
}

TEST(AdvisoriesTest, ValuesAreReadAsTheyWereWritten) {
  EXPECT_EQ(*DecodePackage(Encode(Sample())), Sample());
  EXPECT_EQ(*DecodePackage(Encode(PackageAdvisories{})), PackageAdvisories{});
  const Coverage coverage = {.advisories = 300, .packages = 7, .modified = "2021-03-08T16:02:43Z"};
  EXPECT_EQ(*DecodeCoverage(Encode(coverage)), coverage);
  Coverage incomplete = coverage;
  incomplete.unread = 2;
  EXPECT_EQ(*DecodeCoverage(Encode(incomplete)), incomplete);
  EXPECT_NE(Encode(incomplete), Encode(coverage));
}

// One value has one encoding, so that what was signed is what was meant.
TEST(AdvisoriesTest, OtherBytesAreRefused) {
  const Bytes good = Encode(Sample());
  EXPECT_THAT(DecodePackage(BytesView()).status(),
              StatusIs(absl::StatusCode::kDataLoss, "malformed"));
  EXPECT_THAT(DecodePackage(AsBytes("1.2.3-4")).status(),
              StatusIs(absl::StatusCode::kDataLoss, "not a package's"));
  EXPECT_THAT(DecodePackage(Encode(Coverage{})).status(),
              StatusIs(absl::StatusCode::kDataLoss, "not a package's"));
  EXPECT_THAT(DecodeCoverage(good).status(), StatusIs(absl::StatusCode::kDataLoss, "ecosystem's"));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodePackage(BytesView(good).first(size)).ok()) << size;
  }
  Bytes longer = good;
  longer.push_back(0);
  EXPECT_THAT(DecodePackage(longer).status(),
              StatusIs(absl::StatusCode::kDataLoss, "does not fit"));
  // A list of versions of which one is not used: 1, {"a"}, no advisories, no more.
  EXPECT_THAT(DecodePackage(Bytes{1, 1, 1, 'a', 0, 0}).status(),
              StatusIs(absl::StatusCode::kDataLoss, "one encoding"));
  // A number that is longer than it need be, and one beyond the list of versions.
  EXPECT_FALSE(DecodePackage(Bytes{1, 0, 0x80, 0, 0}).ok());
  EXPECT_FALSE(DecodePackage(Bytes{1, 0, 1, 1, 'x', 0, 0, 1, 1, 0, 0, 0}).ok());
  // Counts beyond what is there.
  EXPECT_FALSE(DecodePackage(Bytes{1, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F}).ok());
  // No record that could not be read has no encoding of its own.
  EXPECT_THAT(DecodeCoverage(Bytes{3, 1, 1, 0, 0}).status(),
              StatusIs(absl::StatusCode::kDataLoss, "counts no records"));
  // Zero more, and still a rest.
  EXPECT_FALSE(DecodePackage(Bytes{1, 0, 0, 0, 1, 0, 0}).ok());
}

TEST(AdvisoriesTest, TheUnionIsRisingAndApart) {
  EXPECT_EQ(Joined(Of({Between("3", "4"), Below("2"), Between("1.5", "2.5", true), From("9")})),
            Of({{.from = {}, .to = "2.5", .to_is_affected = true}, Between("3", "4"), From("9")}));
  // What touches is joined; what is empty is left out.
  EXPECT_EQ(
      Joined(Of({Between("1", "2"), Between("2", "3"), Between("7", "7"), Between("6", "5")})),
      Of({Between("1", "3")}));
  EXPECT_EQ(Joined(Of({Between("1", "2"), Between("1", "2", true)})),
            Of({Between("1", "2", true)}));
  // Single versions are kept where no interval has them, also those that cannot be compared.
  EXPECT_EQ(Joined(Of({Between("1", "2")}, {"1.5", "2", "2", "legacy-1", "0.9", "1"})),
            Of({Between("1", "2")}, {"0.9", "2", "legacy-1"}));
  EXPECT_EQ(Joined(Of({Between("x", "2")})),
            (Affected{.intervals = {}, .versions = {}, .unclear = true}));
}

TEST(AdvisoriesTest, AVersionIsJudged) {
  const auto judge = [](absl::string_view version, const Affected& affected) {
    return Judge(Order::kPep440, version, affected).verdict;
  };
  const Affected affected = Of({Below("1.0"), Between("2.0", "3.0", true)}, {"5.0", "weird!"});
  for (const char* version :
       {"0.1", "1.0.dev1", "2.0", "2.5", "3.0", "3.0.0", "5", "5.0.0", "weird!"}) {
    EXPECT_EQ(judge(version, affected), Verdict::kAffected) << version;
  }
  for (const char* version : {"1.0", "1.9", "3.0.1", "4", "6"}) {
    EXPECT_EQ(judge(version, affected), Verdict::kNotAffected) << version;
  }
  // What is no version could be any.
  EXPECT_EQ(judge("other!", affected), Verdict::kUnclear);
  EXPECT_EQ(judge("", affected), Verdict::kUnclear);
  for (const char* none : {"other!", "", "${V}", "5.0\t--hash=sha256:aa"}) {
    EXPECT_EQ(judge(none, Of({}, {"5.1"})), Verdict::kUnclear) << none;
  }
  EXPECT_EQ(judge("1.5", {.intervals = {}, .versions = {}, .unclear = true}), Verdict::kUnclear);
  EXPECT_EQ(judge("1.5", Of({Between("x", "2")})), Verdict::kUnclear);
  EXPECT_EQ(judge("1.5", Of({Between("x", "2"), Below("2")})), Verdict::kAffected);
  EXPECT_EQ(Judge(Order::kPep440, "0.1", affected).fixed, "1.0");
  EXPECT_EQ(Judge(Order::kPep440, "2.5", affected).fixed, "") << "the last one affected is no fix";
}

// Of an item "0.1" is as good as "0.1.7".
TEST(AdvisoriesTest, APartOfAVersionIsUnclear) {
  const Affected affected = Of({Between("0.1.3", "0.1.20"), Below("0.0")}, {"2.4"});
  for (const char* part : {"0.1", "0", "v0.1", "2"}) {
    EXPECT_EQ(Judge(Order::kSemver, part, affected).verdict, Verdict::kUnclear) << part;
  }
  EXPECT_EQ(Judge(Order::kSemver, "0.1.0", affected).verdict, Verdict::kNotAffected);
  EXPECT_EQ(Judge(Order::kSemver, "0.0.0-rc.1", affected).verdict, Verdict::kAffected);
  EXPECT_EQ(Judge(Order::kSemver, "2.4.0", affected).verdict, Verdict::kAffected);
}

// PEP 440: a bound without a local label ignores the candidate's. What a vendor builds from an
// affected version is affected.
TEST(AdvisoriesTest, LocalLabelsAreOfTheirVersion) {
  const auto judge = [](absl::string_view version, const Affected& affected) {
    return Judge(Order::kPep440, version, affected).verdict;
  };
  const Affected last = Of({{.from = {}, .to = "1.13.0", .to_is_affected = true}});
  const Affected fixed = Of({Between("1.13.0", "1.13.1")}), listed = Of({}, {"2.1.0"});
  const Affected of_vendor = Of({Between("1.13.0+a.1", "1.13.0+a.3")}, {"2.1.0+a"});
  for (const auto& [version, affected] : {std::pair("1.13.0+cu117", last),
                                          {"1.12+x", last},
                                          {"1.13.0+cu117", fixed},
                                          {"2.1.0+cpu", listed},
                                          {"2.1+cpu", listed},
                                          {"1.13.0+a.2", of_vendor},
                                          {"2.1.0+a", of_vendor}}) {
    EXPECT_EQ(judge(version, affected), Verdict::kAffected) << version;
    EXPECT_EQ(judge(version, Joined(affected)), Verdict::kAffected) << version;
  }
  for (const auto& [version, affected] : {std::pair("1.13.1+cu117", last),
                                          {"1.13.1+cu117", fixed},
                                          {"2.1.1+cpu", listed},
                                          {"1.13.0+a.3", of_vendor},
                                          {"1.13.0", of_vendor},
                                          {"2.1.0", of_vendor}}) {
    EXPECT_EQ(judge(version, affected), Verdict::kNotAffected) << version;
  }
  // Joined with a range that ends at a local label, one that ends before it would lose what it says
  // of other labels.
  const Affected both =
      Of({{.from = {}, .to = "1.0", .to_is_affected = true}, Between("0.5", "1.0+b")});
  EXPECT_EQ(judge("1.0+c", both), Verdict::kAffected);
  EXPECT_EQ(judge("1.0+c", Joined(both)), Verdict::kAffected);
}

// The verdict must not depend on what fits.
TEST(AdvisoriesTest, WhatDoesNotFitIsNeverTakenForClean) {
  std::vector<Advisory> advisories;
  for (int i = 0; i < 60; ++i) {
    advisories.push_back({.id = absl::StrCat("PYSEC-2021-", 1000 + i),
                          .alias = "",
                          .affected = Of({Between(absl::StrCat(i % 7, ".", i % 3),
                                                  absl::StrCat(i % 7, ".", 60 - i))})});
  }
  const auto verdict = [&](const PackageAdvisories& package, const std::string& version) {
    Verdict worst = Judge(Order::kPep440, version, package.rest).verdict;
    for (const Advisory& advisory : package.listed) {
      const Verdict one = Judge(Order::kPep440, version, advisory.affected).verdict;
      if (one == Verdict::kAffected || worst == Verdict::kNotAffected) worst = one;
    }
    return worst;
  };
  size_t before = 0;
  for (const size_t bytes : {16, 40, 100, 250, 400, 700, 1000, 3000}) {
    const PackageAdvisories package = *Fit(Order::kPep440, advisories, bytes);
    EXPECT_LE(Encode(package).size(), bytes);
    EXPECT_EQ(package.listed.size() + package.more, 60u);
    // What all others affect together takes room that identifiers then lack, but is worth more.
    if (bytes >= 250) {
      EXPECT_GT(package.listed.size(), before) << bytes;
    }
    before = package.listed.size();
    size_t unclear = 0;
    for (int major = 0; major < 8; ++major) {
      for (int minor = 0; minor < 70; ++minor) {
        const std::string version = absl::StrCat(major, ".", minor);
        const Verdict truth =
            std::ranges::any_of(
                advisories,
                [&](const Advisory& advisory) {
                  return Judge(Order::kPep440, version, advisory.affected).verdict ==
                         Verdict::kAffected;
                })
                ? Verdict::kAffected
                : Verdict::kNotAffected;
        const Verdict ours = verdict(package, version);
        if (ours == Verdict::kUnclear) {
          ++unclear;
        } else {
          EXPECT_EQ(ours, truth) << version << " in " << bytes;
        }
      }
    }
    EXPECT_EQ(unclear > 0, bytes < 100) << bytes;
  }
  EXPECT_EQ(before, 60u) << "all fit in 3,000 bytes";
  EXPECT_THAT(Fit(Order::kPep440, advisories, 15).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "16 bytes"));
}

}  // namespace
}  // namespace shoal::audit
