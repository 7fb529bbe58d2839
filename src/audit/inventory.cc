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
  const Distribution& known = collector.distribution();
  const std::string& distribution = known.stated.empty() ? known.here : known.stated;
  if (OrderOf(distribution) != Order::kDebian) {
    return absl::InvalidArgumentError(
        absl::StrCat(collector.file(),
                     ": of which distribution are its packages? This machine's os-release does "
                     "not say; --distribution Debian:12 would"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::vector<table::Package> packages,
                         table::ParseUnpacked(content, collector.file()));
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
    SHOAL_RETURN_IF_ERROR(collector.Add(distribution, name, version));
  }
  return absl::OkStatus();
}

bool IsPythonName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
}

// What pip takes for a file, whether or not there is one of that name.
bool IsArchiveName(absl::string_view text) {
  static constexpr absl::string_view kEnds[] = {".whl",    ".zip", ".tar",     ".tgz",
                                                ".tar.gz", ".tbz", ".tar.bz2", ".txz",
                                                ".tar.xz", ".tlz", ".tar.lz",  ".tar.lzma"};
  return std::ranges::any_of(kEnds, [&](absl::string_view end) {
    return absl::EndsWithIgnoreCase(absl::StripTrailingAsciiWhitespace(text), end);
  });
}

// One requirement of pip's (PEP 508): name, [extras], a specifier, "; marker", options.
absl::Status ParseRequirement(absl::string_view line, Collector& collector) {
  absl::string_view rest = line.substr(0, line.find(';'));
  for (const absl::string_view options : {" --", "\t--"}) rest = rest.substr(0, rest.find(options));
  rest = absl::StripAsciiWhitespace(rest);
  if (rest == "." || absl::StartsWith(rest, ".[")) {
    collector.Own();
    return absl::OkStatus();
  }
  if (IsArchiveName(rest) || IsArchiveName(rest.substr(0, rest.find('[')))) {
    return collector.Skip(line, "names no package, but a file or an address");
  }
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
  // A name begins and ends with a letter or a digit: ".." is a directory.
  const auto is_end = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  if (name.empty() || !is_end(name.front()) || !is_end(name.back()) ||
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
  for (const absl::string_view option : {"-c", "--constraint"}) {
    if (absl::StartsWith(line, option)) {
      return collector.Skip(line, "names constraints, which are not read");
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
  // Some say where packages come from, and name none. Others may stand behind them on the line.
  if (line.find_first_of("\"'\\") != absl::string_view::npos) {
    return collector.Skip(line, "is an option in quotes, which is not read");
  }
  static constexpr absl::string_view kWithoutPackages[] = {
      "-i",           "--index-url",    "--extra-index-url", "--no-index",      "-f",
      "--find-links", "--no-binary",    "--only-binary",     "--prefer-binary", "--require-hashes",
      "--pre",        "--trusted-host", "--use-feature"};
  for (const absl::string_view word :
       absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    if (word[0] != '-' || absl::StartsWith(word, "-i") || absl::StartsWith(word, "-f") ||
        std::ranges::find(kWithoutPackages, word.substr(0, word.find('='))) !=
            std::end(kWithoutPackages)) {
      continue;
    }
    return collector.Skip(line, "names another file, or more that is not read here");
  }
  return absl::OkStatus();
}

// Whether Python's splitlines ends a line within this one.
bool HasOtherLineEnd(absl::string_view line) {
  return line.find_first_of("\r\v\f\x1c\x1d\x1e") != absl::string_view::npos ||
         absl::StrContains(line, "\xc2\x85") || absl::StrContains(line, "\xe2\x80\xa8") ||
         absl::StrContains(line, "\xe2\x80\xa9");
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
    if (HasOtherLineEnd(line)) {
      return collector.Wrong(number, "has a character that ends a line for pip alone");
    }
    // A comment ends what the lines before it began, and does not go on in the next one.
    const bool is_comment = absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "#");
    const bool continues = !is_comment && absl::ConsumeSuffix(&line, "\\");
    if (joined.size() + line.size() > kMaxRequirementBytes) {
      return collector.Wrong(number, "a requirement is too long");
    }
    absl::StrAppend(&joined, is_comment ? " " : "", line);
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

// Whether a file of this name says which packages a project has, in a way that is not read here.
bool IsForeignName(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {"pnpm-lock.yaml",       "packages.lock.json",
                                                 "Package.resolved",     "Cartfile.resolved",
                                                 "conda-lock.yml",       "gems.locked",
                                                 "cabal.project.freeze", "go.work.sum",
                                                 "maven_install.json",   "bom.xml"};
  static constexpr absl::string_view kEnds[] = {".lock",     ".lockb",    ".lockfile",
                                                ".cdx.xml",  ".spdx.xml", ".spdx.yaml",
                                                ".spdx.yml", ".spdx.rdf"};
  if (absl::StartsWith(name, ".") || IsKnownName(name)) return false;
  return std::ranges::find(kNames, name) != std::end(kNames) ||
         (absl::StartsWith(name, "pylock.") && absl::EndsWith(name, ".toml")) ||
         std::ranges::any_of(kEnds,
                             [&](absl::string_view end) { return absl::EndsWith(name, end); });
}

absl::Status ReadInventoryFile(const std::string& path, const Distribution& distribution,
                               Inventory& inventory) {
  // To open a pipe that nobody writes to would take forever.
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no regular file"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxFileBytes));
  SHOAL_ASSIGN_OR_RETURN(const Format format, DetectFormat(path, content));
  return ParseInventory(format, content, path, distribution, inventory);
}

struct Files {
  std::vector<std::string> known, foreign;
};

// Adds the files of a directory that are read, those of installed Python packages too, and those
// that would be if there were a reader; each sorted.
absl::Status FindFiles(const std::string& directory, Files& files) {
  Files found;
  std::error_code error;
  for (auto entry = fs::directory_iterator(directory, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string(), name = entry->path().filename().string();
    std::error_code ignored;
    const bool is_directory = entry->is_directory(ignored);
    if (!is_directory && IsKnownName(name)) found.known.push_back(path);
    // An empty one is the lock of a process.
    if (!is_directory && IsForeignName(name) && entry->file_size(ignored) > 0)
      found.foreign.push_back(path);
    if (absl::EndsWith(name, ".dist-info")) found.known.push_back(path + "/METADATA");
    if (absl::EndsWith(name, ".egg-info")) {
      found.known.push_back(is_directory ? path + "/PKG-INFO" : path);
    }
    if (absl::EndsWith(name, ".egg")) {
      (is_directory ? found.known : found.foreign)
          .push_back(is_directory ? path + "/EGG-INFO/PKG-INFO" : path);
    }
  }
  if (error) return ErrnoStatus(error.value(), directory);
  std::ranges::sort(found.known);
  std::ranges::sort(found.foreign);
  files.known.insert(files.known.end(), found.known.begin(), found.known.end());
  files.foreign.insert(files.foreign.end(), found.foreign.begin(), found.foreign.end());
  return absl::OkStatus();
}

bool IsAbsent(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
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

namespace {

absl::Status ParseAs(Format format, absl::string_view content, Collector& collector) {
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

}  // namespace

absl::Status ParseInventory(Format format, absl::string_view content, const std::string& file,
                            const Distribution& distribution, Inventory& inventory) {
  const auto named = [&] {
    return inventory.items.size() + inventory.unchecked.size() + inventory.own;
  };
  const uint64_t before = named();
  Collector collector(file, distribution, inventory);
  SHOAL_RETURN_IF_ERROR(ParseAs(format, content, collector));
  return named() > before ? absl::OkStatus() : collector.Skip(BaseName(file), kNamesNoPackages);
}

absl::Status ReadInventory(const std::string& path, const Distribution& distribution,
                           Inventory& inventory) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return ReadInventoryFile(path, distribution, inventory);
  Files files;
  SHOAL_RETURN_IF_ERROR(FindFiles(path, files));
  // A virtual environment.
  const std::string library = path + "/lib";
  std::error_code error;
  for (auto python = fs::directory_iterator(library, error);
       !error && python != fs::directory_iterator(); python.increment(error)) {
    if (!absl::StartsWith(python->path().filename().string(), "python")) continue;
    const std::string site = python->path().string() + "/site-packages";
    std::error_code absent;
    if (fs::is_directory(site, absent)) {
      SHOAL_RETURN_IF_ERROR(FindFiles(site, files));
    } else if (absent && !IsAbsent(absent)) {
      return ErrnoStatus(absent.value(), site);
    }
  }
  if (error && !IsAbsent(error)) return ErrnoStatus(error.value(), library);
  if (files.known.empty() && files.foreign.empty()) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no lock file, no SBOM and no installed Python packages here"));
  }
  for (const std::string& file : files.known) {
    SHOAL_RETURN_IF_ERROR(ReadInventoryFile(file, distribution, inventory));
  }
  for (const std::string& file : files.foreign) {
    SHOAL_RETURN_IF_ERROR(Collector(file, distribution, inventory)
                              .Skip(BaseName(file), "is of a format that is not read here"));
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
