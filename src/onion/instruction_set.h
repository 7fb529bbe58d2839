// Which kernel seals and opens. The fastest that the machine has is chosen by itself; tests and
// benchmarks choose for themselves.
#ifndef SHOAL_SRC_ONION_INSTRUCTION_SET_H_
#define SHOAL_SRC_ONION_INSTRUCTION_SET_H_

#include "absl/strings/string_view.h"

namespace shoal::onion {

enum class InstructionSet { kPortable, kAvx2, kIfma };  // slowest first

inline constexpr InstructionSet kAllInstructionSets[] = {
    InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kIfma};

// "portable" (libsodium), "avx2", "ifma".
absl::string_view NameOf(InstructionSet set);

bool IsSupported(InstructionSet set);

InstructionSet ActiveInstructionSet();

// For tests and benchmarks. `set` must be supported. Recipients keep the one that was active when
// they were created. Not to be called while other threads seal or open.
void UseInstructionSet(InstructionSet set);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_INSTRUCTION_SET_H_
