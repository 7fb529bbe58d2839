#include "src/audit/inventory.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/version.h"
#include "src/base/ascii.h"
#include "src/base/bytes.h"
#include "src/base/printable.h"
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
  Inventory sources;
  Collector of_sources(collector.file(), known, sources);
  for (const table::Package& package : packages) {
    DebianPackage debian{
        .name = package.name, .version = package.version, .source = "", .source_version = ""};
    if (!package.source.empty() && !ReadSourceField(package.source, debian)) {
      SHOAL_RETURN_IF_ERROR(collector.Skip(
          package.name, absl::StrCat("has a source that is not understood: ", package.source)));
      continue;
    }
    SHOAL_RETURN_IF_ERROR(AddDebian(distribution, debian, of_sources));
  }
  const auto order = [](const Item& a, const Item& b) {
    return std::tie(a.name, a.version, a.ecosystem, a.certainty) <
           std::tie(b.name, b.version, b.ecosystem, b.certainty);
  };
  std::ranges::sort(sources.items, order);
  const auto same = std::ranges::unique(sources.items);
  sources.items.erase(same.begin(), same.end());
  for (const Item& item : sources.items) {
    SHOAL_RETURN_IF_ERROR(
        collector.Add(item.ecosystem, item.name, item.version, item.certainty, item.doubt));
  }
  for (const Unchecked& unchecked : sources.unchecked) {
    SHOAL_RETURN_IF_ERROR(collector.Skip(unchecked.what, unchecked.why));
  }
  return absl::OkStatus();
}

bool IsPythonName(absl::string_view name) { return IsOfAlnumAnd("-_.", name); }

// What pip takes for a file, whether or not there is one of that name.
bool IsArchiveName(absl::string_view text) {
  static constexpr absl::string_view kEnds[] = {".whl",    ".zip", ".tar",     ".tgz",
                                                ".tar.gz", ".tbz", ".tar.bz2", ".txz",
                                                ".tar.xz", ".tlz", ".tar.lz",  ".tar.lzma"};
  return std::ranges::any_of(kEnds, [&](absl::string_view end) {
    return absl::EndsWithIgnoreCase(absl::StripTrailingAsciiWhitespace(text), end);
  });
}

constexpr absl::string_view kNoRequirement = "is no requirement that is understood";

// Whether the text between brackets is names with commas between them, or nothing.
bool AreExtras(absl::string_view text) {
  if (absl::StripAsciiWhitespace(text).empty()) return true;
  const std::vector<absl::string_view> names = absl::StrSplit(text, ',');
  return std::ranges::all_of(
      names, [](absl::string_view name) { return IsPythonName(absl::StripAsciiWhitespace(name)); });
}

// Whether a text has nothing but the words of a marker (PEP 508) outside of quotes. Another
// requirement could stand there, which a continued line hides.
bool IsMarker(absl::string_view text) {
  static constexpr absl::string_view kWords[] = {"python_version",
                                                 "python_full_version",
                                                 "os_name",
                                                 "sys_platform",
                                                 "platform_release",
                                                 "platform_system",
                                                 "platform_version",
                                                 "platform_machine",
                                                 "platform_python_implementation",
                                                 "implementation_name",
                                                 "implementation_version",
                                                 "extra",
                                                 "and",
                                                 "or",
                                                 "not",
                                                 "in"};
  while (!text.empty()) {
    if (text[0] == '"' || text[0] == '\'') {
      const size_t end = text.find(text[0], 1);
      if (end == absl::string_view::npos) return false;
      text.remove_prefix(end + 1);
      continue;
    }
    size_t end = 0;
    while (end < text.size() && IsPythonName(text.substr(end, 1))) ++end;
    if (end > 0 && std::ranges::find(kWords, text.substr(0, end)) == std::end(kWords)) return false;
    text.remove_prefix(std::max<size_t>(end, 1));
  }
  return true;
}

// Whether the options behind a requirement are digests of its files, which decide nothing here.
bool AreHashes(absl::string_view options) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(options, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  return std::ranges::all_of(words, [](absl::string_view word) {
    if (!absl::ConsumePrefix(&word, "--hash=")) return false;
    const bool is_known = absl::ConsumePrefix(&word, "sha256:") ||
                          absl::ConsumePrefix(&word, "sha384:") ||
                          absl::ConsumePrefix(&word, "sha512:");
    return is_known && !word.empty() && std::ranges::all_of(word, absl::ascii_isxdigit);
  });
}

// "." or ".[extras]": the project of the directory in which pip runs.
bool IsProjectItself(absl::string_view what) {
  if (what == ".") return true;
  return absl::ConsumePrefix(&what, ".[") && absl::ConsumeSuffix(&what, "]") && AreExtras(what);
}

