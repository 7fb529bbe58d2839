// HTTP/1.1 over a WebStream, as Beast's own operations read and write it. Those are templates of
// the body, of the stream and of what is called at the end; these are compiled once (http.cc).
#ifndef SHOAL_SRC_NET_HTTP_H_
#define SHOAL_SRC_NET_HTTP_H_

#include <string>

#include "boost/asio/awaitable.hpp"
#include "boost/beast/core/flat_buffer.hpp"
#include "boost/beast/http/basic_parser.hpp"
#include "boost/beast/http/message.hpp"
#include "src/net/web_stream.h"

namespace shoal::net {

// As boost::beast::http::async_read_header and async_read, with the same errors: a request's head,
// or what is left of a request. `buffer` has what was read and not yet parsed.
boost::asio::awaitable<boost::system::error_code> ReadHead(
    WebStream& stream, boost::beast::flat_buffer& buffer,
    boost::beast::http::basic_parser</*isRequest=*/true>& parser);
boost::asio::awaitable<boost::system::error_code> ReadRequest(
    WebStream& stream, boost::beast::flat_buffer& buffer,
    boost::beast::http::basic_parser</*isRequest=*/true>& parser);

// A response's first line and fields, and the empty line after them.
std::string HeadOf(const boost::beast::http::response_header<>& response);

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_HTTP_H_
