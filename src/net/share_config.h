// How configurations give shares: as messages with the fields `connections`, `new_connections` and
// `buffers`, in percent. 0 is the default.
#ifndef SHOAL_SRC_NET_SHARE_CONFIG_H_
#define SHOAL_SRC_NET_SHARE_CONFIG_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "src/net/admission.h"

namespace shoal::net {

// Puts the default wherever there is none.
template <typename Shares>
void FillShares(uint32_t percent, Shares& shares) {
  if (shares.connections() == 0) shares.set_connections(percent);
  if (shares.new_connections() == 0) shares.set_new_connections(percent);
  if (shares.buffers() == 0) shares.set_buffers(percent);
}

// INVALID_ARGUMENT, which names the field: more than 100.
inline absl::Status CheckPercent(absl::string_view field, std::initializer_list<uint32_t> values) {
  if (std::max(values) <= 100) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": at most 100, as they are percent"));
}

template <typename Shares>
absl::Status CheckShares(absl::string_view field, const Shares& shares) {
  return CheckPercent(field, {shares.connections(), shares.new_connections(), shares.buffers()});
}

template <typename Shares>
BlockShares SharesOf(const Shares& shares) {
  return {.connections = shares.connections(),
          .newcomers = shares.new_connections(),
          .buffers = shares.buffers()};
}

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_SHARE_CONFIG_H_
