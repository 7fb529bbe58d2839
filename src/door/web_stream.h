// A connection of a client: TLS, or plain where it comes from this machine.
#ifndef SHOAL_SRC_DOOR_WEB_STREAM_H_
#define SHOAL_SRC_DOOR_WEB_STREAM_H_

#include <memory>
#include <optional>
#include <utility>

#include "boost/asio.hpp"
#include "boost/asio/ssl.hpp"
#include "boost/beast/websocket.hpp"
#include "boost/beast/websocket/ssl.hpp"

namespace shoal::door {

// What Beast reads from and writes to. Thread-compatible.
class WebStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;

  // Plain without a context.
  WebStream(Socket socket, std::shared_ptr<boost::asio::ssl::context> context)
      : context_(std::move(context)), socket_(std::move(socket)) {
    if (context_ != nullptr) tls_.emplace(socket_, *context_);
  }

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }

  // Nothing is to be done on a plain connection.
  boost::asio::awaitable<boost::system::error_code> Handshake() {
    if (!tls_) co_return boost::system::error_code();
    const auto [error] = co_await tls_->async_handshake(
        boost::asio::ssl::stream_base::server, boost::asio::as_tuple(boost::asio::use_awaitable));
    co_return error;
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return tls_ ? tls_->async_read_some(buffers, std::forward<Token>(token))
                : socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return tls_ ? tls_->async_write_some(buffers, std::forward<Token>(token))
                : socket_.async_write_some(buffers, std::forward<Token>(token));
  }

  // How Beast cuts or ends the connection under a WebSocket.
  friend void beast_close_socket(WebStream& stream) {
    boost::system::error_code ignored;
    stream.socket_.close(ignored);
  }
  template <typename Handler>
  friend void async_teardown(boost::beast::role_type role, WebStream& stream, Handler&& handler) {
    if (stream.tls_) {
      using boost::beast::websocket::async_teardown;
      async_teardown(role, *stream.tls_, std::forward<Handler>(handler));
    } else {
      boost::beast::websocket::async_teardown(role, stream.socket_, std::forward<Handler>(handler));
    }
  }

 private:
  const std::shared_ptr<boost::asio::ssl::context> context_;
  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_WEB_STREAM_H_
