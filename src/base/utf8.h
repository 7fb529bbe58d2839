#ifndef SHOAL_SRC_BASE_UTF8_H_
#define SHOAL_SRC_BASE_UTF8_H_

#include "src/base/bytes.h"

namespace shoal {

// Whether the bytes are valid UTF-8 (RFC 3629: no overlong forms, surrogates, or beyond U+10FFFF).
bool IsUtf8(BytesView bytes);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_UTF8_H_
