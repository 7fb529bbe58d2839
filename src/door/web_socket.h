// The WebSocket of a client, for the door alone: what Beast makes of it is a source of its own, as
// it takes long to compile.
#ifndef SHOAL_SRC_DOOR_WEB_SOCKET_H_
#define SHOAL_SRC_DOOR_WEB_SOCKET_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "boost/beast/http/buffer_body.hpp"
#include "boost/beast/http/message.hpp"
#include "src/base/bytes.h"
#include "src/net/web_stream.h"

namespace shoal::door {

// Messages of any size, in pieces. Each operation fails once the stream is closed. Runs one at a
// time. Thread-compatible.
class WebSocket {
 public:
  using Request = boost::beast::http::request<boost::beast::http::buffer_body>;
  using Result = boost::asio::awaitable<boost::system::error_code>;

  // The stream must outlive it. `on_control` is told of each ping, pong and close.
  WebSocket(net::WebStream& stream, std::function<void()> on_control);
  ~WebSocket();

  static bool IsUpgrade(const Request& head);
  // Whether an upgrade begins as RFC 6455, section 4.2.1, has it. INVALID_ARGUMENT says what is
  // wrong.
  static absl::Status CheckUpgrade(const Request& head);
  Result Accept(const Request& head);

  struct Piece {
    boost::system::error_code error;
    size_t size;
  };
  // Fails, with message_size, if much comes of which nothing is a part of a message.
  boost::asio::awaitable<Piece> ReadSome(MutableBytes into);
  // Whether the client has said that it closes.
  bool got_close() const;
  // Of the message that the latest piece belongs to.
  bool got_text() const;
  bool is_message_done() const;

  enum class Kind { kText, kBinary };
  // A whole message, in one frame.
  Result Write(BytesView message, Kind kind);

  // Says that the client is refused; reads and drops what comes, until it closes as well.
  Result Refuse();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_WEB_SOCKET_H_
