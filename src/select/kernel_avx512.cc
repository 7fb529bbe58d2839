// A cache line a register, and one instruction for an AND and an XOR.
#include "src/select/kernel.h"

#if defined(__AVX512F__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include "src/select/kernel_impl.h"

namespace shoal::select {

const Kernel* Avx512Kernel() {
  static constexpr Kernel kKernel = KernelOf<Register<64>>();
  return &kKernel;
}

}  // namespace shoal::select

#else

namespace shoal::select {
const Kernel* Avx512Kernel() { return nullptr; }
}  // namespace shoal::select

#endif