// One requirement of pip's (PEP 508): name, [extras], a specifier, "; marker", options.
absl::Status ParseRequirement(absl::string_view line, Collector& collector) {
  const size_t options = std::min(line.find(" --"), line.find("\t--"));
  absl::string_view rest = line.substr(0, options);
  if (options != absl::string_view::npos && !AreHashes(line.substr(options))) {
    return collector.Skip(line, kNoRequirement);
  }
  const size_t semicolon = rest.find(';');
  if (semicolon != absl::string_view::npos && !IsMarker(rest.substr(semicolon + 1))) {
    return collector.Skip(line, kNoRequirement);
  }
  rest = absl::StripAsciiWhitespace(rest.substr(0, semicolon));
  if (IsProjectItself(rest)) {
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
    if (close == absl::string_view::npos || !AreExtras(rest.substr(1, close - 1))) {
      return collector.Skip(line, kNoRequirement);
    }
    rest = absl::StripLeadingAsciiWhitespace(rest.substr(close + 1));
  }
  if (absl::ConsumePrefix(&rest, "(") && !absl::ConsumeSuffix(&rest, ")")) {
    return collector.Skip(line, kNoRequirement);
  }
  rest = absl::StripAsciiWhitespace(rest);
  // A name begins and ends with a letter or a digit: ".." is a directory.
  const auto is_end = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  if (name.empty() || !is_end(name.front()) || !is_end(name.back()) ||
      (!rest.empty() && absl::string_view("=<>!~@").find(rest[0]) == absl::string_view::npos)) {
    return collector.Skip(line, "names no package, but a file or an address");
  }
  if (absl::StartsWith(rest, "@")) {
    return collector.Skip(line, "comes from an address, which says no version");
  }
  // A version that is not pinned may be any: it is only clean if no version has an advisory. So may
  // one that is pinned twice.
  absl::string_view pinned;
  bool is_pinned = false;
  const std::vector<absl::string_view> clauses =
      rest.empty() ? std::vector<absl::string_view>() : absl::StrSplit(rest, ',');
  for (absl::string_view clause : clauses) {
    clause = absl::StripAsciiWhitespace(clause);
    const absl::string_view relation = TakeRelation(clause);
    clause = absl::StripLeadingAsciiWhitespace(clause);
    // pip refuses what is anything else, such as a second requirement on the line.
    const bool is_any_text = relation == "===";
    if (relation.empty() || clause.empty() ||
        (!is_any_text && (clause[0] == '!' || absl::StrContains(clause, "#"))) ||
        clause.find_first_of(" \t()[]=<>~\"'") != absl::string_view::npos) {
      return collector.Skip(line, kNoRequirement);
    }
    if (relation != "===" && (relation != "==" || absl::EndsWith(clause, "*"))) continue;
    pinned = is_pinned && clause != pinned ? absl::string_view() : clause;
    is_pinned = true;
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
      return collector.Skip(line, kNamesAnotherFile);
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
    if (IsProjectItself(what)) {
      collector.Own();
      return absl::OkStatus();
    }
    // It may be a copy of somebody else's.
    if (absl::StartsWith(what, ".")) {
      return collector.Skip(line, "is a project in another directory: give that one, too");
    }
    return collector.Skip(line, "comes from an address, which says no version");
  }
  // Some say where packages come from, and name none. Others may stand behind them on the line.
  if (line.find_first_of("\"'\\") != absl::string_view::npos) {
    return collector.Skip(line, "is an option in quotes, which is not read");
  }
  static constexpr absl::string_view kAlone[] = {"--no-index", "--prefer-binary",
                                                 "--require-hashes", "--pre"};
  static constexpr absl::string_view kWithValue[] = {
      "-i",          "--index-url",   "--extra-index-url", "-f",           "--find-links",
      "--no-binary", "--only-binary", "--trusted-host",    "--use-feature"};
  const auto is_of = [](std::span<const absl::string_view> options, absl::string_view word) {
    return std::ranges::find(options, word) != options.end();
  };
  bool value_comes = false;
  for (const absl::string_view word :
       absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
    const absl::string_view option = word.substr(0, word.find('='));
    if (value_comes) {
      value_comes = false;
    } else if (is_of(kWithValue, option)) {
      value_comes = option == word;
    } else if (!is_of(kAlone, word) && !absl::StartsWith(word, "-i") &&
               !absl::StartsWith(word, "-f")) {
      return collector.Skip(line, "names another file, or more that is not read here");
    }
  }
  return absl::OkStatus();
}

// Whether Python's splitlines ends a line within this one.
bool HasOtherLineEnd(absl::string_view line) {
  return line.find_first_of("\r\v\f\x1c\x1d\x1e") != absl::string_view::npos ||
         absl::StrContains(line, "\xc2\x85") || absl::StrContains(line, "\xe2\x80\xa8") ||
         absl::StrContains(line, "\xe2\x80\xa9");
}

