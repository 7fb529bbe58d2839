// What a query of `hintless` has in common with all others of its table: public parts, derived from
// the table's id and the shape's draw; and the order of values in which automorphisms are
// rotations.
#ifndef SHOAL_SRC_PIR_RLWE_HINTLESS_PUBLIC_H_
#define SHOAL_SRC_PIR_RLWE_HINTLESS_PUBLIC_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/bytes.h"
#include "src/pir/rlwe/hintless_shape.h"
#include "src/pir/rlwe/params.h"

namespace shoal::pir::rlwe {

// Elements of the public parts: of the two keys, modulo Q, and of a block of columns, modulo 2^32.
inline constexpr uint32_t kRotationKey = 0;     // X -> X^5
inline constexpr uint32_t kConjugationKey = 1;  // X -> X^-1

Digest HintlessPublicSeed(const wire::PirSetup& setup, const HintlessShape& shape);

// The public part of a key, as ExpandRingPublic.
std::vector<uint32_t> ExpandCollapseKey(const Digest& seed, uint32_t key);

// a_j of block j of the columns, uniform modulo 2^32, as numbers in [-2^31, 2^31): transformed.
std::vector<uint32_t> ExpandColumnBlock(const Digest& seed, uint64_t block);

// The number of that residues are, less Q if it is above Q / 2.
int64_t ComposeSigned(uint32_t low, uint32_t high);

// Values of a transformed polynomial in the order of their points: place h 1024 + a has the value
// at the root's power (-1)^h 5^a. X -> X^5 moves a value one place back in each half, and X -> X^-1
// exchanges the halves.
class Orbit {
 public:
  static const Orbit& Get();
  // The word of a transform that is at this place, of either prime.
  uint32_t word(size_t place) const { return word_[place]; }
  void To(const uint32_t* words, uint32_t* places) const {
    for (size_t i = 0; i < kDegree; ++i) places[i] = words[word_[i]];
  }
  void From(const uint32_t* places, uint32_t* words) const {
    for (size_t i = 0; i < kDegree; ++i) words[word_[i]] = places[i];
  }
  // The place whose value X -> X^(sign 5^rotation) brings to `place`.
  static size_t Source(size_t place, size_t rotation, bool negative) {
    return ((place ^ (negative ? kOrbit : 0)) & kOrbit) | ((place + rotation) % kOrbit);
  }

 private:
  Orbit();
  std::array<uint32_t, kDegree> word_;
};

// A key's polynomial in the order of places as the kernel's `slide` takes it: pairs of words, each
// half twice in a row. Words: kSlidingWords.
inline constexpr size_t kSlidingWords = kPrimes * 2 * kDegree;
void MakeSliding(const uint32_t* transformed, uint32_t* sliding);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_HINTLESS_PUBLIC_H_
