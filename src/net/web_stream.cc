#include "src/net/web_stream.h"

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/ssl/stream.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/websocket/ssl.hpp"
#include "boost/beast/websocket/teardown.hpp"
#include "src/net/await.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;

// What WebStream is to write, without a copy.
struct Buffers {
  const asio::const_buffer* first;
  size_t count;

  using value_type = asio::const_buffer;
  using const_iterator = const asio::const_buffer*;
  const_iterator begin() const { return first; }
  const_iterator end() const { return first + count; }
};

}  // namespace

struct WebStream::Tls {
  Tls(Socket& socket, asio::ssl::context& context) : stream(socket, context) {}

  asio::ssl::stream<Socket&> stream;
};

WebStream::WebStream(Socket socket, std::shared_ptr<asio::ssl::context> context)
    : context_(std::move(context)), socket_(std::move(socket)) {
  if (context_ != nullptr) tls_ = std::make_unique<Tls>(socket_, *context_);
}

WebStream::~WebStream() = default;

WebStream::Result WebStream::Handshake() {
  if (tls_ == nullptr) co_return boost::system::error_code();
  const auto [error] =
      co_await tls_->stream.async_handshake(asio::ssl::stream_base::server, kAwait);
  co_return error;
}

WebStream::Result WebStream::Write(absl::string_view head, BytesView body) {
  std::vector<asio::const_buffer> left = {asio::buffer(head.data(), head.size()),
                                          asio::buffer(body.data(), body.size())};
  for (;;) {
    while (!left.empty() && left.front().size() == 0) left.erase(left.begin());
    if (left.empty()) co_return boost::system::error_code();
    auto [error, written] = co_await async_write_some(left, kAwait);
    if (error) co_return error;
    for (asio::const_buffer& buffer : left) {
      const size_t gone = std::min(written, buffer.size());
      buffer += gone;
      written -= gone;
    }
  }
}

void WebStream::AddToWrite(asio::const_buffer buffer) {
  if (buffer.size() > 0) writing_.push_back(buffer);
}

void WebStream::StartRead(asio::mutable_buffer into, IoHandler handler) {
  if (reads_ == 0) {
    const executor_type executor = handler.get_executor();  // before the handler moves
    asio::post(executor,
               [handler = std::move(handler)]() mutable { handler(asio::error::message_size, 0); });
    return;
  }
  --reads_;
  if (tls_ != nullptr) {
    tls_->stream.async_read_some(into, std::move(handler));
  } else {
    socket_.async_read_some(into, std::move(handler));
  }
}

void WebStream::StartWrite(IoHandler handler) {
  const Buffers buffers = {writing_.data(), writing_.size()};
  if (tls_ != nullptr) {
    tls_->stream.async_write_some(buffers, std::move(handler));
  } else {
    socket_.async_write_some(buffers, std::move(handler));
  }
}

void WebStream::StartTeardown(boost::beast::role_type role, IoHandler handler) {
  using boost::beast::websocket::async_teardown;
  if (on_teardown_) on_teardown_();
  if (tls_ != nullptr) {
    async_teardown(role, tls_->stream, std::move(handler));
  } else {
    async_teardown(role, socket_, std::move(handler));
  }
}

}  // namespace shoal::net
