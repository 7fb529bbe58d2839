// Looks keys up through the chain, for one device: one, or millions in one batch.
//
//   Open       the deployment: roster, manifest, placement, all verified       (deployment.h)
//   Obtain     a round that takes onions -> master seed (durable) -> onions -> slots (durable)
//   Submit     once the round is open for queries: rows, padded, written to the state together with
//              the charge to the ledger (durable) -> slot, token, tally of every query
//   Collect    once it is answered: all answers, whatever they hold, into a spool (answer_spool.h)
//   then       the connections end; nothing is sent any more. Signatures verified, the keys read a
//              second time and looked up in the spool, results handed on in order -> the round's
//              secrets, slots, rows and answers wiped
//
// How often a client submits and when depends on times, counts and the rounds' states, never on
// an answer: it does not ask again after a bad one. Only when a round is aborted for everybody are
// its rows asked in another one, at most `max_attempts` times in all, each charged.
//
// Interrupted at any point, the same call goes on: with the same onions, the same rows in the same
// slots, the answers that are in the spool; what was sent twice was the same bytes.
//
// Memory: 8 bytes for every distinct row while keys are read, then up to 25 for every query of the
// round (row, slot, order, and what padding takes for a moment), some pieces of kMaxBulkBytes for
// every connection and thread, and the placement. Neither keys nor answers are in memory.
#ifndef SHOAL_SRC_CLIENT_CLIENT_H_
#define SHOAL_SRC_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/base/random.h"
#include "src/base/thread_pool.h"
#include "src/client/answer_spool.h"
#include "src/client/connections.h"
#include "src/client/deployment.h"
#include "src/client/exchange.h"
#include "src/client/state.h"
#include "src/client/transport.h"
#include "src/roster/roster.h"
#include "src/round/header.h"

namespace shoal::client {

inline constexpr uint32_t kDefaultPadTo = 64;
inline constexpr uint32_t kMaxPadTo = 1 << 24;
inline constexpr uint32_t kMaxAttempts = 10;
inline constexpr uint32_t kDefaultConnections = 4;
inline constexpr uint32_t kMaxClientConnections = 64;

struct ClientOptions {
  uint32_t pad_to = kDefaultPadTo;
  uint32_t max_attempts = 3;
  // For a round that takes onions; and how long after its own times a round is waited for.
  uint32_t timeout_s = 600;
  // See Deployment::Fetch.
  std::string placement_cache;
  // At a time, for what takes more than one request. What a peer sees of it is a function of the
  // number of queries.
  uint32_t connections = kDefaultConnections;
  // Of arrays in one request or response.
  size_t piece_bytes = kMaxBulkBytes;
};

// What a client needs of the world. The pointers outlive it.
struct Environment {
  const Clock* clock;
  RandomSource* random;
  ThreadPool* pool;
  Sleep sleep;
  // What the client is doing, for people; may be empty.
  std::function<void(absl::string_view what)> progress = nullptr;
  // How far it is with what takes long; may be empty. From any thread, one at a time.
  std::function<void(absl::string_view stage, uint64_t done, uint64_t total)> count = nullptr;
  // More connections to the frontend; empty: everything goes over the one.
  TransportFactory connect = nullptr;
};

struct Lookup {
  enum class Outcome {
    kFound,
    kAbsent,  // proved by a signed row, or by the signed manifest
    kFailed,  // no verified answer; `error` says why
  };
  Outcome outcome = Outcome::kFailed;
  Bytes value;
  absl::Status error;
};

// What a row's verified answer says of a key of that row.
Lookup ResultOf(const table::RowMap& map, const table::RowAnswer& answer, BytesView key);

// Keys to look up, in order. Read twice, so that they need not be in memory.
class Keys {
 public:
  virtual ~Keys() = default;
  // Calls `take` with one key after the other. Its first error ends this and is returned.
  virtual absl::Status ForEach(const std::function<absl::Status(BytesView key)>& take) = 0;
};

// Where results go, in the keys' order.
class Results {
 public:
  virtual ~Results() = default;
  virtual absl::Status Add(BytesView key, const Lookup& result) = 0;
  // All were added. When this returns OK, the round's secrets and answers are erased: what was added
  // is safe by then. After an error, here or from Add, the same lookup gives the results again
  // without asking for anything.
  virtual absl::Status Finish() = 0;
};

// Thread-compatible; blocks.
class Client {
 public:
  // As Deployment::Fetch; INVALID_ARGUMENT for options out of range. What was seen is saved.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const roster::PinnedParties& pins,
                                                      ClientOptions options, Transport* transport,
                                                      StateStore* store, Environment environment);

