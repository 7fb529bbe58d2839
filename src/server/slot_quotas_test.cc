#include "src/server/slot_quotas.h"

#include "gtest/gtest.h"
#include "src/base/address_block.h"

namespace shoal::server {
namespace {

Origin From(uint8_t last) { return AddressBlock(MappedIpv4({192, 0, 2, last})); }
const Origin kShared = std::nullopt;

TEST(SlotQuotasTest, ABlockTakesItsShareAndNoMore) {
  SlotQuotas shares({.slots = 10, .onions = 10, .queries = 10}, {});
  EXPECT_TRUE(shares.Fits(From(1), 10));
  EXPECT_FALSE(shares.Fits(From(1), 11));
  EXPECT_FALSE(shares.Fits(From(1), ~uint64_t{0}));
  shares.Add(From(1), 7);
  EXPECT_EQ(shares.SlotsOf(From(1)), 7u);
  EXPECT_TRUE(shares.Fits(From(1), 3));
  EXPECT_FALSE(shares.Fits(From(1), 4));
  EXPECT_TRUE(shares.Fits(From(2), 10));
  shares.Add(From(2), 10);
  shares.Add(From(1), 3);
  EXPECT_TRUE(shares.Fits(From(1), 0));
  EXPECT_FALSE(shares.Fits(From(1), 1));
  EXPECT_EQ(shares.SlotsOf(From(1)), 10u);
  EXPECT_EQ(shares.SlotsOf(From(3)), 0u);
}

TEST(SlotQuotasTest, NoShareAppliesWithoutAnOrigin) {
  SlotQuotas shares({.slots = 10, .onions = 10, .queries = 10}, {});
  shares.Add(kShared, 1000);
  EXPECT_TRUE(shares.Fits(kShared, 1'000'000));
  EXPECT_EQ(shares.counted_onions(), 1000u);
  for (uint64_t slot = 0; slot < 500; ++slot) shares.Use(slot);
  EXPECT_EQ(shares.counted_queries(), 500u);
}

// A count that one block could fill would let it end every window before others have come.
TEST(SlotQuotasTest, ABlockCountsUpToItsShare) {
  SlotQuotas shares({.slots = 1000, .onions = 25, .queries = 5}, {});
  shares.Add(From(1), 20);   // 0 to 19
  shares.Add(From(1), 500);  // to 519
  EXPECT_EQ(shares.counted_onions(), 25u);
  shares.Add(From(2), 10);   // to 529
  shares.Add(kShared, 30);   // to 559
  shares.Add(From(1), 100);  // to 659
  shares.Add(From(2), 100);  // to 759
  EXPECT_EQ(shares.counted_onions(), 25u + 25 + 30);

  for (uint64_t slot = 0; slot < 520; ++slot) shares.Use(slot);
  EXPECT_EQ(shares.counted_queries(), 5u);
  shares.Use(600);  // of the same block
  EXPECT_EQ(shares.counted_queries(), 5u);
  for (uint64_t slot : {520, 529, 530, 559}) shares.Use(slot);
  EXPECT_EQ(shares.counted_queries(), 9u);
  for (uint64_t slot = 660; slot < 760; ++slot) shares.Use(slot);
  EXPECT_EQ(shares.counted_queries(), 5u + 2 + 5);
}

TEST(SlotQuotasTest, AGroupHasAShareOfItsOwn) {
  AddressRanges groups;
  ASSERT_TRUE(groups.Add("198.51.100.0/24").ok());
  const auto of = [&](uint8_t last) -> Origin {
    return groups.BlockOf(MappedIpv4({198, 51, 100, last}));
  };
  SlotQuotas shares({.slots = 10, .onions = 5, .queries = 2},
                    {.slots = 40, .onions = 20, .queries = 8});
  shares.Add(of(1), 30);  // 0 to 29
  EXPECT_TRUE(shares.Fits(of(2), 10));
  EXPECT_FALSE(shares.Fits(of(2), 11));
  shares.Add(of(3), 10);  // to 39
  EXPECT_FALSE(shares.Fits(of(1), 1));
  EXPECT_EQ(shares.counted_onions(), 20u);
  for (uint64_t slot = 0; slot < 40; ++slot) shares.Use(slot);
  EXPECT_EQ(shares.counted_queries(), 8u);
  shares.Add(From(1), 10);
  for (uint64_t slot = 40; slot < 50; ++slot) shares.Use(slot);
  EXPECT_EQ(shares.counted_onions(), 20u + 5);
  EXPECT_EQ(shares.counted_queries(), 8u + 2);
  // The next stage begins with nothing, and the same shares.
  const SlotQuotas next = shares.Empty();
  EXPECT_EQ(next.counted_onions(), 0u);
  EXPECT_TRUE(next.Fits(of(1), 40));
  EXPECT_FALSE(next.Fits(of(1), 41));
  EXPECT_FALSE(next.Fits(From(1), 11));
}

TEST(SlotQuotasTest, SharesArePercentAndNeverNothing) {
  const SlotQuotas::Limits limits = SlotQuotas::PercentOf(25, 1'000'002, 100, 0);
  EXPECT_EQ(limits.slots, 250'000u);
  EXPECT_EQ(limits.onions, 25u);
  EXPECT_EQ(limits.queries, 1u);
  EXPECT_EQ(SlotQuotas::PercentOf(1, 10, 10, 10).slots, 1u);
  EXPECT_EQ(SlotQuotas::PercentOf(100, 77, 0, ~uint64_t{0}).slots, 77u);
  // A goal is divided evenly among machines, and one may have more of those that count than that.
  const SlotQuotas::Limits whole = SlotQuotas::PercentOf(100, 77, 6, 6);
  SlotQuotas shares(limits, whole);
  AddressRanges groups;
  ASSERT_TRUE(groups.Add("198.51.100.0/24").ok());
  shares.Add(groups.BlockOf(MappedIpv4({198, 51, 100, 1})), 8);
  EXPECT_EQ(shares.counted_onions(), 8u);
  for (uint64_t slot = 0; slot < 8; ++slot) shares.Use(slot);
  EXPECT_EQ(shares.counted_queries(), 8u);
}

}  // namespace
}  // namespace shoal::server
