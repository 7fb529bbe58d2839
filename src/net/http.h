// HTTP/1.1 over a WebStream. Beast parses it, after its head has passed CheckHead (http_rules.h).
// Beast's own operations are templates of the body, of the stream and of what is called at the end;
// these are compiled once (http.cc).
#ifndef SHOAL_SRC_NET_HTTP_H_
#define SHOAL_SRC_NET_HTTP_H_

#include <cstddef>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/basic_parser.hpp"
#include "boost/beast/http/message.hpp"
#include "src/net/web_stream.h"

namespace shoal::net {

// Reads a request's head, of `most_bytes` at most. `buffer` takes what is read and not yet parsed,
// and has room for more than a head. `on_begin` is told once the first byte is there. UNAVAILABLE:
// the connection has ended, or failed. INVALID_ARGUMENT: what came is no HTTP, or leaves in doubt
// where the request ends. RESOURCE_EXHAUSTED: the head, or the body that it announces, is longer
// than the parser's limit.
boost::asio::awaitable<absl::Status> ReadHead(
    WebStream& stream, boost::beast::flat_buffer& buffer,
    boost::beast::http::basic_parser</*isRequest=*/true>& parser, size_t most_bytes,
    const std::function<void()>& on_begin);
// Reads what is left of a request after its head, as boost::beast::http::async_read does and with
// the same errors.
boost::asio::awaitable<boost::system::error_code> ReadBody(
    WebStream& stream, boost::beast::flat_buffer& buffer,
    boost::beast::http::basic_parser</*isRequest=*/true>& parser);

// A response's first line and fields, and the empty line after them.
std::string HeadOf(const boost::beast::http::response_header<>& response);

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_HTTP_H_
