#include "src/base/address_block.h"

#include <arpa/inet.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;

IpAddress Address(const std::string& text) {
  std::array<uint8_t, 4> ipv4;
  if (inet_pton(AF_INET, text.c_str(), ipv4.data()) == 1) return MappedIpv4(ipv4);
  IpAddress address;
  EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), address.data()), 1) << text;
  return address;
}
AddressBlock Block(const std::string& text) { return AddressBlock(Address(text)); }

TEST(AddressBlockTest, AnIpv4AddressIsABlock) {
  EXPECT_EQ(Block("192.0.2.7"), Block("192.0.2.7"));
  EXPECT_NE(Block("192.0.2.7"), Block("192.0.2.6"));
  EXPECT_NE(Block("192.0.2.7"), Block("193.0.2.7"));
  EXPECT_EQ(Block("192.0.2.7").ToString(), "192.0.2.7");
}

// So it appears to a socket that takes IPv6 as well. Counted as IPv6, all of IPv4 would be one
// block.
TEST(AddressBlockTest, AMappedIpv4AddressIsThatAddress) {
  EXPECT_EQ(Block("::ffff:192.0.2.7"), Block("192.0.2.7"));
  EXPECT_NE(Block("::ffff:192.0.2.7"), Block("::ffff:192.0.2.6"));
  EXPECT_EQ(Block("::ffff:192.0.2.7").ToString(), "192.0.2.7");
}

TEST(AddressBlockTest, AnIpv6BlockHas56Bits) {
  EXPECT_EQ(Block("2001:db8:0:100::1"), Block("2001:db8:0:1ff:ffff:ffff:ffff:ffff"));
  EXPECT_NE(Block("2001:db8:0:100::1"), Block("2001:db8:0:200::1"));
  EXPECT_NE(Block("2001:db8:0:100::1"), Block("2001:db8:0:0ff::1"));
  EXPECT_EQ(Block("2001:db8:0:1ab::1").ToString(), "2001:db8:0:100::/56");
  // Not mapped: one bit is missing.
  EXPECT_EQ(Block("::fffe:192.0.2.7"), Block("::1"));
  EXPECT_NE(Block("::1"), Block("0.0.0.1"));
}

TEST(AddressBlockTest, RangesContainTheirAddressesAndNoOthers) {
  AddressRanges ranges;
  EXPECT_FALSE(ranges.Contains(Address("127.0.0.1")));
  for (const char* text : {"127.0.0.0/8", "192.0.2.7", "198.51.100.128/25", "::1",
                           "2001:db8:8000::/33", "::ffff:203.0.113.0/120"}) {
    SHOAL_EXPECT_OK(ranges.Add(text));
  }
  for (const char* inside :
       {"127.0.0.0", "127.255.255.255", "::ffff:127.0.0.1", "192.0.2.7", "198.51.100.128",
        "198.51.100.255", "::1", "2001:db8:8000::", "2001:db8:ffff::1", "203.0.113.200"}) {
    EXPECT_TRUE(ranges.Contains(Address(inside))) << inside;
    EXPECT_TRUE(ranges.BlockOf(Address(inside)).is_shared()) << inside;
  }
  for (const char* outside : {"126.255.255.255", "128.0.0.0", "192.0.2.6", "198.51.100.127", "::2",
                              "2001:db8:7fff::1", "203.0.114.0", "::127.0.0.1"}) {
    EXPECT_FALSE(ranges.Contains(Address(outside))) << outside;
    EXPECT_EQ(ranges.BlockOf(Address(outside)), Block(outside)) << outside;
  }
  AddressRanges all;
  SHOAL_EXPECT_OK(all.Add("0.0.0.0/0"));
  EXPECT_TRUE(all.Contains(Address("255.255.255.255")));
  EXPECT_FALSE(all.Contains(Address("2001:db8::1")));
  SHOAL_EXPECT_OK(all.Add("::/0"));
  EXPECT_TRUE(all.Contains(Address("2001:db8::1")));
}

TEST(AddressBlockTest, TheAddressesOfARangeCountAsOne) {
  AddressRanges ranges;
  for (const char* text : {"10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::/0"}) {
    SHOAL_EXPECT_OK(ranges.Add(text));
  }
  const auto block = [&](const char* address) { return ranges.BlockOf(Address(address)); };
  EXPECT_EQ(block("10.1.2.3"), block("10.255.0.0"));
  EXPECT_EQ(block("10.1.2.3").ToString(), "10.0.0.0/8");
  EXPECT_EQ(block("192.0.2.7").ToString(), "192.0.2.7/32");
  EXPECT_NE(block("192.0.2.7"), Block("192.0.2.7")) << "one who is alone there is another";
  EXPECT_EQ(block("2001:db8:1::1"), block("2001:db8:2::2"));
  EXPECT_EQ(block("2001:db8:1::1").ToString(), "2001:db8::/32");
  EXPECT_EQ(block("3001::").ToString(), "::/0");
  AddressRanges one;
  SHOAL_EXPECT_OK(one.Add("10.0.0.0/8"));
  EXPECT_TRUE(one.BlockOf(Address("10.0.0.0")).is_shared());
  EXPECT_FALSE(one.BlockOf(Address("192.0.2.8")).is_shared());
  EXPECT_EQ(one.BlockOf(Address("192.0.2.8")), Block("192.0.2.8"));
}

TEST(AddressBlockTest, WhatIsNoRangeIsRefused) {
  AddressRanges ranges;
  for (const absl::string_view text :
       {"", "/8", "localhost", "127.0.0.1:80", "127.0.0", "127.0.0.0/", "127.0.0.0/33",
        "127.0.0.0/+8", "127.0.0.0/8/8", "127.0.0.0/99999999999", "127.0.0.1/8", "::/129",
        "2001:db8::1/32", "[::1]", " ::1", "fe80::1%eth0"}) {
    EXPECT_THAT(ranges.Add(text), StatusIs(absl::StatusCode::kInvalidArgument, "expected")) << text;
  }
  EXPECT_THAT(ranges.Add(absl::string_view("::1\0", 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, "expected"));
  EXPECT_FALSE(ranges.Contains(Address("127.0.0.1")));
}

}  // namespace
}  // namespace shoal
