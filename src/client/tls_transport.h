// A frontend over TLS 1.3.
#ifndef SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_
#define SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "src/client/transport.h"

namespace shoal::client {

// A transport to the frontend at `address`, which is host:port; INVALID_ARGUMENT otherwise. It
// connects at its first use, and again after the connection broke. Before RequireFrontend it only
// asks for the deployment, as anybody could be at the other end; other calls give
// FAILED_PRECONDITION.
absl::StatusOr<std::unique_ptr<Transport>> ConnectTls(const std::string& address);

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_TLS_TRANSPORT_H_
