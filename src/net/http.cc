#include "src/net/http.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/core/read_size.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/fields.hpp"
#include "src/base/status_macros.h"
#include "src/net/await.h"
#include "src/net/http_rules.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Error = boost::system::error_code;
using Parser = http::basic_parser<true>;

// What one operation reads at most.
constexpr size_t kMostBytes = 65536;

absl::string_view View(beast::string_view text) { return {text.data(), text.size()}; }
absl::string_view View(const beast::flat_buffer& buffer) {
  return {static_cast<const char*>(buffer.data().data()), buffer.size()};
}

// Parses a head, and what it says of its body.
absl::Status Parse(absl::string_view head, Parser& parser) {
  SHOAL_RETURN_IF_ERROR(CheckHead(head));
  parser.eager(false);
  Error error;
  parser.put(asio::buffer(head.data(), head.size()), error);
  if (error == http::error::body_limit || error == http::error::header_limit) {
    return absl::ResourceExhaustedError("the request is too large");
  }
  if (error) return absl::InvalidArgumentError(error.message());
  if (!parser.is_header_done()) return absl::InvalidArgumentError("no request of HTTP");
  return absl::OkStatus();
}

// Parses what the buffer has, and reads more until the parser gets on with it.
asio::awaitable<Error> ReadSome(WebStream& stream, beast::flat_buffer& buffer, Parser& parser) {
  Error error = http::error::need_more;
  if (buffer.size() > 0) buffer.consume(parser.put(buffer.data(), error));
  while (error == http::error::need_more) {
    const size_t size = beast::read_size(buffer, kMostBytes);
    if (size == 0) co_return http::error::buffer_overflow;
    const asio::mutable_buffer into = buffer.prepare(size);
    const auto [failed, read] = co_await stream.async_read_some(into, kAwait);
    buffer.commit(read);
    error = failed;
    if (error == asio::error::eof) {
      error = {};
      if (!parser.got_some()) co_return http::error::end_of_stream;
      // The next read finds the end again.
      parser.put_eof(error);
      co_return error;
    }
    if (error) co_return error;
    buffer.consume(parser.put(buffer.data(), error));
  }
  co_return error;
}

}  // namespace

asio::awaitable<absl::Status> ReadHead(WebStream& stream, beast::flat_buffer& buffer,
                                       Parser& parser, size_t most_bytes,
                                       const std::function<void()>& on_begin) {
  for (bool begun = false;;) {
    if (!begun && buffer.size() > 0) {
      begun = true;
      on_begin();
    }
    const absl::StatusOr<std::optional<size_t>> size = FindHead(View(buffer));
    if (!size.ok()) co_return size.status();
    if (size->value_or(buffer.size()) > most_bytes) {
      co_return absl::ResourceExhaustedError("the request is too large");
    }
    if (size->has_value()) {
      const absl::Status parsed = Parse(View(buffer).substr(0, **size), parser);
      buffer.consume(**size);
      co_return parsed;
    }
    const asio::mutable_buffer into = buffer.prepare(beast::read_size(buffer, kMostBytes));
    const auto [error, read] = co_await stream.async_read_some(into, kAwait);
    buffer.commit(read);
    if (error == asio::error::eof && buffer.size() > 0) {
      co_return absl::InvalidArgumentError("the connection ends in the head of a request");
    }
    if (error) co_return absl::UnavailableError(error.message());
  }
}

asio::awaitable<Error> ReadBody(WebStream& stream, beast::flat_buffer& buffer, Parser& parser) {
  parser.eager(true);
  Error error;
  while (!error && !parser.is_done()) error = co_await ReadSome(stream, buffer, parser);
  co_return error;
}

std::string HeadOf(const http::response_header<>& response) {
  std::string head = absl::StrCat("HTTP/", response.version() / 10, ".", response.version() % 10,
                                  " ", response.result_int(), " ", View(response.reason()), "\r\n");
  for (const auto& field : response) {
    absl::StrAppend(&head, View(field.name_string()), ": ", View(field.value()), "\r\n");
  }
  return head += "\r\n";
}

}  // namespace shoal::net
