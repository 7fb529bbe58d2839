#include "src/cli/json.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal::cli {
namespace {

void AppendEscape(char32_t code, std::string& out) {
  if (code < 0x10000) {
    absl::StrAppendFormat(&out, "\\u%04x", static_cast<uint32_t>(code));
    return;
  }
  const uint32_t rest = static_cast<uint32_t>(code) - 0x10000;  // a pair of surrogates
  absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xd800 + (rest >> 10), 0xdc00 + (rest & 0x3ff));
}

std::string Quoted(absl::string_view text) {
  std::string out = "\"";
  for (BytesView rest = AsBytes(text); !rest.empty();) {
    const Character character = FirstCharacter(rest);
    rest = rest.subspan(character.bytes.size());
    if (!character.is_utf8) {
      // As text of its own, which begins with a backslash.
      out += "\\";
      AppendEscaped(character.bytes, out);
    } else if (character.code == '"' || character.code == '\\') {
      out += '\\';
      out += static_cast<char>(character.code);
    } else if (character.code == '\n') {
      out += "\\n";
    } else if (character.code == '\r') {
      out += "\\r";
    } else if (character.code == '\t') {
      out += "\\t";
    } else if (IsUnseen(character.code)) {
      AppendEscape(character.code, out);
    } else {
      absl::StrAppend(&out, AsText(character.bytes));
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
