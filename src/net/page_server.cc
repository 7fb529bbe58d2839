#include "src/net/page_server.h"

#include <exception>
#include <thread>
#include <utility>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/http/empty_body.hpp"
#include "boost/beast/http/parser.hpp"
#include "src/base/status_macros.h"
#include "src/net/await.h"
#include "src/net/http.h"
#include "src/net/http_rules.h"
#include "src/net/listen.h"
#include "src/net/web_stream.h"

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

struct PageConnection {
  explicit PageConnection(tcp::socket socket) : stream(std::move(socket), /*context=*/nullptr) {}
  void Cut() {
    late = true;
    beast_close_socket(stream);
  }

  WebStream stream;
  bool late = false;  // its time is up
};

}  // namespace

// All of it runs on `thread`, which ends before the members do.
struct PageServer::State {
  State(Options o, PageHandler h) : options(std::move(o)), handler(std::move(h)) {}

  asio::awaitable<void> Accept();
  asio::awaitable<void> Serve(tcp::socket socket);
  asio::awaitable<void> Exchange(PageConnection& connection);
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
    const auto connection = std::make_shared<PageConnection>(std::move(socket));
    asio::steady_timer watchdog(io, options.timeout);
    watchdog.async_wait([weak = std::weak_ptr(connection)](const boost::system::error_code& off) {
      if (const auto alive = weak.lock(); alive != nullptr && !off) alive->Cut();
    });
    co_await Exchange(*connection);
  } catch (const std::exception&) {
    // Most likely memory is short. This connection ends, and no other.
  }
  --connections;
}

asio::awaitable<void> PageServer::State::Exchange(PageConnection& connection) {
  beast::flat_buffer buffer(2 * kMaxRequestBytes);
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kMaxRequestBytes);
  parser.body_limit(0);
  const std::function<void()> on_begin = [] {};  // all has one limit of time
  absl::Status read =
      co_await ReadHead(connection.stream, buffer, parser, kMaxRequestBytes, on_begin);
  if (connection.late || absl::IsUnavailable(read)) co_return;
  if (read.ok() && !parser.is_done()) read = absl::InvalidArgumentError("no body belongs here");
  const Page page = read.ok() ? PageFor(parser.get())
                              : Refusal(http::status::bad_request, std::string(read.message()));
  http::response<http::empty_body> response;
  response.version(11);
  response.result(page.status);
  response.set(http::field::content_type, page.content_type);
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(false);
  // Of the body that GET would get.
  response.content_length(page.body.size());
  const bool head_alone = read.ok() && parser.get().method() == http::verb::head;
  const std::string head = HeadOf(response);
  const BytesView body = head_alone ? BytesView() : AsBytes(page.body);
  // Whoever does not take it has hung up.
  (void)co_await connection.stream.Write(head, body);
  boost::system::error_code closed;
  connection.stream.socket().shutdown(tcp::socket::shutdown_send, closed);
}

Page PageServer::State::PageFor(const http::request<http::empty_body>& request) const {
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    return Refusal(http::status::method_not_allowed, "only GET and HEAD");
  }
  return handler(PathOf({request.target().data(), request.target().size()}));
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
