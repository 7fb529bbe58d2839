// Words of all ones or none in place of a condition, where a branch on it would tell a secret.
#ifndef SHOAL_SRC_BASE_MASKS_H_
#define SHOAL_SRC_BASE_MASKS_H_

#include <cstdint>

namespace shoal {

// All ones if the arguments are equal, else zero. In constant time.
inline uint64_t EqualMask(uint64_t a, uint64_t b) {
  const uint64_t differ = a ^ b;
  return ((differ | (0 - differ)) >> 63) - 1;
}

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_MASKS_H_
