#include "src/shoald/heavy_shares.h"

#include <cstdint>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::shoald {
namespace {

using testing::StatusIs;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

Origin Block(uint8_t last, uint8_t before = 0) {
  return AddressBlock(MappedIpv4({192, 0, before, last}));
}

TEST(HeavySharesTest, ABlockGetsItsSecondsAnHour) {
  HeavyShares shares({.seconds_per_hour = 60, .waiting = 64, .waiting_of_one = 4});
  const auto take = [&](const Origin& from, double seconds, double now) -> absl::Status {
    if (absl::Status status = shares.Add(from, now); !status.ok()) return status;
    shares.Done(from, seconds, now);
    return absl::OkStatus();
  };
  SHOAL_EXPECT_OK(take(Block(1), 59, 0));
  SHOAL_EXPECT_OK(take(Block(1), 31, 0)) << "what is begun is done";
  EXPECT_THAT(take(Block(1), 1, 0), StatusIs(kExhausted, "again in 1801 seconds"));
  // Others have theirs; nothing is counted for addresses that many share.
  SHOAL_EXPECT_OK(take(Block(2), 1, 0));
  for (int i = 0; i < 10; ++i) SHOAL_EXPECT_OK(take(std::nullopt, 100, 0));
  // One second of work comes back in every minute, asked for or not.
  EXPECT_THAT(take(Block(1), 1, 1799), StatusIs(kExhausted, "again in 2 seconds"));
  SHOAL_EXPECT_OK(take(Block(1), 10, 1801));
  EXPECT_THAT(take(Block(1), 1, 1801), StatusIs(kExhausted, "seconds"));
  SHOAL_EXPECT_OK(take(Block(1), 1, 100'000));
}

TEST(HeavySharesTest, AQueueHasPlacesForSeveralBlocks) {
  HeavyShares shares({.seconds_per_hour = 60, .waiting = 6, .waiting_of_one = 4});
  for (int i = 0; i < 4; ++i) SHOAL_EXPECT_OK(shares.Add(Block(1), 0));
  EXPECT_THAT(shares.Add(Block(1), 0), StatusIs(kExhausted, "of this address wait"));
  SHOAL_EXPECT_OK(shares.Add(Block(2), 0));
  SHOAL_EXPECT_OK(shares.Add(std::nullopt, 0));
  EXPECT_THAT(shares.Add(Block(2), 0), StatusIs(kExhausted, "too many requests for hints wait"));
  shares.Done(Block(1), 0, 0);
  SHOAL_EXPECT_OK(shares.Add(Block(2), 0));
}

// A group's clients have no time of their own, and leave half of the queue to others.
TEST(HeavySharesTest, AGroupHasPlacesInTheQueue) {
  HeavyShares shares({.seconds_per_hour = 60});
  AddressRanges groups;
  SHOAL_ASSERT_OK(groups.Add("198.51.100.0/24"));
  const auto of = [&](uint8_t last) -> Origin {
    return groups.BlockOf(MappedIpv4({198, 51, 100, last}));
  };
  for (uint8_t i = 0; i < 32; ++i) SHOAL_EXPECT_OK(shares.Add(of(i), 0));
  EXPECT_THAT(shares.Add(of(100), 0), StatusIs(kExhausted, "of this address wait"));
  SHOAL_EXPECT_OK(shares.Add(Block(1), 0));
  for (uint8_t i = 0; i < 32; ++i) shares.Done(of(i), 100, 0);
  SHOAL_EXPECT_OK(shares.Add(of(1), 0));
}

TEST(HeavySharesTest, BlocksAreForgottenWhenTheyHaveTheirShareAgain) {
  HeavyShares shares({});
  for (int i = 0; i < 20'000; ++i) {
    const Origin from = Block(static_cast<uint8_t>(i), static_cast<uint8_t>(i / 256));
    SHOAL_ASSERT_OK(shares.Add(from, i));
    shares.Done(from, 1e-3, i);
    ASSERT_LE(shares.blocks(), 2048u);
  }
  // Not those that have taken more than comes back meanwhile.
  HeavyShares busy({});
  for (int i = 0; i < 3000; ++i) {
    const Origin from = Block(static_cast<uint8_t>(i), static_cast<uint8_t>(i / 256));
    SHOAL_ASSERT_OK(busy.Add(from, 0));
    busy.Done(from, 60, 0);
  }
  EXPECT_THAT(busy.Add(Block(0), 0), StatusIs(kExhausted, "ask again"));
}

}  // namespace
}  // namespace shoal::shoald
