// A party's secret permutation of its live messages and its noise (paper, algorithm 2, step 5).
#ifndef SHOAL_SRC_SHUFFLE_PERMUTATION_H_
#define SHOAL_SRC_SHUFFLE_PERMUTATION_H_

#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "src/base/secret.h"

namespace shoal::shuffle {

// target[i] is where item i goes: a bijection on [0, n), uniform over all n! of them as far as the
// source is uniform (Fisher-Yates; Knuth's algorithm P), n below 2^32. One pass, 8 random bytes
// and one random access an item.
SecretVector<uint32_t> RandomPermutation(size_t n, RandomSource& random);

}  // namespace shoal::shuffle

#endif  // SHOAL_SRC_SHUFFLE_PERMUTATION_H_
