#ifndef SHOAL_SRC_BASE_ASCII_H_
#define SHOAL_SRC_BASE_ASCII_H_

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Whether a text has letters and digits of ASCII and these symbols, one at least, and nothing else.
inline bool IsOfAlnumAnd(absl::string_view symbols, absl::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [&](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains(symbols, c);
  });
}

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_ASCII_H_
