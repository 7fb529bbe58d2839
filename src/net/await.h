// How coroutines on sockets wait.
#ifndef SHOAL_SRC_NET_AWAIT_H_
#define SHOAL_SRC_NET_AWAIT_H_

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/use_awaitable.hpp"

namespace shoal::net {

// For a tuple that begins with the error, instead of an exception.
inline constexpr auto kAwait = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_AWAIT_H_
