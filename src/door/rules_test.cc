#include "src/door/rules.h"

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "src/base/address_block.h"
#include "src/base/bytes.h"
#include "src/base/testing/matchers.h"
#include "src/door/rate.h"
#include "src/wire/frame.h"

namespace shoal::door {
namespace {

using ::shoal::testing::StatusIs;
using wire::FrameType;
using namespace std::chrono_literals;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kTooLarge = absl::StatusCode::kResourceExhausted;

Bytes FrameOf(FrameType type, const std::string& control) {
  const auto head = wire::EncodeFrameHeader(
      {.type = type, .control_bytes = static_cast<uint32_t>(control.size()), .bulk_bytes = 0});
  Bytes frame(head.begin(), head.end());
  Append(frame, AsBytes(control));
  return frame;
}

absl::Status Check(FrameType type, uint32_t control_bytes, uint64_t bulk_bytes = 0) {
  return CheckRequest({.type = type, .control_bytes = control_bytes, .bulk_bytes = bulk_bytes});
}

TEST(RulesTest, WhatAClientOfTheChainMaySendIsPassedAndNothingElse) {
  for (uint16_t number = 0; number < 200; ++number) {
    const bool passed = number >= 16 && number <= 26;
    EXPECT_EQ(Check(static_cast<FrameType>(number), 10).ok(), passed) << number;
  }
  EXPECT_THAT(Check(FrameType::kOffline, 10), StatusIs(kInvalid, "none of a client"));
}

TEST(RulesTest, TheFrontendsOwnLimitsHold) {
  SHOAL_EXPECT_OK(Check(FrameType::kListRounds, 4096));
  EXPECT_THAT(Check(FrameType::kListRounds, 4097), StatusIs(kTooLarge, ""));
  SHOAL_EXPECT_OK(Check(FrameType::kSubmitOnions, 4 << 20));
  EXPECT_THAT(Check(FrameType::kSubmitOnions, (4 << 20) + 1), StatusIs(kTooLarge, ""));
  EXPECT_THAT(Check(FrameType::kSubmitOnions, 10, 1), StatusIs(kTooLarge, ""));
}

TEST(RulesTest, AnAnswerIsOfTheTypeThatWasAskedOrAnError) {
  const auto check = [](FrameType type, uint32_t bytes) {
    return CheckAnswer({.type = type, .control_bytes = bytes, .bulk_bytes = 0},
                       FrameType::kListRounds);
  };
  SHOAL_EXPECT_OK(check(FrameType::kListRounds, 4 << 20));
  SHOAL_EXPECT_OK(check(FrameType::kError, 10));
  EXPECT_FALSE(check(FrameType::kGetStatus, 10).ok());
  EXPECT_FALSE(check(FrameType::kListRounds, (4 << 20) + 1).ok());
}

TEST(MessageTest, IsCollectedFromPiecesOfAnySize) {
  const Bytes frame = FrameOf(FrameType::kSubmitOnions, std::string(1000, 'o'));
  for (const size_t size : {1u, 7u, 20u, 21u, 2000u}) {
    Message message;
    for (size_t at = 0; at < frame.size(); at += size) {
      EXPECT_THAT(message.Finish(), StatusIs(kInvalid, "ends before"));
      SHOAL_ASSERT_OK(message.Add(BytesView(frame).subspan(at, std::min(size, frame.size() - at))));
    }
    SHOAL_EXPECT_OK(message.Finish());
    EXPECT_EQ(message.bytes(), frame);
    EXPECT_EQ(message.type(), FrameType::kSubmitOnions);
  }
}

TEST(MessageTest, HoldsNothingOfWhatIsRefused) {
  const Bytes peers = FrameOf(FrameType::kOnline, std::string(1 << 20, 'x'));
  Message message;
  EXPECT_THAT(message.Add(peers), StatusIs(kInvalid, ""));
  EXPECT_EQ(message.size(), wire::kFrameHeaderBytes);

  Bytes two = FrameOf(FrameType::kListRounds, "");
  Append(two, two);
  Message both;
  EXPECT_THAT(both.Add(two), StatusIs(kInvalid, "one frame"));
  EXPECT_EQ(both.size(), wire::kFrameHeaderBytes);

  Message none;
  SHOAL_EXPECT_OK(none.Add({}));
  EXPECT_THAT(none.Finish(), StatusIs(kInvalid, "ends before"));
}

TEST(OriginRulesTest, OnlyListedPagesMayAsk) {
  const std::vector<std::string> allowed = {"https://page.example.org", "http://localhost:8000",
                                            "http://[::1]:8000"};
  SHOAL_ASSERT_OK_AND_ASSIGN(const OriginRules rules, OriginRules::Create(allowed));
  for (const std::string& origin : allowed) EXPECT_TRUE(rules.Allow(origin));
  for (const char* other : {"https://page.example.org.evil.example", "http://page.example.org",
                            "https://page.example.org:444", "https://PAGE.example.org", "null", "",
                            "https://page.example.org/"}) {
    EXPECT_FALSE(rules.Allow(other)) << other;
  }
  EXPECT_FALSE(OriginRules().Allow("https://page.example.org"));
  const std::vector<std::string> any = {"*"};
  SHOAL_ASSERT_OK_AND_ASSIGN(const OriginRules all, OriginRules::Create(any));
  EXPECT_TRUE(all.Allow("https://page.example.org"));
}

// As browsers, their extensions and web views of apps send them.
TEST(OriginRulesTest, AnOriginHasAnyScheme) {
  const std::vector<std::string> allowed = {
      "http://localhost:8000",
      "http://[::1]:8000",
      "https://[2001:db8::1]",
      "chrome-extension://abcdefghijklmnopabcdefghijklmnop",
      "moz-extension://8c9a3c3e-9f0c-4a5c-8d0e-0123456789ab",
      "safari-web-extension://8C9A3C3E-9F0C-4A5C-8D0E-0123456789AB",
      "capacitor://localhost",
      "ionic://localhost:8100",
      "tauri://localhost",
      "app://.",
      "ms-appx-web://4711.app_x~y",
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const OriginRules rules, OriginRules::Create(allowed));
  for (const std::string& origin : allowed) EXPECT_TRUE(rules.Allow(origin)) << origin;
  for (const char* other :
       {"chrome-extension://abcdefghijklmnopabcdefghijklmnoq", "capacitor://localhost:80",
        "moz-extension://8C9A3C3E-9F0C-4A5C-8D0E-0123456789AB", "tauri://", "tauri", "null"}) {
    EXPECT_FALSE(rules.Allow(other)) << other;
  }
}

TEST(OriginRulesTest, WhatNoBrowserWouldSendIsRefused) {
  for (const char* text : {"",
                           "page.example.org",
                           "https://",
                           "https://page.example.org/",
                           "https://page.example.org:443",
                           "http://page.example.org:80",
                           "https://Page.example.org",
                           "https://*",
                           "null",
                           "https://page.example.org:",
                           "https://page.example.org:0",
                           "https://page.example.org:08443",
                           "https://page.example.org:65536",
                           "https://page:8443:8443",
                           "https://:8443",
                           "https://[::1",
                           "https://[::1]x",
                           "https://[::1]:",
                           "https://[127.0.0.1]",
                           "https://[::FFFF]",
                           "https://a b",
                           "https://user@page.example.org",
                           "https://page.example.org?x",
                           "https://page.example.org#x",
                           "HTTPS://page.example.org",
                           "1tauri://localhost",
                           "tauri://local/host",
                           "tauri://",
                           "ta uri://localhost",
                           "://localhost",
                           "tauri://localhost,x",
                           "file:///"}) {
    const std::vector<std::string> allowed = {text};
    EXPECT_THAT(OriginRules::Create(allowed).status(), StatusIs(kInvalid, "expected")) << text;
  }
}

TEST(ForwardedAddressTest, IsTheLastThatIsNoProxys) {
  AddressRanges proxies;
  SHOAL_ASSERT_OK(proxies.Add("10.0.0.0/8"));
  const IpAddress client = MappedIpv4({192, 0, 2, 7});
  EXPECT_EQ(ForwardedAddress("192.0.2.7", proxies), client);
  EXPECT_EQ(ForwardedAddress(" 192.0.2.7 , 10.1.2.3", proxies), client);
  // What the client itself wrote is in front.
  EXPECT_EQ(ForwardedAddress("198.51.100.1, nonsense, 192.0.2.7,10.1.2.3", proxies), client);
  EXPECT_EQ(ForwardedAddress("::ffff:192.0.2.7", proxies), client);
  for (const char* none : {"", "10.1.2.3", "192.0.2.7,", "unknown", "fe80::1%1"}) {
    EXPECT_EQ(ForwardedAddress(none, proxies), std::nullopt) << none;
  }
}

TEST(ForwardedAddressTest, AnAddressMayHaveItsPort) {
  AddressRanges proxies;
  SHOAL_ASSERT_OK(proxies.Add("10.0.0.0/8"));
  SHOAL_ASSERT_OK(proxies.Add("2001:db8:1::/48"));
  const auto client = ForwardedAddress("2001:db8::7", proxies);
  ASSERT_TRUE(client.has_value());
  for (const char* text : {"[2001:db8::7]", "[2001:db8::7]:4711", "1.1.1.1, [2001:db8::7]:1",
                           "[2001:db8::7]:65535 , 10.1.2.3:4711,[2001:db8:1::1]:80"}) {
    EXPECT_EQ(ForwardedAddress(text, proxies), client) << text;
  }
  for (const char* text :
       {"192.0.2.7:4711", "192.0.2.7:80, 10.0.0.1:1", "[::ffff:192.0.2.7]:4711"}) {
    EXPECT_EQ(ForwardedAddress(text, proxies), MappedIpv4({192, 0, 2, 7})) << text;
  }
  // Without brackets it is an address alone.
  EXPECT_NE(ForwardedAddress("2001:db8::7:4711", proxies), client);
  for (const absl::string_view none : {"192.0.2.7:",
                                       "192.0.2.7:0",
                                       "192.0.2.7:65536",
                                       "192.0.2.7:080",
                                       "192.0.2.7:4711:1",
                                       "192.0.2.7:+80",
                                       "192.0.2.7:80x",
                                       "[192.0.2.7]",
                                       "[192.0.2.7]:80",
                                       "[2001:db8::7",
                                       "[]",
                                       "[2001:db8::7]:",
                                       "[2001:db8::7]4711",
                                       "[2001:db8::7]:x",
                                       "2001:db8::7]",
                                       "[[2001:db8::7]]",
                                       "[fe80::1%1]:80",
                                       ":80",
                                       "unknown:80",
                                       "unix:"}) {
    EXPECT_EQ(ForwardedAddress(none, proxies), std::nullopt) << none;
  }
  EXPECT_EQ(ForwardedAddress(absl::string_view("192.0.2.7\0x", 11), proxies), std::nullopt);
}

TEST(BucketTest, HoldsAMinutesWorthAndFillsEvenly) {
  Bucket bucket;
  auto now = Bucket::Clock::time_point() + 1000h;
  for (int i = 0; i < 60; ++i) EXPECT_EQ(bucket.Take(1, 60, now), 0s) << i;
  EXPECT_EQ(bucket.Take(1, 60, now), 1s);
  EXPECT_EQ(bucket.Take(1, 60, now + 999ms), 1ms);
  EXPECT_EQ(bucket.Take(1, 60, now + 1s), 0s);
  EXPECT_EQ(bucket.Take(1, 60, now + 1s), 1s);
  EXPECT_FALSE(bucket.IsFull(now + 1s));
  now += 10min;
  EXPECT_TRUE(bucket.IsFull(now));
  EXPECT_EQ(bucket.Take(60, 60, now), 0s);
  EXPECT_EQ(bucket.Take(60, 60, now), 60s);
  // What is more than a minute's worth can be taken as one.
  EXPECT_EQ(bucket.Take(1000, 60, now + 1min), 0s);
}

TEST(AddressRatesTest, EachAddressHasItsOwn) {
  AddressRates rates(2);
  const auto now = Bucket::Clock::time_point() + 1000h;
  const Origin one = AddressBlock(MappedIpv4({192, 0, 2, 1}));
  const Origin two = AddressBlock(MappedIpv4({192, 0, 2, 2}));
  EXPECT_EQ(rates.Take(one, 2, now), 0s);
  EXPECT_EQ(rates.Take(one, 1, now), 30s);
  EXPECT_EQ(rates.Take(two, 2, now), 0s);
  AddressRanges groups;
  SHOAL_ASSERT_OK(groups.Add("198.51.100.0/24"));
  const Origin group = groups.BlockOf(MappedIpv4({198, 51, 100, 1}));
  for (const Origin& many : {Origin(), group}) {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(rates.Take(many, 2, now), 0s);
  }
}

TEST(AddressRatesTest, FullOnesAreForgotten) {
  AddressRates rates(60);
  auto now = Bucket::Clock::time_point() + 1000h;
  for (uint32_t i = 0; i < 100'000; ++i) {
    const auto byte = [i](int shift) { return static_cast<uint8_t>(i >> shift); };
    rates.Take(AddressBlock(MappedIpv4({10, byte(16), byte(8), byte(0)})), 1, now);
    now += 1ms;
  }
  EXPECT_LE(rates.size(), 3000u);
}

}  // namespace
}  // namespace shoal::door
