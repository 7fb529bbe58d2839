// Versions, values of a table of advisories, OSV records, and the files that name packages.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "src/audit/advisories.h"
#include "src/audit/findings.h"
#include "src/audit/inventory.h"
#include "src/audit/osv.h"
#include "src/audit/version.h"
#include "src/base/check.h"
#include "src/fuzz/target.h"

namespace shoal::fuzz {
namespace {

using audit::Order;
using audit::Version;

// Two versions, the first as a blob. The order is total, and the same from both sides.
bool CompareTwo(BytesView input) {
  Cursor cursor(input);
  const std::string first = TextOf(cursor.Blob()), second = TextOf(cursor.rest());
  bool taken = false;
  for (const Order order : {Order::kSemver, Order::kPep440, Order::kDebian}) {
    const std::optional<Version> a = Version::Parse(order, first);
    const std::optional<Version> b = Version::Parse(order, second);
    if (!a.has_value() || !b.has_value()) continue;
    taken = true;
    const int forth = Compare(*a, *b), back = Compare(*b, *a);
    SHOAL_CHECK((forth < 0) == (back > 0) && (forth > 0) == (back < 0));
    SHOAL_CHECK(Compare(*a, *a) == 0 && (first != second || forth == 0));
  }
  return taken;
}

Bytes VersionsInput(absl::string_view a, absl::string_view b) {
  Bytes input;
  AppendBlob(AsBytes(a), input);
  Append(input, AsBytes(b));
  return input;
}

// What is accepted has one encoding, and any version can be judged by it. What is no version is
// never outside an advisory.
bool ParseAdvisories(BytesView input) {
  if (const auto coverage = audit::DecodeCoverage(input); coverage.ok()) {
    SHOAL_CHECK(std::ranges::equal(audit::Encode(*coverage), input));
    return true;
  }
  const auto package = audit::DecodePackage(input);
  if (!package.ok()) return false;
  SHOAL_CHECK(std::ranges::equal(audit::Encode(*package), input));
  for (const Order order : {Order::kSemver, Order::kPep440, Order::kDebian}) {
    for (const audit::Advisory& advisory : package->listed) {
      (void)audit::Judge(order, "1.0.0", advisory.affected);
      SHOAL_CHECK(audit::Judge(order, "${V}", advisory.affected).verdict !=
                  audit::Verdict::kNotAffected);
    }
    SHOAL_CHECK(audit::Judge(order, "", package->rest).verdict != audit::Verdict::kNotAffected);
  }
  return true;
}

// A record that is accepted makes a table whose values are accepted. One that is not is left out
// and counted, and never ends the build of a table.
bool ParseOsv(BytesView input) {
  audit::OsvRecords strict, lenient;
  const bool accepted = strict.Add(TextOf(input), "input").ok();
  SHOAL_CHECK(lenient.Add(TextOf(input), "input", audit::OsvRecords::Odd::kLeaveOut).ok());
  SHOAL_CHECK(lenient.counts().left_out == (accepted ? 0u : 1u));
  for (audit::OsvRecords* const records : {&strict, &lenient}) {
    const auto set = records->Finish(1 << 14);
    if (!set.ok()) return false;
    for (size_t i = 0; i < set->size(); ++i) {
      const auto value = set->value(i);
      SHOAL_CHECK(audit::DecodePackage(value).ok() || audit::DecodeCoverage(value).ok());
    }
  }
  return accepted;
}

bool ParseInventory(audit::Format format, BytesView input) {
  audit::Inventory inventory;
  if (!audit::ParseInventory(format, TextOf(input), "input", {.stated = "Debian:12"}, inventory)
           .ok()) {
    return false;
  }
  // Every package that is handed on can be asked for and judged.
  audit::Audit audit(inventory);
  for (size_t i = 0; i < audit.keys().size(); ++i) {
    SHOAL_CHECK(audit.Answer(i, std::nullopt).ok());
  }
  const auto findings = audit.Findings();
  SHOAL_CHECK(findings.ok() && audit.Count(*findings).unverified == 0);
  // A file that names nothing, and of which nothing is the project's own, is not clean.
  SHOAL_CHECK(!inventory.items.empty() || !findings->empty() || inventory.own > 0);
  return true;
}

void AddInventoryTargets(std::vector<Target>& targets) {
  struct Sample {
    const char* name;
    audit::Format format;
    absl::string_view text;
  };
  for (const Sample& sample : {
           Sample{"dpkg_status", audit::Format::kDpkgStatus,
                  "Package: a\nStatus: install ok installed\nSource: b (1.0-1)\n"
                  "Architecture: all\nVersion: 1.0-1+b1\n\n"
                  "Package: linux-image-a\nStatus: install ok installed\nArchitecture: amd64\n"
                  "Source: linux-signed-amd64 (6.1+1)\nVersion: 6.1-1\n"},
           Sample{"requirements", audit::Format::kRequirements,
                  "# x\n-i https://h\na[x]==1.0 ; python_version<'4' \\\n --hash=sha256:0\nb>=2\n"
                  "c @ https://h\n-r d\n-e .\n"},
           Sample{"python_metadata", audit::Format::kPythonMetadata,
                  "Metadata-Version: 2.1\nName: a\nVersion: 1.0\n\ntext"},
           Sample{"poetry_lock", audit::Format::kPoetryLock,
                  "[[package]]\nname = \"a\"\nversion = \"1.0\"\n[package.source]\ntype = "
                  "\"directory\"\n[[package]]\nname = 'b'\nversion = \"2\"\nd = \"\"\"x\"\"\"\n"
                  "[metadata]\nlock-version = \"2.0\"\n"},
           Sample{"cargo_lock", audit::Format::kCargoLock,
                  "version = 3\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = "
                  "\"registry+x\"\ndependencies = [ \"b\", ]\n"},
           Sample{"cargo_lock_1", audit::Format::kCargoLock,
                  "[root]\nname = 'a'\nversion = '1.0.0'\n[[ \"package\" ]]\n\"name\" = "
                  "\"\"\"b\"\"\"\n"
                  "version = \"1\\u0030\"\nsource = 'x' # y\n[metadata]\n\"checksum b (x=y)\" = "
                  "\"z\"\n"},
           Sample{"package_lock", audit::Format::kPackageLock,
                  R"({"packages":{"":{},"node_modules/@a/b":{"version":"1.0.0","link":false}}})"},
           Sample{"package_lock_1", audit::Format::kPackageLock,
                  R"({"dependencies":{"a":{"version":"npm:b@1","dependencies":{"c":{}}}}})"},
           Sample{"go_sum", audit::Format::kGoSum,
                  "h.org/a v1.0.0 h1:x=\nh.org/a v1.0.0/go.mod h1:y=\n"},
           Sample{"cyclonedx", audit::Format::kCycloneDx,
                  R"({"bomFormat":"CycloneDX","components":[{"type":"library","name":"a",
                  "purl":"pkg:npm/%40a/b@1?x=y#z","components":[{"type":"file","name":"f"},
                  {"purl":"pkg:deb/debian/a@1?distro=debian-12&upstream=b%401"}]}]})"},
           Sample{"spdx_json", audit::Format::kSpdxJson,
                  R"({"spdxVersion":"SPDX-2.3","documentDescribes":["r"],"packages":[{"SPDXID":"r",
                  "name":"a","externalRefs":[{"referenceType":"purl","referenceLocator":
                  "pkg:golang/h.org/a@v1"}]}],"relationships":[{"relationshipType":"DESCRIBES",
                  "relatedSpdxElement":"r"}]})"},
           Sample{"spdx_tag_value", audit::Format::kSpdxTagValue,
                  "SPDXVersion: SPDX-2.3\nRelationship: D DESCRIBES r\nPackageName: a\nSPDXID: r\n"
                  "ExternalRef: PACKAGE-MANAGER purl pkg:cargo/a@1.0.0\n"
                  "ExternalRef: PACKAGE-MANAGER purl pkg:pypi/a@1?epoch=2\n"
                  "PackageComment: <text>\nx</text>\n"},
       }) {
    targets.push_back({.name = sample.name,
                       .seeds = {InputOf(sample.text)},
                       .parse = [format = sample.format](BytesView input) {
                         return ParseInventory(format, input);
                       }});
  }
}

}  // namespace

