#include "src/base/printable.h"

#include <algorithm>
#include <iterator>

namespace shoal {
namespace {

struct Range {
  char32_t first, last;
};

// In their order. //src/base:printable_unicode_test compares them with Unicode's own tables.
constexpr Range kUnseen[] = {
    {0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},       {0x34f, 0x34f},
    {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
    {0x890, 0x891},     {0x8e2, 0x8e2},     {0x115f, 0x1160},   {0x17b4, 0x17b5},
    {0x180b, 0x180f},   {0x200b, 0x200f},   {0x2028, 0x202e},   {0x2060, 0x206f},
    {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},   {0xffa0, 0xffa0},
    {0xfff0, 0xfffb},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
};

}  // namespace

Character FirstCharacter(BytesView text) {
  const Character none = {.code = 0, .bytes = text.first(1), .is_utf8 = false};
  const uint8_t lead = text[0];
  size_t length;
  char32_t code;
  if (lead < 0x80) {
    length = 1;
    code = lead;
  } else if (lead >= 0xc2 && lead < 0xe0) {
    length = 2;
    code = lead & 0x1f;
  } else if (lead >= 0xe0 && lead < 0xf0) {
    length = 3;
    code = lead & 0x0f;
  } else if (lead >= 0xf0 && lead < 0xf5) {
    length = 4;
    code = lead & 0x07;
  } else {
    return none;
  }
  if (text.size() < length) return none;
  for (size_t i = 1; i < length; ++i) {
    if ((text[i] & 0xc0) != 0x80) return none;
    code = code << 6 | (text[i] & 0x3f);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (overlong || surrogate || code > 0x10ffff) return none;
  return {.code = code, .bytes = text.first(length), .is_utf8 = true};
}

bool IsUtf8(BytesView bytes) {
  while (!bytes.empty()) {
    const Character character = FirstCharacter(bytes);
    if (!character.is_utf8) return false;
    bytes = bytes.subspan(character.bytes.size());
  }
  return true;
}

bool IsUnseen(char32_t code) {
  const Range* const range = std::lower_bound(
      std::begin(kUnseen), std::end(kUnseen), code,
      [](const Range& candidate, char32_t wanted) { return candidate.last < wanted; });
  return range != std::end(kUnseen) && range->first <= code;
}

void AppendEscaped(BytesView bytes, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const uint8_t byte : bytes) {
    out += "\\x";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
}

std::string Printable(absl::string_view text, absl::string_view kept) {
  std::string out;
  out.reserve(text.size());
  for (BytesView rest = AsBytes(text); !rest.empty();) {
    // Most text is ASCII, and goes by whole runs.
    const auto plain = static_cast<size_t>(
        std::ranges::find_if(rest, [](uint8_t c) { return c < 0x20 || c > 0x7e; }) - rest.begin());
    if (plain > 0) {
      out.append(AsText(rest).data(), plain);
      rest = rest.subspan(plain);
      continue;
    }
    const Character character = FirstCharacter(rest);
    rest = rest.subspan(character.bytes.size());
    const absl::string_view shown = AsText(character.bytes);
    if (!character.is_utf8) {
      AppendEscaped(character.bytes, out);
    } else if (!IsUnseen(character.code) || kept.find(shown) != absl::string_view::npos) {
      out.append(shown.data(), shown.size());
    } else if (shown == "\n") {
      out += "\\n";
    } else if (shown == "\t") {
      out += "\\t";
    } else if (shown == "\r") {
      out += "\\r";
    } else {
      AppendEscaped(character.bytes, out);
    }
  }
  return out;
}

}  // namespace shoal
