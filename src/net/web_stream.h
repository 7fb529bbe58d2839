// A connection of HTTP or a WebSocket: TLS, or plain where it comes from this machine.
//
// Beast and asio are templates of the stream, of the buffers and of what is called at the end of an
// operation. Here the last two are types of our own, so that what reads and writes is compiled once
// (web_stream.cc) and not once for everything that is built on it.
#ifndef SHOAL_SRC_NET_WEB_STREAM_H_
#define SHOAL_SRC_NET_WEB_STREAM_H_

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "boost/asio/associated_executor.hpp"
#include "boost/asio/async_result.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/buffer.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/beast/core/role.hpp"
#include "src/base/bytes.h"

namespace shoal::net {

// What is called once, at the end of an operation, on the executor of the handler that it was made
// of. It owns that handler.
class IoHandler {
 public:
  using executor_type = boost::asio::ip::tcp::socket::executor_type;

  // Handlers without an executor run on `executor`.
  template <typename Handler>
  IoHandler(Handler handler, const executor_type& executor)
      : executor_(boost::asio::get_associated_executor(handler, executor)),
        call_(std::make_unique<CallOf<Handler>>(std::move(handler))) {}

  executor_type get_executor() const noexcept { return executor_; }
  void operator()(boost::system::error_code error, size_t size) { call_->End(error, size); }
  void operator()(boost::system::error_code error) { call_->End(error, 0); }

 private:
  struct Call {
    virtual ~Call() = default;
    virtual void End(boost::system::error_code error, size_t size) = 0;
  };
  template <typename Handler>
  struct CallOf : Call {
    explicit CallOf(Handler h) : handler(std::move(h)) {}
    void End(boost::system::error_code error, size_t size) override {
      if constexpr (std::is_invocable_v<Handler&, boost::system::error_code, size_t>) {
        handler(error, size);
      } else {
        handler(error);
      }
    }
    Handler handler;
  };

  executor_type executor_;
  std::unique_ptr<Call> call_;
};

// What Beast reads from and writes to. One operation in each direction at a time; it must outlive
// them. Thread-compatible.
class WebStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using executor_type = Socket::executor_type;
  using Result = boost::asio::awaitable<boost::system::error_code>;

  // Plain without a context.
  WebStream(Socket socket, std::shared_ptr<boost::asio::ssl::context> context);
  ~WebStream();

  executor_type get_executor() { return socket_.get_executor(); }
  Socket& socket() { return socket_; }

  // As a server. Nothing is to be done on a plain connection.
  Result Handshake();
  // Both, one after the other and together where they are short.
  Result Write(absl::string_view head, BytesView body);

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [](auto handler, WebStream* self, boost::asio::mutable_buffer into) {
          self->StartRead(into, IoHandler(std::move(handler), self->get_executor()));
        },
        token, this, FirstOf<boost::asio::mutable_buffer>(buffers));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    writing_.clear();
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at) {
      AddToWrite(boost::asio::const_buffer(*at));
    }
    return boost::asio::async_initiate<Token, void(boost::system::error_code, size_t)>(
        [](auto handler, WebStream* self) {
          self->StartWrite(IoHandler(std::move(handler), self->get_executor()));
        },
        token, this);
  }

  // After so many reads from now on one fails (message_size) instead of waiting for more: what
  // comes makes nobody any wiser. kNoLimit until this is called.
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  void AllowReads(size_t count) { reads_ = count; }

  // Told when a WebSocket on this stream has said all that it says, and waits for its peer to end
  // the connection, too.
  void OnTeardown(std::function<void()> told) { on_teardown_ = std::move(told); }

  // How Beast cuts or ends the connection under a WebSocket.
  friend void beast_close_socket(WebStream& stream) {
    boost::system::error_code ignored;
    stream.socket_.close(ignored);
  }
  template <typename Handler>
  friend void async_teardown(boost::beast::role_type role, WebStream& stream, Handler&& handler) {
    stream.StartTeardown(role, IoHandler(std::forward<Handler>(handler), stream.get_executor()));
  }

 private:
  struct Tls;

  // A read may fill a part of what it was given.
  template <typename Buffer, typename Buffers>
  static Buffer FirstOf(const Buffers& buffers) {
    const auto end = boost::asio::buffer_sequence_end(buffers);
    for (auto at = boost::asio::buffer_sequence_begin(buffers); at != end; ++at) {
      if (const Buffer buffer(*at); buffer.size() > 0) return buffer;
    }
    return {};
  }
  void AddToWrite(boost::asio::const_buffer buffer);
  void StartRead(boost::asio::mutable_buffer into, IoHandler handler);
  // Of writing_.
  void StartWrite(IoHandler handler);
  void StartTeardown(boost::beast::role_type role, IoHandler handler);

  const std::shared_ptr<boost::asio::ssl::context> context_;
  Socket socket_;
  std::unique_ptr<Tls> tls_;
  std::vector<boost::asio::const_buffer> writing_;
  size_t reads_ = kNoLimit;  // that may still begin
  std::function<void()> on_teardown_;
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_WEB_STREAM_H_
