// Which instructions vector kernels use. The best that the machine has are chosen by themselves;
// tests and benchmarks choose for themselves. A folder that has kernels has one file for each set
// that it is faster with, compiled for that set, and uses the next lower one for the others.
#ifndef SHOAL_SRC_BASE_INSTRUCTION_SET_H_
#define SHOAL_SRC_BASE_INSTRUCTION_SET_H_

#include "absl/strings/string_view.h"

namespace shoal {

// Each holds those before it.
//   kPortable  what every processor has that the build is for
//   kAvx2      AVX2 and FMA3: Intel from Haswell, AMD from Zen 1
//   kAvx512    AVX-512 F, DQ, VL and IFMA: Intel from Ice Lake, AMD from Zen 4
enum class InstructionSet { kPortable, kAvx2, kAvx512 };

inline constexpr InstructionSet kAllInstructionSets[] = {
    InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512};

// "portable", "avx2", "avx512".
absl::string_view NameOf(InstructionSet set);

// Whether this machine, with its operating system, has them.
bool IsSupported(InstructionSet set);

InstructionSet ActiveInstructionSet();

// For tests and benchmarks. `set` must be supported. Not to be called while other threads run
// kernels. What was prepared for one set says itself whether it goes on with it.
void UseInstructionSet(InstructionSet set);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_INSTRUCTION_SET_H_
