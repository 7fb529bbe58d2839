#include "src/audit/lists.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"

namespace shoal::audit {
namespace {

// What stands further behind in a line decides nothing. A text of one line would take much memory.
constexpr size_t kMaxLineBytes = 4096;

bool IsDigitAt(absl::string_view text, size_t at) {
  return at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]));
}

// What a version of pip's has. It begins with what a name has, and that with what a name begins
// and ends with.
constexpr absl::string_view kOfVersion =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-*+!";
constexpr absl::string_view kOfName = kOfVersion.substr(0, kOfVersion.size() - 3);
constexpr absl::string_view kNameStarts = kOfName.substr(0, kOfName.size() - 3);

// What a line is among requirements of pip's.
enum class LineKind {
  kOther,  // none of them
  kRest,   // what says no version: a name, an option, a comment
  kMaybe,  // a requirement or arithmetic
  kSure,
};

// Takes off what stands around an item of a list.
absl::string_view Bare(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  if (absl::ConsumePrefix(&line, "- ")) line = absl::StripAsciiWhitespace(line);
  for (const absl::string_view quote : {"'", "\""}) {
    if (!absl::ConsumePrefix(&line, quote)) continue;
    absl::ConsumeSuffix(&line, ",");
    absl::ConsumeSuffix(&line, quote);
  }
  return line;
}

// Whether a line is the address of a package, and nothing else.
bool IsAddress(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, "-e ")) absl::ConsumePrefix(&line, "--editable ");
  line = absl::StripLeadingAsciiWhitespace(line);
  line = line.substr(0, line.find_first_of(" \t"));
  const auto begins = [&](absl::string_view scheme) { return absl::StartsWith(line, scheme); };
  static constexpr absl::string_view kRepositories[] = {"git+", "hg+", "svn+", "bzr+"};
  static constexpr absl::string_view kAddresses[] = {"http://", "https://", "file:"};
  if (std::ranges::any_of(kRepositories, begins)) {
    return line.find_first_of(":@") != line.npos && !absl::EndsWith(line, "://");
  }
  return std::ranges::any_of(kAddresses, begins) &&
         (absl::StrContains(line, "#egg=") || absl::StrContains(line, "&egg="));
}

// What stands behind the version of a requirement: more clauses, a marker, digests, a comment.
LineKind KindOfRest(absl::string_view rest) {
  rest = absl::StripLeadingAsciiWhitespace(rest);
  if (rest.empty() || rest[0] == '#') return LineKind::kRest;
  if (rest[0] == '\\' || absl::StartsWith(rest, "--hash")) return LineKind::kSure;
  if (absl::ConsumePrefix(&rest, ",")) {
    rest = absl::StripLeadingAsciiWhitespace(rest);
    return TakeRelation(rest).empty() ? LineKind::kOther : LineKind::kSure;
  }
  static constexpr absl::string_view kMarkers[] = {"python", "platform", "os_name", "extra",
                                                   "implementation"};
  const auto has = [&](absl::string_view word) { return absl::StrContains(rest, word); };
  return rest[0] == ';' && std::ranges::any_of(kMarkers, has) ? LineKind::kSure : LineKind::kOther;
}

// Of "==3.1.8" behind a name of one letter or more. `is_sure`: whether what stood before says that
// it is a requirement.
LineKind KindOfClause(absl::string_view clause, bool is_long, bool is_sure) {
  const absl::string_view apart = absl::StripLeadingAsciiWhitespace(clause);
  absl::string_view version = apart;
  const absl::string_view relation = TakeRelation(version);
  if (relation.empty()) return LineKind::kOther;
  const bool is_exact = relation == "==" || relation == "===" || relation == "~=";
  const bool is_tight = apart.size() == clause.size() && !absl::StartsWith(version, " ");
  version = absl::StripLeadingAsciiWhitespace(version);
  absl::ConsumePrefix(&version, "v");
  if (!IsDigitAt(version, 0)) return LineKind::kOther;
  const size_t end = std::min(version.find_first_not_of(kOfVersion), version.size());
  const LineKind rest = KindOfRest(version.substr(end));
  if (rest != LineKind::kRest) return rest;
  const bool has_parts = absl::StrContains(version.substr(0, end), ".");
  if (is_sure || (is_tight && is_exact) || (has_parts && is_long)) return LineKind::kSure;
  return is_long ? LineKind::kMaybe : LineKind::kRest;
}

