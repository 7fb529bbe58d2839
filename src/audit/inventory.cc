#include "src/audit/inventory.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/version.h"
#include "src/base/status_macros.h"
#include "src/storage/file.h"
#include "src/table/packages.h"
#include "src/table/records.h"

namespace shoal::audit {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxRequirementBytes = 1 << 16;

struct KnownFormat {
  Format format;
  absl::string_view name;
};
constexpr KnownFormat kFormats[] = {
    {Format::kDpkgStatus, "dpkg's status file"},
    {Format::kRequirements, "requirements.txt"},
    {Format::kPythonMetadata, "METADATA of a Python package"},
    {Format::kPoetryLock, "poetry.lock"},
    {Format::kPackageLock, "package-lock.json"},
    {Format::kCargoLock, "Cargo.lock"},
    {Format::kGoSum, "go.sum"},
    {Format::kCycloneDx, "CycloneDX (JSON)"},
    {Format::kSpdxJson, "SPDX (JSON)"},
    {Format::kSpdxTagValue, "SPDX (tag-value)"},
};

// Calls visit(line, number) -> Status for every line, without its end.
template <typename Visit>
absl::Status ForEachLine(absl::string_view content, Visit visit) {
  for (uint64_t number = 1; !content.empty(); ++number) {
    const size_t end = content.find('\n');
    absl::string_view line = content.substr(0, end);
    content = end == absl::string_view::npos ? absl::string_view() : content.substr(end + 1);
    absl::ConsumeSuffix(&line, "\r");
    SHOAL_RETURN_IF_ERROR(visit(line, number));
  }
  return absl::OkStatus();
}

absl::Status ParseDpkgStatus(absl::string_view content, Collector& collector) {
  if (OrderOf(collector.distribution()) != Order::kDebian) {
    return absl::InvalidArgumentError(
        absl::StrCat(collector.file(),
                     ": of which distribution are its packages? This machine's os-release does "
                     "not say; --distribution Debian:12 would"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<table::Package> packages,
                         table::ParseInstalled(content, collector.file()));
  // Advisories are about source packages, of which several packages are made.
  std::set<std::pair<std::string, std::string>> sources;
  for (const table::Package& package : packages) {
    const std::pair<absl::string_view, absl::string_view> source =
        absl::StrSplit(package.source, absl::MaxSplits(' ', 1));
    absl::string_view version = source.second;
    const bool has_version =
        absl::ConsumePrefix(&version, "(") && absl::ConsumeSuffix(&version, ")");
    sources.emplace(source.first.empty() ? package.name : std::string(source.first),
                    has_version ? std::string(version) : package.version);
  }
  for (const auto& [name, version] : sources) {
    SHOAL_RETURN_IF_ERROR(collector.Add(collector.distribution(), name, version));
  }
  return absl::OkStatus();
}

bool IsPythonName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

// One requirement of pip's (PEP 508): name, [extras], a specifier, "; marker", options.
absl::Status ParseRequirement(absl::string_view line, Collector& collector) {
  absl::string_view rest = line.substr(0, line.find(';'));
  if (const size_t options = rest.find(" --"); options != absl::string_view::npos) {
    rest = rest.substr(0, options);
  }
  rest = absl::StripAsciiWhitespace(rest);
  size_t end = 0;
  while (end < rest.size() && IsPythonName(rest.substr(end, 1))) ++end;
  const absl::string_view name = rest.substr(0, end);
  rest = absl::StripLeadingAsciiWhitespace(rest.substr(end));
  if (absl::StartsWith(rest, "[")) {
    const size_t close = rest.find(']');
    if (close == absl::string_view::npos) return collector.Skip(line, "is no requirement");
    rest = absl::StripLeadingAsciiWhitespace(rest.substr(close + 1));
  }
  if (absl::ConsumePrefix(&rest, "(")) absl::ConsumeSuffix(&rest, ")");
  if (name.empty() ||
      (!rest.empty() && absl::string_view("=<>!~@").find(rest[0]) == absl::string_view::npos)) {
    return collector.Skip(line, "names no package, but a file or an address");
  }
  if (absl::StartsWith(rest, "@")) {
    return collector.Skip(line, "comes from an address, which says no version");
  }
  // A version that is not pinned may be any: it is only clean if no version has an advisory.
  absl::string_view pinned;
  for (absl::string_view clause : absl::StrSplit(rest, ',')) {
    clause = absl::StripAsciiWhitespace(clause);
    if (!absl::ConsumePrefix(&clause, "===") && !absl::ConsumePrefix(&clause, "==")) continue;
    clause = absl::StripAsciiWhitespace(clause);
    if (!absl::EndsWith(clause, "*")) pinned = clause;
  }
  return collector.Add("PyPI", name, pinned);
}

absl::Status ParseRequirementLine(absl::string_view line, Collector& collector) {
  // A comment begins the line, or follows a blank.
  for (size_t at = line.find('#'); at != absl::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || absl::ascii_isspace(static_cast<unsigned char>(line[at - 1]))) {
      line = line.substr(0, at);
      break;
    }
  }
  line = absl::StripAsciiWhitespace(line);
  if (line.empty()) return absl::OkStatus();
  if (line[0] != '-') return ParseRequirement(line, collector);
  for (const absl::string_view option : {"-r", "--requirement"}) {
    if (absl::StartsWith(line, option)) {
      return collector.Skip(line, "names another file: give that one, too");
    }
  }
  for (const absl::string_view option : {"-e", "--editable"}) {
    if (!absl::StartsWith(line, option)) continue;
    const absl::string_view what = absl::StripAsciiWhitespace(line.substr(option.size()));
    if (what == "." || absl::StartsWith(what, "./") || absl::StartsWith(what, ".[")) {
      collector.Own();
      return absl::OkStatus();
    }
    return collector.Skip(line, "comes from an address, which says no version");
  }
  // Other options say where packages come from, and name none.
  return absl::OkStatus();
}

absl::Status ParseRequirements(absl::string_view content, Collector& collector) {
  if (const absl::Status utf16 = table::RefuseUtf16(content); !utf16.ok()) {
    return collector.Wrong(1, utf16.message());
  }
  absl::ConsumePrefix(&content, table::kByteOrderMark);
  std::string joined;
  SHOAL_RETURN_IF_ERROR(ForEachLine(content, [&](absl::string_view line, uint64_t number) {
    // A binary file names nothing, and must not read as one that needs nothing.
    if (line.find('\0') != absl::string_view::npos) return collector.Wrong(number, "is no text");
    const bool continues = absl::ConsumeSuffix(&line, "\\");
    if (joined.size() + line.size() > kMaxRequirementBytes) {
      return collector.Wrong(number, "a requirement is too long");
    }
    absl::StrAppend(&joined, line);
    if (continues) return absl::OkStatus();
    const std::string whole = std::exchange(joined, "");
    return ParseRequirementLine(whole, collector);
  }));
  return ParseRequirementLine(joined, collector);
}

// The header of a message: "Name: value" until the first empty line.
absl::Status ParsePythonMetadata(absl::string_view content, Collector& collector) {
  std::string name, version;
  bool in_header = true;
  SHOAL_RETURN_IF_ERROR(ForEachLine(content, [&](absl::string_view line, uint64_t) {
    in_header &= !line.empty();
    if (!in_header) return absl::OkStatus();
    if (name.empty() && absl::ConsumePrefix(&line, "Name:")) {
      name = std::string(absl::StripAsciiWhitespace(line));
    } else if (version.empty() && absl::ConsumePrefix(&line, "Version:")) {
      version = std::string(absl::StripAsciiWhitespace(line));
    }
    return absl::OkStatus();
  }));
  if (name.empty() || version.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(collector.file(), ": has no Name or no Version"));
  }
  return collector.Add("PyPI", name, version);
}

// "module version hash". Of a module with "/go.mod" behind its version only that file was read.
absl::Status ParseGoSum(absl::string_view content, Collector& collector) {
  return ForEachLine(content, [&](absl::string_view line, uint64_t number) -> absl::Status {
    if (line.empty()) return absl::OkStatus();
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
    if (words.size() != 3) return collector.Wrong(number, "not a module, a version and a hash");
    if (absl::EndsWith(words[1], "/go.mod")) return absl::OkStatus();
    return collector.Add("Go", words[0], words[1]);
  });
}

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

bool IsRequirementsName(absl::string_view name) {
  return absl::StrContains(name, "requirements") && absl::EndsWith(name, ".txt");
}

std::optional<Format> FormatOfName(absl::string_view name) {
  static constexpr std::pair<absl::string_view, Format> kNames[] = {
      {"poetry.lock", Format::kPoetryLock},
      {"Cargo.lock", Format::kCargoLock},
      {"package-lock.json", Format::kPackageLock},
      {"npm-shrinkwrap.json", Format::kPackageLock},
      {"go.sum", Format::kGoSum},
      {"METADATA", Format::kPythonMetadata},
      {"PKG-INFO", Format::kPythonMetadata}};
  for (const auto& [known, format] : kNames) {
    if (name == known) return format;
  }
  if (IsRequirementsName(name)) return Format::kRequirements;
  return std::nullopt;
}

// Whether a directory's file of this name is read; what is in it says the format.
bool IsKnownName(absl::string_view name) {
  return (FormatOfName(name).has_value() && name != "METADATA" && name != "PKG-INFO") ||
         name == "bom.json" || absl::EndsWith(name, ".cdx.json") ||
         absl::EndsWith(name, ".spdx.json") || absl::EndsWith(name, ".spdx");
}

absl::Status ReadInventoryFile(const std::string& path, const std::string& distribution,
                               Inventory& inventory) {
  SHOAL_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxFileBytes));
  SHOAL_ASSIGN_OR_RETURN(const Format format, DetectFormat(path, content));
  return ParseInventory(format, content, path, distribution, inventory);
}

