#include "src/onion/dispatch.h"

#include "src/base/check.h"
#include "src/base/sodium_init.h"

namespace shoal::onion {
namespace {

TableMemory BuildBaseTable(const Kernel& kernel) {
  const uint8_t base[32] = {9};
  TableMemory table = AllocateTable(kernel);
  SHOAL_CHECK(kernel.build_table(base, table.get()));
  return table;
}

bool HasSha() {
#ifdef __x86_64__
  return __builtin_cpu_supports("sha");
#else
  return false;
#endif
}

}  // namespace

const Kernel* KernelOf(InstructionSet set) {
  // The portable path is libsodium's choice of its own implementations.
  SHOAL_CHECK(InitSodium());
  if (!IsSupported(set)) return nullptr;
  switch (set) {
    case InstructionSet::kPortable:
      return nullptr;
    case InstructionSet::kAvx2:
      return HasSha() ? Avx2ShaKernel() : Avx2Kernel();
    case InstructionSet::kAvx512:
      return IfmaKernel();
  }
  return nullptr;
}

TableMemory AllocateTable(const Kernel& kernel) {
  const size_t bytes = (kernel.table_bytes + kKernelTableAlignment - 1) / kKernelTableAlignment *
                       kKernelTableAlignment;
  TableMemory memory(std::aligned_alloc(kKernelTableAlignment, bytes));
  SHOAL_CHECK(memory != nullptr);
  return memory;
}

const void* BaseTable(const Kernel& kernel) {
  if (&kernel == IfmaKernel()) {
    static const TableMemory table = BuildBaseTable(kernel);
    return table.get();
  }
  SHOAL_CHECK(&kernel == Avx2Kernel() || &kernel == Avx2ShaKernel());
  static const TableMemory table = BuildBaseTable(kernel);
  return table.get();
}

}  // namespace shoal::onion
