// The source packages of Debian and Ubuntu, which advisories are about, by the packages that are
// made of them.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

// A rebuild without a change of the source adds "+b" and a number to the package's version.
absl::string_view WithoutRebuild(absl::string_view version) {
  const size_t plus = version.rfind('+');
  if (plus == absl::string_view::npos) return version;
  absl::string_view rebuild = version.substr(plus + 1);
  if (!absl::ConsumePrefix(&rebuild, "b") || rebuild.empty() ||
      !std::all_of(rebuild.begin(), rebuild.end(), absl::ascii_isdigit)) {
    return version;
  }
  return version.substr(0, plus);
}

// The source of which this one has signed copies; empty if it is none of those. Debian has
// X-signed-ARCH and X-ARCH-signed, both have X-signed, and Ubuntu has X-signed-FLAVOUR, whose
// source is X-FLAVOUR.
std::string SignedSource(absl::string_view source) {
  static constexpr absl::string_view kArchitectures[] = {
      "amd64", "arm64", "armhf", "i386", "loong64", "mips64el", "ppc64el", "riscv64", "s390x"};
  // Sources whose signed copies have the name of a package.
  static constexpr std::pair<absl::string_view, absl::string_view> kNames[] = {
      {"grub-efi", "grub2"}, {"systemd-boot-efi", "systemd"}};
  std::string name;
  for (const absl::string_view architecture : kArchitectures) {
    absl::string_view rest = source;
    if (absl::ConsumeSuffix(&rest, absl::StrCat("-signed-", architecture)) ||
        absl::ConsumeSuffix(&rest, absl::StrCat("-", architecture, "-signed"))) {
      name = std::string(rest);
    }
  }
  if (absl::string_view rest = source; name.empty() && absl::ConsumeSuffix(&rest, "-signed")) {
    name = std::string(rest);
  }
  constexpr absl::string_view kSigned = "-signed-";
  if (const size_t at = source.find(kSigned); name.empty() && at != absl::string_view::npos) {
    name = absl::StrCat(source.substr(0, at), "-", source.substr(at + kSigned.size()));
  }
  for (const auto& [copy, original] : kNames) {
    if (name == copy) return std::string(original);
  }
  return name;
}

// Whether a signed copy of this version is one of the source's `version`: it has a plus in place of
// the hyphen before the revision.
bool IsCopyOf(absl::string_view version, absl::string_view copy) {
  const size_t hyphen = version.rfind('-');
  if (hyphen == absl::string_view::npos) return false;
  return copy == absl::StrCat(version.substr(0, hyphen), "+", version.substr(hyphen + 1));
}

// "Ubuntu:20.04:LTS" of "Ubuntu:Pro:FIPS-updates:20.04:LTS", too: packages without a version of
// their own there are those of the release.
std::string ReleaseOf(absl::string_view distribution) {
  const std::string ecosystem = CanonicalEcosystem(distribution);
  const std::vector<absl::string_view> parts = absl::StrSplit(ecosystem, ':');
  if (parts.size() < 4 || parts[1] != "Pro") return ecosystem;
  return absl::StrCat(parts[0], ":", absl::StrJoin(parts.begin() + 3, parts.end(), ":"));
}

}  // namespace

absl::Status AddDebian(absl::string_view distribution, const DebianPackage& package,
                       Collector& collector) {
  const std::string release = ReleaseOf(distribution);
  const auto add = [&](absl::string_view name, absl::string_view version, Certainty certainty,
                       absl::string_view doubt) -> absl::Status {
    SHOAL_RETURN_IF_ERROR(collector.Add(release, name, version, certainty, doubt));
    absl::string_view number = release;
    if (!absl::ConsumePrefix(&number, "Ubuntu:") || !absl::StrContains(version, "fips")) {
      return absl::OkStatus();
    }
    // The fixes of these versions are in places of their own.
    for (const absl::string_view pocket : {"FIPS", "FIPS-updates"}) {
      SHOAL_RETURN_IF_ERROR(collector.Add(absl::StrCat("Ubuntu:Pro:", pocket, ":", number), name,
                                          version, certainty, doubt));
    }
    return absl::OkStatus();
  };
  const absl::string_view binary = WithoutRebuild(package.version);
  const std::string& source = package.source.empty() ? package.name : package.source;
  const absl::string_view version =
      package.source_version.empty() ? binary : absl::string_view(package.source_version);
  const bool is_known = package.source_is_known || !package.source.empty();
  SHOAL_RETURN_IF_ERROR(add(source, version, is_known ? Certainty::kCertain : Certainty::kDoubtful,
                            is_known ? "" : "of which source package it is made, is not said"));
  constexpr absl::string_view kKernel = "linux";
  if (const std::string original = SignedSource(source); !original.empty()) {
    // A kernel's packages have its version, those of other programs one of their own.
    const bool of_kernel = absl::StartsWith(original, kKernel);
    const bool is_certain =
        !package.source_version.empty() && (IsCopyOf(binary, package.source_version) ||
                                            (of_kernel && binary == package.source_version));
    if (is_certain) return add(original, binary, Certainty::kCertain, "");
    return add(original, of_kernel ? binary : absl::string_view(), Certainty::kDoubtful,
               "it is a signed copy, of which version of its source is not said");
  }
  const bool of_other_source =
      source == package.name || source == "linux-upstream" || !absl::StartsWith(source, kKernel);
  if (absl::StartsWith(package.name, "linux-image-") && of_other_source) {
    return add(kKernel, binary, Certainty::kDoubtful,
               "it is a kernel, of which source is not said");
  }
  return absl::OkStatus();
}

bool ReadSourceField(absl::string_view field, DebianPackage& package) {
  const size_t open = field.find('(');
  package.source = std::string(absl::StripAsciiWhitespace(field.substr(0, open)));
  if (open == absl::string_view::npos) return package.source.find(' ') == std::string::npos;
  absl::string_view version = field.substr(open + 1);
  if (package.source.empty() || !absl::ConsumeSuffix(&version, ")")) return false;
  package.source_version = std::string(absl::StripAsciiWhitespace(version));
  return !package.source_version.empty() && package.source.find(' ') == std::string::npos;
}

}  // namespace shoal::audit
