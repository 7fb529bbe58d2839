// Looks keys up through the chain, for one device.
//
//   Open       the deployment: roster, manifest, placement, all verified       (deployment.h)
//   Obtain     a round that takes onions -> master seed (durable) -> onions -> slots (durable)
//   Submit     once the round is open for queries: rows, padded, written to the state together with
//              the charge to the ledger (durable) -> slot, token, tally of every query
//   Collect    once it is answered: all answers, whatever they hold -> masks taken off -> the
//              round's secrets wiped
//   then       signatures verified, values looked up: nothing is sent any more
//
// How often a client submits and when depends on times, counts and the rounds' states, never on
// an answer: it does not ask again after a bad one. Only when a round is aborted for everybody are
// its rows asked in another one, at most `max_attempts` times in all, each charged.
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
#include "src/client/deployment.h"
#include "src/client/exchange.h"
#include "src/client/state.h"
#include "src/client/transport.h"
#include "src/roster/roster.h"
#include "src/round/header.h"

namespace shoal::client {

inline constexpr uint32_t kDefaultPadTo = 64;
inline constexpr uint32_t kMaxPadTo = 1 << 16;
inline constexpr uint32_t kMaxAttempts = 10;

struct ClientOptions {
  uint32_t pad_to = kDefaultPadTo;
  uint32_t max_attempts = 3;
  // For a round that takes onions; and how long after its own times a round is waited for.
  uint32_t timeout_s = 600;
  // See Deployment::Fetch.
  std::string placement_cache;
};

// What a client needs of the world. The pointers outlive it.
struct Environment {
  const Clock* clock;
  RandomSource* random;
  ThreadPool* pool;
  Sleep sleep;
  // What the client is doing, for people; may be empty.
  std::function<void(absl::string_view what)> progress;
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

// The number of queries for this many distinct rows: the next multiple of `pad_to` (at least one),
// but never more than the table has rows.
uint32_t PaddedCount(size_t distinct_rows, uint32_t pad_to, uint64_t table_rows);

// `rows` (distinct) and distinct random others, `count` in all, in random order.
std::vector<uint32_t> PadRows(std::span<const uint32_t> rows, uint32_t count, uint64_t table_rows,
                              RandomSource& random);

// Thread-compatible; blocks.
class Client {
 public:
  // As Deployment::Fetch; INVALID_ARGUMENT for options out of range. What was seen is saved.
  static absl::StatusOr<std::unique_ptr<Client>> Open(const roster::PinnedParties& pins,
                                                      ClientOptions options, Transport* transport,
                                                      StateStore* store, Environment environment);

  const Deployment& deployment() const { return deployment_; }

  // One result per key, in order. Keys may repeat. An error means that no answers were obtained:
  // INVALID_ARGUMENT for a key that the table cannot have (dense layout), before anything is sent;
  // ABORTED when rounds were aborted max_attempts times; FAILED_PRECONDITION when the round closed
  // before the queries were in; DEADLINE_EXCEEDED. The same call again after a crash goes on where
  // it stopped, with the same bytes.
  absl::StatusOr<std::vector<Lookup>> LookUp(std::span<const Bytes> keys);

  // Obtains `slots` slots ahead of time, in a round that this client is not in yet. The round's id.
  absl::StatusOr<Digest> ObtainAhead(uint32_t slots);

  // The steps of LookUp, for tests and for programs that run them at times of their own.
  // A round of this deployment with `queries` slots that carry no rows yet.
  absl::StatusOr<Digest> Obtain(uint32_t queries);
  // `rows` are distinct; padded to the round's fixed number. Charged even if it fails later.
  absl::Status Submit(const Digest& round_id, std::span<const uint32_t> rows);
  // All answers of the submitted queries, unmasked but not verified. ABORTED: nobody got any.
  struct Collected {
    std::vector<uint32_t> rows;
    Bytes answers;
  };
  absl::StatusOr<Collected> Collect(const Digest& round_id);

 private:
  Client(ClientOptions options, Transport* transport, StateStore* store, Environment environment,
         Deployment deployment)
      : options_(std::move(options)),
        store_(store),
        environment_(std::move(environment)),
        exchange_(transport, environment_.sleep, environment_.clock),
        deployment_(std::move(deployment)) {}

  absl::StatusOr<round::Round> VerifyRound(const wire::SignedHeader& header) const;
  absl::StatusOr<HeldRound*> FindHeld(const Digest& round_id);
  absl::StatusOr<bool> TryObtain(const wire::RoundInfo& info, uint32_t slots, Digest& round_id);
  absl::StatusOr<Digest> ObtainNew(uint32_t slots, bool only_new_rounds);
  absl::Status DropUnusable();
  // A round in which queries for all these rows were charged already.
  std::optional<Digest> FindBegun(std::span<const uint32_t> rows);
  absl::Status GiveUp(HeldRound& held);
  void Tell(absl::string_view what) const {
    if (environment_.progress) environment_.progress(what);
  }

  const ClientOptions options_;
  StateStore* const store_;
  const Environment environment_;
  Exchange exchange_;
  const Deployment deployment_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_CLIENT_H_
