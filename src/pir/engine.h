// Private information retrieval from one server: the client learns one record of a table, the
// server which record it was learns under no circumstances, as long as learning with errors is hard
// (docs/engines.md).
//
//   server  Create(content)  ->  setup, hint           once for a table epoch
//   client  Create(setup, hint)                        once for a table epoch
//   client  Ask(row)         ->  query                 ---> server
//   server  Answer(queries)  ->  answers               <---, one pass over the table for all of
//   them client  Recover(asked, answer)  ->  record
//
// What a record is (a row and its signature), which row a key is in, what a row proves, and whether
// it is the table's, is the table layer's: every engine returns the same bytes.
#ifndef SHOAL_SRC_PIR_ENGINE_H_
#define SHOAL_SRC_PIR_ENGINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/parallel/thread_pool.h"
#include "src/wire/pir.pb.h"

namespace shoal::pir {

namespace lwe {
struct Kernel;
}

// What a server serves: `rows` records of `record_bytes` each.
struct Content {
  Digest table_id = {};
  uint64_t epoch = 0;
  Digest manifest_digest = {};
  uint64_t rows = 0;
  uint32_t record_bytes = 0;
  // Copies record `row` to `out`, which has record_bytes. From several threads.
  std::function<void(uint64_t row, MutableBytes out)> copy;
};

inline constexpr uint32_t kMaxRecordBytes = (1u << 20) + 48;
// Queries of one request (src/wire/pir.proto) at most.
inline constexpr uint32_t kMaxQueriesPerRequest = 16;
// In front of every query: the epoch (8 bytes), the setup's id.
inline constexpr size_t kQueryHeaderBytes = 8 + 32;

// Transcript("shoal pir setup v1") over the fields in order: what a query is bound to.
Digest SetupId(const wire::PirSetup& setup);
Digest HintDigest(BytesView hint);
// What a server's product is a function of: engine, table (by the manifest's digest), shape.
Digest ProductId(const wire::PirSetup& setup);

// Bytes of everything that is sent or kept: a function of the setup alone (registry.h).
struct Sizes {
  uint64_t hint_bytes = 0;         // down, once an epoch
  uint64_t hint_memory_bytes = 0;  // at the client
  uint64_t query_bytes = 0;        // up
  uint64_t answer_bytes = 0;       // down
  uint64_t server_bytes = 0;       // memory of the server, the table itself not counted
};

// What an engine costs, under the same names for every engine (costs.h): `shoal query --engine`,
// `shoal simulate`, `shoal plan` and the studies print these.
struct Costs {
  Sizes bytes;
  double setup_seconds = 0;    // server, once an epoch
  double open_seconds = 0;     // client, once a command: the hint read, checked, brought forward
  double query_seconds = 0;    // client, one query
  double answer_seconds = 0;   // server, one query
  double recover_seconds = 0;  // client, one record
};

struct ServerOptions {
  // A larger hint is refused.
  uint64_t max_hint_bytes = uint64_t{1} << 30;
  // 0: about as many rows as columns in SimplePIR, which makes the fewest bytes, a third in
  // DoublePIR.
  uint64_t rows_per_column = 0;
  // 0: as many as the rows need. More leave room: a server that was refreshed keeps those it had.
  uint64_t columns = 0;
  const lwe::Kernel* kernel = nullptr;  // null: the fastest
  ThreadPool* pool = nullptr;  // null: everything on the caller's thread; must outlive the server
  // Server::product of an earlier server of the same content and options, which saves nearly all of
  // the work; empty: made. Nothing is checked but its length: whose it is, the caller knows by
  // ProductId.
  std::vector<uint32_t> product = {};
  // Of making the hint: done of total, in any unit.
  std::function<void(uint64_t done, uint64_t total)> progress = nullptr;
};

struct ClientOptions {
  const lwe::Kernel* kernel = nullptr;
  ThreadPool* pool = nullptr;
};

// What changed from one epoch to the next, much smaller than a hint if few rows did.
struct DeltaView {
  Digest from = {};  // SetupId
  wire::PirSetup to;
  // refresh.h has the bytes.
  BytesView changes;
};
// The same with bytes of its own.
struct Delta {
  Digest from = {};
  wire::PirSetup to;
  Bytes changes;

  operator DeltaView() const { return {.from = from, .to = to, .changes = changes}; }
};

// Of everything in it: what came in pieces is known to be whole, and what was kept to be undamaged.
Digest DeltaDigest(const DeltaView& delta);

// Thread-safe but for Refresh.
class Server {
 public:
  virtual ~Server() = default;

  virtual const wire::PirSetup& setup() const = 0;
  // The hint as it is sent; setup().hint_digest is of these bytes.
  virtual BytesView hint() const = 0;

  // The table times the public matrix, 1024 words for every row of the matrix: what takes so long
  // to make, for ServerOptions::product. Valid until Refresh.
  virtual std::span<const uint32_t> product() const = 0;

  // Answers in the order of the queries, in one pass over the table. A bad query has its own error,
  // and the others their answers: INVALID_ARGUMENT for a query of the wrong length,
  // FAILED_PRECONDITION for one of another epoch or another setup.
  virtual std::vector<absl::StatusOr<Bytes>> Answer(std::span<const BytesView> queries) const = 0;

  // One client's batch (SimplePIR's sections 4.3 and 5.2): the table is dealt into queries.size()
  // chunks (ChunkOf), and query i finds what is in chunk i, for Client::RecoverChunk. All of them
  // together are one pass over the table; DoublePIR's second level is as much work as for so many
  // clients. The hint is the same. Errors as Answer, for all queries at once.
  virtual absl::StatusOr<std::vector<Bytes>> AnswerChunks(
      std::span<const BytesView> queries) const = 0;

  // What part of the product a Refresh with these arguments would make anew, 0 to 1: near 1 it
  // takes as long as a new server, or its delta has as many bytes as a hint. INVALID_ARGUMENT as
  // Refresh.
  virtual absl::StatusOr<double> RefreshShare(const Content& content,
                                              std::span<const uint64_t> changed_rows) const = 0;

  // Makes this the server of a later epoch of the same table, with the same size of rows and no
  // more columns: setup and hint change. `changed_rows` names every row whose bytes differ, in
  // ascending order. Costs about 1024 multiply-adds for a byte that changed, and never more than a
  // new hint would; takes as much memory as the delta has, less than a hint. No delta if it would
  // be as long as the hint, which then serves a client better. INVALID_ARGUMENT if the content does
  // not fit: then make a new server.
  virtual absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                                       std::span<const uint64_t> changed_rows) = 0;
};

// A client's part of one query that is under way: what it needs to understand the answer, and no
// one else may have.
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

  // The record. INVALID_ARGUMENT for an answer of the wrong length, which everyone on the wire can
  // see; any answer of the right length gives some bytes, in the same time whatever they are: that
  // they are not the table's is found by their signature, and never told to the server.
  virtual absl::StatusOr<Bytes> Recover(const Asked& asked, BytesView answer) const = 0;

  // As Recover, of a row in its chunk's answer of AnswerChunks.
  virtual absl::StatusOr<Bytes> RecoverChunk(const Asked& asked, uint64_t chunks,
                                             BytesView answer) const = 0;

  // Makes this a client of the delta's epoch. FAILED_PRECONDITION if the delta starts elsewhere,
  // INVALID_ARGUMENT if it is malformed; the client is then what it was.
  virtual absl::Status Apply(const DeltaView& delta) = 0;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_ENGINE_H_
