// 32-bit words on the wire without their low bits, packed bit by bit.
#ifndef SHOAL_SRC_PIR_LWE_ROUNDING_H_
#define SHOAL_SRC_PIR_LWE_ROUNDING_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "src/base/bytes.h"

namespace shoal::pir::lwe {

// Bytes of `count` words of 32 - dropped bits each; dropped < 32.
uint64_t RoundedBytes(uint64_t count, uint32_t dropped);

// Appends the words, each rounded to the nearest multiple of 2^dropped modulo 2^32, low bits left
// out. Words follow one another, low bits first; the last byte is filled with zeros.
void AppendRounded(std::span<const uint32_t> words, uint32_t dropped, Bytes& out);

// Reads the multiples of 2^dropped back. INVALID_ARGUMENT unless `bytes` has exactly the right
// length and zeros after the last word.
absl::Status ParseRounded(BytesView bytes, uint32_t dropped, std::span<uint32_t> words);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_ROUNDING_H_
