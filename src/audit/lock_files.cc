// Lock files in JSON (npm) and TOML (Poetry, Cargo).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/audit/json.h"
#include "src/base/status_macros.h"

namespace shoal::audit {
namespace {

// A [[package]] of a lock file. What it lacks is empty.
struct LockedPackage {
  uint64_t line = 0;
  std::string name = {}, version = {}, source = {};
  std::string source_type = {};  // of [package.source]
};

// Reads the packages of a lock file in TOML, in one pass and without nested calls. Of TOML it knows
// what tells where a value ends: strings of all four kinds, brackets, comments. Values that are not
// asked for are skipped unread; a name, version, source or type must be a string of one line
// without escapes, as the package managers write them. Anything else is an error, and never a
// package that is left out.
class LockReader {
 public:
  LockReader(absl::string_view text, const Collector& collector)
      : text_(text), collector_(collector) {}

  absl::StatusOr<std::vector<LockedPackage>> Read() {
    while (SkipToStatement()) {
      SHOAL_RETURN_IF_ERROR(text_[0] == '[' ? Header() : Assignment());
    }
    for (const LockedPackage& package : packages_) {
      if (package.name.empty() || package.version.empty()) {
        return collector_.Wrong(package.line, "a package has no name or no version");
      }
    }
    return std::move(packages_);
  }

 private:
  absl::Status Wrong(absl::string_view what) const {
    return collector_.Wrong(line_, absl::StrCat("not TOML of a lock file: ", what));
  }
  void Skip(size_t count) {
    const absl::string_view skipped = text_.substr(0, count);
    line_ += static_cast<uint64_t>(std::count(skipped.begin(), skipped.end(), '\n'));
    text_.remove_prefix(skipped.size());
  }
  void SkipAll(absl::string_view blanks) { Skip(text_.find_first_not_of(blanks)); }
  void SkipComment() { Skip(text_.find('\n')); }
  // False at the end of the text.
  bool SkipToStatement() {
    for (;;) {
      SkipAll(" \t\r\n");
      if (!absl::StartsWith(text_, "#")) return !text_.empty();
      SkipComment();
    }
  }
  // Nothing but a comment may follow on the line.
  absl::Status EndLine() {
    SkipAll(" \t\r");
    if (absl::StartsWith(text_, "#")) SkipComment();
    if (!text_.empty() && text_[0] != '\n') return Wrong("something follows on the line");
    return absl::OkStatus();
  }

  // "[package.source]", "[[package]]".
  absl::Status Header() {
    const absl::string_view line = text_.substr(0, text_.find('\n'));
    const bool is_item = absl::StartsWith(line, "[[");
    const absl::string_view close = is_item ? "]]" : "]";
    const size_t end = line.find(close);
    if (end == absl::string_view::npos) return Wrong("a header has no end");
    table_ = std::string(absl::StripAsciiWhitespace(line.substr(close.size(), end - close.size())));
    if (table_.empty()) return Wrong("a header has no name");
    // In quotes it could be `package` as well.
    if (is_item && table_.find_first_of("\"'\\") != std::string::npos) {
      return Wrong("a list of tables has a name in quotes");
    }
    if (is_item && table_ == "package") packages_.push_back({.line = line_});
    if (!is_item && table_ == "package") return Wrong("`package` is not a list of tables");
    Skip(end + close.size());
    return EndLine();
  }

  // "key = value".
  absl::Status Assignment() {
    const absl::string_view line = text_.substr(0, text_.find('\n'));
    const size_t equals = line.find('=');
    if (equals == 0 || equals == absl::string_view::npos) {
      return Wrong("neither a key nor a header");
    }
    const absl::string_view key = absl::StripAsciiWhitespace(line.substr(0, equals));
    if (table_.empty() && key == "package") return Wrong("`package` is not a list of tables");
    std::string* const wanted = Wanted(key);
    Skip(equals + 1);
    SkipAll(" \t\r");
    const absl::string_view value = text_;
    SHOAL_RETURN_IF_ERROR(Value());
    if (wanted != nullptr) {
      const absl::string_view whole = value.substr(0, value.size() - text_.size());
      if (whole.size() < 2 || (whole[0] != '"' && whole[0] != '\'') ||
          whole.find_first_of("\\\n") != absl::string_view::npos ||
          whole.find(whole[0], 1) != whole.size() - 1) {
        return Wrong(absl::StrCat(key, " is no plain string"));
      }
      if (!wanted->empty()) return Wrong(absl::StrCat(key, " is there twice"));
      *wanted = std::string(whole.substr(1, whole.size() - 2));
    }
    return EndLine();
  }
  // Where the value of a key of the present table goes; null if nobody asks for it.
  std::string* Wanted(absl::string_view key) {
    if (packages_.empty()) return nullptr;
    LockedPackage& package = packages_.back();
    if (table_ == "package.source" && key == "type") return &package.source_type;
    if (table_ != "package") return nullptr;
    if (key == "name") return &package.name;
    if (key == "version") return &package.version;
    return key == "source" ? &package.source : nullptr;
  }

