#include "src/door/web_socket.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/websocket/rfc6455.hpp"
#include "boost/beast/websocket/stream.hpp"
#include "src/net/await.h"

namespace shoal::door {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
namespace websocket = boost::beast::websocket;

// For a piece of a message, or for a ping. Beast passes over empty parts of a message by itself, of
// which there may be millions.
constexpr size_t kReadsForAPiece = 64;
// Of a key: 16 bytes in base64.
constexpr size_t kKeyBytes = 16;
constexpr size_t kKeyChars = 24;

}  // namespace

struct WebSocket::State {
  explicit State(net::WebStream& s) : stream(s), socket(s) {}

  net::WebStream& stream;
  // It does not compress.
  websocket::stream<net::WebStream&, /*deflateSupported=*/false> socket;
  bool got_close = false;
};

WebSocket::WebSocket(net::WebStream& stream, std::function<void()> on_control)
    : state_(std::make_unique<State>(stream)) {
  state_->socket.read_message_max(0);  // Message says how long one may be
  // An answer is one frame of WebSocket's as well.
  state_->socket.auto_fragment(false);
  state_->socket.control_callback([told = std::move(on_control), state = state_.get()](
                                      websocket::frame_type type, boost::beast::string_view) {
    if (type == websocket::frame_type::close) state->got_close = true;
    state->stream.AllowReads(kReadsForAPiece);
    told();
  });
}

WebSocket::~WebSocket() = default;

bool WebSocket::IsUpgrade(const Request& head) { return websocket::is_upgrade(head); }

absl::Status WebSocket::CheckUpgrade(const Request& head) {
  const auto only = [&](http::field name) -> std::optional<absl::string_view> {
    if (head.count(name) != 1) return std::nullopt;
    return absl::string_view(head[name].data(), head[name].size());
  };
  if (only(http::field::sec_websocket_version) != "13") {
    return absl::InvalidArgumentError(
        "a WebSocket begins with one Sec-WebSocket-Version, which is 13");
  }
  const std::optional<absl::string_view> key = only(http::field::sec_websocket_key);
  std::string bytes;
  if (!key.has_value() || key->size() != kKeyChars || !absl::Base64Unescape(*key, &bytes) ||
      bytes.size() != kKeyBytes) {
    return absl::InvalidArgumentError(
        "a WebSocket begins with one Sec-WebSocket-Key, which is 16 bytes in base64");
  }
  return absl::OkStatus();
}

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

bool WebSocket::got_close() const { return state_->got_close; }

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
