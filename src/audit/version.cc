#include "src/audit/version.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/base/ascii.h"
#include "src/base/check.h"
#include "src/table/packages.h"

namespace shoal::audit {
namespace {

constexpr size_t kMaxNameBytes = 512;

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Takes the digits at the front of `text`; empty if there are none.
absl::string_view TakeDigits(absl::string_view& text) {
  size_t end = 0;
  while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
  const absl::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

// Appends a number so that bytes are in the order of numbers: the count of its digits, then these.
void AppendNumber(absl::string_view digits, std::string& key) {
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  key.push_back(static_cast<char>(digits.size() >> 8));
  key.push_back(static_cast<char>(digits.size() & 0xFF));
  absl::StrAppend(&key, digits);
}

// Marks that stand before a part of a key, in the order in which the parts sort. A list ends with
// kEnd, so that it comes before a longer one that begins with it.
constexpr char kEnd = 0;

// semver.org, section 11. `short_too`: also of one or two numbers, whose others are then zero.
std::optional<std::string> SemverKey(absl::string_view text, bool short_too) {
  constexpr char kNumeric = 1, kAlphanumeric = 2, kRelease = 3;
  absl::ConsumePrefix(&text, "v");
  const size_t plus = text.find('+');
  if (plus != absl::string_view::npos) {
    for (const absl::string_view part : absl::StrSplit(text.substr(plus + 1), '.')) {
      if (part.empty() || !std::all_of(part.begin(), part.end(), [](char c) {
            return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
          })) {
        return std::nullopt;
      }
    }
  }
  absl::string_view rest = text.substr(0, plus);
  std::string key;
  size_t numbers = 0;
  do {
    const absl::string_view digits = TakeDigits(rest);
    if (digits.empty() || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
    AppendNumber(digits, key);
  } while (++numbers < 3 && absl::ConsumePrefix(&rest, "."));
  const bool whole = numbers == 3;
  if (!whole && !short_too) return std::nullopt;
  for (; numbers < 3; ++numbers) AppendNumber("0", key);
  if (rest.empty()) {
    if (!whole && plus != absl::string_view::npos) return std::nullopt;
    key.push_back(kRelease);
    return key;
  }
  if (!whole || !absl::ConsumePrefix(&rest, "-")) return std::nullopt;
  for (const absl::string_view part : absl::StrSplit(rest, '.')) {
    if (IsNumber(part)) {
      if (part.size() > 1 && part[0] == '0') return std::nullopt;
      key.push_back(kNumeric);
      AppendNumber(part, key);
      continue;
    }
    if (part.empty()) return std::nullopt;
    for (const char c : part) {
      if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') return std::nullopt;
    }
    key.push_back(kAlphanumeric);
    absl::StrAppend(&key, part);
    key.push_back(kEnd);
  }
  key.push_back(kEnd);
  return key;
}

// Skips one of the separators that PEP 440 takes before and after words.
void SkipSeparator(absl::string_view& text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '_' || text[0] == '.')) text.remove_prefix(1);
}

// A word of PEP 440 ("rc", "post") with the separators around it and its number, which may be
// missing and is then 0. Takes nothing and returns false if no word of `words` comes next.
template <size_t kCount>
bool TakeWord(const std::array<std::pair<absl::string_view, char>, kCount>& words,
              absl::string_view& text, char& mark, absl::string_view& digits) {
  absl::string_view rest = text;
  SkipSeparator(rest);
  for (const auto& [word, word_mark] : words) {
    if (!absl::ConsumePrefix(&rest, word)) continue;
    // The separator before the number may stand there without it.
    SkipSeparator(rest);
    digits = TakeDigits(rest);
    if (digits.empty()) digits = "0";
    text = rest;
    mark = word_mark;
    return true;
  }
  return false;
}

// PEP 440, "Summary of permitted suffixes and relative ordering", and appendix B for what is taken.
// `public_bytes`: of the key, before a local label.
std::optional<std::string> Pep440Key(absl::string_view original, size_t& public_bytes) {
  using Word = std::pair<absl::string_view, char>;
  // What begins with another word comes before it.
  static constexpr std::array<Word, 8> kPre = {
      Word{"alpha", 1},   Word{"a", 1},   Word{"beta", 2}, Word{"b", 2},
      Word{"preview", 3}, Word{"pre", 3}, Word{"rc", 3},   Word{"c", 3}};
  static constexpr std::array<Word, 3> kPost = {Word{"post", 1}, Word{"rev", 1}, Word{"r", 1}};
  static constexpr std::array<Word, 1> kDev = {Word{"dev", 1}};
  constexpr char kBeforePre = 0, kAfterPre = 4, kNoPost = 0, kNoDev = 2, kText = 1, kNumeric = 2;

  const std::string lower = absl::AsciiStrToLower(absl::StripAsciiWhitespace(original));
  absl::string_view text = lower;
  absl::ConsumePrefix(&text, "v");
  std::string key;
  absl::string_view first = TakeDigits(text);
  if (first.empty()) return std::nullopt;
  if (absl::ConsumePrefix(&text, "!")) {
    AppendNumber(first, key);
    first = TakeDigits(text);
    if (first.empty()) return std::nullopt;
  } else {
    AppendNumber("0", key);
  }
  std::vector<absl::string_view> release = {first};
  while (text.size() > 1 && text[0] == '.' && absl::ascii_isdigit(text[1])) {
    text.remove_prefix(1);
    release.push_back(TakeDigits(text));
  }
  while (!release.empty() && release.back().find_first_not_of('0') == absl::string_view::npos) {
    release.pop_back();
  }
  for (const absl::string_view number : release) {
    key.push_back(1);
    AppendNumber(number, key);
  }
  key.push_back(kEnd);

  char pre = 0, mark = 0;
  absl::string_view pre_number, post_number, dev_number;
  const bool has_pre = TakeWord(kPre, text, pre, pre_number);
  bool has_post = false;
  if (text.size() > 1 && text[0] == '-' && absl::ascii_isdigit(text[1])) {
    text.remove_prefix(1);
    post_number = TakeDigits(text);
    has_post = true;
  } else {
    has_post = TakeWord(kPost, text, mark, post_number);
  }
  const bool has_dev = TakeWord(kDev, text, mark, dev_number);
  // A development release of a final version comes before its pre-releases.
  key.push_back(has_pre ? pre : !has_post && has_dev ? kBeforePre : kAfterPre);
  if (has_pre) AppendNumber(pre_number, key);
  key.push_back(has_post ? 1 : kNoPost);
  if (has_post) AppendNumber(post_number, key);
  key.push_back(has_dev ? 1 : kNoDev);
  if (has_dev) AppendNumber(dev_number, key);

  public_bytes = key.size();
  if (absl::ConsumePrefix(&text, "+")) {
    for (const absl::string_view part : absl::StrSplit(text, absl::ByAnyChar("-_."))) {
      if (part.empty()) return std::nullopt;
      for (const char c : part) {
        if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) return std::nullopt;
      }
      if (IsNumber(part)) {
        key.push_back(kNumeric);
        AppendNumber(part, key);
      } else {
        key.push_back(kText);
        absl::StrAppend(&key, part);
        key.push_back(kEnd);
      }
    }
  } else if (!text.empty()) {
    return std::nullopt;
  }
  key.push_back(kEnd);
  return key;
}

// deb-version(7): what dpkg takes without a complaint.
bool IsDebianVersion(absl::string_view text) {
  const size_t colon = text.find(':');
  if (colon != absl::string_view::npos) {
    // dpkg keeps the epoch in an int.
    absl::string_view epoch = text.substr(0, colon);
    if (!IsNumber(epoch)) return false;
    epoch.remove_prefix(std::min(epoch.find_first_not_of('0'), epoch.size()));
    if (epoch.size() > 9) return false;
    text.remove_prefix(colon + 1);
  }
  const size_t hyphen = text.rfind('-');
  const absl::string_view upstream = text.substr(0, hyphen);
  if (!IsOfAlnumAnd(".-+~:", upstream) || !absl::ascii_isdigit(upstream[0])) return false;
  if (hyphen == absl::string_view::npos) return true;
  return IsOfAlnumAnd(".+~", text.substr(hyphen + 1));
}

// golang.org/x/mod/module, CheckPath, also escaped as in the module cache. What is fetched begins
// with a host.
bool IsModulePath(absl::string_view path) {
  if (!absl::StrContains(path.substr(0, path.find('/')), ".")) return IsOfGoItself(path);
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (!IsOfAlnumAnd("-._~!", part) || part.front() == '.' || part.back() == '.') return false;
    for (size_t i = 0; i < part.size(); ++i) {
      const bool is_escape = i + 1 < part.size() && absl::ascii_islower(part[i + 1]);
      if (part[i] == '!' && !is_escape) return false;
    }
  }
  return true;
}

