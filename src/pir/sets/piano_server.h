// The server's side of Piano (piano.h).
#ifndef SHOAL_SRC_PIR_SETS_PIANO_SERVER_H_
#define SHOAL_SRC_PIR_SETS_PIANO_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "src/pir/engine.h"

namespace shoal::pir::sets {

// `setup` without its hint_digest. RESOURCE_EXHAUSTED if the table does not fit the memory a second
// time.
absl::StatusOr<std::unique_ptr<Server>> CreatePianoServer(wire::PirSetup setup,
                                                          const Content& content,
                                                          const ServerOptions& options);

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_PIANO_SERVER_H_
