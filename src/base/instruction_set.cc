#include "src/base/instruction_set.h"

#include <atomic>

#include "src/base/check.h"

namespace shoal {
namespace {

InstructionSet Fastest() {
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

}  // namespace

absl::string_view NameOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kPortable:
      return "portable";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "unknown";
}

bool IsSupported(InstructionSet set) {
  if (set == InstructionSet::kPortable) return true;
#ifdef __x86_64__
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (set == InstructionSet::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512ifma");
#else
  return false;
#endif
}

InstructionSet ActiveInstructionSet() { return Active().load(std::memory_order_relaxed); }

void UseInstructionSet(InstructionSet set) {
  SHOAL_CHECK(IsSupported(set));
  Active().store(set, std::memory_order_relaxed);
}

}  // namespace shoal
