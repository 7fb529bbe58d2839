#include "src/pir/rlwe/ring_kernel.h"

namespace shoal::pir::rlwe {

std::vector<const RingKernel*> SupportedRingKernels() {
  std::vector<const RingKernel*> kernels = {&PortableRingKernel()};
  if (Avx2RingKernel() != nullptr) kernels.push_back(Avx2RingKernel());
  if (Avx512RingKernel() != nullptr) kernels.push_back(Avx512RingKernel());
  return kernels;
}

const RingKernel& FastestRingKernel() {
  static const RingKernel& kernel = *SupportedRingKernels().back();
  return kernel;
}

}  // namespace shoal::pir::rlwe
