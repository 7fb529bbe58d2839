// The kernel in use: the fastest that this processor has.
#ifndef SHOAL_SRC_PIR_SETS_GATHER_DISPATCH_H_
#define SHOAL_SRC_PIR_SETS_GATHER_DISPATCH_H_

#include <vector>

#include "src/pir/sets/gather.h"

namespace shoal::pir::sets {

// The kernels that this processor can run, the slowest (portable) first.
std::vector<const GatherKernel*> SupportedGathers();
const GatherKernel& FastestGather();

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_GATHER_DISPATCH_H_
