// The interface of every system of private information retrieval here (docs/engines.md). With such
// a system a client learns records of a public table, and no server learns which records.
//
//   Engine   one system: its name, the roles of its servers, sizes, factories
//   Server   one server's side: a setup, answers to requests, the step to the next epoch
//   Session  one client's side: what it needs first, the queries of a lookup, what it keeps
//   Family   engines that share code, shape and units of cost
//
// Two servers with roles, preparation by a public hint or by messages, state that every query
// consumes, and any arithmetic fit behind these classes. What a record is (a row and its
// signature), which row a key is in, and whether a record is the table's belong to the table's
// layer: every engine returns the same bytes.
#ifndef SHOAL_SRC_PIR_ENGINE_H_
#define SHOAL_SRC_PIR_ENGINE_H_

#include <atomic>
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

// Which server of an engine: `single` where there is one, `offline` and `online` where there are
// two that do not collude.
enum class Role { kSingle, kOffline, kOnline };
absl::string_view RoleName(Role role);
// INVALID_ARGUMENT for an unknown name. The empty name is `single`.
absl::StatusOr<Role> ParseRole(absl::string_view name);

// The fields that the setups of every engine have. Shape and hint are not set.
wire::PirSetup SetupOf(absl::string_view engine, const Content& content);
// Transcript("shoal pir setup v1") over the fields in order: what a query is bound to.
Digest SetupId(const wire::PirSetup& setup);
// Whether two setups are of one engine and table, with records of one size in the same places.
bool SameShape(const wire::PirSetup& a, const wire::PirSetup& b);
Digest HintDigest(BytesView hint);
// What a server's product is a function of: engine, table (by the manifest's digest), shape.
Digest ProductId(const wire::PirSetup& setup);

// How many bytes are sent and kept, added up over all roles. The setup alone decides.
struct Sizes {
  uint64_t hint_bytes = 0;         // down, once an epoch
  uint64_t hint_memory_bytes = 0;  // at the client
  uint64_t prepare_bytes = 0;      // down, once a session: hints that a server makes for it alone
  uint64_t query_bytes = 0;        // up, for one record
  uint64_t answer_bytes = 0;       // down, for one record
  uint64_t server_bytes = 0;       // memory of the server, the table itself not counted
};

// Whether the setup's hint is as long as its shape makes it, with a digest if there is one.
// INVALID_ARGUMENT.
absl::Status CheckHint(const wire::PirSetup& setup, const Sizes& sizes);

// What an engine costs, under the same names for every engine (costs.h): `shoal query --engine`,
// `shoal simulate`, `shoal plan` and the studies print these.
struct Costs {
  Sizes bytes;
  double setup_seconds = 0;    // server, once an epoch
  double open_seconds = 0;     // client, once a command: the hint read, checked, brought forward
  double prepare_seconds = 0;  // server, once a session: hints that it makes for it alone
  double query_seconds = 0;    // client, one query
  double answer_seconds = 0;   // server, one query
  double recover_seconds = 0;  // client, one record
};

// An amount of an engine's own unit of work: bytes of a table that a pass reads, rows that are
// gathered, operations in a ring. What one of a unit costs, in nanoseconds, is an amount, too.
struct Amount {
  absl::string_view unit;
  double amount = 0;
};
// The work of an engine, processor time at its servers (over all roles) and at its client.
struct Work {
  std::vector<Amount> setup;    // server, once an epoch
  std::vector<Amount> query;    // client, one query
  std::vector<Amount> answer;   // server, one query
  std::vector<Amount> recover;  // client, one record
  // Server, once a session: hints that it makes for it alone.
  std::vector<Amount> prepare = {};
};

// One message to the server of one role. Its length and that of its answer follow from the setup,
// from `kind` and from `count`.
struct Request {
  Role role = Role::kSingle;
  // Which of the engine's kinds of request; 0 is the ordinary query.
  uint32_t kind = 0;
  // Queries in the body, of equal length; at most kMaxQueriesPerRequest.
  uint32_t count = 1;
  Bytes body;
  // The answer has exactly so many.
  uint64_t answer_bytes = 0;
};
// The same at the server, as it came from the network.
struct RequestView {
  uint32_t kind = 0;
  uint32_t count = 1;
  BytesView body;
};

// What changed from one epoch to the next, much smaller than a hint if few rows did.
struct DeltaView {
  Digest from = {};  // SetupId
  wire::PirSetup to;
  // The family's own encoding.
  BytesView changes;
};
// The same with bytes of its own.
struct Delta {
  Digest from = {};
  wire::PirSetup to;
  Bytes changes;

