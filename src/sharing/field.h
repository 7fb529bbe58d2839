// The field Z_p of tallies, p = 2^31 - 1 (a Mersenne prime).
#ifndef SHOAL_SRC_SHARING_FIELD_H_
#define SHOAL_SRC_SHARING_FIELD_H_

#include <cstdint>

namespace shoal::sharing {

inline constexpr uint32_t kModulus = (1u << 31) - 1;

// The unique representative below p of any x < 2^62. No branch: operands are secret.
inline uint32_t Reduce(uint64_t x) {
  x = (x & kModulus) + (x >> 31);  // < 2^32
  x = (x & kModulus) + (x >> 31);  // <= p
  const uint64_t difference = x - kModulus;
  const uint64_t below = -(difference >> 63);  // all ones if x < p
  return static_cast<uint32_t>(difference + (kModulus & below));
}

inline uint32_t MulAdd(uint32_t a, uint32_t b, uint32_t c) {
  return Reduce(static_cast<uint64_t>(a) * b + c);
}

inline uint32_t Sub(uint32_t a, uint32_t b) {
  return Reduce(static_cast<uint64_t>(a) + kModulus - b);
}

// a^(p-2): the inverse of a in [1, p). The exponent is public, the time constant.
uint32_t Inverse(uint32_t a);

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_FIELD_H_
