// Elements of the ring that are public, for both engines: how they are drawn, their digits, and the
// ring's operations.
#ifndef SHOAL_SRC_PIR_RLWE_RING_PUBLIC_H_
#define SHOAL_SRC_PIR_RLWE_RING_PUBLIC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/base/bytes.h"
#include "src/pir/rlwe/params.h"
#include "src/pir/rlwe/ring_kernel.h"

namespace shoal::pir::rlwe {

// Words of a ring element, prime after prime. In the domain of the transforms unless a name says
// `coefficients`.
inline constexpr size_t kPolynomialWords = kPrimes * kDegree;

// Words that are uniform below the primes, from the seed's stream of that number.
void ExpandRingPublic(const Digest& seed, uint32_t stream, std::span<uint32_t> out);

// The digits of a public polynomial in the domain of the transforms, there again. Digits have the
// mean -1/2, which alone would make the lowest frequency of every digit as large as all the rest of
// it: so coefficient w is negated before and after, if an odd number of
// neighbouring bits of w are both set (Rudin and Shapiro: these signs have no large frequency).
void PublicDigits(const RingKernel& kernel, const Gadget& gadget, const uint32_t* polynomial,
                  uint32_t* digits);

// a + b, a - b and a b, word by word.
void AddPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out);
void SubtractPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out);
void MultiplyPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_RING_PUBLIC_H_
