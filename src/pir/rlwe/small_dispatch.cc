#include "src/pir/rlwe/small_kernel.h"

namespace shoal::pir::rlwe {

std::vector<const SmallKernel*> SupportedSmallKernels() {
  std::vector<const SmallKernel*> kernels = {&PortableSmallKernel()};
  if (Avx2SmallKernel() != nullptr) kernels.push_back(Avx2SmallKernel());
  if (Avx512SmallKernel() != nullptr) kernels.push_back(Avx512SmallKernel());
  return kernels;
}

const SmallKernel& FastestSmallKernel() {
  static const SmallKernel& kernel = *SupportedSmallKernels().back();
  return kernel;
}

}  // namespace shoal::pir::rlwe