  operator DeltaView() const { return {.from = from, .to = to, .changes = changes}; }
};

// Over everything in the delta. All parties sign it (setup/signed_setup.h): a client knows by it
// that the pieces make the whole, and that no server made the delta up.
Digest DeltaDigest(const DeltaView& delta);

struct ServerOptions {
  // A larger hint is refused.
  uint64_t max_hint_bytes = uint64_t{1} << 30;
  ThreadPool* pool = nullptr;  // null: everything on the caller's thread; must outlive the server
  // The same for requests that are heavy (Engine::IsHeavy).
  ThreadPool* heavy_pool = nullptr;
  // Once it is true, heavy requests that are under way end within milliseconds with
  // FAILED_PRECONDITION: Refresh waits, and behind it queries. Null: never; outlives the server.
  const std::atomic<bool>* stop_heavy = nullptr;
  // The setup whose shape the server is to have; nothing: the engine chooses one. A server that
  // was refreshed keeps its shape, and one that starts again must have the same.
  std::optional<wire::PirSetup> shape = std::nullopt;
  // Server::product of an earlier server of the same content and shape, which saves nearly all of
  // the set-up; empty: it is made. Nothing is checked but its length: the caller knows by ProductId
  // whose it is, if the rows and signatures are verified to be those of the manifest.
  std::vector<uint32_t> product = {};
  // Of the set-up: done of total, in any unit.
  std::function<void(uint64_t done, uint64_t total)> progress = nullptr;
};

// All roles of an engine at one server. Thread-safe but for Refresh.
class Server {
 public:
  virtual ~Server() = default;

  virtual const wire::PirSetup& setup() const = 0;
  // The public hint as it is sent, which setup().hint_digest is of; empty for an engine without.
  virtual BytesView hint() const { return {}; }
  // The part of the set-up that takes long to make, for ServerOptions::product. Empty if no part
  // does. Valid until Refresh.
  virtual std::span<const uint32_t> product() const { return {}; }
  // No request body has more.
  virtual uint64_t max_request_bytes() const = 0;

  // The answers to requests to one role, in their order. They share what can be shared, such as a
  // pass over the table. A bad request has its own error, and the others have their answers:
  // INVALID_ARGUMENT for an unknown role or kind, or a wrong length; FAILED_PRECONDITION for
  // another epoch or another setup.
  virtual std::vector<absl::StatusOr<Bytes>> Answer(
      Role role, std::span<const RequestView> requests) const = 0;

  // The part, 0 to 1, of the set-up that a Refresh with these arguments would make anew. Near 1 a
  // new server takes as long. INVALID_ARGUMENT as Refresh.
  virtual absl::StatusOr<double> RefreshShare(const Content& content,
                                              std::span<const uint64_t> changed_rows) const = 0;

  // Makes this the server of a later epoch of the same table, with rows of the same size.
  // `changed_rows` names every row whose bytes differ, in ascending order. Returns what clients
  // need to follow, if that is less than a hint. INVALID_ARGUMENT if the content does not fit: then
  // a new server must be made.
  virtual absl::StatusOr<std::optional<Delta>> Refresh(const Content& content,
                                                       std::span<const uint64_t> changed_rows) = 0;
};

// Bytes of a state, and where they are.
struct StatePatch {
  uint64_t at = 0;
  BytesView bytes;
};

// Where a session keeps its secret state between runs of the program, for example a file that knows
// whether it is an old copy (src/client/session_file.h): a state, and records that were appended to
// it since, while it was prepared. What a query needs of a large state it reads, and what it
// changes it changes in place, so that it costs no more than that, and no trace is kept of what was
// there before. Thread-compatible.
class SessionStore {
 public:
  virtual ~SessionStore() = default;
  // How long the state is, and how many records were appended to it. Nothing is there if nothing
  // was saved, or only an old copy, whose hints may be spent.
  virtual uint64_t state_bytes() const = 0;
  virtual uint64_t records() const = 0;
  // Reads bytes of the state (checked that it has them), or a record, as they are now. DATA_LOSS if
  // what is there is not what was written: nothing of that is returned.
  virtual absl::Status Read(uint64_t at, MutableBytes out) const = 0;
  virtual absl::StatusOr<SecretVector<uint8_t>> ReadRecord(uint64_t number) const = 0;

  // All three are durable when they return OK. Nothing that follows from them may be sent after an
  // error; whether what failed is there the next time is not known then.

