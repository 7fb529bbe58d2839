// Text from outside as a terminal may get it. Files, names, tables and other parties' messages may
// hold characters that a terminal obeys instead of showing them (escape sequences, of C1 too), that
// turn the order of what is shown around (bidirectional controls), or that nobody sees.
#ifndef SHOAL_SRC_BASE_PRINTABLE_H_
#define SHOAL_SRC_BASE_PRINTABLE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"

namespace shoal {

// What begins a text: a character of UTF-8, or one byte that begins none.
struct Character {
  char32_t code = 0;  // of a byte that is not UTF-8: 0
  BytesView bytes;    // never empty
  bool is_utf8 = false;
};

// The first of `text`, which is not empty and outlives it. UTF-8 is as in RFC 3629: no overlong
// forms, surrogates, or beyond U+10FFFF.
Character FirstCharacter(BytesView text);

bool IsUtf8(BytesView bytes);

// Whether a character is a control, a separator of lines, or a format character: the categories Cc,
// Cf, Zl and Zp of Unicode 15, and the property Default_Ignorable_Code_Point.
bool IsUnseen(char32_t code);

// The text with what IsUnseen, and each byte that is not UTF-8, as \xHH: U+202E is \xe2\x80\xae, as
// table::EscapeTsv writes it. Line feed, tab and carriage return are \n, \t and \r, but for those
// in `kept`. A backslash stays alone, so that a text that went through here once stays as it is.
std::string Printable(absl::string_view text, absl::string_view kept = "");

// \xHH of each byte, at the end of `out`.
void AppendEscaped(BytesView bytes, std::string& out);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_PRINTABLE_H_