  const Deployment& deployment() const { return deployment_; }

  // One result per key, in order. Keys may repeat. An error means that no answers were obtained, or
  // that `keys` or `results` failed: INVALID_ARGUMENT for a key that the table cannot have (dense
  // layout), before anything is sent; ABORTED when rounds were aborted max_attempts times;
  // FAILED_PRECONDITION when the round closed before the queries were in, or when the keys are not
  // the same the second time; DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED: a full disk. The same call
  // again after a crash or an error goes on where it stopped, with the same bytes, as long as the
  // round lives.
  absl::Status LookUp(Keys& keys, Results& results);
  // The same for keys and results in memory.
  absl::StatusOr<std::vector<Lookup>> LookUp(std::span<const Bytes> keys);

  // Obtains `slots` slots ahead of time, in a round that this client is not in yet. The round's id.
  absl::StatusOr<Digest> ObtainAhead(uint32_t slots);

  // The steps of LookUp, for tests and for programs that run them at times of their own.
  // A round of this deployment with `queries` slots that carry no rows yet.
  absl::StatusOr<Digest> Obtain(uint32_t queries);
  // `rows` are distinct; padded to the round's fixed number. Charged even if it fails later.
  absl::Status Submit(const Digest& round_id, std::span<const uint32_t> rows);
  // All answers of the submitted queries, masked and not verified: answer i of the spool belongs to
  // row i of the round. ABORTED: nobody got any.
  absl::Status Collect(const Digest& round_id, AnswerSpool& spool);
  // The spool of a round with submitted queries.
  absl::StatusOr<std::unique_ptr<AnswerSpool>> OpenSpool(const HeldRound& held);

  // Over all connections.
  Traffic traffic() const;

 private:
  Client(ClientOptions options, Transport* transport, StateStore* store, Environment environment,
         Deployment deployment)
      : options_(std::move(options)),
        store_(store),
        environment_(std::move(environment)),
        transport_(transport),
        exchange_(transport, environment_.sleep, environment_.clock),
        deployment_(std::move(deployment)),
        connections_(environment_.connect, &deployment_.roster(), environment_.sleep,
                     /*keep=*/true) {}

  absl::StatusOr<round::Round> VerifyRound(const wire::SignedHeader& header) const;
  absl::StatusOr<HeldRound*> FindHeld(const Digest& round_id);
  absl::StatusOr<bool> TryObtain(const wire::RoundInfo& info, uint32_t slots, Digest& round_id);
  absl::StatusOr<Digest> ObtainNew(uint32_t slots, bool only_new_rounds);
  absl::Status KeepSlots(HeldRound& held, std::span<const uint32_t> more);
  absl::Status DropUnusable();
  // A round in which queries for just these rows (rising) were charged already.
  std::optional<Digest> FindBegun(std::span<const uint32_t> rows);
  absl::Status GiveUp(HeldRound& held);

  absl::StatusOr<std::vector<uint32_t>> RowsOf(Keys& keys);
  // A round with all its answers.
  struct Asked;
  // Asks for these rows (rising), in as many rounds as it takes.
  absl::StatusOr<Asked> Ask(std::span<const uint32_t> rows);
  // Which answers are good.
  struct Answers;
  absl::StatusOr<Answers> Verify(const Asked& asked, std::span<const uint32_t> rows);
  absl::Status Deliver(const Asked& asked, const Answers& answers, Keys& keys, Results& results);

  // work(exchange, first, count) over [0, total) in pieces: over the one connection, or over several
  // if there are several pieces. After an error no more are begun.
  absl::Status ForPieces(
      size_t total, size_t piece,
      const std::function<absl::Status(Exchange&, size_t first, size_t count)>& work);
  void HangUp();
  void Tell(absl::string_view what) const {
    if (environment_.progress) environment_.progress(what);
  }
  void Count(absl::string_view stage, uint64_t done, uint64_t total) const {
    if (environment_.count) environment_.count(stage, done, total);
  }

  const ClientOptions options_;
  StateStore* const store_;
  const Environment environment_;
  Transport* const transport_;
  Exchange exchange_;
  const Deployment deployment_;
  Connections connections_;
  std::unique_ptr<ThreadPool> lanes_;  // threads of the connections but one; made when needed
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CLIENT_H_
