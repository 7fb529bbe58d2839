// How configurations give shares: as messages with the fields `connections`, `new_connections` and
// `buffers`, in percent. 0 is the default.
#ifndef SHOAL_SRC_NET_SHARE_CONFIG_H_
#define SHOAL_SRC_NET_SHARE_CONFIG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/base/status_macros.h"
#include "src/net/places.h"

namespace shoal::net {

// The value, or the default. INVALID_ARGUMENT, which names the field: more than 100.
inline absl::StatusOr<uint32_t> PercentOf(absl::string_view field, uint32_t value,
                                          uint32_t otherwise) {
  if (value > 100) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": at most 100, as they are percent"));
  }
  return value == 0 ? otherwise : value;
}

// Puts the default wherever there is none. Errors as PercentOf.
template <typename Shares>
absl::Status CompleteShares(absl::string_view field, uint32_t otherwise, Shares& shares) {
  SHOAL_ASSIGN_OR_RETURN(const uint32_t connections,
                         PercentOf(field, shares.connections(), otherwise));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t newcomers,
                         PercentOf(field, shares.new_connections(), otherwise));
  SHOAL_ASSIGN_OR_RETURN(const uint32_t buffers, PercentOf(field, shares.buffers(), otherwise));
  shares.set_connections(connections);
  shares.set_new_connections(newcomers);
  shares.set_buffers(buffers);
  return absl::OkStatus();
}

template <typename Shares>
BlockShares SharesOf(const Shares& shares) {
  return {.connections = shares.connections(),
          .newcomers = shares.new_connections(),
          .buffers = shares.buffers()};
}

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_SHARE_CONFIG_H_
