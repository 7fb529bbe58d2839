// A client of a term, written from docs/protocol.md, apart from the client library, so that the two
// check each other: it asks once, and is answered at every epoch of the table.
#ifndef SHOAL_SRC_SIM_TERM_CLIENT_H_
#define SHOAL_SRC_SIM_TERM_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/roster/roster.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"
#include "src/wire/round.pb.h"

namespace shoal::sim {

// Keeps its secrets in memory. Thread-compatible.
class TermClient {
 public:
  // Sends a request to the frontend and returns its answer; an ERROR frame as its status.
  using Call = std::function<absl::StatusOr<wire::Frame>(const wire::Frame& request)>;
  // Both pointers must outlive the client.
  TermClient(const roster::Roster* roster, RandomSource* random, Call call)
      : roster_(roster), random_(random), call_(std::move(call)) {}

  // Asks for the rows in a round that has a term and takes onions, with one slot more than it uses,
  // and waits for the round's own answers: row | signature each. UNAVAILABLE: there is no such
  // round just now. ABORTED: the round was not answered. The calls' errors.
  absl::StatusOr<std::vector<Bytes>> Enrol(const std::vector<uint32_t>& rows);

  const wire::RoundHeader& round() const { return round_; }
  const Digest& id() const { return id_; }
  const std::vector<uint32_t>& rows() const { return rows_; }

  // The refresh that the frontend shows, checked; none is set before the first. NOT_FOUND once the
  // term has ended.
  absl::StatusOr<wire::GetRefreshResponse> Latest() const;
  // Its answers: row | signature each, if they are right.
  absl::StatusOr<std::vector<Bytes>> Fetch(const wire::GetRefreshResponse& latest) const;

 private:
  template <typename Response, typename Request>
  absl::StatusOr<Response> Ask(wire::FrameType type, const Request& request) const;
  // Sets the round to one that has a term and takes onions.
  absl::Status FindRound();
  // Submits one onion with so many slots, of which the first one is returned. The seeds of each
  // slot are 32 bytes of `outer`, for the frontend, and as many of `inner` for each later party.
  absl::StatusOr<uint32_t> TakeSlots(size_t slots, Bytes& outer, Bytes& inner);
  absl::Status WaitFor(wire::RoundState state) const;
  std::vector<Bytes> Cut(const std::string& answers) const;

  const roster::Roster* const roster_;
  RandomSource* const random_;
  const Call call_;
  wire::RoundHeader round_;
  Digest id_ = {};
  std::vector<uint32_t> rows_;
  std::string slots_;
  std::vector<std::vector<Seed>> term_seeds_;  // of each query, party 1's first
};

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_TERM_CLIENT_H_