  // Makes the parts, one after the other, the state, without records.
  virtual absl::Status SaveParts(std::span<const BytesView> parts) = 0;
  absl::Status Save(BytesView state) { return SaveParts(std::span(&state, 1)); }
  // Appends a record of 1 to kMaxRecord bytes. FAILED_PRECONDITION after a call that failed: then a
  // state must be saved first.
  virtual absl::Status Append(BytesView record) = 0;
  static constexpr uint64_t kMaxRecord = uint64_t{1} << 32;
  // Puts these bytes, in order, in the place of those of the state (checked that it has them), all
  // of them or, if the process is killed, none. What they replace is kept nowhere, and they
  // themselves are not kept elsewhere beyond the next call. FAILED_PRECONDITION unless CanChange(),
  // and as Append; DATA_LOSS as Read.
  virtual absl::Status Change(std::span<const StatePatch> patches) = 0;
  // Whether there is a state to which nothing was appended, in the form that Change needs. A store
  // of an earlier version has another: the state is to be saved first.
  virtual bool CanChange() const = 0;
  // How long changes of the next states will be, in so many patches. A longer one is made, too, but
  // may take as long as to save a state.
  virtual void ExpectChanges(uint64_t /*patches*/, uint64_t /*bytes*/) {}
};

// The queries of one lookup, in steps. Thread-compatible.
class Batch {
 public:
  virtual ~Batch() = default;

  // Steps that are left.
  virtual uint64_t steps() const = 0;
  // The requests of the next step, at most one for each role. What they spend of the session is
  // durably spent before this returns. RESOURCE_EXHAUSTED if the session's budget is spent.
  virtual absl::StatusOr<std::vector<Request>> Next(RandomSource& random) = 0;
  // Takes the answers to the requests of Next, in their order, and refreshes the session. The work
  // is the same whatever the answers hold. INVALID_ARGUMENT for a wrong length, or for bits that
  // must be zero, which everyone on the wire can see. DATA_LOSS if SessionOptions::check fails:
  // then nothing is taken, and the query is asked again before the next lookup. Any other answer
  // gives some bytes: records of a lying server are found out by their signatures, and the server
  // is not told.
  virtual absl::Status Finish(std::span<const BytesView> answers) = 0;
  // After the last step: the records of the wanted rows, one after the other, in the rows' order.
  virtual SecretVector<uint8_t> TakeRecords() = 0;
  // Says of each of these records, those of TakeRecords, whether it is the table's. Called at most
  // once, when nothing is sent any more. A session whose hints carry on what came takes a wrong
  // record out of them, so that it spoils nothing else; what a later lookup sends does not depend
  // on it. Durable when it returns OK.
  virtual absl::Status Judge(BytesView /*records*/, const std::vector<bool>& /*right*/) {
    return absl::OkStatus();
  }
};

// What one lookup asks of a session.
struct Wanted {
  // Each below the setup's rows.
  std::span<const uint64_t> rows;
  // How many keys the servers are to see, at least rows.size(). Number, size and order of the
  // requests depend on it and on the setup alone; a family may have an exception of negligible
  // probability, which it states.
  uint64_t keys = 0;
  // A hash that does not depend on the keys spread them over the rows, so that an engine may count
  // on few of them lying together.
  bool spread = false;
};

// One client's side of one engine. Thread-compatible; where Budget() is nothing, Ask and the
// batches of different lookups may run on several threads.
class Session {
 public:
  virtual ~Session() = default;

  virtual const wire::PirSetup& setup() const = 0;

  // What the session needs before it can ask.
  enum class Need {
    kNothing,
    kHint,     // the server's public hint, whole: TakeHint
    kRequests  // answers to requests of its own, until there are enough: Prepare, TakePrepared
  };
  // Before a lookup of so many keys. A session that has nothing yet needs something for no key,
  // too.
  virtual Need needed(uint64_t keys) const = 0;
  // DATA_LOSS if these bytes are not the setup's hint.
  virtual absl::Status TakeHint(BytesView hint);
  // The next request of the preparation, and its answer. What an answer gave is durable when
  // TakePrepared returns, so that an interrupted preparation goes on where it stopped.
  // FAILED_PRECONDITION if nothing is needed.
  virtual absl::StatusOr<Request> Prepare(RandomSource& random);
  virtual absl::Status TakePrepared(BytesView answer);
  // How much of the preparation is done, of how much, in any unit.
  struct Progress {
    uint64_t done = 0, total = 0;
  };
  virtual Progress progress() const { return {}; }

