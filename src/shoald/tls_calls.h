// Calls to the next party over TLS.
#ifndef SHOAL_SRC_SHOALD_TLS_CALLS_H_
#define SHOAL_SRC_SHOALD_TLS_CALLS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/net/connection.h"
#include "src/parallel/mutex.h"
#include "src/roster/party_keys.h"
#include "src/roster/roster.h"
#include "src/shoald/kept_connections.h"
#include "src/shoald/peer_calls.h"

namespace shoal::shoald {

// A call opens a connection, as there are few calls in a round, with two exceptions: lists of live
// rounds, one a second, keep theirs; and the connection of a list of onions is kept for the same
// round's queries (CloseEnded).
class TlsCalls final : public PeerCalls {
 public:
  // `identity` is this party's, and is looked at by the constructor alone.
  TlsCalls(const roster::Party& next, const roster::TlsIdentity& identity);

  // The error of a party that does not answer, or is not reached, names the party and its address.
  absl::StatusOr<PeerAnswer> Call(PeerCall call) override ABSL_LOCKS_EXCLUDED(live_mutex_);
  void CloseEnded(const std::function<bool(const Digest& round_id)>& over) override {
    kept_.End(over);
  }

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  absl::StatusOr<std::unique_ptr<net::Connection>> Connect(Deadline deadline,
                                                           std::function<bool()> cancelled,
                                                           uint32_t machine) const;
  absl::StatusOr<PeerAnswer> CallWithList(const PeerCall& call, Deadline deadline)
      ABSL_LOCKS_EXCLUDED(live_mutex_);
  // An error of the connection, named by the party; what the party answered stays as it is.
  absl::Status Named(const absl::Status& status, uint32_t machine) const;

  const roster::Party next_;
  const absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> context_;
  KeptConnections kept_;
  Mutex live_mutex_;  // held over a call
  std::unique_ptr<net::Connection> live_connection_ ABSL_GUARDED_BY(live_mutex_);
};

}  // namespace shoal::shoald

#endif  // SHOAL_SRC_SHOALD_TLS_CALLS_H_
