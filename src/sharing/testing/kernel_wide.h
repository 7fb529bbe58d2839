// The sixteen-lane kernel of AVX-512, compiled for AVX2: for tests on machines without AVX-512.
// Slow.
#ifndef SHOAL_SRC_SHARING_TESTING_KERNEL_WIDE_H_
#define SHOAL_SRC_SHARING_TESTING_KERNEL_WIDE_H_

#include "src/sharing/kernel.h"

namespace shoal::sharing::testing {

// Needs InstructionSet::kAvx2 where the build is for x86-64.
const Kernel* WideKernel();

}  // namespace shoal::sharing::testing

#endif  // SHOAL_SRC_SHARING_TESTING_KERNEL_WIDE_H_
