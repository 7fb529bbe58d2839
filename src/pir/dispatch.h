// The kernel in use: the fastest that this processor has, unless a test or a benchmark asks for
// another.
#ifndef SHOAL_SRC_PIR_DISPATCH_H_
#define SHOAL_SRC_PIR_DISPATCH_H_

#include <vector>

#include "src/pir/counter_stream.h"
#include "src/pir/kernel.h"

namespace shoal::pir {

// Slowest first; the portable one is always there.
std::vector<const Kernel*> SupportedKernels();

const Kernel& FastestKernel();

// How the public matrix is expanded beside that kernel, by instructions of the same age: null for
// OpenSSL, as with the portable one.
const CounterStream* StreamFor(const Kernel& kernel);

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_DISPATCH_H_
