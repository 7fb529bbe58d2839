#include "src/net/page_server.h"

#include <exception>
#include <thread>
#include <utility>

#include "boost/asio.hpp"
#include "boost/beast/core.hpp"
#include "boost/beast/http.hpp"
#include "src/base/status_macros.h"
#include "src/net/await.h"
#include "src/net/listen.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

// Of a request's first line and fields.
constexpr uint32_t kMaxRequestBytes = 8 << 10;

Page Refusal(http::status status, std::string why) {
  return {.status = static_cast<unsigned>(status), .body = std::move(why) + "\n"};
}

}  // namespace

// All of it runs on `thread`, which ends before the members do.
struct PageServer::State {
  State(Options o, PageHandler h) : options(std::move(o)), handler(std::move(h)) {}

  asio::awaitable<void> Accept();
  asio::awaitable<void> Serve(tcp::socket socket);
  asio::awaitable<void> Exchange(beast::tcp_stream& stream);
  Page PageFor(const http::request<http::empty_body>& request) const;

  const Options options;
  const PageHandler handler;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  uint16_t port = 0;
  size_t connections = 0;
  std::thread thread;
};

asio::awaitable<void> PageServer::State::Accept() {
  asio::steady_timer pause(io);
  for (;;) {
    auto [error, socket] = co_await acceptor.async_accept(kAwait);
    if (!error) {
      // Closes it if there is no place.
      if (connections < options.max_connections) {
        asio::co_spawn(io, Serve(std::move(socket)), asio::detached);
      }
      continue;
    }
    // Most likely descriptors are short.
    pause.expires_after(std::chrono::milliseconds(100));
    co_await pause.async_wait(kAwait);
  }
}

asio::awaitable<void> PageServer::State::Serve(tcp::socket socket) {
  ++connections;
  try {
    beast::tcp_stream stream(std::move(socket));
    stream.expires_after(options.timeout);
    co_await Exchange(stream);
  } catch (const std::exception&) {
    // Most likely memory is short. This connection ends, and no other.
  }
  --connections;
}

asio::awaitable<void> PageServer::State::Exchange(beast::tcp_stream& stream) {
  beast::flat_buffer buffer(kMaxRequestBytes);
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kMaxRequestBytes);
  parser.body_limit(0);
  const auto [error, size] = co_await http::async_read(stream, buffer, parser, kAwait);
  if (error == beast::error::timeout || error == http::error::end_of_stream) co_return;
  const Page page =
      error ? Refusal(http::status::bad_request, error.message()) : PageFor(parser.get());
  http::response<http::string_body> response;
  response.version(11);
  response.result(page.status);
  response.set(http::field::content_type, page.content_type);
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(false);
  response.body() = page.body;
  response.prepare_payload();
  // With the length of the body that GET would get.
  if (!error && parser.get().method() == http::verb::head) response.body().clear();
  // Whoever does not take it has hung up.
  (void)co_await http::async_write(stream, response, kAwait);
  boost::system::error_code closed;
  stream.socket().shutdown(tcp::socket::shutdown_send, closed);
}

Page PageServer::State::PageFor(const http::request<http::empty_body>& request) const {
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return Refusal(http::status::method_not_allowed, "only GET and HEAD");
  }
  const absl::string_view target(request.target().data(), request.target().size());
  return handler(target.substr(0, target.find('?')));
}

PageServer::PageServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<PageServer>> PageServer::Start(Options options,
                                                              PageHandler handler) {
  auto state = std::make_unique<State>(std::move(options), std::move(handler));
  SHOAL_RETURN_IF_ERROR(Listen(state->options.address, state->acceptor));
  boost::system::error_code ignored;
  state->port = state->acceptor.local_endpoint(ignored).port();
  asio::co_spawn(state->io, state->Accept(), asio::detached);
  state->thread = std::thread([raw = state.get()] { raw->io.run(); });
  return std::unique_ptr<PageServer>(new PageServer(std::move(state)));
}

PageServer::~PageServer() {
  state_->io.stop();
  state_->thread.join();
}

uint16_t PageServer::port() const { return state_->port; }

}  // namespace shoal::net