// Whether a comment says that the file is in another encoding than UTF-8 (PEP 263), as pip takes
// it.
bool NamesOtherEncoding(absl::string_view line) {
  const size_t at = line.find("coding");
  if (at == absl::string_view::npos || !absl::StartsWith(line, "#")) return false;
  absl::string_view name = line.substr(at + 6);
  if (!absl::ConsumePrefix(&name, ":") && !absl::ConsumePrefix(&name, "=")) return false;
  name = absl::StripLeadingAsciiWhitespace(name);
  name = name.substr(0, name.find_first_of(" \t"));
  static constexpr absl::string_view kSame[] = {"utf-8", "utf8", "utf_8", "ascii", "us-ascii"};
  return std::ranges::none_of(
      kSame, [&](absl::string_view same) { return absl::EqualsIgnoreCase(name, same); });
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
    // pip reads bytes that are no UTF-8 otherwise, or refuses the file.
    if (!IsUtf8(AsBytes(line)) || (number <= 2 && NamesOtherEncoding(line))) {
      return collector.Skip(line, "is not in UTF-8");
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

// The header of a message: "Name: value" until the first empty line. A line that begins with a
// blank goes on with the value before it.
absl::Status ParsePythonMetadata(absl::string_view content, Collector& collector) {
  absl::ConsumePrefix(&content, table::kByteOrderMark);
  std::string name, version, ignored;
  std::string* value = &ignored;
  bool in_header = true;
  SHOAL_RETURN_IF_ERROR(ForEachLine(content, [&](absl::string_view line, uint64_t number) {
    in_header &= !line.empty();
    if (!in_header) return absl::OkStatus();
    // Other readers end a line at some of these.
    if (HasOtherLineEnd(line) || line.find('\0') != absl::string_view::npos) {
      return collector.Wrong(number, "has a control character");
    }
    if (line[0] == ' ' || line[0] == '\t') {
      absl::StrAppend(value, " ", absl::StripAsciiWhitespace(line));
      return absl::OkStatus();
    }
    // Where it is no field, Python ends the header.
    const size_t colon = line.find(':');
    const absl::string_view field = line.substr(0, colon);
    if (colon == 0 || colon == absl::string_view::npos ||
        !std::ranges::all_of(field, absl::ascii_isgraph)) {
      return collector.Wrong(number, "is no field of a header");
    }
    // Readers differ about which of two counts.
    for (const auto& [known, text] : {std::pair("Name", &name), std::pair("Version", &version)}) {
      if (absl::EqualsIgnoreCase(field, known) && !text->empty()) {
        return collector.Wrong(number, absl::StrCat("is a second ", known));
      }
    }
    value = absl::EqualsIgnoreCase(field, "Name")      ? &name
            : absl::EqualsIgnoreCase(field, "Version") ? &version
                                                       : &ignored;
    value->assign(std::string(absl::StripAsciiWhitespace(line.substr(colon + 1))));
    return absl::OkStatus();
  }));
  if (in_header && !absl::EndsWith(content, "\n")) return collector.Wrong(1, kEndsWithin);
  name = std::string(absl::StripAsciiWhitespace(name));
  version = std::string(absl::StripAsciiWhitespace(version));
  if (name.empty() || version.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(collector.file(), ": has no Name or no Version"));
  }
  return collector.Add("PyPI", name, version);
}

// "module version hash". Of a module with "/go.mod" behind its version only that file was read.
absl::Status ParseGoSum(absl::string_view content, Collector& collector) {
  if (!content.empty() && !absl::EndsWith(content, "\n")) return collector.Wrong(1, kEndsWithin);
  return ForEachLine(content, [&](absl::string_view line, uint64_t number) -> absl::Status {
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.empty()) return absl::OkStatus();
    if (HasOtherLineEnd(line) || line.find('\0') != absl::string_view::npos) {
      return collector.Wrong(number, "has a control character");
    }
    if (words.size() != 3) return collector.Wrong(number, "not a module, a version and a hash");
    if (absl::EndsWith(words[1], "/go.mod")) return absl::OkStatus();
    SHOAL_RETURN_IF_ERROR(AddGoToolchain(words[0], words[1], collector));
    return collector.Add("Go", words[0], words[1]);
  });
}

bool IsRequirementsName(absl::string_view name) {
  return absl::StrContains(absl::AsciiStrToLower(name), "requirements") &&
         absl::EndsWithIgnoreCase(name, ".txt");
}

std::optional<Format> FormatOfPath(absl::string_view path) {
  const absl::string_view name = BaseName(path);
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
  // "requirements/dev.txt", too.
  absl::string_view folder = path.substr(0, path.size() - name.size());
  absl::ConsumeSuffix(&folder, "/");
  if (IsRequirementsName(name) ||
      (BaseName(folder) == "requirements" && absl::EndsWithIgnoreCase(name, ".txt"))) {
    return Format::kRequirements;
  }
  return std::nullopt;
}

}  // namespace

