// The online stage of one party (paper, algorithm 4; docs/architecture.md). Computes on bytes;
// lists that do not fit in memory go to spools.
//
//   party j-1 --- used positions, 4-byte tallies (wire/query_batch.h) ---> party j
//                   take every tally a step; add the noise queries; put all at their places
//   party j --- the same over its permutation ---> party j+1 ... party m reads the rows
//   party j <--- one answer and its tag for every used position, in order --- party j+1
//                   unshuffle; drop the answers to the noise; mask and tag (sharing/sharing.h)
//   party j-1 <--- the same over its own positions --- party j
//
// At a party of several machines each has a slice of the positions and of the next party's places.
// All make the same calls in the same order; what passes between them is in query_routes.h. The
// machines' slices, joined, are what one machine makes of the joined input.
#ifndef SHOAL_SRC_SERVER_ONLINE_H_
#define SHOAL_SRC_SERVER_ONLINE_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/base/bytes.h"
#include "src/server/forward_memory.h"
#include "src/server/online_material.h"
#include "src/server/query_routes.h"
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
  // The message to the next party (wire/query_batch.h); empty if there is a batch.
  Bytes queries;
  // Where this party or the next one has several machines: this one's slice of the message as a
  // batch, over the places that it owns (RoundContext::sends_batch). Null otherwise.
  std::shared_ptr<const wire::QueryBatch> batch;
  uint64_t count = 0;  // queries in the message or batch
  // The answer to the a-th query of the message belongs to place memory.place()[a]
  // (forward_memory.h). Queries that came in have the first places; the others, up to `places`, are
  // noise queries. Places from there on belong to queries that came from other machines.
  uint64_t places = 0;
  QueryRoutes routes;
  ForwardMemory memory;
  // The material's, and what it has reserved for the answers on their way back.
  std::shared_ptr<Arena> arena;
  ListMemory returned;
};

// Takes every tally one step and puts queries and noise in order for the next party. Uses up the
// material's ForwardMemory, if it has one. INVALID_ARGUMENT unless the batch is over this party's
// positions; RESOURCE_EXHAUSTED when there is no memory; errors of Machines. Does not forward dead
// positions, which are answered on the way back. After an error this machine gives up. No machine
// has a slice before all have come to the last message; a fault in that one may leave some with a
// slice and others without, and their next calls then fail (src/machines/machines.h).
absl::StatusOr<Forwarding> ForwardQueries(const RoundContext& context, OnlineMaterial& material,
                                          const wire::QueryBatch& queries,
                                          const Resources& resources);

// What answers are made of beside the answers of the next party: what the round holds from its
// queries to its end. A source of answers holds it while it makes a piece and at no other time: so
// a round that ends takes nothing away from under a piece, and a reader, however slow, keeps
// nothing of an ended round alive.
struct AnswerKeys {
  std::shared_ptr<const RoundContext> context;
  std::shared_ptr<const LastingSecrets> secrets;
  std::shared_ptr<const OnlineMaterial> material;
  std::shared_ptr<const wire::QueryBatch> queries;
  std::shared_ptr<const void> table = nullptr;  // holds the bytes of the backend's rows

  // Of arguments that outlive every source: for calibration, benchmarks and tests.
  static std::shared_ptr<const AnswerKeys> Of(const RoundContext& context,
                                              const LastingSecrets& secrets,
                                              const OnlineMaterial& material,
                                              const wire::QueryBatch& queries);
};
using AnswerKeysPointer = std::shared_ptr<const AnswerKeys>;

// The answers for the previous party, or for the frontend's clients, in order. Next returns
// FAILED_PRECONDITION once the round has dropped its AnswerKeys.
class AnswerSource : public ByteSource {
 public:
  // Whether the answers lie in memory, each at its place: then TakeList hands that memory out.
  virtual bool in_memory() const = 0;
  // Only if in_memory, and once all has been read (checked): the list with the answers as Next gave
  // them. The bytes after them are nobody's.
  virtual Spool TakeList() = 0;
};

