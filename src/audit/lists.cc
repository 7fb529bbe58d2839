#include "src/audit/lists.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
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
  const size_t begin = word.find_first_not_of("(=");
  const size_t last = word.find_last_not_of(",:;)");
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

// Whether a word is a package of a distribution, with its release and its system: "a-1.2-3.x86_64".
bool IsReleaseName(absl::string_view word) {
  static constexpr absl::string_view kSystems[] = {".x86_64",  ".noarch",  ".aarch64", ".i686",
                                                   ".armv7hl", ".ppc64le", ".s390x"};
  const auto ends = [&](absl::string_view system) { return absl::EndsWith(word, system); };
  const size_t revision = word.rfind("-r");
  const bool is_of_alpine = revision != absl::string_view::npos && IsDigitAt(word, revision + 2) &&
                            IsDigitAt(word, word.size() - 1);
  if (!is_of_alpine && std::ranges::none_of(kSystems, ends)) return false;
  for (size_t at = word.find('-'); at != absl::string_view::npos; at = word.find('-', at + 1)) {
    if (IsDigitAt(word, at + 1)) return true;
  }
  return false;
}

// The version in a line "NAME VERSION ..", or "NAME@VERSION". Empty for any other line.
absl::string_view VersionInLine(absl::string_view line) {
  line = absl::StripAsciiWhitespace(line);
  for (const absl::string_view mark : {"> ", "- ", "* "}) absl::ConsumePrefix(&line, mark);
  const std::vector<absl::string_view> words = WordsOfLine(line);
  if (words.empty()) return "";
  const absl::string_view name = words[0];
  const bool is_name = std::ranges::any_of(name, absl::ascii_isalpha) && name.back() != ':' &&
                       (absl::ascii_isalnum(static_cast<unsigned char>(name[0])) ||
                        name[0] == '@' || name[0] == '/') &&
                       VersionOfWord(name).empty();
  if (!is_name) return "";
  if (const absl::string_view version = VersionBehindName(name); !version.empty()) return version;
  if (IsReleaseName(name)) return "0.0.0";
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

// Whether a line draws a branch of a tree and has a name with a version there.
bool IsBranch(absl::string_view line) {
  absl::ConsumePrefix(&line, "[INFO] ");
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

// Whether a line is the head of a table of packages and versions. One with a single blank between
// its words may be prose, unless a line is drawn below it.
bool IsHeader(absl::string_view line, absl::string_view next) {
  static constexpr absl::string_view kNames[] = {"package",   "name",  "module", "library",
                                                 "component", "crate", "gem",    "artifact"};
  static constexpr absl::string_view kVersions[] = {"version", "versions", "current", "installed",
                                                    "requested"};
  line = line.substr(std::min(line.find_first_not_of(" \t#|/\""), line.size()));
  const size_t end = line.find_first_of(" \t,;|\"");
  if (end == absl::string_view::npos) return false;
  const size_t begin = line.find_first_not_of(" \t,;|\"", end);
  if (begin == absl::string_view::npos) return false;
  const absl::string_view second = line.substr(begin, line.substr(begin).find_first_of(" \t,;|\""));
  const auto is = [](absl::string_view word) {
    return [word](absl::string_view known) { return absl::EqualsIgnoreCase(word, known); };
  };
  return std::ranges::any_of(kNames, is(line.substr(0, end))) &&
         std::ranges::any_of(kVersions, is(second)) &&
         (line.substr(end, begin - end) != " " ||
          (absl::StrContains(next, "--") &&
           next.find_first_not_of(" \t-+|=") == absl::string_view::npos));
}

// Whether a value of JSON has a package with its version in it: an object below the whole that has
// both, or what an object of dependencies has. `is_need`: it is a value of such an object.
bool HasPackages(const JsonView& value, bool is_whole, bool is_need) {
  static constexpr absl::string_view kNames[] = {"name",        "package",      "path", "module",
                                                 "packageName", "package_name", "id",   "library"};
  static constexpr absl::string_view kVersions[] = {
      "version",     "installed_version", "installedVersion", "resolvedVersion",
      "versionInfo", "current",           "package_version",  "packageVersion"};
  if (value.is_array()) {
    const auto items = value.Items();
    return items.ok() && std::ranges::any_of(*items, [](const JsonView& item) {
             return HasPackages(item, false, false);
           });
  }
  if (!value.is_object()) return false;
  bool has_name = is_need, has_version = false;
  const auto members = value.Members();
  if (!members.ok()) return false;
  for (const auto& [name, member] : *members) {
    const auto is = [&](absl::string_view known) { return absl::EqualsIgnoreCase(name, known); };
    const std::string text = std::string(member.Text().value_or(""));
    if (std::ranges::any_of(kNames, is) && !text.empty()) {
      has_name = true;
      if (!VersionBehindName(text).empty()) return true;
    }
    absl::string_view version = text;
    absl::ConsumePrefix(&version, "v");
    has_version |= std::ranges::any_of(kVersions, is) && IsDigitAt(version, 0);
    const bool has_needs = absl::EndsWithIgnoreCase(name, "dependencies") && member.is_object();
    const auto needs = member.Members();
    if (!has_needs || !needs.ok()) {
      if (HasPackages(member, false, false)) return true;
      continue;
    }
    for (const auto& [needed, need] : *needs) {
      const absl::string_view asked = need.Text().value_or("");
      if (HasPackages(need, false, true) || asked.find_first_of("0123456789*") < 3) return true;
    }
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
    return HasPackages(json->root(), true, false);
  }
  // Several values, one after the other.
  return (has("}\n{") || has("}\r\n{")) && (has("\"name\"") || has("\"Path\"")) &&
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
    if (IsBranch(line) || HasModule(line) || IsHeader(before, line)) return true;
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
