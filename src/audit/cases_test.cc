// Inputs and advisories in folders, from the files to what is found. Each was made after a report
// about another program of this kind, which called something clean that was not.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "src/audit/findings.h"
#include "src/audit/inventory.h"
#include "src/audit/osv.h"
#include "src/base/check.h"
#include "src/base/testing/matchers.h"

namespace shoal::audit {
namespace {

constexpr char kFolder[] = "src/audit/cases/";

using Table = std::map<std::string, Bytes>;

Table ReadTable() {
  OsvRecords records;
  SHOAL_CHECK(records.AddDirectory(absl::StrCat(kFolder, "advisories")).ok());
  const auto set = records.Finish(1024);
  SHOAL_CHECK(set.ok());
  Table table;
  for (size_t i = 0; i < set->size(); ++i) table[ToString(set->key(i))] = ToBytes(set->value(i));
  return table;
}

std::vector<std::string> FindingsOf(const Inventory& inventory) {
  static const Table* const table = new Table(ReadTable());
  Audit audit(inventory);
  for (size_t i = 0; i < audit.keys().size(); ++i) {
    const auto found = table->find(audit.keys()[i]);
    SHOAL_EXPECT_OK(audit.Answer(
        i, found == table->end() ? std::optional<BytesView>() : std::optional(found->second)));
  }
  std::vector<std::string> lines;
  const std::vector<Finding> findings = *audit.Findings();
  for (const Finding& finding : findings) {
    lines.push_back(absl::StrCat(StatusName(finding.status), " ", finding.package, " ",
                                 finding.version, finding.id.empty() ? "" : " ", finding.id));
  }
  std::ranges::sort(lines);
  return lines;
}

// "vulnerable name version id" of what is found in a file of the folder, sorted.
std::vector<std::string> Found(const std::string& path, const Distribution& distribution = {}) {
  Inventory inventory;
  SHOAL_EXPECT_OK(ReadInventory(kFolder + path, distribution, inventory));
  return FindingsOf(inventory);
}

// The same of a text.
std::vector<std::string> FoundIn(Format format, absl::string_view text,
                                 const Distribution& distribution = {}) {
  Inventory inventory;
  SHOAL_EXPECT_OK(ParseInventory(format, text, "input", distribution, inventory));
  return FindingsOf(inventory);
}

std::vector<std::string> FoundInUrl(absl::string_view url) {
  return FoundIn(
      Format::kCycloneDx,
      absl::StrCat(R"({"bomFormat":"CycloneDX","components":[{"purl":")", url, R"("}]})"));
}

using Lines = std::vector<std::string>;

TEST(CasesTest, AModuleMayBeInTheSubpath) {
  const Lines net = {"vulnerable code.example.org/fishing/net/v5 v5.3.0 GO-2026-9001"};
  EXPECT_EQ(Found("01-go-purl-subpath/a.cdx.json"), net);
  EXPECT_EQ(Found("01-go-purl-subpath/c.cdx.json"), net);
  EXPECT_EQ(Found("01-go-purl-subpath/b.cdx.json"),
            Lines{"unclear code.example.org/harbour/vault v0.9.0 GO-2026-9002"});
}

TEST(CasesTest, GosNamesAreWrittenInSeveralWays) {
  for (const char* url : {"pkg:golang/std@v1.21.7", "pkg:golang/stdlib@1.22.0",
                          "pkg:golang/std@go1.22rc1", "pkg:golang/std@1.21.7#net/http"}) {
    const Lines found = FoundInUrl(url);
    ASSERT_EQ(found.size(), 1u) << url;
    EXPECT_EQ(found[0].substr(0, 17), "vulnerable stdlib") << url;
  }
  EXPECT_EQ(FoundInUrl("pkg:golang/std@v1.21.8"), Lines{});
  EXPECT_EQ(FoundInUrl("pkg:golang/std@devel"), Lines{"unclear stdlib devel GO-2026-9006"});
  EXPECT_EQ(FoundInUrl("pkg:golang/Code.Example.org/Fishing/Text@v0.3.6").size(), 1u);
  EXPECT_EQ(FoundInUrl("pkg:golang/code.example.org/%21fishing/%21text@v0.3.6").size(), 1u);
  EXPECT_EQ(FoundInUrl("pkg:golang/code.example.org/fishing/cli@v29.1.0%2Bincompatible").size(),
            1u);
  EXPECT_EQ(FoundInUrl("pkg:golang/code.example.org/fishing/cli@v29.2.0%2Bincompatible"), Lines{});
}

TEST(CasesTest, APackageMayHaveSeveralPackageUrls) {
  for (const char* file : {"a.spdx.json", "b.spdx.json", "c.spdx"}) {
    EXPECT_EQ(Found(absl::StrCat("03-spdx-two-purls/", file)),
              Lines{"vulnerable driftwood 4.17.20 GHSA-drif-twoo-d001"})
        << file;
  }
}

TEST(CasesTest, ALocalLabelIsOfItsVersion) {
  EXPECT_EQ(Found("04-pep440-local/requirements.txt"),
            (Lines{"vulnerable tideglass 1.13.0+cu117 PYSEC-2026-9001",
                   "vulnerable tidewheel 2.1.0+cpu PYSEC-2026-9002"}));
  EXPECT_EQ(Found("04-pep440-local/plain-requirements.txt"),
            (Lines{"vulnerable tideglass 1.13.0 PYSEC-2026-9001",
                   "vulnerable tidewheel 2.1.0 PYSEC-2026-9002"}));
  EXPECT_EQ(Found("04-pep440-local/later-requirements.txt"), Lines{});
}

TEST(CasesTest, AQuotedKeyIsAKey) {
  for (const char* file : {"a", "b", "c", "d"}) {
    EXPECT_EQ(Found(absl::StrCat("06-cargo-lock-quoted-key/", file, "/Cargo.lock")),
              Lines{"vulnerable barnacle 0.1.19 RUSTSEC-2026-9001"})
        << file;
  }
}

TEST(CasesTest, ASignedPackageIsOfItsSource) {
  EXPECT_EQ(Found("07-linux-signed/status", {.stated = "Debian:12"}),
            (Lines{"unclear grub2 ", "vulnerable linux 6.1.115-1 DSA-2026-9003-1"}));
  EXPECT_EQ(Found("07-linux-signed/bom.json"), Lines{"vulnerable linux 6.1.115-1 DSA-2026-9003-1"});
  // Without a source, it is not known to be another's.
  EXPECT_EQ(FoundInUrl("pkg:deb/debian/linux-image-6.1.0-27-amd64@6.1.115-1?distro=debian-12"),
            (Lines{"unclear linux-image-6.1.0-27-amd64 6.1.115-1",
                   "vulnerable linux 6.1.115-1 DSA-2026-9003-1"}));
  EXPECT_EQ(FoundInUrl("pkg:deb/debian/libopenlock3@3.0.1-1?distro=debian-12"),
            Lines{"unclear libopenlock3 3.0.1-1"});
}

TEST(CasesTest, AnEpochIsOfTheVersion) {
  const std::string url =
      "pkg:deb/debian/boat-hull@2.38.1-5%2Bdeb12u1?distro=debian-12&upstream=boat-hull";
  EXPECT_EQ(FoundInUrl(url + "&epoch=1"),
            Lines{"vulnerable boat-hull 1:2.38.1-5+deb12u1 DSA-2026-9010-1"});
  EXPECT_EQ(FoundInUrl("pkg:pypi/pearl@1.5?epoch=1"),
            Lines{"vulnerable pearl 1!1.5 PYSEC-2026-9006"});
}

TEST(CasesTest, FixesUnderProAreOfTheRelease) {
  const auto found = [](const std::string& version) {
    return FoundIn(Format::kDpkgStatus,
                   absl::StrCat("Package: systemdock\nStatus: install ok installed\n"
                                "Architecture: amd64\nVersion: ",
                                version, "\n"),
                   {.stated = "Ubuntu:16.04:LTS"});
  };
  EXPECT_EQ(found("229-4ubuntu21.31"), Lines{"vulnerable systemdock 229-4ubuntu21.31 USN-9001-1"});
  EXPECT_EQ(found("229-4ubuntu21.31+esm1"), Lines{});
  EXPECT_EQ(found("229-4ubuntu21"), (Lines{"vulnerable systemdock 229-4ubuntu21 USN-9000-1",
                                           "vulnerable systemdock 229-4ubuntu21 USN-9001-1"}));
}

TEST(CasesTest, EventsMeanTheSameInAnyOrder) {
  EXPECT_EQ(
      Found("14-osv-events/requirements.txt"),
      (Lines{"vulnerable eel-kernel 6.14.0 PYSEC-2026-9008",
             "vulnerable eel-limit 2.5 PYSEC-2026-9011", "vulnerable eel-tie 1.2 PYSEC-2026-9009",
             "vulnerable eel-tie 1.7 PYSEC-2026-9009", "vulnerable eel-tie2 1.7 PYSEC-2026-9021",
             "vulnerable eel-tie3 1.7 PYSEC-2026-9022",
             "vulnerable eel-two-ranges 1.0.1 PYSEC-2026-9010",
             "vulnerable eel-two-ranges 1.1.0 PYSEC-2026-9010",
             "vulnerable eel-unsorted 0.9 PYSEC-2026-9007",
             "vulnerable eel-unsorted 2.0.5 PYSEC-2026-9007"}));
  EXPECT_EQ(Found("14-osv-events/go.sum"),
            (Lines{"vulnerable code.example.org/fishing/boats v1.3.0 GO-2026-9005",
                   "vulnerable code.example.org/fishing/boats v1.5.3 GO-2026-9005",
                   "vulnerable code.example.org/fishing/boats v1.6.0 GO-2026-9005"}));
}

}  // namespace
}  // namespace shoal::audit
