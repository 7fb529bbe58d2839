// A party over TLS 1.3.
#ifndef SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_
#define SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/client/transport.h"

namespace shoal::client {

// A transport to the party at `address`; INVALID_ARGUMENT unless that is host:port. Connects at its
// first use, and again after the connection broke. Before RequireParty anybody could be at the
// other end, so all calls but GetDeployment give FAILED_PRECONDITION.
absl::StatusOr<std::unique_ptr<Transport>> ConnectTls(const std::string& address);
// The same; `cancelled` is asked every tenth of a second by the thread that makes a call. Once it
// is true, that call and every later one end with CANCELLED.
absl::StatusOr<std::unique_ptr<Transport>> ConnectTls(const std::string& address,
                                                      std::function<bool()> cancelled);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_