  // To the end of a value: brackets may hold line breaks, and strings may hold brackets.
  absl::Status Value() {
    uint64_t depth = 0;
    bool any = false;
    while (!text_.empty()) {
      const char c = text_[0];
      const bool ends = c == '\n' || c == '#' || c == ' ' || c == '\t' || c == '\r';
      if (ends && depth == 0) break;
      any = true;
      if (c == '"' || c == '\'') {
        SHOAL_RETURN_IF_ERROR(String(c));
        continue;
      }
      if (c == '#') {
        SkipComment();
        continue;
      }
      depth += c == '[' || c == '{';
      if (c == ']' || c == '}') {
        if (depth == 0) return Wrong("a bracket closes that was not opened");
        --depth;
      }
      Skip(1);
    }
    if (depth > 0) return Wrong("a bracket is not closed");
    return any ? absl::OkStatus() : Wrong("a key has no value");
  }
  absl::Status String(char quote) {
    const std::string three(3, quote);
    const bool is_long = absl::StartsWith(text_, three);
    const absl::string_view close = absl::string_view(three).substr(0, is_long ? 3 : 1);
    size_t at = close.size();
    for (; at < text_.size() && !absl::StartsWith(text_.substr(at), close); ++at) {
      if (!is_long && text_[at] == '\n') return Wrong("a string has no end");
      // A backslash in double quotes takes the next character with it.
      if (quote == '"' && text_[at] == '\\') ++at;
    }
    if (at >= text_.size()) return Wrong("a string has no end");
    at += close.size();
    // Up to two more quotes belong to a long string.
    while (is_long && at < text_.size() && text_[at] == quote) ++at;
    Skip(at);
    return absl::OkStatus();
  }

  absl::string_view text_;
  const Collector& collector_;
  uint64_t line_ = 1;
  std::string table_;
  std::vector<LockedPackage> packages_;
};

// Versions 1 of npm's lock files: packages in packages.
absl::Status ParseDependencies(const JsonView& dependencies, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, dependencies.Members());
  for (const auto& [name, package] : members) {
    SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
    SHOAL_ASSIGN_OR_RETURN(absl::string_view version, version_view.Text());
    absl::string_view real = name;
    // "npm:lodash@4.17.20" is a package under another name.
    if (absl::ConsumePrefix(&version, "npm:")) {
      const size_t at = version.rfind('@');
      if (at == absl::string_view::npos || at == 0) {
        return version_view.Wrong("has no version behind the name");
      }
      real = version.substr(0, at);
      version = version.substr(at + 1);
    }
    if (absl::StartsWith(version, "file:")) {
      collector.Own();
    } else {
      SHOAL_RETURN_IF_ERROR(collector.Add("npm", real, version));
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView inner, package.Get("dependencies"));
    SHOAL_RETURN_IF_ERROR(ParseDependencies(inner, collector));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ParsePackageLock(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const JsonText text, JsonText::Parse(content, collector.file()));
  SHOAL_ASSIGN_OR_RETURN(const JsonView packages, text.root().Get("packages"));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<JsonView::Member> members, packages.Members());
  constexpr absl::string_view kModules = "node_modules/";
  if (std::ranges::none_of(members, [&](const JsonView::Member& member) {
        return absl::StrContains(member.name, kModules);
      })) {
    // `packages` names the project alone, or is not there.
    SHOAL_ASSIGN_OR_RETURN(const JsonView dependencies, text.root().Get("dependencies"));
    SHOAL_RETURN_IF_ERROR(ParseDependencies(dependencies, collector));
  }
  for (const auto& [path, package] : members) {
    const size_t at = path.rfind(kModules);
    SHOAL_ASSIGN_OR_RETURN(const JsonView link_view, package.Get("link"));
    SHOAL_ASSIGN_OR_RETURN(const bool link, link_view.Bool());
    // The project itself, and the packages of its workspaces.
    if (at == absl::string_view::npos || link) {
      collector.Own();
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(const JsonView name_view, package.Get("name"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, name_view.Text());
    SHOAL_ASSIGN_OR_RETURN(const JsonView version_view, package.Get("version"));
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view version, version_view.Text());
    SHOAL_RETURN_IF_ERROR(
        collector.Add("npm", name.empty() ? path.substr(at + kModules.size()) : name, version));
  }
  return absl::OkStatus();
}

absl::Status ParsePoetryLock(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<LockedPackage> packages,
                         LockReader(content, collector).Read());
  for (const LockedPackage& package : packages) {
    if (package.source_type == "directory") {
      collector.Own();
    } else {
      SHOAL_RETURN_IF_ERROR(collector.Add("PyPI", package.name, package.version));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseCargoLock(absl::string_view content, Collector& collector) {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<LockedPackage> packages,
                         LockReader(content, collector).Read());
  for (const LockedPackage& package : packages) {
    // What has no source lies in the project.
    if (package.source.empty()) {
      collector.Own();
    } else {
      SHOAL_RETURN_IF_ERROR(collector.Add("crates.io", package.name, package.version));
    }
  }
  return absl::OkStatus();
}

}  // namespace shoal::audit
