// Four lanes of the vector instructions that every processor of the build's architecture has: SSE2
// or NEON.
#include "src/sharing/kernel_lanes.h"

namespace shoal::sharing {
namespace {

struct Lanes {
  static constexpr unsigned kCount = 4;
  static constexpr bool kShuffleBytes = false;
};

}  // namespace

const Kernel* PortableKernel() {
  static constexpr Kernel kKernel = Batch<Lanes>::MakeKernel();
  return &kKernel;
}

}  // namespace shoal::sharing
