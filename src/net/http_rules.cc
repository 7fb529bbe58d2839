#include "src/net/http_rules.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "src/base/ascii.h"
#include "src/base/status_macros.h"

namespace shoal::net {
namespace {

constexpr absl::string_view kLineEnd = "\r\n";
// More digits than any body has that is taken.
constexpr size_t kMostDigits = 15;

// RFC 9110, section 5.6.2.
bool IsToken(absl::string_view text) { return IsOfAlnumAnd("!#$%&'*+-.^_`|~", text); }

// Without the optional white space around it: spaces and tabs.
absl::string_view Trim(absl::string_view value) {
  const size_t first = value.find_first_not_of(" \t");
  if (first == absl::string_view::npos) return {};
  return value.substr(first, value.find_last_not_of(" \t") - first + 1);
}

bool IsLength(absl::string_view value) {
  // Some programs take a number that begins with 0 for an octal one.
  const bool shortest = value == "0" || !absl::StartsWith(value, "0");
  return shortest && !value.empty() && value.size() <= kMostDigits &&
         std::ranges::all_of(value, absl::ascii_isdigit);
}

// RFC 3986, section 3.2.2, with a port. Empty for a target that has no host.
bool IsHost(absl::string_view value) {
  return value.empty() || IsOfAlnumAnd("-._~%!$&'()*+,;=:[]", value);
}

absl::Status Bad(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Whether it is HTTP/1.1, in place of HTTP/1.0.
absl::StatusOr<bool> CheckRequestLine(absl::string_view line) {
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ');
  if (words.size() != 3 || !IsToken(words[0]) || words[1].empty() ||
      !std::ranges::all_of(words[1], absl::ascii_isgraph)) {
    return Bad("the first line is not METHOD TARGET HTTP/1.1");
  }
  if (words[2] != "HTTP/1.0" && words[2] != "HTTP/1.1") return Bad("neither HTTP/1.1 nor HTTP/1.0");
  return words[2] == "HTTP/1.1";
}

}  // namespace

absl::StatusOr<std::optional<size_t>> FindHead(absl::string_view begun) {
  for (size_t i = 0; i < begun.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(begun[i]);
    const bool after_return = i > 0 && begun[i - 1] == '\r';
    if ((c == '\n') != after_return) {
      return Bad("a carriage return or a line feed without the other");
    }
    if (c == '\n') {
      if (i >= 3 && begun.substr(i - 3, 4) == "\r\n\r\n") return i + 1;
    } else if (absl::ascii_iscntrl(c) && c != '\t' && c != '\r') {
      return Bad("a control character in the head of a request");
    }
  }
  return std::nullopt;
}

absl::Status CheckHead(absl::string_view head) {
  if (!absl::ConsumeSuffix(&head, "\r\n\r\n")) return Bad("the head of the request has no end");
  const std::vector<absl::string_view> lines = absl::StrSplit(head, kLineEnd);
  SHOAL_ASSIGN_OR_RETURN(const bool is_11, CheckRequestLine(lines.front()));
  int hosts = 0, connections = 0, lengths = 0, encodings = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const absl::string_view line = lines[i];
    if (absl::StartsWith(line, " ") || absl::StartsWith(line, "\t")) {
      return Bad("a field that goes on in a second line");
    }
    const size_t colon = line.find(':');
    const absl::string_view name = line.substr(0, colon);
    if (colon == absl::string_view::npos || !IsToken(name)) {
      return Bad("a line that is not NAME: VALUE");
    }
    const absl::string_view value = Trim(line.substr(colon + 1));
    if (absl::EqualsIgnoreCase(name, "Host")) {
      ++hosts;
      if (!IsHost(value)) return Bad("Host is not HOST or HOST:PORT");
    } else if (absl::EqualsIgnoreCase(name, "Connection")) {
      ++connections;
    } else if (absl::EqualsIgnoreCase(name, "Content-Length")) {
      ++lengths;
      if (!IsLength(value)) return Bad("Content-Length is not one decimal number");
    } else if (absl::EqualsIgnoreCase(name, "Transfer-Encoding")) {
      ++encodings;
      if (!absl::EqualsIgnoreCase(value, "chunked")) {
        return Bad("Transfer-Encoding: this server takes chunked alone");
      }
    }
  }
  if (hosts > 1 || (is_11 && hosts == 0)) return Bad("a request has one Host");
  // Beast reads the first alone, and "close" may stand in another one.
  if (connections > 1) return Bad("Connection twice");
  if (lengths > 1) return Bad("Content-Length twice");
  if (encodings > 1) return Bad("Transfer-Encoding twice");
  if (lengths > 0 && encodings > 0) return Bad("both Content-Length and Transfer-Encoding");
  if (encodings > 0 && !is_11) return Bad("Transfer-Encoding in HTTP/1.0");
  return absl::OkStatus();
}

absl::string_view PathOf(absl::string_view target) {
  for (const absl::string_view scheme : {"http://", "https://", "ws://", "wss://"}) {
    if (!absl::StartsWithIgnoreCase(target, scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    if (path == scheme.size()) break;  // without a host
    if (path == absl::string_view::npos || target[path] == '?') return "/";
    target.remove_prefix(path);
    break;
  }
  return target.substr(0, target.find('?'));
}

bool IsMediaType(absl::string_view value, absl::string_view type) {
  return absl::EqualsIgnoreCase(Trim(value.substr(0, value.find(';'))), type);
}

}  // namespace shoal::net
