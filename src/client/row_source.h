// Where a client's rows come from: the chain (chain_client.h), or an engine's servers
// (engine_client.h). How keys become rows, how answers are verified and how results reach the
// caller is the same for all of them, and is written once, in retrieval.h.
//
//   Prepare()        what must be there before the first query: nothing, a hint, a session
//   Ask(wanted)      every query of the lookup, padded by the source's own rule    ---> servers
//                    all answers, whatever they hold                               <---
//   HangUp()         the connections end; only then does anybody look at the answers
//   answers->Read()  unmasked or decrypted, not verified
//   answers->Erase() once the results are safe
//
// What a server sees of a lookup (how many queries, when, over how many connections) is a function
// of the counts in `Wanted` and of times, never of a row, of an answer or of what is kept from
// earlier lookups.
#ifndef SHOAL_SRC_CLIENT_ROW_SOURCE_H_
#define SHOAL_SRC_CLIENT_ROW_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/client/transport.h"
#include "src/pir/costs.h"

namespace shoal::client {

// What one lookup asks for.
struct Wanted {
  // Distinct and rising; each below the table's number of rows.
  std::vector<uint32_t> rows;
  // Keys of the lookup, repeated and impossible ones included. A source whose number of queries
  // depends on the number of keys (the engines) goes by this; the chain goes by the number of rows.
  uint64_t keys = 0;
};

// The answers to one Ask. Thread-safe for Read.
class RowAnswers {
 public:
  virtual ~RowAnswers() = default;

  // The row of every answer, in the order of Read: every wanted row, and others that were asked to
  // hide how many those are. Valid until Erase.
  virtual std::span<const uint32_t> rows() const = 0;

  // Copies the answers to rows()[first], rows()[first + 1], .. into `out`, which has a multiple of
  // answer_bytes (row bytes and a signature): unmasked or decrypted, NOT verified. Cheapest for
  // many answers at a time. Errors are of the disk.
  virtual absl::Status Read(size_t first, MutableBytes out) const = 0;

  // Erases the secrets and the answers, durably where they are durable. Called once results are
  // safe with the caller; without it, the same lookup again gives the same answers without asking
  // where the source can.
  virtual absl::Status Erase() = 0;
};

// Thread-compatible; blocks.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Makes what the source needs before it can ask; at once when it is there. After an error it goes
  // on where it stopped.
  virtual absl::Status Prepare() = 0;

  // One answer for every wanted row. An error means that no answers were obtained (ABORTED,
  // DEADLINE_EXCEEDED, UNAVAILABLE, RESOURCE_EXHAUSTED, FAILED_PRECONDITION when the table's epoch
  // changed). Not before Prepare has returned OK. The answers live no longer than the source.
  virtual absl::StatusOr<std::unique_ptr<RowAnswers>> Ask(const Wanted& wanted) = 0;

  // Ends all connections: how long looking at the answers takes depends on them, and must not be
  // seen.
  virtual void HangUp() = 0;

  // What the last Ask has cost so far; seconds are of one query, wall time, answer_seconds with the
  // network and the waiting. 0 for what this client cannot know or has not done.
  virtual pir::Costs costs() const = 0;
  // Over all connections.
  virtual Traffic traffic() const = 0;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ROW_SOURCE_H_
