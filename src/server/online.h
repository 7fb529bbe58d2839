// The online stage of one party (paper, algorithm 4; docs/architecture.md). Computes on bytes;
// lists that do not fit in memory go to spools.
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
#include "src/server/online_material.h"
#include "src/server/record_cutter.h"
#include "src/server/round_context.h"
#include "src/server/round_memory.h"
#include "src/shuffle/scatter.h"
#include "src/storage/arena.h"
#include "src/storage/spool.h"
#include "src/wire/query_batch.h"

namespace shoal::server {

// The backend's table: for every row, row | signature, answer_bytes in all. Does not own the bytes.
struct AnswerTable {
  BytesView bytes;
  uint64_t rows = 0;
};

// Queries for the next party, and the way back for their answers.
struct Forwarding {
  Bytes queries;       // the message to the next party (wire/query_batch.h)
  uint64_t count = 0;  // queries in the message
  // The answer to the a-th query of the message belongs to place memory.place()[a]
  // (forward_memory.h). Queries that came in have the first places; the others, up to `places`, are
  // noise queries.
  uint64_t places = 0;
  ForwardMemory memory;
  // The material's, and what it has reserved for the answers on their way back.
  std::shared_ptr<Arena> arena;
  ListMemory returned;
};

// Takes every tally one step and puts queries and noise in order for the next party. Uses up the
// material's ForwardMemory, if it has one. INVALID_ARGUMENT unless the batch is over this party's
// positions; RESOURCE_EXHAUSTED when there is no memory. Does not forward dead positions, which are
// answered on the way back.
absl::StatusOr<Forwarding> ForwardQueries(const RoundContext& context, OnlineMaterial& material,
                                          const wire::QueryBatch& queries, ThreadPool& pool);

// Takes the next party's answers to the `queries` from which ForwardQueries made `forwarding`, and
// puts each to its place as it arrives. Answers to noise are treated like all others until the last
// answer is in, so that timing does not tell them apart. Thread-compatible; the arguments must
// outlive it.
class AnswerIntake {
 public:
  // INVALID_ARGUMENT unless `bytes` is exactly one answer of the fixed size for every forwarded
  // query. Errors of the spool.
  static absl::StatusOr<AnswerIntake> Begin(const RoundContext& context,
                                            const wire::QueryBatch& queries,
                                            const Forwarding& forwarding, uint64_t bytes,
                                            const Resources& resources);

  // Takes the next bytes, any number. INVALID_ARGUMENT beyond the announced end. Errors of the
  // spool.
  absl::Status Take(BytesView piece);
  bool complete() const { return cutter_.complete(); }

 private:
  friend absl::StatusOr<std::unique_ptr<ByteSource>> ReturnAnswers(const RoundContext&,
                                                                   const LastingSecrets&,
                                                                   const OnlineMaterial&,
                                                                   const wire::QueryBatch&,
                                                                   AnswerIntake, const Resources&);
  AnswerIntake(size_t answer_bytes, const Forwarding* forwarding, shuffle::Scatter scatter,
               const Resources& resources)
      : answer_bytes_(answer_bytes),
        cutter_(forwarding->count, answer_bytes),
        forwarding_(forwarding),
        scatter_(std::move(scatter)),
        resources_(resources) {}
  absl::Status PutWhole(BytesView answers);

  size_t answer_bytes_;
  RecordCutter cutter_;
  const Forwarding* forwarding_;
  shuffle::Scatter scatter_;
  Resources resources_;
  uint64_t taken_ = 0;  // answers
};

// Returns the answers for the previous party, masked as they are read. Every used position gets one
// answer of the fixed size; a dead position, for which nobody has a mask, gets pseudorandom bytes.
// INVALID_ARGUMENT if the intake is not complete. The arguments must outlive the source.
absl::StatusOr<std::unique_ptr<ByteSource>> ReturnAnswers(
    const RoundContext& context, const LastingSecrets& secrets, const OnlineMaterial& material,
    const wire::QueryBatch& queries, AnswerIntake intake, const Resources& resources);

// Makes an empty list for `bytes` of answers, which the caller fills at once: in the memory that
// the round has reserved for it (round_memory.h), else wherever there is room, which may be a file.
// The list may outlive the arena, which may be null. Errors of SpoolPlace::Create.
absl::StatusOr<Spool> MakeAnswerList(Arena* arena, const ListMemory& reserved, uint64_t bytes,
                                     SpoolPlace& spools);

// At the backend: answers every query with the row that it names, or zeros if there is no such row,
// under the mask. Answers are computed as they are read. INVALID_ARGUMENT as ForwardQueries.
absl::StatusOr<std::unique_ptr<ByteSource>> AnswerQueries(
    const RoundContext& context, const LastingSecrets& secrets, const OnlineMaterial& material,
    const wire::QueryBatch& queries, const AnswerTable& table, ThreadPool& pool);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ONLINE_H_
