// Clients that do what a Connection never would, from any address of the loopback network: the
// system takes all of 127.0.0.0/8 for this machine, so that a test has as many address blocks as it
// likes.
#ifndef SHOAL_SRC_NET_TESTING_RAW_TLS_H_
#define SHOAL_SRC_NET_TESTING_RAW_TLS_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "boost/asio.hpp"
#include "boost/asio/ssl.hpp"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/net/server.h"
#include "src/wire/frame.h"

namespace shoal::net::testing {

inline constexpr char kLoopback[] = "127.0.0.1";

// Of all raw sockets, which only block. One of its own would take three descriptors for each.
inline boost::asio::io_context raw_io;

// Plain TCP, blocking, with a limit on how long it waits for the server.
class RawSocket {
 public:
  explicit RawSocket(uint16_t port, const std::string& from = kLoopback) {
    namespace asio = boost::asio;
    socket.open(asio::ip::tcp::v4());
    socket.bind({asio::ip::make_address(from), 0});
    socket.connect({asio::ip::make_address(kLoopback), port});
    socket.set_option(boost::asio::ip::tcp::no_delay(true));
    const timeval limit = {.tv_sec = 120, .tv_usec = 0};
    SHOAL_CHECK(setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) ==
                0);
  }
  explicit RawSocket(const Server& server, const std::string& from = kLoopback)
      : RawSocket(server.port(), from) {}
  // Reads until the server ends the connection; false if it does not.
  bool ReadToEnd() {
    char bytes[4096];
    for (;;) {
      const ssize_t n = recv(socket.native_handle(), bytes, sizeof bytes, 0);
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
      if (n < 0) return false;
    }
  }

  boost::asio::ip::tcp::socket socket{raw_io};
};

// A TLS client that writes any bytes, and reads as slowly as it likes.
class RawTls {
 public:
  explicit RawTls(uint16_t port, const std::string& from = kLoopback,
                  int max_version = TLS1_3_VERSION)
      : raw_(port, from) {
    SSL_CTX_set_max_proto_version(context_.native_handle(), max_version);
    stream_.emplace(raw_.socket, context_);
    stream_->handshake(boost::asio::ssl::stream_base::client, handshake_error);
  }
  explicit RawTls(const Server& server, const std::string& from = kLoopback,
                  int max_version = TLS1_3_VERSION)
      : RawTls(server.port(), from, max_version) {}

  // False if the connection has broken.
  bool Write(BytesView bytes) {
    boost::system::error_code error;
    boost::asio::write(*stream_, boost::asio::buffer(bytes.data(), bytes.size()), error);
    return !error;
  }
  bool WriteHeader(const wire::FrameHeader& header) {
    return Write(wire::EncodeFrameHeader(header));
  }
  bool WriteFrame(const wire::Frame& frame) {
    return WriteHeader(wire::HeaderOf(frame)) && Write(AsBytes(frame.control)) && Write(frame.bulk);
  }
  // Reads at most into.size() bytes. 0: the connection has broken.
  size_t ReadSome(MutableBytes into) {
    boost::system::error_code error;
    return stream_->read_some(boost::asio::buffer(into.data(), into.size()), error);
  }
  // The next frame, whatever its size. To be called when nothing of it has been read. ABORTED: none
  // came, or none began within a minute. An ERROR frame comes as its status.
  absl::StatusOr<wire::Frame> ReadFrame() {
    pollfd readable = {.fd = descriptor(), .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, 60'000) != 1) return absl::AbortedError("no answer within a minute");
    wire::FrameHeaderBytes header_bytes;
    boost::system::error_code error;
    boost::asio::read(*stream_, boost::asio::buffer(header_bytes), error);
    if (error) return absl::AbortedError("no answer: " + error.message());
    const auto header = wire::ParseFrameHeader(header_bytes);
    if (!header.ok()) return absl::AbortedError("no frame");
    wire::Frame frame{.type = header->type,
                      .control = std::string(header->control_bytes, 0),
                      .bulk = Bytes(header->bulk_bytes)};
    boost::asio::read(*stream_, boost::asio::buffer(frame.control), error);
    if (!error) boost::asio::read(*stream_, boost::asio::buffer(frame.bulk), error);
    if (error) return absl::AbortedError("half an answer");
    if (frame.type == wire::FrameType::kError) return wire::ErrorOf(frame);
    return frame;
  }
  // The ERROR frame that the server sends, as a status.
  absl::Status ReadError() {
    const auto frame = ReadFrame();
    return frame.ok() ? absl::AbortedError("no ERROR") : frame.status();
  }
  bool ReadToEnd() { return raw_.ReadToEnd(); }
  void Close() { raw_.socket.close(); }
  int descriptor() { return raw_.socket.native_handle(); }

  boost::system::error_code handshake_error;

 private:
  RawSocket raw_;
  boost::asio::ssl::context context_{boost::asio::ssl::context::tls_client};
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> stream_;
};

}  // namespace shoal::net::testing

#endif  // SHOAL_SRC_NET_TESTING_RAW_TLS_H_
