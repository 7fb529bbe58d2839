#include "src/pir/sets/gather_dispatch.h"

namespace shoal::pir::sets {

std::vector<const GatherKernel*> SupportedGathers() {
  std::vector<const GatherKernel*> kernels = {&PortableGather()};
  if (Avx2Gather() != nullptr) kernels.push_back(Avx2Gather());
  if (Avx512Gather() != nullptr) kernels.push_back(Avx512Gather());
  return kernels;
}

const GatherKernel& FastestGather() {
  static const GatherKernel& kernel = *SupportedGathers().back();
  return kernel;
}

}  // namespace shoal::pir::sets
