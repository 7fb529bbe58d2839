// What batch.cc and halves.cc have in common: the kernel of the instructions that are in use, and
// how it is called.
#ifndef SHOAL_SRC_SHARING_ACTIVE_KERNEL_H_
#define SHOAL_SRC_SHARING_ACTIVE_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/instruction_set.h"
#include "src/sharing/kernel.h"

namespace shoal::sharing {

inline const Kernel& ActiveKernel() {
  switch (ActiveInstructionSet()) {
    case InstructionSet::kAvx512:
      return *Avx512Kernel();
    case InstructionSet::kAvx2:
      return *Avx2Kernel();
    case InstructionSet::kPortable:
      break;
  }
  return *PortableKernel();
}

// Calls one of the active kernel's functions, and wipes what it leaves on the stack.
template <typename... Parameters, typename... Arguments>
void Run(void (*Kernel::*function)(Parameters...), Arguments... arguments) {
  (ActiveKernel().*function)(arguments...);
  sodium_stackzero(kKernelStackBytes);
}

// Items that are worked on from end to end before the next ones, so that they stay in the cache,
// and so do their keys: whole vectors of every kernel.
inline constexpr size_t kPart = 256;

// 0xff if two tags of Poly1305 are equal, else 0.
inline uint8_t MaskIfEqual(const uint8_t* a, const uint8_t* b) {
  constexpr size_t kTagBytes = 16;
  uint64_t differ = 0;
  for (size_t i = 0; i < kTagBytes; i += 8) {
    differ |= LoadLe<uint64_t>(a + i) ^ LoadLe<uint64_t>(b + i);
  }
  const uint64_t any = (differ | (0 - differ)) >> 63;  // 1 if they differ
  return static_cast<uint8_t>(any - 1);
}

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_ACTIVE_KERNEL_H_
