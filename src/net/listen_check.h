// Whether an address can be listened on, for those who look before they start.
#ifndef SHOAL_SRC_NET_LISTEN_CHECK_H_
#define SHOAL_SRC_NET_LISTEN_CHECK_H_

#include <string>

#include "absl/status/status.h"

namespace shoal::net {

// Listens on host:port and lets go of it at once, so that a connection that arrives in between is
// refused. Errors as net::Server::Start with this address.
absl::Status CheckListen(const std::string& address);

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_LISTEN_CHECK_H_
