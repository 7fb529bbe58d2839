// A frontend over TLS 1.3.
#ifndef SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_
#define SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/client/transport.h"

namespace shoal::client {

// For the frontend at host:port; INVALID_ARGUMENT for another address. Connects when it is first used
// and again after the connection broke. Until RequireFrontend it only asks for the deployment, since
// it could be talking to anybody; FAILED_PRECONDITION for other calls.
absl::StatusOr<std::unique_ptr<Transport>> ConnectTls(const std::string& address);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_
