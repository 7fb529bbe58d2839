// JSON for other programs: results of commands, lines of logs.
#ifndef SHOAL_SRC_CLI_JSON_H_
#define SHOAL_SRC_CLI_JSON_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/utf8.h"

namespace shoal::cli {

using shoal::IsUtf8;

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

}  // namespace shoal::cli

#endif  // SHOAL_SRC_CLI_JSON_H_