// validate-npm-package-name: what a URL takes as it is, with one scope at most. Old names, too.
bool IsNpmName(absl::string_view name) {
  constexpr absl::string_view kUrlSafe = "-_.!~*'()";
  if (absl::ConsumePrefix(&name, "@")) {
    const size_t slash = name.find('/');
    if (slash == absl::string_view::npos || !IsOfAlnumAnd(kUrlSafe, name.substr(0, slash)))
      return false;
    name.remove_prefix(slash + 1);
  }
  return IsOfAlnumAnd(kUrlSafe, name) && name[0] != '.';
}

// OWNER/REPOSITORY, and what lies in that.
bool IsActionName(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  return parts.size() >= 2 && std::ranges::all_of(parts, [](absl::string_view part) {
           return IsOfAlnumAnd("-_.", part) &&
                  part.find_first_not_of('.') != absl::string_view::npos;
         });
}

// Whether the registry of an ecosystem can have a package of this name. None has an empty one.
bool IsName(absl::string_view ecosystem, absl::string_view name) {
  const auto is_alphanumeric = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c));
  };
  // PEP 508.
  if (ecosystem == "PyPI") {
    return IsOfAlnumAnd("-_.", name) && is_alphanumeric(name.front()) &&
           is_alphanumeric(name.back());
  }
  if (ecosystem == "crates.io") return IsOfAlnumAnd("-_", name);
  if (ecosystem == "npm") return IsNpmName(name);
  if (ecosystem == "Go") return IsModulePath(name);
  if (ecosystem == kGitHubActions) return IsActionName(name);
  // Debian's policy, section 5.6.1, and so Ubuntu's.
  return IsOfAlnumAnd("+-.", name) && is_alphanumeric(name.front()) &&
         std::none_of(name.begin(), name.end(), absl::ascii_isupper);
}

}  // namespace

