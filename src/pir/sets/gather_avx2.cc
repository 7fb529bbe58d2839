// Half a cache line an instruction.
#include "src/pir/sets/gather.h"

#if defined(__AVX2__)

#include "src/pir/sets/gather_bytes32.h"

namespace shoal::pir::sets {

const GatherKernel* Avx2Gather() {
  static constexpr GatherKernel kKernel = GatherOf<Bytes32>("avx2");
  return __builtin_cpu_supports("avx2") ? &kKernel : nullptr;
}

}  // namespace shoal::pir::sets

#else

namespace shoal::pir::sets {
const GatherKernel* Avx2Gather() { return nullptr; }
}  // namespace shoal::pir::sets

#endif
