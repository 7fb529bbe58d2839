#include "src/net/http.h"

#include "absl/strings/str_cat.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/beast/core/read_size.hpp"
#include "boost/beast/http/error.hpp"
#include "boost/beast/http/fields.hpp"
#include "src/net/await.h"

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

asio::awaitable<Error> ReadHead(WebStream& stream, beast::flat_buffer& buffer, Parser& parser) {
  parser.eager(false);
  Error error;
  while (!error && !parser.is_header_done()) error = co_await ReadSome(stream, buffer, parser);
  co_return error;
}

asio::awaitable<Error> ReadRequest(WebStream& stream, beast::flat_buffer& buffer, Parser& parser) {
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
