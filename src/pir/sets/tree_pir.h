// TreePIR (tree_sets.h, docs/tree-sets.md) behind the interface of engines: two servers that do not
// collude, an offline and an online one.
//
//   kind         role               body                                answer
//   kTreeQuery   offline, online    setup's id, a tree without a leaf   an XOR for each chunk
//   kTreeHints   offline            setup's id, seed, first hint (u32)  XORs of TreeHintsOf()
//                                                                       hints, fewer at the end
//
// Where records are wide, the XORs of all chunks are much longer than the one that the client
// wants. Then they are read by a query of Small PIR (src/pir/rlwe), for which they are a table of
// that one query (the paper's section 4.3): it follows the tree, and its answer is sent instead.
// The setup's shape says whether.
//
// A session asks for its hints once, piece by piece, and then sends one query to each server for
// every key. A query that was sent and not answered waits in the session's journal, and is sent
// again before the next lookup. Hints follow the epochs by deltas (src/pir/kit/row_changes.h).
#ifndef SHOAL_SRC_PIR_SETS_TREE_PIR_H_
#define SHOAL_SRC_PIR_SETS_TREE_PIR_H_

#include <optional>
#include <string>

#include "src/pir/engine.h"
#include "src/pir/kit/table_server.h"
#include "src/pir/sets/tree_sets.h"

namespace shoal::pir::sets {

inline constexpr uint32_t kTreeQuery = PairServer::kQuery;
inline constexpr uint32_t kTreeHints = PairServer::kHints;
inline constexpr size_t kTreeSeedBytes = 16;

// Hints of one request: as many as are made together.
uint32_t TreeHintsOf(const TreeShape& shape);

// PirSetup.shape for trees whose nodes have 2^fan_bits children, 1 to kMaxTreeFanBits: 1 is the
// paper's tree, with the shortest queries. `read` if answers are read by Small PIR. The engine
// itself chooses two levels (docs/tree-sets.md compares them), and Small PIR where it makes the
// bytes of a query and its answer an eighth; parties that sign another setup are served by it.
std::string EncodeTreeSetupShape(uint32_t fan_bits, bool read = false);

// What both sides make of a setup.
struct TreeSetup {
  TreeShape shape;
  // Of Small PIR over an answer, if that reads answers: with a record for each chunk, the same in
  // all epochs of a table. The request's own setup id names the epoch.
  std::optional<wire::PirSetup> reader;
  // Of the reader, beside a tree; and of the answer that is sent.
  uint64_t reader_query_bytes = 0;
  uint64_t answer_bytes = 0;
};
// INVALID_ARGUMENT names what is out of range.
absl::StatusOr<TreeSetup> ParseTreeSetup(const wire::PirSetup& setup);

const Engine& TreePir();

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_TREE_PIR_H_
