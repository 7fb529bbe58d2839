// SinglePass's client (permuted_pir.h).
#ifndef SHOAL_SRC_PIR_SETS_SINGLE_PASS_SESSION_H_
#define SHOAL_SRC_PIR_SETS_SINGLE_PASS_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"

namespace shoal::pir::sets {

// With the setup that both servers have, which SizesOf accepts, and a store. FAILED_PRECONDITION if
// the store has a session of another table, DATA_LOSS if it has none that could have been written.
absl::StatusOr<std::unique_ptr<Session>> OpenPermutedSession(const wire::PirSetup& setup,
                                                             const SessionOptions& options);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_SINGLE_PASS_SESSION_H_
