// The online stage of one party (paper, algorithm 4; docs/architecture.md). Computes on bytes; does
// no I/O.
//
//   party j-1 --- used positions, 4-byte tallies (wire/query_batch.h) ---> party j
//                   take every tally a step; add the noise queries; put all at their places
//   party j --- the same over its permutation ---> party j+1 ... party m reads the rows
//   party j <--- one answer of answer_bytes for every used position, in order --- party j+1
//                   drop the answers to the noise; unshuffle; mask
//   party j-1 <--- the same over its own positions --- party j
#ifndef SHOAL_SRC_SERVER_ONLINE_H_
#define SHOAL_SRC_SERVER_ONLINE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/thread_pool.h"
#include "src/server/round_context.h"
#include "src/server/round_state.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

// The backend's table: row | signature, answer_bytes for each row, one after the other. Does not
// own the bytes.
struct AnswerTable {
  BytesView bytes;
  uint64_t rows = 0;
};

// Queries on their way out. INVALID_ARGUMENT for a batch that is not one over this party's
// positions.
//
// A dead position is not forwarded; it is answered on the way back.
absl::StatusOr<wire::QueryBatch> ForwardQueries(const RoundContext& context,
                                                const RoundState& state,
                                                const wire::QueryBatch& queries);

// Answers on their way back, for the `queries` that ForwardQueries took to `forwarded`.
// INVALID_ARGUMENT unless there is exactly one answer of the fixed size for every forwarded query.
absl::StatusOr<Bytes> ReturnAnswers(const RoundContext& context, const RoundSecrets& secrets,
                                    const RoundState& state, const wire::QueryBatch& queries,
                                    const wire::QueryBatch& forwarded, BytesView answers,
                                    ThreadPool& pool);

// The backend: reads the row that every query names, zeros when there is none, under the mask.
absl::StatusOr<Bytes> AnswerQueries(const RoundContext& context, const RoundSecrets& secrets,
                                    const RoundState& state, const wire::QueryBatch& queries,
                                    const AnswerTable& table, ThreadPool& pool);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ONLINE_H_
