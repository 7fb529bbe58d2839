// SimplePIR and DoublePIR: what both do, in their own terms. Programs see them as engines
// (family.h); benchmarks and studies of the kernels use what servers and clients have here beside.
//
//   server  Create(content)  ->  setup, hint           once for a table epoch
//   client  Create(setup, hint)                        once for a table epoch
//   client  Ask(row)         ->  query                 ---> server
//   server  Answer(queries)  ->  answers               <---, one pass over the table for all
//   client  Recover(asked, answer)  ->  record
//
// The server does not learn which record it was, as long as learning with errors is hard
// (docs/engines.md).
#ifndef SHOAL_SRC_PIR_LWE_SCHEME_H_
#define SHOAL_SRC_PIR_LWE_SCHEME_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/pir/engine.h"
#include "src/pir/kit/checks.h"
#include "src/wire/pir.pb.h"

namespace shoal::pir::lwe {

struct Kernel;

enum class Scheme { kSimplePir, kDoublePir };
inline constexpr Scheme kAllSchemes[] = {Scheme::kSimplePir, Scheme::kDoublePir};
// "simplepir", "doublepir".
absl::string_view SchemeName(Scheme scheme);
// INVALID_ARGUMENT names those there are.
absl::StatusOr<Scheme> ParseScheme(absl::string_view name);

// The kinds of request: queries over the whole table, of any clients, with answers of
// Sizes::answer_bytes each; and one batch over chunks (batch.h), in which query i is over chunk i,
// with answers of ChunkAnswerBytes.
inline constexpr uint32_t kWholeQueries = 0;
inline constexpr uint32_t kBatchOverChunks = 1;

struct ClientOptions {
  const Kernel* kernel = nullptr;  // null: the fastest
  ThreadPool* pool = nullptr;
};

// A pir::Server, with the kinds of request as functions. Thread-safe but for Refresh, which costs
// about 1024 multiply-adds for a byte that changed, and never more than a new hint; it takes as
// much memory as the delta has, less than a hint. There is no delta if it would be as long as the
// hint. The product is the table times the public matrix, 1024 words for every row of the matrix.
class Server : public pir::Server {
 public:
  using pir::Server::Answer;
  // Answers in the order of the queries, in one pass over the table. A bad query has its own error,
  // and the others have their answers: INVALID_ARGUMENT for a query of the wrong length,
  // FAILED_PRECONDITION for one of another epoch or another setup.
  virtual std::vector<absl::StatusOr<Bytes>> Answer(std::span<const BytesView> queries) const = 0;

  // One client's batch (SimplePIR's sections 4.3 and 5.2): the table is cut into queries.size()
  // chunks (ChunkOf), and query i finds what is in chunk i, for Client::RecoverChunk. All of them
  // together are one pass over the table; DoublePIR's second level is as much work as for so many
  // clients. The hint is the same. Errors as Answer, for all queries at once.
  virtual absl::StatusOr<std::vector<Bytes>> AnswerChunks(
      std::span<const BytesView> queries) const = 0;
};

// A client's part of one query that is under way: what it needs to understand the answer, and
// nobody else may have.
struct Asked {
  uint64_t row = 0;
  Bytes query;
  SecretVector<int32_t> secret;
};

// A pir::Session, with single queries. Thread-safe but for TakeHint and Advance. Keeps no state
// between queries: every query has fresh secrets.
class Client : public pir::Session {
 public:
  using pir::Session::Ask;
  // One query for each of the rows. OUT_OF_RANGE if there is no such row. Several at a time are
  // cheaper: the public matrix is expanded once for all of them.
  virtual absl::StatusOr<std::vector<Asked>> Ask(std::span<const uint64_t> rows,
                                                 RandomSource& random) const = 0;
  absl::StatusOr<Asked> Ask(uint64_t row, RandomSource& random) const;

  // The record. INVALID_ARGUMENT for an answer of the wrong length. Any answer of the right length
  // gives some bytes, in the same time whatever they are.
  virtual absl::StatusOr<Bytes> Recover(const Asked& asked, BytesView answer) const = 0;

  // As Recover, of a row in its chunk's answer of AnswerChunks.
  virtual absl::StatusOr<Bytes> RecoverChunk(const Asked& asked, uint64_t chunks,
                                             BytesView answer) const = 0;
};

// As pir::Engine has them.
absl::StatusOr<Sizes> SizesOfShape(Scheme scheme, const wire::PirSetup& shape);
absl::StatusOr<wire::PirSetup> ShapeOf(Scheme scheme, const Content& content,
                                       const ServerOptions& options);
// `kernel`: null for the fastest.
absl::StatusOr<std::unique_ptr<Server>> CreateServer(Scheme scheme, const Content& content,
                                                     ServerOptions options,
                                                     const Kernel* kernel = nullptr);
// These take the setup's own scheme. INVALID_ARGUMENT names what is wrong with the setup.
absl::StatusOr<Sizes> SizesOf(const wire::PirSetup& setup);
// A client that lacks its hint.
absl::StatusOr<std::unique_ptr<Client>> OpenClient(const wire::PirSetup& setup,
                                                   const ClientOptions& options);
// The same with its hint. DATA_LOSS: the hint is not the setup's.
absl::StatusOr<std::unique_ptr<Client>> CreateClient(const wire::PirSetup& setup, BytesView hint,
                                                     const ClientOptions& options);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_SCHEME_H_