LineKind KindOf(absl::string_view line) {
  line = Bare(line);
  if (line.empty() || line[0] == '#') return LineKind::kRest;
  if (IsAddress(line)) return LineKind::kSure;
  if (line.find_first_of(kNameStarts) != 0) {
    return line[0] == '-' ? LineKind::kRest : LineKind::kOther;
  }
  const size_t end = std::min(line.find_first_not_of(kOfName), line.size());
  if (!absl::StrContains(kNameStarts, line.substr(end - 1, 1))) return LineKind::kOther;
  absl::string_view rest = line.substr(end), clause = absl::StripLeadingAsciiWhitespace(rest);
  if (rest.empty()) return LineKind::kRest;
  bool is_sure = false;
  if (absl::StartsWith(clause, "[")) {
    const size_t close = clause.find(']');
    if (close == absl::string_view::npos) return LineKind::kOther;
    rest = clause.substr(close + 1);
    clause = absl::StripLeadingAsciiWhitespace(rest);
    is_sure = true;
  }
  if (absl::ConsumePrefix(&clause, "@")) {
    clause = absl::StripLeadingAsciiWhitespace(clause);
    const bool is_address = absl::StartsWith(clause, "file:") ||
                            absl::StrContains(clause.substr(0, clause.find_first_of(" \t")), "://");
    return is_address ? LineKind::kSure : LineKind::kOther;
  }
  if (absl::ConsumePrefix(&clause, "(")) {
    if (!absl::ConsumeSuffix(&clause, ")")) return LineKind::kOther;
    rest = clause;
    is_sure = true;
  }
  return KindOfClause(rest, end > 1, is_sure);
}

// Whether a word is a number, or one with a point in it.
bool IsNumber(absl::string_view word) {
  double number;
  return absl::SimpleAtod(word, &number);
}

// The version that a word is, without what may stand around one: "3.1.8" for "(v3.1.8,". Empty for
// any other word. Versions of one number are not told from numbers of other kinds.
absl::string_view VersionOfWord(absl::string_view word) {
  word = word.substr(0, word.find_first_of(",#"));
  const size_t begin = word.find_first_not_of("([<>=~^\"'");
  const size_t last = word.find_last_not_of(":;)]\"'");
  if (begin == absl::string_view::npos || last == absl::string_view::npos || last < begin)
    return "";
  word = word.substr(begin, last + 1 - begin);
  absl::ConsumePrefix(&word, "v");
  absl::string_view rest = word;
  const size_t epoch = rest.find_first_not_of("0123456789");
  if (epoch != 0 && epoch != absl::string_view::npos &&
      (rest[epoch] == ':' || rest[epoch] == '!')) {
    rest.remove_prefix(epoch + 1);
  }
  const size_t end = std::min(rest.find_first_not_of("0123456789."), rest.size());
  const absl::string_view numbers = rest.substr(0, end);
  if (!IsDigitAt(numbers, 0) || !absl::StrContains(numbers, ".") ||
      absl::StrContains(numbers, "..")) {
    return "";
  }
  // Addresses on the network are written like that, too.
  if (end == rest.size() && std::ranges::count(numbers, '.') == 3) return "";
  const absl::string_view suffix = rest.substr(end);
  return std::ranges::all_of(
             suffix,
             [](char c) { return kOfVersion.find(c) != kOfVersion.npos || c == '~' || c == '^'; })
             ? word
             : "";
}

// Whether nothing but a version is written so: with three numbers, or with a revision behind it.
bool IsNoMeasure(absl::string_view version) {
  const size_t end = std::min(version.find_first_not_of("0123456789."), version.size());
  const bool has_revision = end < version.size() &&
                            absl::StrContains("-+~:!", version.substr(end, 1)) &&
                            (version[end] != '-' || !IsNumber(version.substr(end + 1)) ||
                             !absl::StrContains(version.substr(end + 1), "."));
  return std::ranges::count(version.substr(0, end), '.') >= 2 || has_revision;
}

