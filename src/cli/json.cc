#include "src/cli/json.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal::cli {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          absl::StrAppendFormat(&out, "\\u%04x", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

}  // namespace

JsonObject& JsonObject::Member(absl::string_view name, absl::string_view json) {
  if (text_.size() > 1) text_ += ",";
  absl::StrAppend(&text_, Quoted(name), ":", json);
  return *this;
}

JsonObject& JsonObject::Text(absl::string_view name, absl::string_view value) {
  return Member(name, Quoted(value));
}

JsonObject& JsonObject::Blob(absl::string_view name, BytesView value) {
  if (IsUtf8(value)) return Text(name, AsText(value));
  return Text(absl::StrCat(name, "_hex"), Hex(value));
}

JsonObject& JsonObject::Number(absl::string_view name, double value) {
  return Member(name, std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null");
}

JsonObject& JsonObject::Integer(absl::string_view name, uint64_t value) {
  return Member(name, absl::StrCat(value));
}

JsonObject& JsonObject::Bool(absl::string_view name, bool value) {
  return Member(name, value ? "true" : "false");
}

JsonObject& JsonObject::Raw(absl::string_view name, absl::string_view json) {
  return Member(name, json);
}

}  // namespace shoal::cli
