#include "src/shuffle/permutation.h"

#include <limits>
#include <utility>

#include "src/base/check.h"

namespace shoal::shuffle {

SecretVector<uint32_t> RandomPermutation(size_t n, RandomSource& random) {
  SHOAL_CHECK(n <= std::numeric_limits<uint32_t>::max());
  SecretVector<uint32_t> target(n);
  for (size_t i = 0; i < n; ++i) target[i] = static_cast<uint32_t>(i);
  for (size_t i = n; i > 1; --i) std::swap(target[i - 1], target[random.Below(i)]);
  return target;
}

}  // namespace shoal::shuffle