// The files of a directory that are read, sorted; those of installed Python packages, too.
absl::StatusOr<std::vector<std::string>> KnownFiles(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  for (auto entry = fs::directory_iterator(directory, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string(), name = entry->path().filename().string();
    std::error_code ignored;
    const bool is_directory = entry->is_directory(ignored);
    if (!is_directory && IsKnownName(name)) files.push_back(path);
    if (absl::EndsWith(name, ".dist-info") && is_directory) files.push_back(path + "/METADATA");
    if (absl::EndsWith(name, ".egg-info"))
      files.push_back(is_directory ? path + "/PKG-INFO" : path);
  }
  if (error) return ErrnoStatus(error.value(), directory);
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

absl::Status Collector::CheckRoom() const {
  if (inventory_.items.size() + inventory_.unchecked.size() < kMaxItems) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(file_, ": more than ", kMaxItems, " packages in all"));
}

absl::Status Collector::Add(absl::string_view ecosystem, absl::string_view name,
                            absl::string_view version) {
  SHOAL_RETURN_IF_ERROR(CheckRoom());
  if (const auto key = PackageKey(ecosystem, name); !key.ok()) {
    return Skip(name, key.status().message());
  }
  inventory_.items.push_back({.ecosystem = std::string(ecosystem),
                              .name = std::string(name),
                              .version = std::string(version.substr(0, kMaxVersionBytes + 1)),
                              .file = file_});
  return absl::OkStatus();
}

absl::Status Collector::Skip(absl::string_view what, absl::string_view why) {
  SHOAL_RETURN_IF_ERROR(CheckRoom());
  inventory_.unchecked.push_back({.what = std::string(what.substr(0, kMaxVersionBytes)),
                                  .why = std::string(why),
                                  .file = file_});
  return absl::OkStatus();
}

absl::Status Collector::Wrong(uint64_t line, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(file_, ":", line, ": ", what));
}

