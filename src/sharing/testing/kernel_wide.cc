#include "src/sharing/testing/kernel_wide.h"

#include "src/sharing/kernel_lanes.h"

namespace shoal::sharing::testing {
namespace {

struct Lanes {
  static constexpr unsigned kCount = 16;
  static constexpr bool kShuffleBytes = false;
};

}  // namespace

const Kernel* WideKernel() {
  static constexpr Kernel kKernel = Batch<Lanes>::MakeKernel();
  return &kKernel;
}

}  // namespace shoal::sharing::testing
