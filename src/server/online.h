// The online stage of one party (paper, algorithm 4; docs/architecture.md). Computes on bytes; what
// does not fit memory goes to spools.
//
//   party j-1 --- used positions, 4-byte tallies (wire/query_batch.h) ---> party j
//                   take every tally a step; add the noise queries; put all at their places
//   party j --- the same over its permutation ---> party j+1 ... party m reads the rows
//   party j <--- one answer of answer_bytes for every used position, in order --- party j+1
//                   unshuffle; drop the answers to the noise; mask
//   party j-1 <--- the same over its own positions --- party j
#ifndef SHOAL_SRC_SERVER_ONLINE_H_
#define SHOAL_SRC_SERVER_ONLINE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/server/forward_memory.h"
#include "src/server/round_context.h"
#include "src/server/round_state.h"
#include "src/shuffle/scatter.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

// The backend's table: row | signature, answer_bytes for each row, one after the other. Does not
// own the bytes.
struct AnswerTable {
  BytesView bytes;
  uint64_t rows = 0;
};

// Queries on their way out, and the way back for their answers.
struct Forwarding {
  Bytes queries;       // for the next party (wire/query_batch.h)
  uint64_t count = 0;  // of them
  // memory.place()[a]: which of the queries that came in the a-th of these belongs to; for noise, a
  // number of its own from their count on, below `places`.
  uint64_t places = 0;
  ForwardMemory memory;
};

// Takes the state's memory for it, if there is any. INVALID_ARGUMENT for a batch that is not one over
// this party's positions; RESOURCE_EXHAUSTED when there is no memory. A dead position is not
// forwarded; it is answered on the way back.
absl::StatusOr<Forwarding> ForwardQueries(const RoundContext& context, RoundState& state,
                                          const wire::QueryBatch& queries, ThreadPool& pool);

// Answers on their way back, for the `queries` that ForwardQueries made `forwarding` of: every
// answer is put to its place as it comes, those to the noise like the others: until the last one is
// there, no time depends on which they are. Thread-compatible; what it is given outlives it.
class AnswerIntake {
 public:
  // INVALID_ARGUMENT unless `bytes` is exactly one answer of the fixed size for every forwarded
  // query. Errors of the spool.
  static absl::StatusOr<AnswerIntake> Begin(const RoundContext& context,
                                            const wire::QueryBatch& queries,
                                            const Forwarding& forwarding, uint64_t bytes,
                                            const Resources& resources);

  // The next bytes, any number. INVALID_ARGUMENT beyond the announced end. Errors of the spool.
  absl::Status Take(BytesView piece);
  bool complete() const { return taken_ == forwarding_->count; }

 private:
  friend absl::StatusOr<std::unique_ptr<ByteSource>> ReturnAnswers(
      const RoundContext&, const RoundSecrets&, const RoundState&, const wire::QueryBatch&,
      AnswerIntake, const Resources&);
  AnswerIntake(size_t answer_bytes, const Forwarding* forwarding, shuffle::Scatter scatter,
               const Resources& resources)
      : answer_bytes_(answer_bytes),
        forwarding_(forwarding),
        scatter_(std::move(scatter)),
        resources_(resources) {}
  absl::Status PutWhole(BytesView answers);

  size_t answer_bytes_;
  const Forwarding* forwarding_;
  shuffle::Scatter scatter_;
  Resources resources_;
  uint64_t taken_ = 0;  // answers
  Bytes partial_;       // the beginning of an answer whose end has not come
};

// The answers for the previous party, masked as they are read. Every used position
// gets exactly one of the fixed size: a dead one, which nobody has a mask for, pseudorandom bytes.
// INVALID_ARGUMENT if the intake is not complete. What it is given outlives the source.
absl::StatusOr<std::unique_ptr<ByteSource>> ReturnAnswers(const RoundContext& context,
                                                          const RoundSecrets& secrets,
                                                          const RoundState& state,
                                                          const wire::QueryBatch& queries,
                                                          AnswerIntake intake,
                                                          const Resources& resources);

// The backend: reads the row that every query names, zeros when there is none, under the mask; as
// above, computed as it is read. INVALID_ARGUMENT as ForwardQueries.
absl::StatusOr<std::unique_ptr<ByteSource>> AnswerQueries(const RoundContext& context,
                                                          const RoundSecrets& secrets,
                                                          const RoundState& state,
                                                          const wire::QueryBatch& queries,
                                                          const AnswerTable& table,
                                                          ThreadPool& pool);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ONLINE_H_
