#include "src/net/admission.h"

#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "src/base/address_block.h"
#include "src/base/testing/matchers.h"

namespace shoal::net {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::Optional;
using Room = AdmissionControl::Room;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

Origin From(uint8_t last) { return AddressBlock(MappedIpv4({192, 0, 2, last})); }
const Origin kShared = std::nullopt;

// 40 places of each kind and 1,000 bytes, of which a block may take a quarter.
AdmissionControl::Limits Quarters() {
  return {.connections = 40,
          .newcomers = 40,
          .buffer_bytes = 1000,
          .reserved_bytes = 0,
          .shares = {.connections = 25, .newcomers = 25, .buffers = 25}};
}

// Keeps places, and gives newcomers their numbers.
class AdmissionTest : public ::testing::Test {
 protected:
  void Start(const AdmissionControl::Limits& limits) {
    held_.clear();
    places_.emplace(limits);
  }
  // The number of who lost its place to a newcomer.
  std::optional<uint64_t> Arrive(const Origin& origin) {
    AdmissionControl::Arrival arrival = places_->Arrive(next_++, origin);
    held_.push_back(std::move(arrival.place));
    return arrival.evicted;
  }
  absl::Status ArriveWelcome(const Origin& origin) {
    Arrive(origin);
    return held_.back().Welcome();
  }
  void ArriveTimes(int count, const Origin& origin) {
    for (int i = 0; i < count; ++i) EXPECT_EQ(Arrive(origin), std::nullopt);
  }

