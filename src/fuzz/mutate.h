// Small changes to inputs, as a damaged disk or a curious stranger makes them.
#ifndef SHOAL_SRC_FUZZ_MUTATE_H_
#define SHOAL_SRC_FUZZ_MUTATE_H_

#include <span>

#include "src/base/bytes.h"
#include "src/base/random.h"

namespace shoal::fuzz {

// One of `seeds`, which are not none, changed in one to four places: bits and bytes, numbers at
// their limits, parts cut out, repeated, moved, or taken from another seed. A function of `random`.
Bytes Mutate(std::span<const Bytes> seeds, RandomSource& random);

}  // namespace shoal::fuzz

#endif  // SHOAL_SRC_FUZZ_MUTATE_H_
