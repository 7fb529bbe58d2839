#include "src/pir/rlwe/ring_words.h"

#include "src/base/check.h"
#include "src/pir/rlwe/ring_kernel_impl.h"

namespace shoal::pir::rlwe {
namespace {

constexpr uint64_t kInverse = InverseModulo(kPrime[0], kPrime[1]);
// Words that take whole bytes together.
constexpr size_t kTogether = 8;

}  // namespace

void AppendResidues(std::span<const uint32_t> polynomial, Bytes& out) {
  SHOAL_CHECK(polynomial.size() % kTogether == 0);
  for (size_t i = 0; i < polynomial.size(); i += kTogether) {
    unsigned __int128 bits = 0;
    uint32_t held = 0;
    for (size_t j = 0; j < kTogether; ++j) {
      bits |= static_cast<unsigned __int128>(polynomial[i + j]) << held;
      held += kPrimeBits;
      for (; held >= 8; held -= 8, bits >>= 8) out.push_back(static_cast<uint8_t>(bits));
    }
  }
}

absl::Status ReadResidues(BytesView bytes, std::span<uint32_t> polynomial) {
  SHOAL_CHECK(polynomial.size() == kPrimes * kDegree &&
              bytes.size() * 8 == polynomial.size() * kPrimeBits);
  const uint8_t* next = bytes.data();
  bool fits = true;
  for (size_t i = 0; i < polynomial.size(); i += kTogether) {
    uint64_t bits = 0;
    uint32_t held = 0;
    for (size_t j = 0; j < kTogether; ++j) {
      for (; held < kPrimeBits; held += 8) bits |= uint64_t{*next++} << held;
      polynomial[i + j] = static_cast<uint32_t>(bits) & ((1u << kPrimeBits) - 1);
      bits >>= kPrimeBits;
      held -= kPrimeBits;
      fits &= polynomial[i + j] < kPrime[i / kDegree];
    }
  }
  return fits ? absl::OkStatus()
              : absl::InvalidArgumentError("smallpir: a word of the query is not below its prime");
}

uint64_t Compose(uint32_t low, uint32_t high) {
  const uint64_t step = (high + 2 * uint64_t{kPrime[1]} - low) * kInverse % kPrime[1];
  return low + step * kPrime[0];
}

}  // namespace shoal::pir::rlwe