  std::optional<AdmissionControl> places_;
  uint64_t next_ = 0;
  std::deque<AdmissionControl::Permit> held_;
};

TEST_F(AdmissionTest, TheOldestNewcomerGoes) {
  Start(Quarters());
  for (uint8_t block = 0; block < 40; ++block) ArriveTimes(1, From(block));
  EXPECT_THAT(Arrive(From(100)), Optional(0u));
  EXPECT_THAT(Arrive(From(100)), Optional(1u));
  // Who lost its place is no newcomer any more, and not welcome either.
  EXPECT_THAT(held_.front().Welcome(), StatusIs(kUnavailable, "others came"));
  held_.pop_front();
  held_.pop_front();
  EXPECT_THAT(Arrive(From(101)), Optional(2u)) << "their ends free nothing more";
  held_.pop_back();
  EXPECT_EQ(Arrive(From(101)), std::nullopt);
}

TEST_F(AdmissionTest, ABlockAtItsShareOfNewcomersLosesItsOwnOldestOne) {
  Start(Quarters());
  ArriveTimes(1, From(1));   // 0
  ArriveTimes(10, From(2));  // 1 to 10
  for (uint64_t lost = 1; lost <= 100; ++lost) {
    EXPECT_THAT(Arrive(From(2)), Optional(lost));
  }
  SHOAL_EXPECT_OK(held_.front().Welcome());
  ArriveTimes(10, From(1));
}

TEST_F(AdmissionTest, NewcomersTakeNothingFromThoseWhoAreWelcome) {
  Start(Quarters());
  SHOAL_EXPECT_OK(ArriveWelcome(From(1)));
  for (int i = 0; i < 1000; ++i) Arrive(kShared);
  EXPECT_TRUE(held_.front().welcome());
  // Nor the other way round.
  Start(Quarters());
  for (int i = 0; i < 40; ++i) SHOAL_EXPECT_OK(ArriveWelcome(kShared));
  ArriveTimes(40, kShared);
  EXPECT_THAT(held_.back().Welcome(), StatusIs(kUnavailable, "too many connections at once"));
  held_.pop_front();
  SHOAL_EXPECT_OK(held_.back().Welcome());
}

TEST_F(AdmissionTest, ABlockHasAShareOfTheConnections) {
  Start(Quarters());
  for (int i = 0; i < 10; ++i) SHOAL_EXPECT_OK(ArriveWelcome(From(1)));
  EXPECT_THAT(ArriveWelcome(From(1)), StatusIs(kUnavailable, "of 192.0.2.1 at once"));
  SHOAL_EXPECT_OK(ArriveWelcome(From(2)));
  held_.pop_front();
  SHOAL_EXPECT_OK(ArriveWelcome(From(1)));
}

TEST_F(AdmissionTest, OneClientFitsTheSmallestShare) {
  AdmissionControl::Limits limits = Quarters();
  limits.shares = {.connections = 1, .newcomers = 1, .buffers = 1};
  Start(limits);
  for (int i = 0; i < 8; ++i) SHOAL_EXPECT_OK(ArriveWelcome(From(1)));
  EXPECT_THAT(ArriveWelcome(From(1)), StatusIs(kUnavailable, "of 192.0.2.1 at once"));
}

TEST_F(AdmissionTest, NoShareAppliesToAnAddressThatManyShare) {
  Start(Quarters());
  for (int i = 0; i < 40; ++i) SHOAL_EXPECT_OK(ArriveWelcome(kShared));
  ArriveTimes(40, kShared);
  EXPECT_TRUE(held_.front().Claim(1000, Room::kGeneral));
  EXPECT_FALSE(held_.front().Claim(1, Room::kGeneral));
}

TEST_F(AdmissionTest, AGroupHasAShareOfItsOwn) {
  AdmissionControl::Limits limits = Quarters();
  limits.group_shares = {.connections = 50, .newcomers = 50, .buffers = 50};
  Start(limits);
  AddressRanges groups;
  SHOAL_EXPECT_OK(groups.Add("198.51.100.0/24"));
  const auto of = [&](uint8_t last) -> Origin {
    return groups.BlockOf(MappedIpv4({198, 51, 100, last}));
  };
  for (uint8_t i = 0; i < 20; ++i) SHOAL_EXPECT_OK(ArriveWelcome(of(i)));
  EXPECT_THAT(ArriveWelcome(of(100)), StatusIs(kUnavailable, "of 198.51.100.0/24 at once"));
  EXPECT_TRUE(held_[0].Claim(500, Room::kGeneral));
  EXPECT_FALSE(held_[1].Claim(1, Room::kGeneral));
  for (int i = 0; i < 10; ++i) SHOAL_EXPECT_OK(ArriveWelcome(From(1)));
  EXPECT_TRUE(held_.back().Claim(250, Room::kGeneral));
  held_.clear();
  ArriveTimes(20, of(1));
  EXPECT_TRUE(Arrive(of(2)).has_value());
}

TEST_F(AdmissionTest, ABlockHasAShareOfTheBuffers) {
  Start(Quarters());
  for (const Origin& origin : {From(1), From(2), From(1)}) {
    SHOAL_EXPECT_OK(ArriveWelcome(origin));
  }
  EXPECT_TRUE(held_[0].Claim(200, Room::kGeneral));
  EXPECT_FALSE(held_[2].Claim(51, Room::kGeneral));
  EXPECT_TRUE(held_[2].Claim(50, Room::kGeneral));
  EXPECT_FALSE(held_[0].Claim(1, Room::kReserve));
  EXPECT_TRUE(held_[1].Claim(250, Room::kGeneral));
  held_[0].Release();
  EXPECT_TRUE(held_[2].Claim(200, Room::kGeneral));
  EXPECT_FALSE(held_[0].Claim(1, Room::kGeneral));
  // The end of a connection frees what it held.
  held_.pop_back();
  EXPECT_TRUE(held_[0].Claim(250, Room::kGeneral));
  EXPECT_FALSE(held_[0].Claim(~uint64_t{0}, Room::kGeneral));
}

TEST_F(AdmissionTest, AReserveStaysFree) {
  AdmissionControl::Limits limits = Quarters();
  limits.reserved_bytes = 100;
  limits.shares = {};
  Start(limits);
  SHOAL_EXPECT_OK(ArriveWelcome(From(1)));
  EXPECT_FALSE(held_[0].Claim(901, Room::kGeneral));
  EXPECT_TRUE(held_[0].Claim(900, Room::kGeneral));
  EXPECT_FALSE(held_[0].Claim(1, Room::kGeneral));
  EXPECT_TRUE(held_[0].Claim(100, Room::kReserve));
  EXPECT_FALSE(held_[0].Claim(1, Room::kReserve));
}

}  // namespace
}  // namespace shoal::net
