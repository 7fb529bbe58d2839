// Sixteen lanes of AVX-512, which rotates in one instruction.
#include "src/sharing/kernel.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "src/sharing/kernel_lanes.h"

namespace shoal::sharing {
namespace {

struct Lanes {
  static constexpr unsigned kCount = 16;
  static constexpr bool kShuffleBytes = false;
};

}  // namespace

const Kernel* Avx512Kernel() {
  static constexpr Kernel kKernel = Batch<Lanes>::MakeKernel();
  return &kKernel;
}

}  // namespace shoal::sharing

#else

namespace shoal::sharing {
const Kernel* Avx512Kernel() { return nullptr; }
}  // namespace shoal::sharing

#endif
