// Sixteen lanes, as on AVX-512, compiled for AVX2: for tests of the one on machines that have only
// the other. Slow.
#ifndef SHOAL_SRC_SHARING_TESTING_KERNEL_WIDE_H_
#define SHOAL_SRC_SHARING_TESTING_KERNEL_WIDE_H_

#include "src/sharing/kernel.h"

namespace shoal::sharing::testing {

// Needs InstructionSet::kAvx2 where the build is for x86-64.
const Kernel* WideKernel();

}  // namespace shoal::sharing::testing

#endif  // SHOAL_SRC_SHARING_TESTING_KERNEL_WIDE_H_