absl::string_view FormatName(Format format) {
  for (const KnownFormat& known : kFormats) {
    if (known.format == format) return known.name;
  }
  return "";
}

absl::StatusOr<Format> DetectFormat(absl::string_view name, absl::string_view content) {
  if (const std::optional<Format> format = FormatOfName(BaseName(name))) return *format;
  absl::ConsumePrefix(&content, table::kByteOrderMark);
  content = absl::StripLeadingAsciiWhitespace(content);
  if (absl::StartsWith(content, "{")) {
    if (absl::StrContains(content, "\"bomFormat\"")) return Format::kCycloneDx;
    if (absl::StrContains(content, "\"spdxVersion\"")) return Format::kSpdxJson;
    if (absl::StrContains(content, "\"lockfileVersion\"")) return Format::kPackageLock;
  }
  if (absl::StartsWith(content, "SPDXVersion:")) return Format::kSpdxTagValue;
  if (absl::StartsWith(content, "Metadata-Version:")) return Format::kPythonMetadata;
  if (absl::StartsWith(content, "Package:")) return Format::kDpkgStatus;
  if (absl::StrContains(content, "@generated by Cargo")) return Format::kCargoLock;
  if (absl::StrContains(content, "generated by Poetry")) return Format::kPoetryLock;
  if (absl::StrContains(content.substr(0, content.find('\n')), " h1:")) return Format::kGoSum;
  std::vector<absl::string_view> names;
  for (const KnownFormat& known : kFormats) names.push_back(known.name);
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": not recognised, by name or by content. There are: ", absl::StrJoin(names, ", ")));
}

