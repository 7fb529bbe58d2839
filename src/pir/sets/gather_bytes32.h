// Half a cache line a register. Private to the gather_*.cc files that are compiled for AVX2 at
// least.
#ifndef SHOAL_SRC_PIR_SETS_GATHER_BYTES32_H_
#define SHOAL_SRC_PIR_SETS_GATHER_BYTES32_H_

#include <immintrin.h>

#include "src/pir/sets/gather_impl.h"

namespace shoal::pir::sets {
namespace {  // NOLINT: every file that includes this has its own

struct Bytes32 {
  static constexpr size_t kBytes = 32;
  using Narrower = WordRegister;
  __m256i v;

  SHOAL_INLINE static Bytes32 Load(const uint8_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }
  SHOAL_INLINE void Store(uint8_t* to) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v);
  }
  SHOAL_INLINE Bytes32 operator^(Bytes32 other) const { return {_mm256_xor_si256(v, other.v)}; }
};

}  // namespace
}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_GATHER_BYTES32_H_
