// The kernel in use: the fastest that this processor has, unless a test or a benchmark asks for
// another.
#ifndef SHOAL_SRC_PIR_LWE_DISPATCH_H_
#define SHOAL_SRC_PIR_LWE_DISPATCH_H_

#include <vector>

#include "src/pir/aes/counter_stream.h"
#include "src/pir/lwe/kernel.h"

namespace shoal::pir::lwe {

// The kernels that this processor can run, the slowest (portable) first.
std::vector<const Kernel*> SupportedKernels();

const Kernel& FastestKernel();

// The stream that expands the public matrix when `kernel` is used: one of the same generation of
// instructions. Null means OpenSSL, as with the portable kernel.
const CounterStream* StreamFor(const Kernel& kernel);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_DISPATCH_H_
