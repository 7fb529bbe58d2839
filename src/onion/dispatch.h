// The kernel in use and the table of the base point. Private to src/onion.
#ifndef SHOAL_SRC_ONION_DISPATCH_H_
#define SHOAL_SRC_ONION_DISPATCH_H_

#include <cstdlib>
#include <memory>

#include "src/base/instruction_set.h"
#include "src/onion/kernel.h"

namespace shoal::onion {

// The kernel of an instruction set. Null for kPortable, and for sets that this machine does not
// have.
const Kernel* KernelOf(InstructionSet set);

// Memory for a table.
struct FreeTable {
  void operator()(void* memory) const { std::free(memory); }
};
using TableMemory = std::unique_ptr<void, FreeTable>;
TableMemory AllocateTable(const Kernel& kernel);

// The table of the base point, u = 9. The first call builds it.
const void* BaseTable(const Kernel& kernel);

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_DISPATCH_H_
