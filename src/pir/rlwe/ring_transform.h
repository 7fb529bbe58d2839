// Number-theoretic transforms modulo the primes of params.h: from kDegree coefficients of a
// polynomial modulo X^kDegree + 1 to its values at the odd powers of a root of unity of order
// 2 kDegree, and back. Products of polynomials are word by word there.
//
// Queries are sent like this, so that the order of the values is part of the protocol
// (docs/protocol.md); all kernels have it. Words are below the prime before and after.
// Neither time nor addresses depend on words.
#ifndef SHOAL_SRC_PIR_RLWE_RING_TRANSFORM_H_
#define SHOAL_SRC_PIR_RLWE_RING_TRANSFORM_H_

#include <cstdint>

#include "src/pir/rlwe/ring_kernel.h"

namespace shoal::pir::rlwe {

// In place, by the fastest kernel unless another is named.
void Transform(uint32_t k, uint32_t* words, const RingKernel& kernel = FastestRingKernel());
void TransformBack(uint32_t k, uint32_t* words, const RingKernel& kernel = FastestRingKernel());
// All primes' words of a polynomial, one prime after the other.
void TransformAll(uint32_t* polynomial);
void TransformAllBack(uint32_t* polynomial);

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_RING_TRANSFORM_H_
