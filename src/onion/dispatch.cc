#include "src/onion/dispatch.h"

#include <atomic>

#include "sodium.h"
#include "src/base/check.h"

namespace shoal::onion {
namespace {

InstructionSet Fastest() {
  // The portable path is libsodium's choice of its own implementations.
  SHOAL_CHECK(sodium_init() >= 0);
  InstructionSet fastest = InstructionSet::kPortable;
  for (InstructionSet set : kAllInstructionSets) {
    if (IsSupported(set)) fastest = set;
  }
  return fastest;
}

std::atomic<InstructionSet>& Active() {
  static std::atomic<InstructionSet> active(Fastest());
  return active;
}

TableMemory BuildBaseTable(const Kernel& kernel) {
  const uint8_t base[32] = {9};
  TableMemory table = AllocateTable(kernel);
  SHOAL_CHECK(kernel.build_table(base, table.get()));
  return table;
}

}  // namespace

absl::string_view NameOf(InstructionSet set) {
  const Kernel* kernel = KernelOf(set);
  return kernel == nullptr ? "portable" : kernel->name;
}

bool IsSupported(InstructionSet set) {
  return set == InstructionSet::kPortable || KernelOf(set) != nullptr;
}

InstructionSet ActiveInstructionSet() { return Active().load(std::memory_order_relaxed); }

void UseInstructionSet(InstructionSet set) {
  SHOAL_CHECK(IsSupported(set));
  Active().store(set, std::memory_order_relaxed);
}

const Kernel* KernelOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable:
      return nullptr;
    case InstructionSet::kAvx2:
      return Avx2Kernel();
    case InstructionSet::kIfma:
      return IfmaKernel();
  }
  return nullptr;
}

TableMemory AllocateTable(const Kernel& kernel) {
  const size_t bytes =
      (kernel.table_bytes + kKernelTableAlignment - 1) / kKernelTableAlignment * kKernelTableAlignment;
  TableMemory memory(std::aligned_alloc(kKernelTableAlignment, bytes));
  SHOAL_CHECK(memory != nullptr);
  return memory;
}

const void* BaseTable(const Kernel& kernel) {
  if (&kernel == IfmaKernel()) {
    static const TableMemory table = BuildBaseTable(kernel);
    return table.get();
  }
  SHOAL_CHECK(&kernel == Avx2Kernel());
  static const TableMemory table = BuildBaseTable(kernel);
  return table.get();
}

}  // namespace shoal::onion
