#include "src/pir/lwe/rounding.h"

#include "absl/strings/str_format.h"
#include "src/base/check.h"

namespace shoal::pir::lwe {

uint64_t RoundedBytes(uint64_t count, uint32_t dropped) {
  SHOAL_CHECK(dropped < 32);
  return (count * (32 - dropped) + 7) / 8;
}

void AppendRounded(std::span<const uint32_t> words, uint32_t dropped, Bytes& out) {
  const uint32_t width = 32 - dropped;
  const uint32_t half = dropped == 0 ? 0 : 1u << (dropped - 1);
  size_t at = out.size();
  out.resize(at + RoundedBytes(words.size(), dropped));
  uint64_t bits = 0;
  uint32_t held = 0;
  for (uint32_t word : words) {
    bits |= static_cast<uint64_t>((word + half) >> dropped) << held;
    held += width;
    while (held >= 8) {
      out[at++] = static_cast<uint8_t>(bits);
      bits >>= 8;
      held -= 8;
    }
  }
  if (held > 0) out[at++] = static_cast<uint8_t>(bits);
  SHOAL_CHECK(at == out.size());
}

absl::Status ParseRounded(BytesView bytes, uint32_t dropped, std::span<uint32_t> words) {
  if (bytes.size() != RoundedBytes(words.size(), dropped)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("pir: %d bytes where %d words of %d bits take %d", bytes.size(),
                        words.size(), 32 - dropped, RoundedBytes(words.size(), dropped)));
  }
  const uint32_t width = 32 - dropped;
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint64_t bits = 0;
  uint32_t held = 0;
  size_t at = 0;
  for (uint32_t& word : words) {
    while (held < width) {
      bits |= static_cast<uint64_t>(bytes[at++]) << held;
      held += 8;
    }
    word = static_cast<uint32_t>((bits & mask) << dropped);
    bits >>= width;
    held -= width;
  }
  if (bits != 0) return absl::InvalidArgumentError("pir: bits after the last word");
  return absl::OkStatus();
}

}  // namespace shoal::pir::lwe