std::vector<absl::string_view> WordsOfLine(absl::string_view line) {
  return absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

// The version in "NAME@1.2.3". Empty for any other word.
absl::string_view VersionBehindName(absl::string_view word) {
  const size_t at = word.rfind('@');
  if (at == absl::string_view::npos || at == 0) return "";
  absl::string_view version = word.substr(at + 1);
  absl::ConsumePrefix(&version, "npm:");
  return VersionOfWord(version);
}

// The version in "NAME-1.2.3", with what stands for a release and a system behind it:
// "a-1.2-3.x86_64". Empty for any other word, such as the name of a file.
absl::string_view VersionInName(absl::string_view word) {
  for (const absl::string_view system :
       {".x86_64", ".noarch", ".aarch64", ".i686", ".armv7hl", ".ppc64le", ".s390x"}) {
    if (absl::ConsumeSuffix(&word, system)) break;
  }
  for (size_t at = word.find('-'); at != absl::string_view::npos; at = word.find('-', at + 1)) {
    const absl::string_view version = word.substr(at + 1);
    if (!IsDigitAt(version, 0) || !absl::StrContains(version, ".")) continue;
    // "1.2.3-r4", "3.0.7-24.el9", "3.0.8,1".
    const size_t end = std::min(version.find_first_not_of("0123456789."), version.size());
    const bool is_whole = end == version.size() || absl::StrContains("-_,", version.substr(end, 1));
    return is_whole && version[end - 1] != '.' ? version : "";
  }
  return "";
}

// The version in a line "NAME VERSION ..", or "NAME@VERSION". Empty for any other line.
absl::string_view VersionInLine(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  for (const absl::string_view mark : {"> ", "- ", "* ", "["}) absl::ConsumePrefix(&line, mark);
  const std::vector<absl::string_view> words = WordsOfLine(line);
  if (words.empty()) return "";
  const absl::string_view name = words[0];
  const bool is_name = std::ranges::any_of(name, absl::ascii_isalpha) && name.back() != ':' &&
                       (absl::ascii_isalnum(static_cast<unsigned char>(name[0])) ||
                        name[0] == '@' || name[0] == '/') &&
                       VersionOfWord(name).empty();
  if (!is_name) return "";
  if (const absl::string_view version = VersionBehindName(name); !version.empty()) return version;
  if (const absl::string_view version = VersionInName(name); !version.empty()) return version;
  return words.size() > 1 ? VersionOfWord(words[1]) : "";
}

// Whether a line begins with a module of Go and its version, as in go.mod and in what Go prints.
bool HasModule(absl::string_view line) {
  static constexpr absl::string_view kBefore[] = {"dep", "mod", "=>", "require", "path"};
  std::vector<absl::string_view> words = WordsOfLine(line);
  while (!words.empty() && std::ranges::find(kBefore, words[0]) != std::end(kBefore)) {
    words.erase(words.begin());
  }
  const auto is_path = [](absl::string_view path) {
    const size_t slash = path.find('/');
    return slash != absl::string_view::npos && slash > 0 && path[0] != '.' &&
           absl::StrContains(path.substr(0, slash), ".") && !absl::StrContains(path, ":");
  };
  const auto is_version = [](absl::string_view word) {
    return absl::StartsWith(word, "v") && !VersionOfWord(word).empty();
  };
  for (size_t i = 0; i < std::min<size_t>(words.size(), 2); ++i) {
    const size_t at = words[i].rfind('@');
    if (at != absl::string_view::npos && is_path(words[i].substr(0, at)) &&
        is_version(words[i].substr(at + 1))) {
      return true;
    }
  }
  return words.size() > 1 && is_path(words[0]) && is_version(words[1]);
}

// Takes off what Maven and sbt write before each line.
absl::string_view WithoutLevel(absl::string_view line) {
  if (!absl::ConsumePrefix(&line, "[INFO] ")) absl::ConsumePrefix(&line, "[info] ");
  return line;
}

// Whether a line begins with a package of Maven, "GROUP:NAME:1.0".
bool HasCoordinates(absl::string_view line) {
  const std::vector<absl::string_view> words = WordsOfLine(WithoutLevel(line));
  if (words.empty()) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(words[0], absl::ByAnyChar(":="));
  const bool has_group = absl::StrContains(parts[0], ".");
  return parts.size() >= 3 && absl::ascii_isalpha(static_cast<unsigned char>(words[0][0])) &&
         std::any_of(parts.begin() + 2, parts.end(), [&](absl::string_view part) {
           const absl::string_view version = VersionOfWord(part);
           return !version.empty() && (has_group || IsNoMeasure(version));
         });
}

// Whether a line draws a branch of a tree and has a name with a version there.
bool IsBranch(absl::string_view line) {
  line = WithoutLevel(line);
  bool is_drawn = false;
  while (!line.empty()) {
    // U+2500 to U+257F.
    const bool is_box =
        line.size() >= 3 && line[0] == '\xe2' && (line[1] == '\x94' || line[1] == '\x95');
    if (!is_box && !absl::StrContains(" \t\xc2\xa0|`+\\-", line.substr(0, 1))) break;
    is_drawn |=
        is_box || (absl::StrContains("|`+\\", line.substr(0, 1)) && line.substr(1, 1) == "-");
    line.remove_prefix(is_box ? 3 : 1);
  }
  const std::vector<absl::string_view> words = WordsOfLine(line);
  if (!is_drawn || words.empty()) return false;
  const std::vector<absl::string_view> parts = absl::StrSplit(words[0], absl::ByAnyChar("@:="));
  return std::any_of(parts.begin() + 1, parts.end(),
                     [](absl::string_view part) { return !VersionOfWord(part).empty(); }) ||
         (words.size() > 1 && !VersionOfWord(words[1]).empty());
}

// The cells of a line of a table, in small letters. Two blanks, or one if `is_drawn`, stand between
// cells.
std::vector<std::string> CellsOf(absl::string_view line, bool is_drawn) {
  std::string text = absl::StrReplaceAll(absl::AsciiStrToLower(line), {{"\xe2\x94\x82", "|"},
                                                                       {"\xe2\x94\x83", "|"},
                                                                       {"\t", "|"},
                                                                       {",", "|"},
                                                                       {";", "|"},
                                                                       {"#", " "},
                                                                       {"\"", " "},
                                                                       {"/", " "}});
  if (is_drawn) text = absl::StrReplaceAll(text, {{" ", "|"}});
  text = absl::StrReplaceAll(text, {{"  ", "|"}});
  std::vector<std::string> cells;
  for (const absl::string_view cell : absl::StrSplit(text, '|', absl::SkipWhitespace())) {
    cells.emplace_back(absl::StripAsciiWhitespace(cell));
  }
  return cells;
}

// Whether a line is the head of a table with names of packages and with versions. One with single
// blanks between its words may be prose, unless a line is drawn below it.
bool IsHeader(absl::string_view line, absl::string_view next) {
  static constexpr absl::string_view kNames[] = {"package",   "name",  "module", "library",
                                                 "component", "crate", "gem",    "artifact"};
  static constexpr absl::string_view kVersions[] = {"version", "versions",  "current", "installed",
                                                    "project", "requested", "resolved"};
  const bool is_drawn =
      absl::StrContains(next, "--") && next.find_first_not_of(" \t-+|=") == absl::string_view::npos;
  bool has_name = false, has_version = false;
  for (const std::string& cell : CellsOf(line, is_drawn)) {
    has_name |= std::ranges::find(kNames, cell) != std::end(kNames) ||
                absl::EndsWith(cell, "-level package");
    has_version |= std::ranges::find(kVersions, cell) != std::end(kVersions) ||
                   absl::EndsWith(cell, " version");
  }
  return has_name && has_version;
}

// Whether an object of JSON asks for a package by a member with this name and value: "dependencies"
// with names and versions, or a list of both.
bool AsksInJson(absl::string_view name, const JsonView& value) {
  if (!absl::EndsWithIgnoreCase(name, "dependencies")) return false;
  // "^1.0.0" or "django=3.1.8", and not "workspace:*".
  const auto asks = [](absl::string_view asked, size_t most) {
    return asked.find_first_of("0123456789*") < most;
  };
  if (value.is_array()) {
    const auto items = value.Items();
    return items.ok() && std::ranges::any_of(*items, [&](const JsonView& item) {
             const auto text = item.Text();
             return item.is_text() && asks(*text, text->size());
           });
  }
  const auto needs = value.Members();
  if (!value.is_object() || !needs.ok()) return false;
  return std::ranges::any_of(*needs, [&](const JsonView::Member& need) {
    if (need.value.is_text()) return asks(*need.value.Text(), 3);
    const auto version = need.value.is_object() ? need.value.Get("version") : need.value;
    return version.ok() && version->is_text();
  });
}

// Whether a value of JSON has a package with its version in it: an object below the whole that has
// a name and a version, a text that is both, or what asks for a package.
bool HasPackages(const JsonView& value, bool is_whole) {
  static constexpr absl::string_view kNames[] = {"name",        "package",      "path", "module",
                                                 "packageName", "package_name", "id",   "library"};
  static constexpr absl::string_view kVersions[] = {
      "version",     "installed_version", "installedVersion", "resolvedVersion",
      "versionInfo", "current",           "package_version",  "packageVersion"};
  if (value.is_text()) return !VersionBehindName(*value.Text()).empty();
  if (value.is_array()) {
    const auto items = value.Items();
    return items.ok() && std::ranges::any_of(
                             *items, [](const JsonView& item) { return HasPackages(item, false); });
  }
  const auto members = value.Members();
  if (!value.is_object() || !members.ok()) return false;
  bool has_name = false, has_version = false;
  for (const auto& [name, member] : *members) {
    if (AsksInJson(name, member) || HasPackages(member, false)) return true;
    if (!member.is_text()) continue;
    const auto is = [&](absl::string_view known) { return absl::EqualsIgnoreCase(name, known); };
    absl::string_view text = *member.Text();
    has_name |= std::ranges::any_of(kNames, is) && !text.empty();
    absl::ConsumePrefix(&text, "v");
    has_version |= std::ranges::any_of(kVersions, is) && IsDigitAt(text, 0);
  }
  return !is_whole && has_name && has_version;
}

// False for what is no JSON, too.
bool HasPackagesInJson(absl::string_view text) {
  const auto has = [&](absl::string_view part) { return absl::StrContains(text, part); };
  const bool may_have =
      has("ersion\"") || has("VERSION\"") || has("\"current\"") || has("ependencies\"") || has("@");
  if (!may_have) return false;
  if (const auto json = JsonText::Parse(text, ""); json.ok()) {
    return HasPackages(json->root(), true);
  }
  // Several values, one after the other.
  return (has("}\n{") || has("}\r\n{")) &&
         (has("\"name\"") || has("\"Path\"") || has("\"value\"")) &&
         (has("\"version\"") || has("\"Version\""));
}

}  // namespace

