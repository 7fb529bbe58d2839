#include "src/door/web_socket.h"

#include <utility>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/websocket/rfc6455.hpp"
#include "boost/beast/websocket/stream.hpp"
#include "src/net/await.h"

namespace shoal::door {
namespace {

namespace asio = boost::asio;
namespace websocket = boost::beast::websocket;

// For a piece of a message, or for a ping. Beast passes over empty parts of a message by itself, of
// which there may be millions.
constexpr size_t kReadsForAPiece = 64;

}  // namespace

struct WebSocket::State {
  explicit State(net::WebStream& s) : stream(s), socket(s) {}

  net::WebStream& stream;
  // It does not compress.
  websocket::stream<net::WebStream&, /*deflateSupported=*/false> socket;
};

WebSocket::WebSocket(net::WebStream& stream, std::function<void()> on_control)
    : state_(std::make_unique<State>(stream)) {
  state_->socket.read_message_max(0);  // Message says how long one may be
  // An answer is one frame of WebSocket's as well.
  state_->socket.auto_fragment(false);
  state_->socket.control_callback(
      [told = std::move(on_control), &stream](websocket::frame_type, boost::beast::string_view) {
        stream.AllowReads(kReadsForAPiece);
        told();
      });
}

WebSocket::~WebSocket() = default;

bool WebSocket::IsUpgrade(const Request& head) { return websocket::is_upgrade(head); }

WebSocket::Result WebSocket::Accept(const Request& head) {
  const auto [error] = co_await state_->socket.async_accept(head, net::kAwait);
  co_return error;
}

asio::awaitable<WebSocket::Piece> WebSocket::ReadSome(MutableBytes into) {
  state_->stream.AllowReads(kReadsForAPiece);
  const auto [error, size] =
      co_await state_->socket.async_read_some(asio::buffer(into.data(), into.size()), net::kAwait);
  co_return Piece{error, size};
}

bool WebSocket::got_text() const { return state_->socket.got_text(); }

bool WebSocket::is_message_done() const { return state_->socket.is_message_done(); }

WebSocket::Result WebSocket::Write(BytesView message, Kind kind) {
  state_->socket.text(kind == Kind::kText);
  const auto [error, size] = co_await state_->socket.async_write(
      asio::buffer(message.data(), message.size()), net::kAwait);
  co_return error;
}

WebSocket::Result WebSocket::Refuse() {
  state_->stream.AllowReads(net::WebStream::kNoLimit);  // the door limits what it drops
  const auto [error] =
      co_await state_->socket.async_close(websocket::close_code::policy_error, net::kAwait);
  co_return error;
}

}  // namespace shoal::door
