// Prints the ranges of characters that IsUnseen, "first last" in decimal, one a line.
#include <cstdio>

#include "src/base/printable.h"

int main() {
  bool inside = false;
  for (char32_t code = 0; code <= 0x110000; ++code) {
    const bool unseen = code < 0x110000 && shoal::IsUnseen(code);
    if (unseen && !inside) std::printf("%u ", static_cast<unsigned>(code));
    if (!unseen && inside) std::printf("%u\n", static_cast<unsigned>(code - 1));
    inside = unseen;
  }
  return 0;
}
