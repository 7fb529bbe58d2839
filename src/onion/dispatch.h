// The kernel in use and the table of the base point. Private to src/onion.
#ifndef SHOAL_SRC_ONION_DISPATCH_H_
#define SHOAL_SRC_ONION_DISPATCH_H_

#include <cstdlib>
#include <memory>

#include "src/base/instruction_set.h"
#include "src/onion/kernel.h"

namespace shoal::onion {

// Null for the portable path, and for what this machine has not.
const Kernel* KernelOf(InstructionSet set);

// Memory for a table.
struct FreeTable {
  void operator()(void* memory) const { std::free(memory); }
};
using TableMemory = std::unique_ptr<void, FreeTable>;
TableMemory AllocateTable(const Kernel& kernel);

// The table of the base point, u = 9: built at the first call.
const void* BaseTable(const Kernel& kernel);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_DISPATCH_H_