absl::Status ParseInventory(Format format, absl::string_view content, const std::string& file,
                            const std::string& distribution, Inventory& inventory) {
  Collector collector(file, distribution, inventory);
  switch (format) {
    case Format::kDpkgStatus:
      return ParseDpkgStatus(content, collector);
    case Format::kRequirements:
      return ParseRequirements(content, collector);
    case Format::kPythonMetadata:
      return ParsePythonMetadata(content, collector);
    case Format::kPoetryLock:
      return ParsePoetryLock(content, collector);
    case Format::kPackageLock:
      return ParsePackageLock(content, collector);
    case Format::kCargoLock:
      return ParseCargoLock(content, collector);
    case Format::kGoSum:
      return ParseGoSum(content, collector);
    case Format::kCycloneDx:
      return ParseCycloneDx(content, collector);
    case Format::kSpdxJson:
      return ParseSpdxJson(content, collector);
    case Format::kSpdxTagValue:
      return ParseSpdxTagValue(content, collector);
  }
  return absl::InternalError("an unknown format");
}

absl::Status ReadInventory(const std::string& path, const std::string& distribution,
                           Inventory& inventory) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return ReadInventoryFile(path, distribution, inventory);
  SHOAL_ASSIGN_OR_RETURN(std::vector<std::string> files, KnownFiles(path));
  // A virtual environment.
  std::error_code none;
  for (auto python = fs::directory_iterator(path + "/lib", none);
       !none && python != fs::directory_iterator(); python.increment(none)) {
    const std::string site = python->path().string() + "/site-packages";
    if (!absl::StartsWith(python->path().filename().string(), "python") ||
        !fs::is_directory(site, ignored)) {
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> installed, KnownFiles(site));
    files.insert(files.end(), installed.begin(), installed.end());
  }
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no lock file, no SBOM and no installed Python packages here"));
  }
  for (const std::string& file : files) {
    SHOAL_RETURN_IF_ERROR(ReadInventoryFile(file, distribution, inventory));
  }
  return absl::OkStatus();
}

std::string DistributionOf(absl::string_view os_release) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view line : absl::StrSplit(os_release, '\n')) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits('=', 1));
    absl::string_view value = absl::StripAsciiWhitespace(field.second);
    if (absl::ConsumePrefix(&value, "\"")) absl::ConsumeSuffix(&value, "\"");
    fields[std::string(field.first)] = std::string(value);
  }
  const std::string &id = fields["ID"], &version = fields["VERSION_ID"];
  std::string name;
  if (id == "debian") name = absl::StrCat("Debian:", version);
  if (id == "ubuntu") {
    // Every second year's release of April has long-term support, and the words for it in its name.
    const bool even = version.size() == 5 && (version[1] - '0') % 2 == 0;
    name = absl::StrCat("Ubuntu:", version, even && absl::EndsWith(version, ".04") ? ":LTS" : "");
  }
  return OrderOf(name).has_value() ? name : "";
}

}  // namespace shoal::audit
