// Software bills of materials: CycloneDX, SPDX, and the package URLs in both.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

// RFC 3986. Nothing for a cut-off or wrong escape.
std::optional<std::string> PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded.push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size() || !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 1])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      return std::nullopt;
    }
    const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
    decoded.push_back(static_cast<char>(16 * digit(text[i + 1]) + digit(text[i + 2])));
    i += 2;
  }
  return decoded;
}

// "debian-12.5" -> "Debian:12". Empty for what is no release of Debian or Ubuntu.
std::string DistributionOfQualifier(absl::string_view distro) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(distro, absl::MaxSplits('-', 1));
  absl::string_view release = parts.second;
  if (parts.first == "debian") release = release.substr(0, release.find('.'));
  if (release.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(release[0]))) return "";
  return DistributionOf(absl::StrCat("ID=", parts.first, "\nVERSION_ID=", release));
}

absl::Status AddPackageUrl(absl::string_view text, Collector& collector) {
  const std::optional<PackageUrl> url = ParsePackageUrl(text);
  if (!url.has_value()) return collector.Skip(text, "is no package URL");
  const std::string full =
      url->space.empty() ? url->name : absl::StrCat(url->space, "/", url->name);
  if (url->type == "pypi") return collector.Add("PyPI", url->name, url->version);
  if (url->type == "npm") return collector.Add("npm", full, url->version);
  if (url->type == "cargo") return collector.Add("crates.io", url->name, url->version);
  if (url->type == "golang") return collector.Add("Go", full, url->version);
  if (url->type == "deb") {
    // This machine's distribution need not be that of a bill of materials.
    const std::string named = DistributionOfQualifier(url->distro);
    const std::string& distribution = named.empty() ? collector.distribution().stated : named;
    if (distribution.empty()) {
      return collector.Skip(text, "does not say of which distribution it is; --distribution would");
    }
    const bool without_space = url->space.empty() && !named.empty();
    if (!without_space &&
        !absl::EqualsIgnoreCase(url->space, distribution.substr(0, distribution.find(':')))) {
      return collector.Skip(text, absl::StrCat("is no package of ", distribution));
    }
    const std::pair<absl::string_view, absl::string_view> source =
        absl::StrSplit(url->upstream, absl::MaxSplits('@', 1));
    return collector.Add(distribution, source.first.empty() ? url->name : source.first,
                         source.second.empty() ? url->version : source.second);
  }
  return collector.Skip(text, absl::StrCat("no reader knows packages of type ", url->type));
}

absl::Status ParseComponents(const JsonView& list, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> components, list.Items());
  for (const JsonView& component : components) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView type_view, component.Get("type"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view type, type_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, component.Get("name"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, name_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView url_view, component.Get("purl"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view url, url_view.Text());
    if (!url.empty()) {
      SHOAL_RETURN_IF_ERROR(AddPackageUrl(url, collector));
    } else if (type != "file" && type != "operating-system" && type != "data") {
      SHOAL_RETURN_IF_ERROR(collector.Skip(name, "has no package URL"));
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView inner, component.Get("components"));
    SHOAL_RETURN_IF_ERROR(ParseComponents(inner, collector));
  }
  return absl::OkStatus();
}

// A package of an SPDX document, in either notation.
struct SpdxPackage {
  std::string id, name, url;
  bool described = false;  // by the document: what all others are parts of
};

