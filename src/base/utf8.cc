#include "src/base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace shoal {

bool IsUtf8(BytesView bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const uint8_t lead = bytes[i];
    size_t more = 0;
    uint32_t point = 0;
    if (lead < 0x80) {
      ++i;
      continue;
    } else if ((lead & 0xe0) == 0xc0) {
      more = 1;
      point = lead & 0x1f;
    } else if ((lead & 0xf0) == 0xe0) {
      more = 2;
      point = lead & 0x0f;
    } else if ((lead & 0xf8) == 0xf0) {
      more = 3;
      point = lead & 0x07;
    } else {
      return false;
    }
    if (bytes.size() - i <= more) return false;
    for (size_t k = 1; k <= more; ++k) {
      if ((bytes[i + k] & 0xc0) != 0x80) return false;
      point = point << 6 | (bytes[i + k] & 0x3f);
    }
    constexpr uint32_t kSmallest[] = {0, 0x80, 0x800, 0x10000};
    if (point < kSmallest[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
      return false;
    }
    i += more + 1;
  }
  return true;
}

}  // namespace shoal