bool HasRequirements(absl::string_view text) {
  bool has_others = false, has_one = false;
  for (const absl::string_view line : absl::StrSplit(text, absl::ByAnyChar("\r\n"))) {
    const LineKind kind = KindOf(line);
    if (kind == LineKind::kSure) return true;
    has_one |= kind == LineKind::kMaybe;
    has_others |= kind == LineKind::kOther;
  }
  return has_one && !has_others;
}

bool ListsPackages(absl::string_view text) {
  const absl::string_view first = absl::StripLeadingAsciiWhitespace(text);
  const bool may_be_json = absl::StartsWith(first, "{") || absl::StartsWith(first, "[");
  if (may_be_json && HasPackagesInJson(text)) return true;
  size_t lines = 0, with_version = 0;
  bool has_sure = false;
  absl::string_view before;
  for (absl::string_view line :
       absl::StrSplit(text, absl::ByAnyChar("\r\n"), absl::SkipWhitespace())) {
    line = line.substr(0, kMaxLineBytes);
    if (IsBranch(line) || HasModule(line) || HasCoordinates(line) || IsHeader(before, line)) {
      return true;
    }
    const absl::string_view version = VersionInLine(line);
    ++lines;
    with_version += !version.empty();
    has_sure |= !version.empty() && IsNoMeasure(version);
    before = line;
  }
  // The other lines are headings. A table may have no other line than its first.
  return (has_sure && 2 * with_version >= lines) || IsHeader(before, "");
}

}  // namespace shoal::audit
