// An engine for tests alone: two servers with roles, a preparation by messages, and a secret state
// that every query consumes. It shows that the interface (engine.h) carries more than the engines
// that there are. Like TreePIR's ancestors, in the simplest form that is correct:
//
//   prepare   the client sends a seed to the offline server, which returns the XOR of the records
//             in the set that the seed expands to. Seed and XOR are a hint.
//   ask       a hint is spent: the client sends the online server the hint's set, with the wanted
//             row put in or taken out. The XOR of the answer and the hint is the record.
//             At the same time it prepares a new hint at the offline server.
//
// Each server sees a uniform set. There is no security claim beyond tests: the sets are as long as
// the table.
#ifndef SHOAL_SRC_PIR_TESTING_XOR_ENGINE_H_
#define SHOAL_SRC_PIR_TESTING_XOR_ENGINE_H_

#include "src/base/bytes.h"
#include "src/pir/engine.h"

namespace shoal::pir::testing {

// Its setup's shape says how many hints a session has.
const Engine& XorEngine();
// Its family, as one that somebody adds to the registry.
const Family& XorFamily();

inline constexpr uint64_t kXorHints = 8;

}  // namespace shoal::pir::testing

#endif  // SHOAL_SRC_PIR_TESTING_XOR_ENGINE_H_
