#include "src/pir/lwe/dispatch.h"

#include "src/pir/aes/streams.h"

namespace shoal::pir::lwe {

std::vector<const Kernel*> SupportedKernels() {
  std::vector<const Kernel*> kernels = {&PortableKernel()};
  if (Avx2Kernel() != nullptr) kernels.push_back(Avx2Kernel());
  if (VnniKernel() != nullptr) kernels.push_back(VnniKernel());
  return kernels;
}

const Kernel& FastestKernel() {
  static const Kernel& kernel = *SupportedKernels().back();
  return kernel;
}

const CounterStream* StreamFor(const Kernel& kernel) {
  const CounterStream* best = nullptr;
  if (&kernel == &PortableKernel()) return best;
  for (const CounterStream* stream : SupportedStreams()) {
    if (&kernel == VnniKernel() || stream != Vaes512Stream()) best = stream;
  }
  return best;
}

}  // namespace shoal::pir::lwe
