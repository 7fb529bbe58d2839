// How a client reaches a party that serves clients: one method for every request of
// src/wire/client.proto.
#ifndef SHOAL_SRC_CLIENT_TRANSPORT_H_
#define SHOAL_SRC_CLIENT_TRANSPORT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/roster/roster.h"
#include "src/wire/client.pb.h"
#include "src/wire/frame.h"

namespace shoal::client {

// The most bytes of arrays in a request or response, well below the frame limit. How arrays are cut
// depends only on counts.
inline constexpr size_t kMaxBulkBytes = 1 << 20;

// Bytes on the connection, with frames but without TLS.
struct Traffic {
  uint64_t sent = 0;
  uint64_t received = 0;
};
inline Traffic operator+(const Traffic& a, const Traffic& b) {
  return {a.sent + b.sent, a.received + b.received};
}

// Thread-compatible. Every request may be repeated: all are idempotent. UNAVAILABLE: the frontend
// could not be reached or the connection broke; the next call connects again. Other codes are the
// frontend's (docs/protocol.md).
class Transport {
 public:
  virtual ~Transport() = default;

  virtual absl::StatusOr<wire::GetDeploymentResponse> GetDeployment(
      const wire::GetDeploymentRequest& request) = 0;
  virtual absl::StatusOr<wire::GetPlacementResponse> GetPlacement(
      const wire::GetPlacementRequest& request) = 0;
  virtual absl::StatusOr<wire::GetRowVersionsResponse> GetRowVersions(
      const wire::GetRowVersionsRequest& request) = 0;
  virtual absl::StatusOr<wire::ListRoundsResponse> ListRounds(
      const wire::ListRoundsRequest& request) = 0;
  virtual absl::StatusOr<wire::WaitRoundResponse> WaitRound(
      const wire::WaitRoundRequest& request) = 0;
  virtual absl::StatusOr<wire::SubmitOnionsResponse> SubmitOnions(
      const wire::SubmitOnionsRequest& request) = 0;
  virtual absl::StatusOr<wire::SubmitQueriesResponse> SubmitQueries(
      const wire::SubmitQueriesRequest& request) = 0;
  virtual absl::StatusOr<wire::FetchAnswersResponse> FetchAnswers(
      const wire::FetchAnswersRequest& request) = 0;
  virtual absl::StatusOr<wire::GetStatusResponse> GetStatus(
      const wire::GetStatusRequest& request) = 0;
  // UNIMPLEMENTED where rounds have no terms.
  virtual absl::StatusOr<wire::GetRefreshResponse> GetRefresh(
      const wire::GetRefreshRequest& /*request*/) {
    return absl::UnimplementedError("no terms here");
  }
  virtual absl::StatusOr<wire::FetchRefreshResponse> FetchRefresh(
      const wire::FetchRefreshRequest& /*request*/) {
    return absl::UnimplementedError("no terms here");
  }

  // A request to an engine (src/wire/pir.proto), whose arrays are in the frame's bulk.
  // The response has at most `max_bulk_bytes` of bulk. UNIMPLEMENTED if there are no engines.
  virtual absl::StatusOr<wire::Frame> CallEngine(const wire::Frame& /*request*/,
                                                 uint64_t /*max_bulk_bytes*/) {
    return absl::UnimplementedError("no engines here");
  }

  // Requires the other end to be this party of the roster from here on (1 is the frontend). A
  // client calls this after it has fetched the roster over this connection and verified it by its
  // own pins. UNAUTHENTICATED if the peer has another certificate. Later connections are checked
  // when they are made.
  virtual absl::Status RequireParty(const roster::Roster& roster, uint32_t party) = 0;
  // Anybody may be at the other end again, until RequireParty: for the next roster, in which the
  // party may have another certificate. Only the deployment may be asked for meanwhile.
  virtual void ForgetParty() = 0;

  // Closes the connection; a later request opens another. A client hangs up before it looks at its
  // answers, since the time for that depends on them and nobody may see it.
  virtual void HangUp() = 0;

  virtual Traffic traffic() const = 0;
};

// Makes a connection to the frontend for one device; from any thread.
using TransportFactory = std::function<absl::StatusOr<std::unique_ptr<Transport>>()>;
// The same to one of its machines, at this address.
using MachineFactory =
    std::function<absl::StatusOr<std::unique_ptr<Transport>>(const std::string& address)>;

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_TRANSPORT_H_
