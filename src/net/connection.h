// Frames over TLS 1.3, the calling side. Calls block.
#ifndef SHOAL_SRC_NET_CONNECTION_H_
#define SHOAL_SRC_NET_CONNECTION_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/net/tls.h"
#include "src/wire/frame.h"

namespace shoal::net {

// Thread-compatible: one call at a time. After a failure of the connection (not after an error
// that the peer answered) every call fails.
class Connection {
 public:
  struct Options {
    std::string address;  // host:port
    // The peer's certificate must have this digest. Without a pin anyone in the middle could be the
    // peer, until the caller has checked certificate_sha256().
    std::optional<Digest> pin = std::nullopt;
    const Identity* identity = nullptr;
    // A client's of MakeContext, in place of `identity`, for a caller who makes many connections.
    std::shared_ptr<boost::asio::ssl::context> context = nullptr;
    std::chrono::milliseconds connect_timeout{10'000};
    // Asked every tenth of a second: once true, a running call ends (CANCELLED). May be null.
    std::function<bool()> cancelled = nullptr;
  };

  // UNAVAILABLE: refused, unreachable or not speaking TLS 1.3; DEADLINE_EXCEEDED; UNAUTHENTICATED:
  // another certificate than the pinned one. The message names the address and what to do.
  static absl::StatusOr<std::unique_ptr<Connection>> Connect(const Options& options);
  ~Connection();

  const Digest& certificate_sha256() const;

  // Sends a frame and waits for the answer; `limits` bound it. An ERROR frame comes back as its
  // status. `timeout` is for the whole call. UNAVAILABLE: the connection broke.
  absl::StatusOr<wire::Frame> Call(const wire::Frame& request, const wire::FrameLimits& limits,
                                   std::chrono::milliseconds timeout);

  // The same for bulk that is made, or used, piece by piece. `bulk` is sent after the request's
  // control bytes, in place of the request's own bulk; null means no bulk. On return the answer
  // lacks only its bulk: read all of `answer_bulk` before the next call, and within `timeout` from
  // the start of this call. `answer_bulk` must not outlive the connection.
  struct Streamed {
    wire::Frame frame;
    std::unique_ptr<ByteSource> bulk;
  };
  absl::StatusOr<Streamed> CallStreaming(const wire::Frame& request, ByteSource* bulk,
                                         const wire::FrameLimits& limits,
                                         std::chrono::milliseconds timeout);

  // False once the connection has failed.
  bool usable() const;

  // For a connection that is kept for a later call: before the next one, frees memory that only
  // calls need and has nobody cancel.
  void Rest();
  // The same, when the next call is there: false if the peer has ended the connection, or has sent
  // what nobody asked for. True does not say that the peer is still there.
  bool IsQuiet();
  // In place of Options::cancelled, from the next call on.
  void SetCancelled(std::function<bool()> cancelled);

  uint64_t bytes_sent() const;
  uint64_t bytes_received() const;

 private:
  struct State;
  class AnswerBulk;
  explicit Connection(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_CONNECTION_H_