bool IsOfGoItself(absl::string_view name) {
  return name == "std" || name == "stdlib" || name == "toolchain";
}

std::optional<Version> Version::Parse(Order order, absl::string_view text) {
  return Read(order, text, false);
}

std::optional<Version> Version::ParseBound(Order order, absl::string_view text) {
  return Read(order, text, true);
}

std::optional<Version> Version::Read(Order order, absl::string_view text, bool is_bound) {
  if (text.size() > kMaxVersionBytes) return std::nullopt;
  std::optional<std::string> key;
  std::optional<size_t> public_bytes;
  switch (order) {
    case Order::kSemver:
      key = SemverKey(text, is_bound);
      break;
    case Order::kPep440:
      key = Pep440Key(text, public_bytes.emplace());
      break;
    case Order::kDebian:
      if (IsDebianVersion(text)) key = std::string(text);
      break;
  }
  if (!key.has_value()) return std::nullopt;
  // Others have no local label: what could be one is empty.
  const size_t bytes = public_bytes.value_or(key->size());
  return Version(order, *std::move(key), bytes);
}

int Compare(const Version& a, const Version& b) {
  SHOAL_CHECK(a.order_ == b.order_);
  return a.order_ == Order::kDebian ? table::CompareVersions(a.key_, b.key_)
                                    : a.key_.compare(b.key_);
}

int CompareWithBound(const Version& version, const Version& bound) {
  if (!version.is_local() || bound.is_local()) return Compare(version, bound);
  std::string key = version.key_.substr(0, version.public_bytes_);
  key.push_back(kEnd);
  return Compare(Version(version.order_, std::move(key), version.public_bytes_), bound);
}

