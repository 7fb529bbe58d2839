// Opens a listening socket.
#ifndef SHOAL_SRC_NET_LISTEN_H_
#define SHOAL_SRC_NET_LISTEN_H_

#include <string>

#include "absl/status/status.h"
#include "boost/asio/ip/tcp.hpp"

namespace shoal::net {

// Binds `acceptor`, which is not open, to host:port and listens. Port 0 takes a free one.
// ALREADY_EXISTS: the address is in use; INVALID_ARGUMENT: it is malformed or cannot be resolved;
// PERMISSION_DENIED and other errors from the system.
absl::Status Listen(const std::string& address, boost::asio::ip::tcp::acceptor& acceptor);

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_LISTEN_H_
