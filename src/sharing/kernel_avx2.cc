// Eight lanes of AVX2.
#include "src/sharing/kernel.h"

#ifdef __AVX2__

#include "src/sharing/kernel_lanes.h"

namespace shoal::sharing {
namespace {

struct Lanes {
  static constexpr unsigned kCount = 8;
  static constexpr bool kShuffleBytes = true;
};

}  // namespace

const Kernel* Avx2Kernel() {
  static constexpr Kernel kKernel = Batch<Lanes>::MakeKernel();
  return &kKernel;
}

}  // namespace shoal::sharing

#else

namespace shoal::sharing {
const Kernel* Avx2Kernel() { return nullptr; }
}  // namespace shoal::sharing

#endif
