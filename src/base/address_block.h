// Which addresses count as one when a server shares out places among strangers. A host has one IPv4
// address, or as many IPv6 addresses as it likes of the /56 that its provider gives to a customer.
#ifndef SHOAL_SRC_BASE_ADDRESS_BLOCK_H_
#define SHOAL_SRC_BASE_ADDRESS_BLOCK_H_

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// An address as IPv6 writes it. An IPv4 address a.b.c.d has the form ::ffff:a.b.c.d (RFC 4291,
// section 2.5.5.2), in which a socket for both shows it, too.
using IpAddress = std::array<uint8_t, 16>;
IpAddress MappedIpv4(const std::array<uint8_t, 4>& address);

// An IPv4 address, or an IPv6 /56; or a range of addresses that many share, of any length.
class AddressBlock {
 public:
  explicit AddressBlock(const IpAddress& address);

  // Whether it is of many (AddressRanges::BlockOf).
  bool is_shared() const { return shared_bits_.has_value(); }
  // "192.0.2.7", "2001:db8:0:100::/56"; "10.0.0.0/8" if it is shared.
  std::string ToString() const;

  friend auto operator<=>(const AddressBlock&, const AddressBlock&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const AddressBlock& block) {
    return H::combine(std::move(state), block.prefix_, block.shared_bits_);
  }

 private:
  friend class AddressRanges;
  AddressBlock(const IpAddress& prefix, uint32_t bits) : prefix_(prefix), shared_bits_(bits) {}

  IpAddress prefix_;                     // the rest is zero
  std::optional<uint32_t> shared_bits_;  // the length of a range that many share
};

// Who a request comes from, for whoever shares something out. None: no share applies to it. A
// server leaves out whom others have counted: a proxy of the operator, whose clients have shares.
using Origin = std::optional<AddressBlock>;

// A set of addresses.
class AddressRanges {
 public:
  // Of all these texts, as a configuration lists them. Errors as those of Add.
  static absl::StatusOr<AddressRanges> Of(const std::vector<std::string>& texts);

  // Adds "192.0.2.7", "10.0.0.0/8", "2001:db8::1" or "2001:db8::/32". INVALID_ARGUMENT: anything
  // else; also a range whose address has a bit set below its length.
  absl::Status Add(absl::string_view text);
  bool Contains(const IpAddress& address) const;

  // What this address counts as, if the addresses of each range of this set count as one.
  AddressBlock BlockOf(const IpAddress& address) const;

 private:
  struct Range {
    IpAddress prefix;
    uint32_t bits;
  };
  // Null if there is none.
  const Range* Find(const IpAddress& address) const;
  std::vector<Range> ranges_;
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_ADDRESS_BLOCK_H_
