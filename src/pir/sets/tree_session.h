// TreePIR's client (tree_pir.h).
#ifndef SHOAL_SRC_PIR_SETS_TREE_SESSION_H_
#define SHOAL_SRC_PIR_SETS_TREE_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"

namespace shoal::pir::sets {

// With the setup that both servers have, which SizesOf accepts. FAILED_PRECONDITION if the store
// has a session of another table, DATA_LOSS if it has none that could have been written.
absl::StatusOr<std::unique_ptr<Session>> OpenTreeSession(const wire::PirSetup& setup,
                                                         SessionStore* store);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_TREE_SESSION_H_