// Takes the next party's answers to the `queries` from which ForwardQueries made `forwarding`, and
// puts each to its place as it arrives. Answers to noise are treated like all others until the last
// answer is in, so that timing does not tell them apart. Thread-compatible; the arguments must
// outlive it. After an error this machine gives up.
class AnswerIntake {
 public:
  // INVALID_ARGUMENT unless `bytes` is exactly one answer of the fixed size for every forwarded
  // query. Errors of the spool.
  static absl::StatusOr<AnswerIntake> Begin(const RoundContext& context,
                                            const wire::QueryBatch& queries,
                                            const Forwarding& forwarding, uint64_t bytes,
                                            const Resources& resources) {
    return Begin(context, queries, forwarding, {&bytes, 1}, resources);
  }
  // The same of answers that come in parts of these lengths, in this order (PartedSource). Each
  // must be whole answers.
  static absl::StatusOr<AnswerIntake> Begin(const RoundContext& context,
                                            const wire::QueryBatch& queries,
                                            const Forwarding& forwarding,
                                            std::span<const uint64_t> part_bytes,
                                            const Resources& resources);

  // Takes the next bytes, any number, of answers in one part. INVALID_ARGUMENT beyond the announced
  // end. Errors of the spool.
  absl::Status Take(BytesView piece) { return TakeAt(at_, piece); }
  // The same of a part, whose next bytes these must be (checked).
  absl::Status TakeAt(uint64_t offset, BytesView piece);
  bool complete() const { return std::ranges::all_of(parts_, &Part::complete); }

 private:
  friend absl::StatusOr<std::unique_ptr<AnswerSource>> ReturnAnswers(const AnswerKeysPointer&,
                                                                     AnswerIntake,
                                                                     const Resources&);
  struct Part {
    uint64_t next;    // byte of all answers that is to come
    uint64_t answer;  // the same of whole answers
    RecordCutter cutter;
    bool complete() const { return cutter.complete(); }
  };
  AnswerIntake(size_t tagged_bytes, const Forwarding* forwarding, std::vector<Part> parts,
               shuffle::Scatter scatter, const Resources& resources)
      : tagged_bytes_(tagged_bytes),
        forwarding_(forwarding),
        parts_(std::move(parts)),
        scatter_(std::move(scatter)),
        resources_(resources) {}
  static absl::StatusOr<AnswerIntake> TryBegin(const RoundContext& context,
                                               const wire::QueryBatch& queries,
                                               const Forwarding& forwarding,
                                               std::span<const uint64_t> part_bytes,
                                               const Resources& resources);
  // Of a part, its next whole answers.
  absl::Status PutWhole(Part& part, BytesView answers);
  absl::Status PutToFiles(std::span<const uint32_t> places, BytesView answers);
  // The answers for each of the other machines, by rank.
  std::vector<std::unique_ptr<ByteSource>> TakeOthers();

  size_t tagged_bytes_;  // of an answer with its tag
  const Forwarding* forwarding_;
  std::vector<Part> parts_;
  uint64_t at_ = 0;  // where Take goes on
  // Answers to this machine's queries, and to noise; behind them, in memory, those to the other
  // machines' queries, one machine's after the other's.
  shuffle::Scatter scatter_;
  std::vector<shuffle::Scatter> in_files_;  // the latter where memory lacks, by rank
  Resources resources_;
  // Of a piece, if there are files: the places of its answers in scatter_; where each other answer
  // is; once these are in the order of their lists, and in that order, their places and themselves.
  SecretVector<uint32_t> own_, elsewhere_, order_, places_;
  SecretVector<uint8_t> ordered_;
};

// Returns the answers for the previous party, masked and tagged as they are read. Every used
// position gets one answer of the fixed size; a dead position, for which nobody has a mask, gets
// pseudorandom bytes.
// INVALID_ARGUMENT if the intake is not complete; errors of Machines and of the spools, after which
// other machines are as after ForwardQueries. Of the resources, the source keeps the pool and
// making_piece.
absl::StatusOr<std::unique_ptr<AnswerSource>> ReturnAnswers(const AnswerKeysPointer& keys,
                                                            AnswerIntake intake,
                                                            const Resources& resources);

// At the backend: answers every query with the row that it names, or zeros if there is no such row,
// under mask and tag. Answers are computed as they are read. INVALID_ARGUMENT as ForwardQueries;
// then this machine gives up. Of the resources, the source keeps the pool and making_piece.
absl::StatusOr<std::unique_ptr<ByteSource>> AnswerQueries(const AnswerKeysPointer& keys,
                                                          const AnswerTable& table,
                                                          const Resources& resources);

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_ONLINE_H_
