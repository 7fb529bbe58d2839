// Serves clients of the web, and passes what they ask to the frontend (docs/door.md):
//
//   client --- HTTPS: POST /v1/call, one frame ---------------.
//   client --- WebSocket: /v1/ws, a frame in each message -----+-- door -- TLS, frames -- frontend
//
// The messages are those of docs/protocol.md, unchanged. The door reads of a frame its header
// alone, and of a WaitRound what it waits for (round_waits.h).
#ifndef SHOAL_SRC_DOOR_DOOR_H_
#define SHOAL_SRC_DOOR_DOOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/address_block.h"
#include "src/door/figures.h"
#include "src/door/frontend_options.h"
#include "src/door/rules.h"
#include "src/door/spent_tokens.h"
#include "src/door/tokens.h"
#include "src/net/admission.h"
#include "src/net/tls.h"

namespace shoal::door {

// Thread-safe.
class Door {
 public:
  struct Options {
    std::string address;  // host:port; port 0 takes a free one
    // Without a certificate the door speaks plain HTTP.
    net::Identity identity = {};
    FrontendOptions frontend;
    OriginRules origins = {};
    // Their clients' addresses are in X-Forwarded-For.
    AddressRanges proxies = {};
    // Places (src/net/admission.h); the share of connections is one of those to the frontend as
    // well, and of the requests that are with shoal-ohttp. A peer is welcome once the head of its
    // first request is there and asks for what the door has, from a page that may ask.
    size_t max_connections = 3072;
    size_t max_newcomers = 1024;
    uint64_t max_buffered_bytes = 256 << 20;
    net::BlockShares shares = {};
    // Each range counts as one, which has these shares and no rate: many clients are behind it. The
    // share of connections is also what all that comes over shoal-ohttp may have of those to the
    // frontend.
    AddressRanges shared_addresses = {};
    net::BlockShares group_shares = {};
    // Limits a minute (DoorConfig::Rates); onions in bytes.
    double connection_requests = 600;
    double address_requests = 3000;
    double address_onion_bytes = 4 << 20;
    double address_connections = 3000;
    // Who submits onions shows a token, which pays for so many bytes of them; the rate of an
    // address for onions does not apply then. Both or neither; they must outlive the door.
    const TokenRules* tokens = nullptr;
    SpentTokens* spent = nullptr;
    uint64_t token_onion_bytes = 64 << 10;
    // The socket of shoal-ohttp. Empty: no Oblivious HTTP.
    std::string ohttp_socket = {};
    size_t threads = 2;
    // How long the frontend is asked at a time to wait for a round (RoundWaits::Options).
    std::chrono::milliseconds wait_step{5'000};
    // After which a connection is cut: for the handshake; for the head of a request, of the first
    // one from the handshake on, of later ones from their first byte on; for each megabyte of a
    // request or an answer; for the wait for the next request. And after which a request counts as
    // not answered; a client may wait for a round for up to a minute.
    std::chrono::milliseconds handshake_timeout{5'000};
    std::chrono::milliseconds head_timeout{10'000};
    std::chrono::milliseconds progress_timeout{20'000};
    std::chrono::milliseconds idle_timeout{300'000};
    std::chrono::milliseconds answer_timeout{120'000};
  };

  // `figures` must outlive the door. Errors as net::Server::Start.
  static absl::StatusOr<std::unique_ptr<Door>> Start(Options options, Figures* figures);

  // Cuts all connections and waits for the I/O threads.
  ~Door();

  // Passes requests on to this frontend from now on; those that it has are answered by the one
  // before. Its `max_links` are not used. INTERNAL: TLS is not available; nothing changes then.
  absl::Status UseFrontend(const FrontendOptions& frontend);

  // Shows this certificate to connections that come from now on. INVALID_ARGUMENT if it does not
  // fit its key; nothing changes then.
  absl::Status UseCertificate(const net::Identity& identity);

  uint16_t port() const;

  // Returns once the threads have got to it, and hangs if they are stuck: for a watchdog.
  void Probe() const;

 private:
  struct State;
  explicit Door(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State> state_;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_DOOR_H_
