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
#include "src/base/address_block.h"
#include "src/base/byte_source.h"
#include "src/net/admission.h"
#include "src/net/tls.h"
#include "src/wire/frame.h"

namespace shoal::net {

// Answers one request. Call it exactly once, at any time, from any thread. If it is destroyed
// without a call, it answers INTERNAL.
class Reply {
 public:
  using Send = std::function<void(wire::Frame, std::unique_ptr<ByteSource>)>;
  explicit Reply(Send send, Origin from = std::nullopt)
      : send_(std::move(send)), from_(std::move(from)) {}
  Reply(Reply&& other) noexcept : send_(std::exchange(other.send_, nullptr)), from_(other.from_) {}
  Reply& operator=(Reply&& other) noexcept;
  ~Reply();

  // Whose request it is.
  const Origin& from() const { return from_; }

  // `bulk`, if there is one, is sent in place of the frame's own bulk: an I/O thread asks for its
  // pieces as they are sent. If it fails, the connection is cut, so that the caller sees that the
  // answer is not complete.
  void operator()(wire::Frame frame, std::unique_ptr<ByteSource> bulk = nullptr);
  void operator()(const absl::Status& error) { (*this)(wire::MakeErrorFrame(error)); }
  void operator()(absl::StatusOr<wire::Frame> answer) {
    (*this)(answer.ok() ? *std::move(answer) : wire::MakeErrorFrame(answer.status()));
  }

 private:
  Send send_;
  Origin from_;
};

// Called on an I/O thread, so long work must go to another thread.
using Handler = std::function<void(wire::Frame, Reply)>;

// Takes the bulk of one large request piece by piece, so that work and network overlap and the bulk
// is never in memory as a whole. It is destroyed without Done if the connection breaks.
class BulkSink {
 public:
  virtual ~BulkSink() = default;
  // Takes the next bytes, in order. It is called on an I/O thread, which waits for it: so a sender
  // is slowed down to the speed of the work. An error refuses the request.
  virtual absl::Status Take(BytesView piece) = 0;
  // Called when all bytes were taken: answers the request, as a Handler does.
  virtual void Done(Reply reply) = 0;
};

// Thread-safe.
class Server {
 public:
  struct Options {
    std::string address;  // host:port; port 0 takes a free one
    Identity identity;
    // Digests of the certificates of peers that may connect. Empty: anybody may connect, without a
    // certificate.
    std::vector<Digest> clients;
    // The limits for a frame of a type; an error refuses the type. Called when only the frame's
    // header has been read.
    std::function<absl::StatusOr<wire::FrameLimits>(wire::FrameType)> limits;
    // Makes the sink of a request whose bulk is taken as it arrives; called once the control bytes
    // are there. If it is null, or returns null, the bulk is collected and the handler called. An
    // error refuses the request.
    std::function<absl::StatusOr<std::unique_ptr<BulkSink>>(const wire::Frame& request,
                                                            uint64_t bulk_bytes)>
        sink = nullptr;
    // Told of every error that is sent, on an I/O thread. May be null.
    std::function<void(absl::StatusCode)> refused = nullptr;
    // Told of every request of another version of Shoal, on an I/O thread. May be null.
    std::function<void(const absl::Status&)> another_version = nullptr;
    // Places (admission.h). A peer is welcome once it has shown its certificate, if `clients` lists
    // any, or else once the header of its first request is one that `limits` allows. It is refused
    // (UNAVAILABLE) if all places of those that are welcome are taken.
    size_t max_connections = 3072;
    size_t max_newcomers = 1024;
    // The most bytes of all requests until they are answered, and of outgoing answers, together;
    // without bulk that streams. Beyond it requests are refused (UNAVAILABLE), since many slow
    // peers could take all memory.
    uint64_t max_buffered_bytes = std::numeric_limits<uint64_t>::max();
    // Of these bytes, how many requests of other types than `in_reserve` names leave free. May be
    // null: no type.
    uint64_t reserved_bytes = 0;
    std::function<bool(wire::FrameType)> in_reserve = nullptr;
    // What one address block may take of all of these.
    BlockShares shares = {};
    // Each range counts as one block, which has these shares: many clients are behind it.
    AddressRanges shared_addresses = {};
    BlockShares group_shares = {};
    size_t threads = 2;
    // Time limits after which a connection is cut: for the whole handshake; for the header of a
    // request, of the first one from the handshake on, of later ones from their first byte on; for
    // every megabyte of a frame; and for the wait for the next request.
    std::chrono::milliseconds handshake_timeout{5'000};
    std::chrono::milliseconds header_timeout{5'000};
    std::chrono::milliseconds progress_timeout{20'000};
    std::chrono::milliseconds idle_timeout{300'000};
  };

  // ALREADY_EXISTS: the address is in use; INVALID_ARGUMENT: the address is malformed, or
  // certificate and key do not fit; PERMISSION_DENIED and other errors from the system.
  static absl::StatusOr<std::unique_ptr<Server>> Start(Options options, Handler handler);

  // Cuts all connections and waits for the I/O threads. Replies that come later are dropped.
  ~Server();

  uint16_t port() const;
  // Open now.
  size_t connections() const;
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
