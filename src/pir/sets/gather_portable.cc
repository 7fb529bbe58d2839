// For any processor, and what the others are tested against.
#include "src/pir/sets/gather_impl.h"

namespace shoal::pir::sets {

const GatherKernel& PortableGather() {
  static constexpr GatherKernel kKernel = GatherOf<WordRegister>("portable");
  return kKernel;
}

}  // namespace shoal::pir::sets
