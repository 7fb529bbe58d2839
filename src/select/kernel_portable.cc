// For any processor, and what the others are tested against.
#include "src/select/kernel_impl.h"

namespace shoal::select {

const Kernel* PortableKernel() {
  static constexpr Kernel kKernel = KernelOf<Register<16>>();
  return &kKernel;
}

}  // namespace shoal::select
