// A server of an earlier version of Shoal, as far as programs of this one can get to know it.
#ifndef SHOAL_SRC_NET_TESTING_EARLIER_SERVER_H_
#define SHOAL_SRC_NET_TESTING_EARLIER_SERVER_H_

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "boost/asio.hpp"
#include "boost/asio/ssl.hpp"
#include "src/base/bytes.h"
#include "src/net/tls.h"
#include "src/wire/frame.h"

namespace shoal::net::testing {

// Refuses the first request of each connection, as no message of its protocol, in a frame of its
// version, and closes the connection. Takes one connection at a time.
class EarlierServer {
 public:
  // `digit`: '2' for version 0.2.
  EarlierServer(const Identity& identity, char digit) : digit_(static_cast<uint8_t>(digit)) {
    namespace ssl = boost::asio::ssl;
    context_.use_certificate(boost::asio::buffer(identity.certificate_pem), ssl::context::pem);
    context_.use_private_key(
        boost::asio::buffer(identity.private_key_pem.data(), identity.private_key_pem.size()),
        ssl::context::pem);
    thread_ = std::thread([this] { Serve(); });
  }
  ~EarlierServer() {
    stopping_ = true;
    // Wakes the thread, which waits for a connection.
    boost::asio::ip::tcp::socket last(io_);
    boost::system::error_code ignored;
    last.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  using Socket = boost::asio::ip::tcp::socket;

  void Serve() {
    while (!stopping_) {
      Socket socket = acceptor_.accept();
      if (!stopping_) Refuse(std::move(socket));
    }
  }
  void Refuse(Socket socket) {
    boost::asio::ssl::stream<Socket> stream(std::move(socket), context_);
    boost::system::error_code error;
    stream.handshake(boost::asio::ssl::stream_base::server, error);
    wire::FrameHeaderBytes header;
    if (!error) boost::asio::read(stream, boost::asio::buffer(header), error);
    if (error) return;
    const wire::Frame refusal =
        wire::MakeErrorFrame(absl::InvalidArgumentError("frame: not a message of this protocol"));
    wire::FrameHeaderBytes answer = wire::EncodeFrameHeader(wire::HeaderOf(refusal));
    answer[3] = digit_;
    boost::asio::write(stream, boost::asio::buffer(answer), error);
    boost::asio::write(stream, boost::asio::buffer(refusal.control), error);
    // What was sent and not read would have the system cut the connection before the answer is
    // there.
    stream.next_layer().shutdown(Socket::shutdown_send, error);
    uint8_t rest[4096];
    while (!error) stream.next_layer().read_some(boost::asio::buffer(rest), error);
  }

  const uint8_t digit_;
  boost::asio::io_context io_;
  boost::asio::ssl::context context_{boost::asio::ssl::context::tls_server};
  boost::asio::ip::tcp::acceptor acceptor_{io_, {boost::asio::ip::make_address("127.0.0.1"), 0}};
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace shoal::net::testing

#endif  // SHOAL_SRC_NET_TESTING_EARLIER_SERVER_H_
