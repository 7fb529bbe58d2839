// Where a client's rows come from: the chain (chain_client.h), or an engine's servers
// (engine_client.h). retrieval.h does what all sources share: it maps keys to rows, verifies
// answers and delivers results.
//
//   Prepare()        obtains what the first query needs: nothing, a hint, a session
//   Ask(wanted)      every query of the lookup, padded by the source's own rule    ---> servers
//                    all answers, whatever they hold                               <---
//   HangUp()         the connections end; only then are the answers looked at
//   answers->Read()  unmasked or decrypted, not verified
//   answers->Erase() once the results are safe
//
// What a server sees of a lookup (how many queries, when, over how many connections) depends only
// on the counts in `Wanted` and on times, never on a row, an answer or what is kept of earlier
// lookups.
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
  // The number of keys in the lookup, repeated and impossible ones included. The engines derive
  // their number of queries from it; the chain uses the number of rows.
  uint64_t keys = 0;
  // The number of different keys, impossible ones included. The chain derives its number of queries
  // from it where these are for buckets of rows; else it is not counted, and 0.
  uint64_t distinct_keys = 0;
  // A digest of the keys, as the user gave them: it names the lookup over all epochs of the table
  // and all runs of the program.
  Digest lookup = {};
};

// The answers to one Ask. Read is thread-safe.
class RowAnswers {
 public:
  virtual ~RowAnswers() = default;

  // The row of every answer, in the order of Read: the wanted rows, and padding that hides their
  // number. Valid until Erase.
  virtual std::span<const uint32_t> rows() const = 0;

  // Rows that were wanted and not asked, rising: nothing is known of their keys. Only the chain has
  // some, where more of a lookup's rows are in one bucket than it may ask for (virtual_places.h).
  // Valid until Erase.
  virtual std::span<const uint32_t> unasked() const { return {}; }

  // Copies the answers to rows()[first], rows()[first + 1], .. into `out`, whose size is a multiple
  // of answer_bytes (row bytes and a signature). Answers are unmasked or decrypted, but NOT
  // verified. One that is known to have been altered on its way (the chain's, by its answer tag) is
  // zeros. Cheapest for many answers at a time. Errors are the disk's.
  virtual absl::Status Read(size_t first, MutableBytes out) const = 0;

  // Says of each answer, in the order of rows(), whether it was verified, for sources that keep
  // what came of it (pir::Batch::Judge). Once, when nothing is sent any more; it changes nothing
  // that is sent later. Errors are the disk's.
  virtual absl::Status Judge(const std::vector<bool>& /*verified*/) { return absl::OkStatus(); }

  // Erases the secrets and the answers, on disk too. Called once the caller has stored the results;
  // before that, the same lookup gives the same answers without asking again, if the source can.
  virtual absl::Status Erase() = 0;
};

// Thread-compatible. Calls block.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Makes what the source needs before it can ask; returns at once if that is there. Called again
  // after an error, it goes on where it stopped.
  virtual absl::Status Prepare() = 0;

  // Returns one answer for every wanted row but those of RowAnswers::unasked. To be called after
  // Prepare has returned OK. An error means that no answers were obtained (ABORTED,
  // DEADLINE_EXCEEDED, UNAVAILABLE, RESOURCE_EXHAUSTED, FAILED_PRECONDITION when the table's epoch
  // changed). The answers must not outlive the source.
  virtual absl::StatusOr<std::unique_ptr<RowAnswers>> Ask(const Wanted& wanted) = 0;

  // Ends all connections, so that nobody sees how long the client looks at the answers, which
  // depends on their content.
  virtual void HangUp() = 0;

  // What the last Ask has cost so far. Seconds are wall time for one query; answer_seconds includes
  // the network and waiting. 0 for what this client cannot know or has not done.
  virtual pir::Costs costs() const = 0;
  // The traffic of all connections.
  virtual Traffic traffic() const = 0;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_ROW_SOURCE_H_
