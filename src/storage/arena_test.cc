#include "src/storage/arena.h"

#include <algorithm>
#include <optional>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/parallel/thread_pool.h"
#include "src/storage/memory.h"

namespace shoal {
namespace {

using testing::StatusIs;

constexpr uint64_t kMiB = 1 << 20;

TEST(ArenaTest, WhatIsReservedIsThereAndNobodyElses) {
  SpoolPlace place(::testing::TempDir(), 10 * kMiB);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve(&place, 6 * kMiB, 0, "a round"));
  EXPECT_EQ(place.free_bytes(), 4 * kMiB);
  EXPECT_EQ(arena->free_bytes(), 10 * kMiB);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Spool others, place.Create(5 * kMiB));
  EXPECT_FALSE(others.in_memory());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Spool fits, place.Create(4 * kMiB));
  EXPECT_TRUE(fits.in_memory());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Spool list, arena->MakeList(6 * kMiB, 6 * kMiB));
  EXPECT_TRUE(list.in_memory());
  SHOAL_ASSERT_OK_AND_ASSIGN(const Spool beyond, arena->MakeList(kMiB, kMiB));
  EXPECT_FALSE(beyond.in_memory());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::optional<Spool> none, arena->MakeInMemory(kMiB));
  EXPECT_FALSE(none.has_value());
}

TEST(ArenaTest, MemoryOfADeadListIsThereForTheNextAndZero) {
  SpoolPlace place(::testing::TempDir(), 10 * kMiB);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve(&place, 4 * kMiB, 0, "a round"));
  const uint8_t* memory = nullptr;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(Spool list, arena->MakeList(kMiB, 4 * kMiB));
    SHOAL_ASSERT_OK(list.Write(0, Bytes(kMiB, 7)));
    memory = list.memory().data();
  }
  EXPECT_EQ(place.free_bytes(), 6 * kMiB);
  SHOAL_ASSERT_OK_AND_ASSIGN(Spool later, arena->MakeList(4 * kMiB, 4 * kMiB));
  EXPECT_EQ(later.memory().data(), memory);
  for (const uint8_t byte : later.memory()) ASSERT_EQ(byte, 0);
}

// Memory that stays for the next list is a resident page of nobody where lists are rare. What a
// round has reserved is its own until it ends.
TEST(ArenaTest, MemoryThatNobodyUsesIsGivenBackAndReservedMemoryIsNot) {
  constexpr uint64_t kBytes = 64 * kMiB;
  SpoolPlace place(::testing::TempDir(), kBytes);
  const auto fill = [](absl::StatusOr<Spool> list) {
    SHOAL_ASSERT_OK(list.status());
    std::ranges::fill(list->memory(), 'x');
  };
  const uint64_t before = ResidentMemory();
  const auto is_kept = [&] { return ResidentMemory() > before + kBytes / 2; };
  for (int times = 0; times < 2; ++times) {
    fill(place.Create(kBytes));
    EXPECT_TRUE(is_kept());
    place.GiveBackUnused();
    EXPECT_TRUE(is_kept()) << "it was used since the call before";
  }
  place.GiveBackUnused();
  EXPECT_FALSE(is_kept());
  SHOAL_ASSERT_OK_AND_ASSIGN(auto arena, Arena::Reserve(&place, kBytes, 0, "a round"));
  fill(arena->MakeList(kBytes, kBytes));
  for (int times = 0; times < 3; ++times) place.GiveBackUnused();
  EXPECT_TRUE(is_kept());
  arena.reset();
  place.GiveBackUnused();
  EXPECT_FALSE(is_kept());
}

// The memory beyond a list's own bytes may be touched, and the list stays as it is.
TEST(ArenaTest, RoomForALaterListIsTouchedAhead) {
  SpoolPlace place(::testing::TempDir(), 10 * kMiB);
  ThreadPool pool(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve(&place, 5 * kMiB, 0, "a round"));
  SHOAL_ASSERT_OK_AND_ASSIGN(Spool list, arena->MakeList(2 * kMiB, 5 * kMiB));
  EXPECT_EQ(list.memory().size(), 2 * kMiB);
  SHOAL_ASSERT_OK(list.Write(0, Bytes(2 * kMiB, 'x')));
  list.Touch(2 * kMiB, pool);
  EXPECT_EQ(ToBytes(list.memory()), Bytes(2 * kMiB, 'x'));
}

TEST(ArenaTest, AListMayOutliveItsArenaAndBothGiveEverythingBack) {
  SpoolPlace place(::testing::TempDir(), 10 * kMiB);
  {
    std::optional<Spool> list;
    {
      SHOAL_ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve(&place, 8 * kMiB, 0, "a round"));
      SHOAL_ASSERT_OK_AND_ASSIGN(list, arena->MakeInMemory(3 * kMiB));
      EXPECT_EQ(place.free_bytes(), 2 * kMiB);
    }
    EXPECT_EQ(place.free_bytes(), 7 * kMiB);
  }
  EXPECT_EQ(place.free_bytes(), 10 * kMiB);
}

TEST(ArenaTest, TheLimitFallsAsListsDie) {
  SpoolPlace place(::testing::TempDir(), 10 * kMiB);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve(&place, 8 * kMiB, 0, "a round"));
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const Spool first, arena->MakeList(5 * kMiB, 5 * kMiB));
    SHOAL_ASSERT_OK_AND_ASSIGN(const Spool second, arena->MakeList(3 * kMiB, 3 * kMiB));
    arena->Limit(3 * kMiB);
    EXPECT_EQ(place.free_bytes(), 2 * kMiB);
  }
  EXPECT_EQ(place.free_bytes(), 7 * kMiB);
  arena->Limit(20 * kMiB);  // as much as there is
  EXPECT_EQ(place.free_bytes(), 0u);
}

TEST(ArenaTest, WhatTheMachineDoesNotHaveIsRefused) {
  SpoolPlace place(::testing::TempDir(), 10 * kMiB);
  const uint64_t available = AvailableMemory();
  EXPECT_THAT(Arena::Reserve(&place, kMiB, available + (64 * kMiB), "round 7 at party 2").status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "round 7 at party 2 takes"));
  EXPECT_EQ(place.free_bytes(), 10 * kMiB);
  // A refused reservation leaves nothing reserved, so a smaller one succeeds.
  SHOAL_EXPECT_OK(Arena::Reserve(&place, kMiB, 0, "a round").status());
}

// Two arenas that fit one by one do not fit together until the first has touched its memory, which
// the system then counts.
TEST(ArenaTest, WhatOthersHaveReservedCounts) {
  SpoolPlace place(::testing::TempDir(), 10 * kMiB);
  const uint64_t most = AvailableMemory() / 3 * 2;
  if (most > uint64_t{1} << 45) GTEST_SKIP() << "this machine does not tell its memory";
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto first, Arena::Reserve(&place, 0, most, "the first"));
  EXPECT_THAT(Arena::Reserve(&place, 0, most, "the second").status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "other rounds' included"));
  first->Touched(/*left=*/most);
  EXPECT_THAT(Arena::Reserve(&place, 0, most, "the second").status(),
              StatusIs(absl::StatusCode::kResourceExhausted, "other rounds' included"));
  first->Touched();
  SHOAL_EXPECT_OK(Arena::Reserve(&place, 0, most, "the second").status());
}

}  // namespace
}  // namespace shoal
