// Checks for names of deployments and parties, which end up in file names, logs and certificates.
#ifndef SHOAL_SRC_ROSTER_NAMES_H_
#define SHOAL_SRC_ROSTER_NAMES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal::roster {

// INVALID_ARGUMENT unless `name` is [A-Za-z0-9][A-Za-z0-9._-]{0,63}; `what` begins the message.
absl::Status CheckName(absl::string_view what, absl::string_view name);

// INVALID_ARGUMENT unless `address` is host:port, an IPv6 host in brackets.
absl::Status CheckAddress(absl::string_view what, absl::string_view address);

}  // namespace shoal::roster

#endif  // SHOAL_SRC_ROSTER_NAMES_H_
