// The kernel in use: the fastest that this processor has, unless a test or a benchmark asks for
// another.
#ifndef SHOAL_SRC_PIR_DISPATCH_H_
#define SHOAL_SRC_PIR_DISPATCH_H_

#include <vector>

#include "src/pir/kernel.h"

namespace shoal::pir {

// Slowest first; the portable one is always there.
std::vector<const Kernel*> SupportedKernels();

const Kernel& FastestKernel();

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_DISPATCH_H_
