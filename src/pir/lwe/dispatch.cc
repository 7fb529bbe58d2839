#include "src/pir/lwe/dispatch.h"

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

std::vector<const CounterStream*> SupportedStreams() {
  std::vector<const CounterStream*> streams;
  for (const CounterStream* stream : {AesNiStream(), Vaes256Stream(), Vaes512Stream()}) {
    if (stream != nullptr) streams.push_back(stream);
  }
  return streams;
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
