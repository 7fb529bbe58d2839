// Functions that make text for people and for other programs: JSON, sizes, times, states.
#ifndef SHOAL_SRC_SHOAL_FORMAT_H_
#define SHOAL_SRC_SHOAL_FORMAT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/wire/round.pb.h"

namespace shoal::commands {

// Whether the bytes are valid UTF-8 (RFC 3629: no overlong forms, surrogates, or beyond U+10FFFF).
bool IsUtf8(BytesView bytes);

// One JSON object (RFC 8259) on one line, member by member.
class JsonObject {
 public:
  JsonObject& Text(absl::string_view name, absl::string_view value);
  // Bytes that are not UTF-8 become a member NAME_hex with hexadecimal digits.
  JsonObject& Blob(absl::string_view name, BytesView value);
  JsonObject& Number(absl::string_view name, double value);  // null if not finite
  JsonObject& Integer(absl::string_view name, uint64_t value);
  JsonObject& Bool(absl::string_view name, bool value);
  // Adds `json`, an object or an array, as it is.
  JsonObject& Raw(absl::string_view name, absl::string_view json);
  std::string Take() { return text_ + "}"; }

 private:
  JsonObject& Member(absl::string_view name, absl::string_view json);
  std::string text_ = "{";
};

// "[a,b]" from objects.
template <typename Strings>
std::string JsonArray(const Strings& items) {
  std::string out = "[";
  for (const std::string& item : items) {
    if (out.size() > 1) out += ",";
    out += item;
  }
  return out + "]";
}

// Text from elsewhere, made safe for a terminal: control characters are replaced by '?'.
std::string Printable(absl::string_view text);

// "OPEN_FOR_ONIONS" as "open for onions".
std::string StateName(wire::RoundState state);

// "12,345".
std::string WithCommas(uint64_t number);
// "1.2 MB".
std::string BytesText(double bytes);
// "90 s", "12 min", "3 h 5 min", "6 d 23 h".
std::string DurationText(uint64_t seconds);

}  // namespace shoal::commands

#endif  // SHOAL_SRC_SHOAL_FORMAT_H_
