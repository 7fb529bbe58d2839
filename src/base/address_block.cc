#include "src/base/address_block.h"

#include <arpa/inet.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

constexpr uint32_t kBits = 128;
constexpr uint32_t kMappedBits = 96;  // before the IPv4 address
constexpr uint32_t kIpv6BlockBits = 56;

bool IsIpv4(const IpAddress& address) {
  return std::equal(address.begin(), address.begin() + kMappedBits / 8,
                    MappedIpv4({0, 0, 0, 0}).begin());
}

IpAddress FirstBits(IpAddress address, uint32_t bits) {
  for (uint32_t i = 0; i < address.size(); ++i) {
    const uint32_t kept = std::clamp<int>(static_cast<int>(bits) - static_cast<int>(8 * i), 0, 8);
    address[i] &= static_cast<uint8_t>(0xff00 >> kept);
  }
  return address;
}

}  // namespace

IpAddress MappedIpv4(const std::array<uint8_t, 4>& address) {
  IpAddress mapped = {};
  mapped[10] = mapped[11] = 0xff;
  std::copy(address.begin(), address.end(), mapped.begin() + 12);
  return mapped;
}

AddressBlock::AddressBlock(const IpAddress& address)
    : prefix_(FirstBits(address, IsIpv4(address) ? kBits : kIpv6BlockBits)) {}

std::string AddressBlock::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (IsIpv4(prefix_)) {
    inet_ntop(AF_INET, prefix_.data() + kMappedBits / 8, text, sizeof text);
    return is_shared() ? absl::StrCat(text, "/", *shared_bits_ - kMappedBits) : text;
  }
  inet_ntop(AF_INET6, prefix_.data(), text, sizeof text);
  return absl::StrCat(text, "/", shared_bits_.value_or(kIpv6BlockBits));
}

absl::Status AddressRanges::Add(absl::string_view text) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("'", text, "': expected an address, or a range as 10.0.0.0/8 or 2001:db8::/32"));
  const size_t slash = text.find('/');
  const std::string host(text.substr(0, slash));
  if (host.find('\0') != std::string::npos) return bad;
  Range range;
  uint32_t before = 0;  // bits that the form has before the address
  std::array<uint8_t, 4> ipv4;
  if (inet_pton(AF_INET, host.c_str(), ipv4.data()) == 1) {
    range.prefix = MappedIpv4(ipv4);
    before = kMappedBits;
  } else if (inet_pton(AF_INET6, host.c_str(), range.prefix.data()) != 1) {
    return bad;
  }
  range.bits = kBits;
  if (slash != absl::string_view::npos) {
    const absl::string_view digits = text.substr(slash + 1);
    uint32_t length;
    if (!std::ranges::all_of(digits, absl::ascii_isdigit) || !absl::SimpleAtoi(digits, &length) ||
        length > kBits - before) {
      return bad;
    }
    range.bits = before + length;
  }
  if (FirstBits(range.prefix, range.bits) != range.prefix) return bad;
  ranges_.push_back(range);
  return absl::OkStatus();
}

absl::StatusOr<AddressRanges> AddressRanges::Of(const std::vector<std::string>& texts) {
  AddressRanges ranges;
  for (const std::string& text : texts) {
    if (absl::Status added = ranges.Add(text); !added.ok()) return added;
  }
  return ranges;
}

const AddressRanges::Range* AddressRanges::Find(const IpAddress& address) const {
  const auto found = std::ranges::find_if(
      ranges_, [&](const Range& range) { return FirstBits(address, range.bits) == range.prefix; });
  return found == ranges_.end() ? nullptr : &*found;
}

bool AddressRanges::Contains(const IpAddress& address) const { return Find(address) != nullptr; }

AddressBlock AddressRanges::BlockOf(const IpAddress& address) const {
  const Range* const range = Find(address);
  return range == nullptr ? AddressBlock(address) : AddressBlock(range->prefix, range->bits);
}

}  // namespace shoal