std::optional<int> CompareTexts(Order order, absl::string_view a, absl::string_view b) {
  const std::optional<Version> one = Version::Parse(order, a), other = Version::Parse(order, b);
  if (!one.has_value() || !other.has_value()) return std::nullopt;
  return Compare(*one, *other);
}

std::optional<Order> OrderOf(absl::string_view ecosystem) {
  if (ecosystem == "PyPI") return Order::kPep440;
  for (const absl::string_view known : {"npm", "crates.io", "Go", kGitHubActions}) {
    if (ecosystem == known) return Order::kSemver;
  }
  for (const absl::string_view family : {"Debian:", "Ubuntu:"}) {
    absl::string_view release = ecosystem;
    if (!absl::ConsumePrefix(&release, family)) continue;
    const bool plain = std::all_of(release.begin(), release.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == ':' || c == '-';
    });
    if (plain && !release.empty() && release.size() <= 32) return Order::kDebian;
  }
  return std::nullopt;
}

std::string UbuntuEcosystem(absl::string_view release) {
  // Every second year's release of April has long-term support, and the words for it in its name.
  const bool is_lts = release.size() == 5 && absl::ascii_isdigit(release[1]) &&
                      (release[1] - '0') % 2 == 0 && absl::EndsWith(release, ".04");
  return absl::StrCat("Ubuntu:", release, is_lts ? ":LTS" : "");
}

std::string CanonicalEcosystem(absl::string_view ecosystem) {
  const absl::string_view family = ecosystem.substr(0, ecosystem.find(':'));
  for (const absl::string_view known : {"PyPI", "npm", "crates.io", "Go", kGitHubActions}) {
    if (absl::EqualsIgnoreCase(family, known)) return std::string(known);
  }
  for (const absl::string_view known : {"Debian", "Ubuntu"}) {
    if (!absl::EqualsIgnoreCase(family, known)) continue;
    std::vector<absl::string_view> parts = absl::StrSplit(ecosystem.substr(family.size()), ':');
    const bool is_pro = known == "Ubuntu" && parts.size() > 1 &&
                        absl::EqualsIgnoreCase(parts[1], "Pro") &&
                        !(parts.size() > 2 && absl::StartsWithIgnoreCase(parts[2], "FIPS"));
    if (is_pro) {
      // The release is the first part that is a number; what stands before it is a pocket.
      const auto release = std::find_if(parts.begin() + 2, parts.end(), [](absl::string_view part) {
        return !part.empty() && absl::ascii_isdigit(static_cast<unsigned char>(part[0]));
      });
      parts.erase(parts.begin() + 1, release);
    }
    if (known == "Ubuntu" && parts.size() == 2) return UbuntuEcosystem(parts[1]);
    return absl::StrCat(known, absl::StrJoin(parts, ":"));
  }
  return std::string(ecosystem);
}

absl::StatusOr<std::string> PackageKey(absl::string_view ecosystem, absl::string_view name) {
  // What no registry has is absent from every table, which must not read as "no advisories".
  if (name.size() > kMaxNameBytes || !IsName(ecosystem, name)) {
    return absl::InvalidArgumentError(absl::StrCat("is no name of a package of ", ecosystem));
  }
  std::string key = absl::StrCat(ecosystem, "/");
  if (ecosystem == "PyPI") {
    // A run of separators is one hyphen.
    bool separated = false;
    for (const char c : name) {
      const bool separator = c == '-' || c == '_' || c == '.';
      if (!separator) key.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
      if (separator && !separated) key.push_back('-');
      separated = separator;
    }
  } else if (ecosystem == "crates.io") {
    for (const char c : name) {
      key.push_back(c == '_' ? '-' : absl::ascii_tolower(static_cast<unsigned char>(c)));
    }
  } else if (ecosystem == "Go") {
    // Case counts in Go, but package URLs have none. In the module cache a capital letter is its
    // small one with a mark before it, which no module path has.
    for (const char c : name) {
      if (c != '!') key.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
    }
  } else if (ecosystem == "npm" || ecosystem == kGitHubActions) {
    // Old packages of npm have capital letters, which package URLs have not. GitHub takes a name in
    // any case.
    absl::StrAppend(&key, absl::AsciiStrToLower(name));
  } else {
    absl::StrAppend(&key, name);
  }
  return key;
}

}  // namespace shoal::audit