absl::Status AddSpdxPackages(const std::vector<SpdxPackage>& packages, Collector& collector) {
  for (const SpdxPackage& package : packages) {
    if (!package.url.empty()) {
      SHOAL_RETURN_IF_ERROR(AddPackageUrl(package.url, collector));
    } else if (package.described) {
      collector.Own();
    } else {
      SHOAL_RETURN_IF_ERROR(collector.Skip(package.name, "has no package URL"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<PackageUrl> ParsePackageUrl(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, "pkg:")) return std::nullopt;
  while (absl::ConsumePrefix(&text, "/")) {
  }
  text = text.substr(0, text.find('#'));
  const size_t question = text.find('?');
  absl::string_view qualifiers;
  if (question != absl::string_view::npos) qualifiers = text.substr(question + 1);
  text = text.substr(0, question);
  const size_t slash = text.find('/');
  if (slash == absl::string_view::npos || slash == 0) return std::nullopt;
  PackageUrl url;
  url.type = absl::AsciiStrToLower(text.substr(0, slash));
  text.remove_prefix(slash + 1);
  // The @ of a version comes after the last slash: that of npm's scopes may be written as it is.
  const size_t last = text.rfind('/'), at = text.rfind('@');
  if (at != absl::string_view::npos && at > 0 && (last == absl::string_view::npos || at > last)) {
    const std::optional<std::string> version = PercentDecoded(text.substr(at + 1));
    if (!version.has_value()) return std::nullopt;
    url.version = *version;
    text = text.substr(0, at);
  }
  std::vector<std::string> parts;
  for (const absl::string_view part : absl::StrSplit(text, '/', absl::SkipEmpty())) {
    std::optional<std::string> decoded = PercentDecoded(part);
    if (!decoded.has_value()) return std::nullopt;
    parts.push_back(*std::move(decoded));
  }
  if (parts.empty()) return std::nullopt;
  url.name = parts.back();
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    absl::StrAppend(&url.space, i == 0 ? "" : "/", parts[i]);
  }
  for (const absl::string_view qualifier : absl::StrSplit(qualifiers, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(qualifier, absl::MaxSplits('=', 1));
    const std::optional<std::string> value = PercentDecoded(pair.second);
    if (!value.has_value()) return std::nullopt;
    if (pair.first == "distro") url.distro = *value;
    if (pair.first == "upstream") url.upstream = *value;
  }
  return url;
}

absl::Status ParseCycloneDx(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  SHOAL_ASSIGN_OR_RETURN(const JsonView format_view, text.root().Get("bomFormat"));
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view format, format_view.Text());
  if (format != "CycloneDX") return format_view.Wrong("is not CycloneDX");
  SHOAL_ASSIGN_OR_RETURN(const JsonView components, text.root().Get("components"));
  return ParseComponents(components, collector);
}

absl::Status ParseSpdxJson(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, text.root().Get("spdxVersion"));
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view version, version_view.Text());
  if (!absl::StartsWith(version, "SPDX-2.")) return version_view.Wrong("is not SPDX 2");
  std::set<std::string> described;
  SHOAL_ASSIGN_OR_RETURN(const JsonView describes, text.root().Get("documentDescribes"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> described_ids, describes.Items());
  for (const JsonView& id_view : described_ids) {
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view id, id_view.Text());
    described.emplace(id);
  }
  SHOAL_ASSIGN_OR_RETURN(const JsonView relations_view, text.root().Get("relationships"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> relations, relations_view.Items());
  for (const JsonView& relation : relations) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView type_view, relation.Get("relationshipType"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view type, type_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView id_view, relation.Get("relatedSpdxElement"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view id, id_view.Text());
    if (type == "DESCRIBES") described.emplace(id);
  }
  SHOAL_ASSIGN_OR_RETURN(const JsonView packages_view, text.root().Get("packages"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> items, packages_view.Items());
  std::vector<SpdxPackage> packages;
  for (const JsonView& item : items) {
    SpdxPackage package;
    SHOAL_ASSIGN_OR_RETURN(const JsonView id_view, item.Get("SPDXID"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view id, id_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, item.Get("name"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, name_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView references_view, item.Get("externalRefs"));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView> references, references_view.Items());
    for (const JsonView& reference : references) {
      SHOAL_ASSIGN_OR_RETURN(const JsonView type_view, reference.Get("referenceType"));
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view type, type_view.Text());
      SHOAL_ASSIGN_OR_RETURN(const JsonView locator_view, reference.Get("referenceLocator"));
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view locator, locator_view.Text());
      if (type == "purl") package.url = std::string(locator);
    }
    package.id = std::string(id);
    package.name = std::string(name);
    package.described = described.contains(package.id);
    packages.push_back(std::move(package));
  }
  return AddSpdxPackages(packages, collector);
}

absl::Status ParseSpdxTagValue(absl::string_view content, Collector& collector) {
  std::vector<SpdxPackage> packages;
  std::set<std::string> described;
  bool in_text = false, is_spdx = false;
  uint64_t number = 0, text_begins = 0;
  for (const absl::string_view line : absl::StrSplit(content, '\n')) {
    // Texts of several lines stand between <text> and </text>, and may look like tags.
    const bool was_in_text = in_text;
    ++number;
    if (absl::StrContains(line, "<text>")) {
      if (!in_text) text_begins = number;
      in_text = true;
    }
    if (absl::StrContains(line, "</text>")) in_text = false;
    const size_t colon = line.find(':');
    if (was_in_text || colon == absl::string_view::npos) continue;
    const absl::string_view tag = line.substr(0, colon);
    const absl::string_view value = absl::StripAsciiWhitespace(line.substr(colon + 1));
    const std::vector<absl::string_view> words = absl::StrSplit(value, ' ', absl::SkipWhitespace());
    if (tag == "SPDXVersion") {
      is_spdx = absl::StartsWith(value, "SPDX-2.");
    } else if (tag == "PackageName") {
      packages.push_back({.id = "", .name = std::string(value), .url = ""});
    } else if (tag == "FileName") {
      // Its SPDXID is not the package's.
      packages.push_back({.id = "", .name = "", .url = ""});
    } else if (tag == "Relationship" && words.size() == 3 && words[1] == "DESCRIBES") {
      described.emplace(words[2]);
    } else if (packages.empty()) {
      continue;
    } else if (tag == "SPDXID") {
      packages.back().id = std::string(value);
    } else if (tag == "ExternalRef" && words.size() == 3 && words[1] == "purl") {
      packages.back().url = std::string(words[2]);
    }
  }
  if (in_text) return collector.Wrong(text_begins, "a <text> has no end");
  if (!is_spdx) return collector.Wrong(1, "is not SPDX 2");
  std::erase_if(packages, [](const SpdxPackage& package) { return package.name.empty(); });
  for (SpdxPackage& package : packages) package.described = described.contains(package.id);
  return AddSpdxPackages(packages, collector);
}

}  // namespace shoal::audit
