// SinglePass (permuted_sets.h, docs/permuted-sets.md) behind the interface of engines: two servers
// that do not collude, an offline and an online one.
//
//   kind              role               body                            answer
//   PairServer::kQuery
//                     offline, online    setup's id, u32 an offset for   the record at each of them
//                                        each chunk
//   kPermutedParities offline            setup's id, seed, u32 the       SinglePassPartOf()
//   parities,
//                                        first parity                    fewer at the end
//
// A session asks for its parities once, piece by piece, and then sends one query to each server for
// every key. A query that was sent and not answered, or answered with records that no party signed
// (SessionOptions::check), waits in the session's journal, and is sent again before the next
// lookup. Parities follow the epochs by deltas (src/pir/kit/row_changes.h).
#ifndef SHOAL_SRC_PIR_SETS_SINGLE_PASS_H_
#define SHOAL_SRC_PIR_SETS_SINGLE_PASS_H_

#include <string>

#include "src/pir/engine.h"
#include "src/pir/kit/table_server.h"
#include "src/pir/sets/single_pass_sets.h"

namespace shoal::pir::sets {

inline constexpr uint32_t kPermutedParities = PairServer::kHints;

// Parities of one request.
uint32_t SinglePassPartOf(const SinglePassShape& shape);

// PirSetup.shape for a table of so many chunks, 1 to kMaxPermutedChunks. The engine itself chooses
// 32; parties that sign another setup are served by it.
std::string EncodePermutedSetupShape(uint32_t chunks);

// The shape that both sides make of a setup. INVALID_ARGUMENT names what is out of range.
absl::StatusOr<SinglePassShape> SinglePassShapeOf(const wire::PirSetup& setup);

const Engine& SinglePass();

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_SINGLE_PASS_H_
