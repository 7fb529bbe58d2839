#include "src/audit/toml.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/audit/collector.h"
#include "src/base/status_macros.h"
#include "src/table/records.h"

namespace shoal::audit {
namespace {

// A key of so many parts makes as many tables in tables, which are freed by as many nested calls.
constexpr size_t kMaxKeyParts = 32;
// What is parsed takes up to fifty times the bytes of its text.
constexpr size_t kMaxTomlBytes = size_t{1} << 24;

// The place behind the string that begins at `at`. The end of the text if the string has no end.
size_t AfterString(absl::string_view text, size_t at) {
  const char quote = text[at];
  const std::string three(3, quote);
  const bool is_long = absl::StartsWith(text.substr(at), three);
  const absl::string_view close = absl::string_view(three).substr(0, is_long ? 3 : 1);
  for (at += close.size(); at < text.size(); ++at) {
    if (!is_long && text[at] == '\n') return text.size();
    if (quote == '"' && text[at] == '\\') {
      ++at;
    } else if (absl::StartsWith(text.substr(at), close)) {
      return at + close.size();
    }
  }
  return text.size();
}

// What the parser takes, but this program cannot bear: keys of very many parts. Also what TOML has
// not, so that this function and the parser agree on where a line ends.
absl::Status CheckToml(absl::string_view text, const std::string& file) {
  if (text.size() > kMaxTomlBytes) {
    return WrongAt(file, 1, absl::StrCat("has more than ", kMaxTomlBytes >> 20, " MiB"));
  }
  uint64_t line = 1;
  size_t parts = 1;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    const bool ends_line = c == '\n' || (c == '\r' && absl::StartsWith(text.substr(at), "\r\n"));
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t' && !ends_line) {
      return WrongAt(file, line, "not TOML: a control character");
    }
    // toml++ asks of what is not ASCII, here and behind a backslash, whether it is white space, and
    // what its function then does is undefined for most of it. In TOML it stands in strings and
    // comments alone.
    if (!absl::ascii_isascii(static_cast<unsigned char>(c))) {
      return WrongAt(file, line, "not TOML: a character outside of strings that is not ASCII");
    }
    if (c == '"' || c == '\'') {
      const size_t after = AfterString(text, at);
      for (size_t i = at; c == '"' && i + 1 < after; ++i) {
        if (text[i] != '\\') continue;
        // A backslash may stand before white space that ends at the next character of the string.
        const size_t next = std::min(text.find_first_not_of(" \t\r\n", i + 1), after - 1);
        if (!absl::ascii_isascii(static_cast<unsigned char>(text[next]))) {
          return WrongAt(file, line, "a character that is not ASCII behind a backslash");
        }
        i = next == i + 1 ? next : next - 1;  // what is escaped is no backslash of its own
      }
      line += static_cast<uint64_t>(std::count(text.begin() + at, text.begin() + after, '\n'));
      at = after;
      continue;
    }
    if (c == '#') {
      const size_t end = std::min(text.find_first_of("\r\n", at), text.size());
      at = end;
      continue;
    }
    line += c == '\n';
    // Between these there is one key at most.
    if (absl::string_view("\n=,[{").find(c) != absl::string_view::npos) parts = 1;
    parts += c == '.';
    if (parts > kMaxKeyParts) {
      return WrongAt(file, line, absl::StrCat("a key has more than ", kMaxKeyParts, " parts"));
    }
    ++at;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<toml::table> ParseToml(absl::string_view content, const std::string& file) {
  if (const absl::Status utf16 = table::RefuseUtf16(content); !utf16.ok()) {
    return WrongAt(file, 1, utf16.message());
  }
  absl::ConsumePrefix(&content, table::kByteOrderMark);
  SHOAL_RETURN_IF_ERROR(CheckToml(content, file));
  toml::parse_result parsed = toml::parse(std::string_view(content.data(), content.size()));
  if (!parsed) {
    const std::string_view what = parsed.error().description();
    return WrongAt(file, parsed.error().source().begin.line,
                   absl::StrCat("not TOML: ", absl::string_view(what.data(), what.size())));
  }
  return std::move(parsed).table();
}

bool IsConditional(const toml::node& need, std::span<const absl::string_view> conditions) {
  if (const toml::array* const list = need.as_array(); list != nullptr) {
    for (const toml::node& each : *list) {
      if (!IsConditional(each, conditions)) return false;
    }
    return !list->empty();
  }
  const toml::table* const table = need.as_table();
  return table != nullptr && std::ranges::any_of(conditions, [&](absl::string_view condition) {
           return table->contains(std::string_view(condition.data(), condition.size()));
         });
}

}  // namespace shoal::audit
