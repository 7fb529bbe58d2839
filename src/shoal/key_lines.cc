#include "src/shoal/key_lines.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "src/base/bytes.h"
#include "src/base/printable.h"
#include "src/base/status_macros.h"
#include "src/table/records.h"

namespace shoal::commands {
namespace {

// A key has up to 4,096 bytes, each written with up to four.
constexpr size_t kMaxLineBytes = 1 << 16;

// The category Zs of Unicode.
bool IsBlank(char32_t code) {
  return code == ' ' || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

// ZWNJ, ZWJ, and the selectors of text and emoji.
bool IsOfScripts(char32_t code) {
  return code == 0x200c || code == 0x200d || code == 0xfe0e || code == 0xfe0f;
}

}  // namespace

absl::Status CheckKeyText(absl::string_view text) {
  if (text.find_first_not_of(" \t\r") == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        "the line is blank, and no key: remove it (with --escapes, \\x20 is a blank)");
  }
  if (absl::StrContains(text, '\0')) {
    return absl::InvalidArgumentError(
        "the key has a NUL byte. Is the text UTF-16? Then convert it: iconv -f UTF-16LE -t UTF-8 "
        "FILE (with --escapes, \\x00 is a NUL byte)");
  }
  bool first_blank = false, last_blank = false;
  for (BytesView rest = AsBytes(text); !rest.empty();) {
    const bool first = rest.size() == text.size();
    const Character character = FirstCharacter(rest);
    if (!character.is_utf8) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the key is not UTF-8: convert the text, for example: iconv -f ISO-8859-1 -t UTF-8 FILE "
          "(with --escapes, ",
          Printable(AsText(character.bytes)), " is the byte in question)"));
    }
    const absl::string_view shown = AsText(character.bytes);
    if (IsUnseen(character.code) && !IsOfScripts(character.code)) {
      return absl::InvalidArgumentError(absl::StrCat("the key has ", Printable(shown),
                                                     ", which nobody sees: remove it, or write it "
                                                     "so, with --escapes"));
    }
    last_blank = IsBlank(character.code);
    if (first) first_blank = last_blank;
    rest = rest.subspan(character.bytes.size());
  }
  if (first_blank || last_blank) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key ", first_blank ? "begins" : "ends",
                     " with a blank, which nobody sees: remove it (with --escapes, \\x20 is one)"));
  }
  return absl::OkStatus();
}

bool HasAccentsApart(absl::string_view text) {
  bool letter = false;
  for (BytesView rest = AsBytes(text); !rest.empty();) {
    const Character character = FirstCharacter(rest);
    if (letter && character.code >= 0x300 && character.code <= 0x36f) return true;
    letter = absl::ascii_isalpha(rest[0]);
    rest = rest.subspan(character.bytes.size());
  }
  return false;
}

absl::Status KeyLines::Feed(absl::string_view text) {
  for (size_t end; (end = text.find('\n')) != absl::string_view::npos;) {
    SHOAL_RETURN_IF_ERROR(Line(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  if (rest_.size() + text.size() > kMaxLineBytes) return TooLong();
  absl::StrAppend(&rest_, text);
  return absl::OkStatus();
}

absl::Status KeyLines::Finish() { return rest_.empty() ? absl::OkStatus() : Line(""); }

std::string KeyLines::Note() const {
  std::string what = mark_ ? "a byte order mark" : "";
  if (carriage_returns_ > 0) {
    absl::StrAppend(&what, mark_ ? " and " : "", "the carriage returns of ", carriage_returns_,
                    carriage_returns_ == 1 ? " line" : " lines");
  }
  return what.empty() ? "" : absl::StrCat(source_, ": left out of the keys: ", what);
}

absl::Status KeyLines::Line(absl::string_view end) {
  if (rest_.size() + end.size() > kMaxLineBytes) return TooLong();
  ++number_;
  absl::Status status;
  if (rest_.empty()) {
    status = Whole(end);
  } else {
    absl::StrAppend(&rest_, end);
    status = Whole(rest_);
    rest_.clear();
  }
  return status.ok() ? status : Annotate(status, absl::StrCat(source_, ":", number_));
}

absl::Status KeyLines::Whole(absl::string_view line) {
  if (number_ == 1) {
    SHOAL_RETURN_IF_ERROR(table::RefuseUtf16(line));
    mark_ = absl::ConsumePrefix(&line, table::kByteOrderMark);
  }
  if (absl::ConsumeSuffix(&line, "\r")) ++carriage_returns_;
  SHOAL_RETURN_IF_ERROR(CheckKeyText(line));
  return take_(line);
}

absl::Status KeyLines::TooLong() const {
  return absl::InvalidArgumentError(absl::StrCat(source_, ":", number_ + 1, ": has more than ",
                                                 kMaxLineBytes, " bytes: no table has such keys"));
}

}  // namespace shoal::commands
