#include "src/roster/names.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/roster/roster.h"

namespace shoal::roster {

absl::Status CheckName(absl::string_view what, absl::string_view name) {
  bool good = !name.empty() && name.size() <= kMaxNameBytes && absl::ascii_isalnum(name[0]);
  for (const char c : name) {
    good = good && (absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-');
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": a name has 1 to ", kMaxNameBytes,
                   " letters, digits, '.', '_' or '-', and begins with a letter or digit"));
}

absl::Status CheckAddress(absl::string_view what, absl::string_view address) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat(what, ": an address is host:port, or [IPv6 address]:port"));
  if (address.size() > kMaxAddressBytes) return error;
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return error;
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port_text = address.substr(colon + 1);
  uint32_t port = 0;
  if (port_text.empty() || port_text.size() > 5 || !absl::ascii_isdigit(port_text[0]) ||
      !absl::SimpleAtoi(port_text, &port) || port == 0 || port > 65535) {
    return error;
  }
  const bool bracketed = host.front() == '[';
  if (bracketed) {
    if (host.size() < 4 || host.back() != ']') return error;
    host = host.substr(1, host.size() - 2);
  }
  for (const char c : host) {
    const bool good = absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' ||
                      (bracketed && (c == ':' || c == '%'));
    if (!good) return error;
  }
  return absl::OkStatus();
}

}  // namespace shoal::roster
