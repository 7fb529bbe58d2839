// Half a cache line a register.
#include "src/select/kernel.h"

#if defined(__AVX2__)

#include "src/select/kernel_impl.h"

namespace shoal::select {

const Kernel* Avx2Kernel() {
  static constexpr Kernel kKernel = KernelOf<Register<32>>();
  return &kKernel;
}

}  // namespace shoal::select

#else

namespace shoal::select {
const Kernel* Avx2Kernel() { return nullptr; }
}  // namespace shoal::select

#endif
