// The client's side of Piano (piano.h).
#ifndef SHOAL_SRC_PIR_SETS_PIANO_SESSION_H_
#define SHOAL_SRC_PIR_SETS_PIANO_SESSION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"

namespace shoal::pir::sets {

// The session that the store has, or a new one. `setup` has been checked (Engine::SizesOf).
// FAILED_PRECONDITION: what the store has is of another table. DATA_LOSS: it is malformed.
// RESOURCE_EXHAUSTED: the hints do not fit the memory.
absl::StatusOr<std::unique_ptr<Session>> OpenPianoSession(const wire::PirSetup& setup,
                                                          SessionStore* store);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_PIANO_SESSION_H_
