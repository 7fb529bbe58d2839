// A cache line an instruction.
#include "src/pir/sets/gather.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)

#include "src/pir/sets/gather_bytes32.h"

namespace shoal::pir::sets {
namespace {

struct Bytes64 {
  static constexpr size_t kBytes = 64;
  using Narrower = Bytes32;
  __m512i v;

  SHOAL_INLINE static Bytes64 Load(const uint8_t* from) { return {_mm512_loadu_si512(from)}; }
  SHOAL_INLINE void Store(uint8_t* to) const { _mm512_storeu_si512(to, v); }
  SHOAL_INLINE Bytes64 operator^(Bytes64 other) const { return {_mm512_xor_si512(v, other.v)}; }
};

}  // namespace

const GatherKernel* Avx512Gather() {
  static constexpr GatherKernel kKernel = GatherOf<Bytes64>("avx512");
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512vl")
             ? &kKernel
             : nullptr;
}

}  // namespace shoal::pir::sets

#else

namespace shoal::pir::sets {
const GatherKernel* Avx512Gather() { return nullptr; }
}  // namespace shoal::pir::sets

#endif
