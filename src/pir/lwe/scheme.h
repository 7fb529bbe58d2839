// SimplePIR and DoublePIR: what both do, in their own terms. Programs see them as engines
// (family.h); benchmarks and studies of the kernels use this interface.
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
#include <functional>
#include <memory>
#include <optional>
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
#include "src/wire/pir.pb.h"

namespace shoal::pir::lwe {

struct Kernel;

enum class Scheme { kSimplePir, kDoublePir };
inline constexpr Scheme kAllSchemes[] = {Scheme::kSimplePir, Scheme::kDoublePir};
// "simplepir", "doublepir".
absl::string_view SchemeName(Scheme scheme);
// INVALID_ARGUMENT names those there are.
absl::StatusOr<Scheme> ParseScheme(absl::string_view name);

// In front of every query: the epoch (8 bytes), the setup's id.
inline constexpr size_t kQueryHeaderBytes = 8 + 32;

struct ServerOptions {
  // A larger hint is refused.
  uint64_t max_hint_bytes = uint64_t{1} << 30;
  // 0: about as many rows as columns in SimplePIR, which makes the fewest bytes, a third in
  // DoublePIR.
  uint64_t rows_per_column = 0;
  // 0: as many as the rows need. More leave room: a server that was refreshed keeps those it had.
  uint64_t columns = 0;
  const Kernel* kernel = nullptr;  // null: the fastest
  // These as pir::ServerOptions.
  ThreadPool* pool = nullptr;
  std::vector<uint32_t> product = {};
  std::function<void(uint64_t done, uint64_t total)> progress = nullptr;
};

struct ClientOptions {
  const Kernel* kernel = nullptr;
  ThreadPool* pool = nullptr;
};

// Thread-safe but for Refresh.
class Server {
 public:
  virtual ~Server() = default;

  virtual const wire::PirSetup& setup() const = 0;
  // The hint as it is sent; setup().hint_digest is of these bytes.
  virtual BytesView hint() const = 0;

  // The table times the public matrix, 1024 words for every row of the matrix, for
  // ServerOptions::product. Valid until Refresh.
  virtual std::span<const uint32_t> product() const = 0;

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

  // As pir::Server. A refresh costs about 1024 multiply-adds for a byte that changed, and never
  // more than a new hint; it takes as much memory as the delta has, less than a hint. There is no
  // delta if it would be as long as the hint.
  virtual absl::StatusOr<double> RefreshShare(const Content& content,
                                              std::span<const uint64_t> changed_rows) const = 0;
  virtual absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                                       std::span<const uint64_t> changed_rows) = 0;
};

// A client's part of one query that is under way: what it needs to understand the answer, and
// nobody else may have.
struct Asked {
  uint64_t row = 0;
  Bytes query;
  SecretVector<int32_t> secret;
};

// Thread-safe but for Apply. Keeps no state between queries: every query has fresh secrets.
class Client {
 public:
  virtual ~Client() = default;

  virtual const wire::PirSetup& setup() const = 0;

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

  // As pir::Session::Advance.
  virtual absl::Status Apply(const DeltaView& delta) = 0;
};

// As pir::Engine has them.
absl::StatusOr<Sizes> SizesOfShape(Scheme scheme, const wire::PirSetup& shape);
absl::StatusOr<wire::PirSetup> ShapeOf(Scheme scheme, const Content& content,
                                       const ServerOptions& options);
absl::StatusOr<std::unique_ptr<Server>> CreateServer(Scheme scheme, const Content& content,
                                                     ServerOptions options);
// These two take the setup's own scheme. INVALID_ARGUMENT names what is wrong with the setup.
// DATA_LOSS: the hint is not the setup's.
absl::StatusOr<Sizes> SizesOf(const wire::PirSetup& setup);
absl::StatusOr<std::unique_ptr<Client>> CreateClient(const wire::PirSetup& setup, BytesView hint,
                                                     const ClientOptions& options);

}  // namespace shoal::pir::lwe

#endif  // SHOAL_SRC_PIR_LWE_SCHEME_H_
