// Frames over TLS 1.3, the listening side.
#ifndef SHOAL_SRC_NET_SERVER_H_
#define SHOAL_SRC_NET_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/byte_source.h"
#include "src/net/tls.h"
#include "src/wire/frame.h"

namespace shoal::net {

// Answers one request: exactly once, at any time, from any thread. Dropped without an answer, it
// answers INTERNAL.
class Reply {
 public:
  using Send = std::function<void(wire::Frame, std::unique_ptr<ByteSource>)>;
  explicit Reply(Send send) : send_(std::move(send)) {}
  Reply(Reply&& other) noexcept : send_(std::exchange(other.send_, nullptr)) {}
  Reply& operator=(Reply&& other) noexcept;
  ~Reply();

  // `bulk`, if there is one, in place of the frame's own: asked for its pieces on an I/O thread as
  // they are sent. When it fails, the connection is cut: the caller sees that the answer is not whole.
  void operator()(wire::Frame frame, std::unique_ptr<ByteSource> bulk = nullptr);
  void operator()(const absl::Status& error) { (*this)(wire::MakeErrorFrame(error)); }

 private:
  Send send_;
};

// Called on an I/O thread: whatever takes long moves to another one.
using Handler = std::function<void(wire::Frame, Reply)>;

// Takes the bulk of one large request as it comes, so that work and network overlap and nothing is
// gathered. Destroyed without Done if the connection breaks.
class BulkSink {
 public:
  virtual ~BulkSink() = default;
  // The next bytes, in order. Called on an I/O thread, which waits: that is how a sender is slowed
  // down to what is worked off. An error refuses the request.
  virtual absl::Status Take(BytesView piece) = 0;
  // All of it was taken: answers, as a Handler does.
  virtual void Done(Reply reply) = 0;
};

// Thread-safe.
class Server {
 public:
  struct Options {
    std::string address;  // host:port; port 0 takes a free one
    Identity identity;
    // Digests of the certificates of those who may connect; empty: anyone, without a certificate.
    std::vector<Digest> clients;
    // How much of a frame of a type is taken; an error refuses the type. Asked before anything but
    // the frame's header is read.
    std::function<absl::StatusOr<wire::FrameLimits>(wire::FrameType)> limits;
    // For requests whose bulk is taken as it comes: asked once the control bytes are there. Null, or
    // returns null: the bulk is gathered and the handler called. An error refuses the request.
    std::function<absl::StatusOr<std::unique_ptr<BulkSink>>(const wire::Frame& request,
                                                            uint64_t bulk_bytes)>
        sink = nullptr;
    size_t max_connections = 4096;
    // Of all requests that are coming in and answers that go out together, but for bulk that streams:
    // what is beyond is refused (UNAVAILABLE), as many slow peers would take all memory.
    uint64_t max_buffered_bytes = std::numeric_limits<uint64_t>::max();
    size_t threads = 2;
    // A connection that does not get on is cut: the handshake as a whole, every megabyte of a
    // frame, and the wait for the next request.
    std::chrono::milliseconds handshake_timeout{10'000};
    std::chrono::milliseconds progress_timeout{20'000};
    std::chrono::milliseconds idle_timeout{300'000};
  };

  // ALREADY_EXISTS: the address is in use; INVALID_ARGUMENT: it is no address, or certificate and
  // key do not fit; PERMISSION_DENIED and so on from the system.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options, Handler handler);

  // Cuts all connections and waits for the I/O threads. Replies that come later are dropped.
  ~Server();

  uint16_t port() const;
  // Payload bytes since the start: frames, without TLS's own.
  uint64_t bytes_received() const;
  uint64_t bytes_sent() const;

 private:
  struct State;
  explicit Server(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State> state_;
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_SERVER_H_
