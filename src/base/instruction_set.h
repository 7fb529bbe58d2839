// Which instructions vector kernels use: by default the best set that the machine has; tests and
// benchmarks may choose another. A folder with kernels has one file for each set that makes it
// faster, compiled for that set. For a set without a file it uses the next lower one.
#ifndef SHOAL_SRC_BASE_INSTRUCTION_SET_H_
#define SHOAL_SRC_BASE_INSTRUCTION_SET_H_

#include "absl/strings/string_view.h"

namespace shoal {

// Each set includes the ones before it.
//   kPortable what every processor of the build's architecture has
//   kAvx2      AVX2 and FMA3: Intel from Haswell, AMD from Zen 1
//   kAvx512    AVX-512 F, DQ, VL and IFMA: Intel from Ice Lake, AMD from Zen 4
enum class InstructionSet { kPortable, kAvx2, kAvx512 };

inline constexpr InstructionSet kAllInstructionSets[] = {
    InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512};

// "portable", "avx2", "avx512".
absl::string_view NameOf(InstructionSet set);

// Whether this machine and its operating system support `set`.
bool IsSupported(InstructionSet set);

InstructionSet ActiveInstructionSet();

// For tests and benchmarks. `set` must be supported. Do not call it while other threads run
// kernels. An object that holds data prepared for one set (onion::Recipient, for example) keeps
// using that set.
void UseInstructionSet(InstructionSet set);

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_INSTRUCTION_SET_H_
