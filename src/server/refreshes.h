// The refreshes of the terms at party 1: which are due, their way over the chain, and the answers
// of the latest one of each term, which wait for clients (docs/protocol.md, "Refreshes").
//
//   the newest epoch of the table ---> ProposeRefresh over the chain: signed by all, and stored
//                                 ---> Refresh over the chain: all answers, into a file
//                                 ---> shown to clients, in place of the refresh before
//
// A header is in the journal before anybody hears of it, so that a number is proposed for one epoch
// alone. After a restart the last refresh that all have signed is run again, and gives the same
// bytes. No client gets an answer before all are taken. What a client sees depends on times and its
// own requests, never on an answer.
#ifndef SHOAL_SRC_SERVER_REFRESHES_H_
#define SHOAL_SRC_SERVER_REFRESHES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/parallel/mutex.h"
#include "src/parallel/thread_pool.h"
#include "src/round/refresh.h"
#include "src/server/chain.h"
#include "src/server/journal.h"
#include "src/server/party.h"
#include "src/server/terms.h"
#include "src/storage/spool.h"
#include "src/wire/client.pb.h"
#include "src/wire/round.pb.h"

namespace shoal::server {

// The most runs of adjacent slots in a client's request. Each costs a look at the term's file.
inline constexpr size_t kMaxSlotRuns = 256;

// Thread-safe.
class Refreshes {
 public:
  // `party` is party 1 of a chain, and has terms. It, the journal, the clock, the pool and the
  // spools must outlive the object. `spools` should have no memory: answers wait for days.
  Refreshes(Party* party, Journal* journal, const Clock* clock, ThreadPool* pool,
            SpoolPlace* spools);

  // --- for the driver

  // The terms of which no refresh from the newest epoch of the table is shown, oldest first. Lets
  // go of the answers of terms that have ended.
  std::vector<Digest> WhatIsDue();

  // What a refresh that was done was about.
  struct Done {
    RoundCounter round;
    wire::RefreshHeader header;
    uint64_t answers = 0;
    uint64_t bytes = 0;
  };
  // Does the refresh that is due, over the chain that begins with `first`, party 1's node. One call
  // at a time for a term (checked). The same call may come again after any error. NOT_FOUND: there
  // will be no more refresh of this term, and it is to be ended: a party has it no more, it has had
  // all its refreshes, or the table has rows of other sizes now. FAILED_PRECONDITION: not now, as
  // when another party has not taken the epoch yet. UNAUTHENTICATED: a party has not signed.
  absl::StatusOr<Done> Run(const Digest& round_id, Link& first);
  // Why the last run of a term failed, for everybody. Shown until one succeeds.
  void SetProblem(const Digest& round_id, absl::string_view problem);
  // Ends a term here, and with the next list of live rounds everywhere.
  void End(const Digest& round_id, absl::string_view why);

  // --- for clients and people

  // NOT_FOUND: no such term. INVALID_ARGUMENT: not a round's id.
  absl::StatusOr<wire::GetRefreshResponse> GetRefresh(const wire::GetRefreshRequest& request) const;
  // Reads the disk: not for I/O threads. Codes as Frontend::FetchAnswers. INVALID_ARGUMENT also for
  // slots in more than kMaxSlotRuns runs; FAILED_PRECONDITION: not the latest refresh.
  absl::StatusOr<wire::FetchRefreshResponse> FetchRefresh(
      const wire::FetchRefreshRequest& request) const;
  // The terms, oldest first.
  std::vector<wire::TermReport> Reports() const;

 private:
  // Handed out without a lock. The last reference drops the file.
  struct Shown {
    wire::SignedRefreshHeader refresh;
    std::vector<round::RefreshTag> tags;
    Spool answers;
    uint64_t since_s;  // on the steady clock
    uint64_t wall_ms;  // over the whole chain
  };
  using ShownPointer = std::shared_ptr<const Shown>;

  ShownPointer Find(const Digest& round_id) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for a client. NOT_FOUND as GetRefresh; null before the first refresh.
  absl::StatusOr<ShownPointer> FindFor(const Digest& round_id) const ABSL_LOCKS_EXCLUDED(mutex_);
  // What is to be proposed, in the journal. NOT_FOUND: it would be one too many.
  absl::StatusOr<wire::RefreshHeader> NextHeader(const Terms::Known& term,
                                                 const TableEpoch& table) const;
  absl::StatusOr<Done> RunOne(const Digest& round_id, Link& first);

  Party* const party_;
  Terms* const terms_;
  Journal* const journal_;
  const Clock* const clock_;
  ThreadPool* const pool_;
  SpoolPlace* const spools_;

  mutable Mutex mutex_;  // held for moments
  std::map<Digest, ShownPointer> shown_ ABSL_GUARDED_BY(mutex_);
  std::map<Digest, std::string> problems_ ABSL_GUARDED_BY(mutex_);
  // What the latest refresh that is shown has cost each party, once they have said it.
  std::map<Digest, StageReports> costs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::server

#endif  // SHOAL_SRC_SERVER_REFRESHES_H_