void AddAuditTargets(std::vector<Target>& targets) {
  targets.push_back({.name = "versions",
                     .seeds = {VersionsInput("1.2.3-rc.1+b", "v1.2.3-rc.10"),
                               VersionsInput("1!2.0a1.post2.dev3+l.4", "2.0.RC-1"),
                               VersionsInput("1:2.0~rc1-1+b2", "1:2.0+dfsg-1~deb12u1")},
                     .parse = CompareTwo});
  audit::PackageAdvisories package;
  package.listed = {
      {.id = "PYSEC-2021-98",
       .alias = "CVE-2021-31542",
       .affected = {.intervals = {{.from = {}, .to = "2.2.21", .to_is_affected = false},
                                  {.from = "3.0", .to = "3.1", .to_is_affected = true}},
                    .versions = {"4.0", "5.0-x"},
                    .unclear = false}}};
  package.more = 300;
  package.rest = {.intervals = {{.from = "1.0", .to = {}, .to_is_affected = false}},
                  .versions = {},
                  .unclear = true};
  targets.push_back(
      {.name = "advisories",
       .seeds = {audit::Encode(package),
                 audit::Encode(
                     audit::Coverage{.advisories = 9, .packages = 8, .modified = "2021-03-08"}),
                 audit::Encode(audit::Coverage{
                     .advisories = 9, .packages = 8, .modified = "2021-03-08", .unread = 1})},
       .parse = ParseAdvisories});
  targets.push_back(
      {.name = "osv",
       .seeds = {InputOf(R"({"id":"GHSA-1","modified":"2021-03-08T16:02:43Z","withdrawn":null,
             "aliases":["CVE-1"],"upstream":["CVE-2"],"affected":[{"package":{"ecosystem":"PyPI",
             "name":"a"},"ranges":[{"type":"ECOSYSTEM","events":[{"introduced":"0"},
             {"fixed":"1.0.2"},{"introduced":"3.0"},{"last_affected":"3.2"},{"limit":"9"}]},
             {"type":"GIT","events":[{"introduced":"0"}]}],"versions":["1.0","4.0"]},
             {"package":{"ecosystem":"Maven","name":"b:c"}}]})")},
       .parse = ParseOsv});
  AddInventoryTargets(targets);
}

}  // namespace shoal::fuzz
