// A device's requests to the frontend, over one connection, repeated while the frontend cannot be
// reached (retry_policy.h). All are idempotent: sending the same bytes again changes nothing. A
// call with arrays makes one request. The caller cuts the arrays (OnionsPerPiece and so on), and
// may send the pieces over several connections.
#ifndef SHOAL_SRC_CLIENT_EXCHANGE_H_
#define SHOAL_SRC_CLIENT_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/clock.h"
#include "src/client/device.h"
#include "src/client/environment.h"
#include "src/client/retry_policy.h"
#include "src/client/transport.h"
#include "src/round/header.h"

namespace shoal::client {

// How many items fit a request with `piece_bytes` of arrays, or its response; at least one. For
// onions: of one submission.
uint32_t OnionsPerPiece(const round::Round& round, size_t piece_bytes);
size_t QueriesPerPiece(const round::Round& round, size_t piece_bytes);
size_t AnswersPerPiece(const round::Round& round, size_t piece_bytes);

// Thread-compatible. UNAVAILABLE: the frontend could not be reached. DATA_LOSS: its response makes
// no sense. Other codes are the frontend's, except that ABORTED becomes INTERNAL, because only a
// round's state may say that the round was aborted.
class Exchange {
 public:
  // Without `retry_policy`, which must outlive this, requests are made six times in all.
  Exchange(Transport* transport, Sleep sleep, const Clock* clock,
           RetryPolicy* retry_policy = nullptr)
      : transport_(transport),
        sleep_(std::move(sleep)),
        clock_(clock),
        retry_policy_(retry_policy) {}

  absl::StatusOr<wire::GetDeploymentResponse> GetDeployment();

  absl::StatusOr<wire::ListRoundsResponse> ListRounds();

  // The round's state now; CLOSED if the frontend knows no such round (any more).
  absl::StatusOr<wire::RoundState> StateOf(const Digest& round_id);
  // Waits until the round is in `state` or a later state, and returns that. DEADLINE_EXCEEDED after
  // `deadline_s` (seconds since 1970).
  absl::StatusOr<wire::RoundState> WaitFor(const Digest& round_id, wire::RoundState state,
                                           uint64_t deadline_s);

  // Sends submissions, together at most kMaxBulkBytes or only one. Returns the slot of each one's
  // first onion; all slots of the request are different ones of the round. FAILED_PRECONDITION,
  // RESOURCE_EXHAUSTED, NOT_FOUND: the round takes no more.
  absl::StatusOr<std::vector<uint32_t>> SubmitOnions(const round::Round& round,
                                                     std::vector<std::string> submissions);

  absl::Status SubmitQueries(const wire::SubmitQueriesRequest& request);

  // Fetches the answers of the ranges' onions, fetched_bytes each, still masked (Unmask in
  // device.h).
  absl::Status FetchAnswers(const round::Round& round, std::span<const OnionRange> ranges,
                            MutableBytes fetched);

  // The latest refresh of a round's term. NOT_FOUND if it has none (any more).
  absl::StatusOr<wire::GetRefreshResponse> GetRefresh(const Digest& round_id);
  // Answers of a refresh with their tags, still masked. FAILED_PRECONDITION: not the latest one.
  absl::Status FetchRefresh(const wire::FetchRefreshRequest& request, MutableBytes tagged);

  // See Transport::HangUp.
  void HangUp() { transport_->HangUp(); }

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Call(absl::StatusOr<Response> (Transport::*method)(const Request&),
                                const Request& request);
  Transport* const transport_;
  const Sleep sleep_;
  const Clock* const clock_;
  RetryPolicy* const retry_policy_;
};

// The slots that a frontend has given in a round.
class SlotSet {
 public:
  // False, and nothing changes, if one of slots first .. first + count - 1 is there already.
  bool Add(uint32_t first, uint32_t count);

 private:
  std::map<uint64_t, uint64_t> end_of_;  // by first slot
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_EXCHANGE_H_