  // The SetupId of an earlier epoch, if that is what the store's state is of: Advance with the
  // delta from there to setup() makes it this setup's. Until then something is needed, and the
  // first call of Prepare gives the state up.
  virtual std::optional<Digest> behind() const { return std::nullopt; }

  // Records that can be asked for with what is prepared; nothing if there is no such limit.
  virtual std::optional<uint64_t> Budget() const { return std::nullopt; }

  // Begins a lookup, once nothing is needed. The session outlives it. OUT_OF_RANGE if there is no
  // such row.
  virtual absl::StatusOr<std::unique_ptr<Batch>> Ask(const Wanted& wanted) = 0;
  // A lookup of at most so many keys that are not spread takes one step.
  virtual uint64_t KeysPerStep() const = 0;

  // Makes this a session of the delta's epoch. FAILED_PRECONDITION if the delta starts elsewhere,
  // INVALID_ARGUMENT if it is malformed; then the session is unchanged.
  virtual absl::Status Advance(const DeltaView& delta) = 0;
};

// Whether these are the records of these rows, one after the other: all of them, else an error.
// What it costs depends on rows and records alone, not on what a session looks for. From one thread
// at a time.
using RecordCheck = std::function<absl::Status(std::span<const uint64_t> rows, BytesView records)>;

struct SessionOptions {
  ThreadPool* pool = nullptr;  // null: everything on the caller's thread; outlives the session
  // For engines whose sessions must be durable; it outlives the session. Others ignore it.
  SessionStore* store = nullptr;
  // For engines whose servers return records as they are, each of a row that the server knows. Such
  // a session checks all of them before it takes any. Others ignore it. Null: nothing is checked.
  RecordCheck check = nullptr;
};

// One system. Immutable, lives as long as the process.
class Engine {
 public:
  virtual ~Engine() = default;

  virtual absl::string_view name() const = 0;
  // The roles of its servers: one, or two that different parties must have.
  virtual std::span<const Role> roles() const = 0;
  // Whether a session must be durable (SessionOptions::store).
  virtual bool keeps_state() const = 0;
  // Whether requests of this kind are work of their own that takes much longer than a query, such
  // as hints for one client. Their count is 1. A server works on them one at a time, beside the
  // others, and limits what one address may take of that time (src/shoald/heavy_shares.h). A
  // request should take less than a second, and ends when it is told to
  // (ServerOptions::stop_heavy).
  virtual bool IsHeavy(Role /*role*/, uint32_t /*kind*/) const { return false; }

  // The setup, without its hint, that a server of this content would have. INVALID_ARGUMENT, or
  // RESOURCE_EXHAUSTED for a table or a hint too large, which says what would do.
  virtual absl::StatusOr<wire::PirSetup> ShapeOf(const Content& content,
                                                 const ServerOptions& options) const = 0;
  // The sizes of a setup without its hint (ShapeOf). INVALID_ARGUMENT names the field that is out
  // of range or does not fit the others. The setup may come from the network.
  virtual absl::StatusOr<Sizes> SizesOfShape(const wire::PirSetup& shape) const = 0;
  // The sizes of a whole setup, whose hint must be as long as the shape makes it.
  absl::StatusOr<Sizes> SizesOf(const wire::PirSetup& setup) const;
  // The work for a shape that SizesOfShape accepts, if `together` queries reach the server
  // together.
  virtual Work WorkOf(const wire::PirSetup& shape, double together) const = 0;

  // Errors as ShapeOf, and RESOURCE_EXHAUSTED if it does not fit the memory.
  virtual absl::StatusOr<std::unique_ptr<Server>> CreateServer(const Content& content,
                                                               ServerOptions options) const = 0;
  // One setup for each of roles(), in their order. INVALID_ARGUMENT names what is wrong with them.
  virtual absl::StatusOr<std::unique_ptr<Session>> OpenSession(
      std::span<const wire::PirSetup> setups, const SessionOptions& options) const = 0;
};

// Engines of one shape, with kernels of their own. Immutable, lives as long as the process.
class Family {
 public:
  virtual ~Family() = default;
  virtual std::span<const Engine* const> engines() const = 0;
  // The units of work that WorkOf of its engines names, but for those of other families, with what
  // each costs where nobody has measured it.
  virtual std::span<const Amount> units() const = 0;
  // Measures what each of units() costs on this machine: processor nanoseconds, on all of the
  // pool's threads at once. Over tables of about `bytes`.
  virtual std::vector<Amount> MeasureUnits(uint64_t bytes, RandomSource& random,
                                           ThreadPool& pool) const = 0;
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_ENGINE_H_
