// Looks up the values of keys, one or millions in a batch, through any source of rows
// (row_source.h).
//
//   CollectRows     the keys, read for the first time -> their rows, each once
//   source.Prepare  whatever the source needs before it can ask
//   source.Ask      every query out, every answer in
//   source.HangUp   nothing is sent any more; only later steps depend on the answers' content
//   Verify          the signature of every wanted row
//   answers.Judge   what keeps parts of an answer learns whether it was right
//   Deliver         the keys, read a second time -> results, in the keys' order
//   answers.Erase   secrets and answers wiped, once the results are safe
//
// Memory: 8 bytes for every distinct row while keys are read, 5 for every answer while answers are
// verified and looked up, a few blocks of kBlockBytes, and the source's own. Keys are not kept in
// memory, and with the chain answers are not either.
#ifndef SHOAL_SRC_CLIENT_RETRIEVAL_H_
#define SHOAL_SRC_CLIENT_RETRIEVAL_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/client/deployment.h"
#include "src/client/environment.h"
#include "src/client/row_source.h"
#include "src/table/row_map.h"

namespace shoal::client {

// The result for one key.
struct Lookup {
  enum class Outcome {
    kFound,
    kAbsent,   // proved by a signed row, or by the signed manifest
    kUnknown,  // the signed row has no room for all of its keys, and this may be one of those: not
               // known until the table has another placement, at the next term. Or the row was not
               // asked for, as `error` says
    kFailed,   // no verified answer; `error` says why
  };
  Outcome outcome = Outcome::kFailed;
  Bytes value;
  absl::Status error;

  // Whether the key is unknown as its row was not asked for: no party has said or signed anything.
  bool is_unasked() const { return outcome == Outcome::kUnknown && !error.ok(); }
};

// Keys to look up, in order. They are read twice, so that they need not be in memory.
class Keys {
 public:
  virtual ~Keys() = default;
  // Calls `take` with every key in order. Stops at its first error and returns it.
  virtual absl::Status ForEach(const std::function<absl::Status(BytesView key)>& take) = 0;
};

// Takes the results, in the keys' order.
class Results {
 public:
  virtual ~Results() = default;
  virtual absl::Status Add(BytesView key, const Lookup& result) = 0;
  // Called when all results were added. OK must mean that they are safe, as the lookup's secrets
  // and answers are then erased. After an error, here or from Add, the same lookup gives the
  // results again without asking, if the source keeps answers.
  virtual absl::Status Finish() = 0;
};

// Gives one result per key, in order. Keys may repeat. An error means that no answers were
// obtained, that none may be used, or that `keys` or `results` failed:
//   INVALID_ARGUMENT     a key that the table cannot have (dense layout); nothing was sent
//   FAILED_PRECONDITION  the keys were not the same the second time; or the table's manifest
//                        expired while the answers were on their way: no result was added, as a
//                        signature on an old table proves nothing about the present one
//   others               of Prepare and Ask
// After an error nothing is erased: the same call goes on with the same bytes, if the source can.
// An answer that was altered on its way or has a wrong signature is no error, but kFailed for its
// keys. It is never asked for again, and nothing that a server sees depends on it.
absl::Status LookUp(const Deployment& deployment, RowSource& source, Keys& keys, Results& results,
                    const Environment& environment);
// The same for keys and results in memory.
absl::StatusOr<std::vector<Lookup>> LookUp(const Deployment& deployment, RowSource& source,
                                           std::span<const Bytes> keys,
                                           const Environment& environment);

// The steps of LookUp, for callers that look up for many devices at a time.

// The rows that hold these keys. A key that the manifest proves absent has none. Takes 16 bytes of
// memory for each key where the table's queries are for buckets.
absl::StatusOr<Wanted> CollectRows(const table::RowMap& map, Keys& keys);

// FAILED_PRECONDITION if the table's manifest has expired. To be called after answers are fetched
// and before any is used.
absl::Status CheckNotExpired(const Deployment& deployment, const Clock& clock);

// Answers, with a mark for the verified ones, and the map from keys to answers. Find is
// thread-safe.
class CheckedAnswers {
 public:
  // No answer is verified yet. All three must outlive this; `wanted` is rising, and each row of it
  // is in answers.rows() or answers.unasked(). If a row was asked more than once, its first answer
  // counts.
  CheckedAnswers(const Deployment& deployment, const RowAnswers& answers,
                 std::span<const uint32_t> wanted);

  // Whether answer `place` of answers.rows() is to a wanted row and not padding.
  bool IsWanted(size_t place) const { return states_[place] != kPadding; }
  // Marks answer `place` as none that the parties gave: its signature is not looked at.
  void SetLost(size_t place) { states_[place] = kLost; }
  // Marks answer `place` as signed by all parties.
  void SetVerified(size_t place) { states_[place] = kVerified; }
  std::vector<bool> verified() const {
    std::vector<bool> all;
    for (const State state : states_) all.push_back(state == kVerified);
    return all;
  }

  // Looks the key up in its answer. FAILED_PRECONDITION if its row was not wanted; errors of Read.
  absl::StatusOr<Lookup> Find(BytesView key) const;

 private:
  enum State : uint8_t { kPadding, kFailed, kLost, kVerified };

  const Deployment& deployment_;
  const RowAnswers& answers_;
  std::vector<uint32_t> order_;  // places, the smallest row's first
  std::vector<State> states_;    // by place
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_RETRIEVAL_H_