absl::string_view BaseName(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

absl::string_view TakeRelation(absl::string_view& clause) {
  for (const absl::string_view relation : {"===", "==", "~=", "!=", "<=", ">=", "<", ">"}) {
    if (absl::ConsumePrefix(&clause, relation)) return relation;
  }
  return "";
}

bool IsSamePackage(absl::string_view ecosystem, absl::string_view a, absl::string_view b) {
  const auto one = PackageKey(ecosystem, a), other = PackageKey(ecosystem, b);
  return one.ok() && other.ok() && *one == *other;
}

std::string KeyOrName(absl::string_view ecosystem, absl::string_view name) {
  return PackageKey(ecosystem, name).value_or(std::string(name));
}

bool IsBillName(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  static constexpr absl::string_view kWords[] = {"bom", "cdx", "spdx", "spdx3", "syft"};
  const std::vector<absl::string_view> words = absl::StrSplit(lower, absl::ByAnyChar("._-"));
  return absl::StrContains(lower, "sbom") || absl::StrContains(lower, "cyclonedx") ||
         std::ranges::any_of(words, [](absl::string_view word) {
           return std::ranges::find(kWords, word) != std::end(kWords);
         });
}

bool IsKnownName(absl::string_view path) {
  const absl::string_view name = BaseName(path);
  const bool is_read = absl::EndsWithIgnoreCase(name, ".json") ||
                       absl::EndsWithIgnoreCase(name, ".cdx") ||
                       absl::EndsWithIgnoreCase(name, ".spdx");
  return (FormatOfPath(path).has_value() && name != "METADATA" && name != "PKG-INFO") ||
         (is_read && IsBillName(name));
}

absl::StatusOr<std::string> ReadRegular(const std::string& path, uint64_t max_bytes) {
  // To open a pipe that nobody writes to would wait.
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is no regular file"));
  }
  return ReadFile(path, max_bytes);
}

absl::Status ReadInventoryFile(const std::string& path, const Distribution& distribution,
                               Inventory& inventory) {
  SHOAL_ASSIGN_OR_RETURN(const std::string content, ReadRegular(path));
  SHOAL_ASSIGN_OR_RETURN(const Format format, DetectFormat(path, content));
  return ParseInventory(format, content, path, distribution, inventory);
}

absl::Status Collector::CheckRoom() const {
  if (inventory_.items.size() + inventory_.unchecked.size() < kMaxItems) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(file_, ": more than ", kMaxItems, " packages in all"));
}

absl::Status Collector::Add(absl::string_view ecosystem, absl::string_view name,
                            absl::string_view version, Certainty certainty,
                            absl::string_view doubt) {
  SHOAL_RETURN_IF_ERROR(CheckRoom());
  if (const auto key = PackageKey(ecosystem, name); !key.ok()) {
    return Skip(name, key.status().message());
  }
  inventory_.items.push_back({.ecosystem = std::string(ecosystem),
                              .name = std::string(name),
                              .version = std::string(version.substr(0, kMaxVersionBytes + 1)),
                              .file = file_,
                              .certainty = certainty,
                              .doubt = std::string(doubt)});
  return absl::OkStatus();
}

absl::Status Collector::Skip(absl::string_view what, absl::string_view why) {
  SHOAL_RETURN_IF_ERROR(CheckRoom());
  inventory_.unchecked.push_back({.what = std::string(what.substr(0, kMaxVersionBytes)),
                                  .why = std::string(why),
                                  .file = file_});
  return absl::OkStatus();
}

absl::Status WrongAt(const std::string& file, uint64_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(file, ":", line, ": ", what));
}

absl::Status Collector::Wrong(uint64_t line, absl::string_view what) const {
  return WrongAt(file_, line, what);
}

absl::Status SkipUnknown(const JsonView& object, std::span<const absl::string_view> known,
                         absl::string_view of, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> others, object.MembersBut(known));
  for (const auto& [name, value] : others) {
    SHOAL_RETURN_IF_ERROR(
        collector.Skip(absl::StrCat(of, of.empty() ? "" : ".", name), kUnknownPart));
  }
  return absl::OkStatus();
}

absl::string_view FormatName(Format format) {
  for (const KnownFormat& known : kFormats) {
    if (known.format == format) return known.name;
  }
  return "";
}

absl::StatusOr<Format> DetectFormat(absl::string_view name, absl::string_view content) {
  if (const std::optional<Format> format = FormatOfPath(name)) return *format;
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
  if (id == "ubuntu") name = UbuntuEcosystem(version);
  return OrderOf(name).has_value() ? name : "";
}

}  // namespace shoal::audit
