// Tests the rule that divides memory among a round's lists, at its borders.
#include "src/server/round_memory.h"

#include "gtest/gtest.h"
#include "src/shuffle/scatter.h"

namespace shoal::server {
namespace {

constexpr RoundSize kFrontend = {
    .positions = 1000, .noise = 100, .inner_bytes = 224, .answer_bytes = 304, .frontend = true};
constexpr RoundSize kMiddle = {
    .positions = 1000, .noise = 100, .inner_bytes = 112, .answer_bytes = 304};
constexpr RoundSize kBackend = {.positions = 1000, .answer_bytes = 304};
constexpr uint64_t kPlenty = uint64_t{1} << 40;

constexpr uint64_t Opened(const RoundSize& size) { return size.positions * size.inner_bytes; }
constexpr uint64_t Masks(const RoundSize& size) { return size.positions * size.answer_bytes; }
uint64_t Forward(const RoundSize& size) { return size.next_positions() * kForwardPositionBytes; }
uint64_t Ordered(const RoundSize& size) {
  return shuffle::Scatter::MemoryBytes(size.next_positions(), size.inner_bytes);
}

TEST(RoundMemoryTest, WithPlentyEverythingIsInMemoryWithRoomForTheAnswers) {
  const RoundMemory memory = DivideMemory(kFrontend, kPlenty);
  EXPECT_EQ(memory.opened.bytes, Opened(kFrontend));
  EXPECT_EQ(memory.opened.memory, Masks(kFrontend));  // as much as the answers that it keeps
  EXPECT_EQ(memory.masks.memory, Masks(kFrontend));
  EXPECT_EQ(memory.forward.memory, Forward(kFrontend));
  EXPECT_EQ(memory.ordered.bytes, Ordered(kFrontend));
  EXPECT_EQ(memory.ordered.memory, ReturnedBytes(kFrontend));
  EXPECT_EQ(memory.returned.memory, ReturnedBytes(kFrontend));
  EXPECT_EQ(memory.kept.memory, Masks(kFrontend));
  EXPECT_EQ(memory.lists(), memory.masks.memory + memory.forward.memory + memory.opened.memory +
                                memory.ordered.memory);
  EXPECT_EQ(memory.later(), memory.lists());  // the answers lie where the onions lay
  EXPECT_EQ(memory.untouched(), 0u);
  // Only the frontend keeps answers.
  const RoundMemory middle = DivideMemory(kMiddle, kPlenty);
  EXPECT_EQ(middle.opened.memory, Opened(kMiddle));
  EXPECT_EQ(middle.kept.bytes, 0u);
  EXPECT_EQ(middle.lists(), middle.opened.memory + middle.later());
}

TEST(RoundMemoryTest, TheBackendHasMasksAlone) {
  const RoundMemory memory = DivideMemory(kBackend, kPlenty);
  EXPECT_EQ(memory.lists(), Masks(kBackend));
  EXPECT_EQ(kBackend.next_positions(), 0u);
}

TEST(RoundMemoryTest, WithNothingFreeListsAreInFilesAndNothingIsMadeAhead) {
  for (const RoundSize& size : {kFrontend, kMiddle, kBackend}) {
    const RoundMemory memory = DivideMemory(size, 0);
    EXPECT_EQ(memory.lists(), 0u);
    EXPECT_EQ(memory.opened.bytes, Opened(size));
  }
}

// Masks must leave as much memory as they take, and so must the queries' places after them.
TEST(RoundMemoryTest, WhatIsMadeAheadLeavesAsMuchFree) {
  const uint64_t border = Opened(kMiddle) + 2 * Masks(kMiddle);
  EXPECT_EQ(DivideMemory(kMiddle, border).masks.memory, Masks(kMiddle));
  EXPECT_EQ(DivideMemory(kMiddle, border - 1).masks.memory, 0u);
  const uint64_t later = Opened(kMiddle) + 2 * Forward(kMiddle);
  EXPECT_EQ(DivideMemory(kMiddle, later).forward.memory, Forward(kMiddle));
  EXPECT_EQ(DivideMemory(kMiddle, later - 1).forward.memory, 0u);
}

// A list gets its own bytes before it gets room for answers.
TEST(RoundMemoryTest, RoomForAnswersLeavesTwiceAsMuchFree) {
  const uint64_t room = Masks(kFrontend);
  EXPECT_EQ(DivideMemory(kFrontend, 3 * room).opened.memory, room);
  EXPECT_EQ(DivideMemory(kFrontend, 3 * room - 1).opened.memory, Opened(kFrontend));
  EXPECT_EQ(DivideMemory(kFrontend, Opened(kFrontend)).opened.memory, Opened(kFrontend));
  EXPECT_EQ(DivideMemory(kFrontend, Opened(kFrontend) - 1).opened.memory, 0u);
}

// Answers are longer than onions here. Those that come back have what the offline stage's lists
// had, and more; those that are kept have the rest, or are in a file.
TEST(RoundMemoryTest, AnswersGetMemoryInTheOrderInWhichTheyCome) {
  const uint64_t returned = ReturnedBytes(kFrontend), kept = Masks(kFrontend);
  const uint64_t both = Forward(kFrontend) + returned + kept;
  const RoundMemory enough = DivideMemory(kFrontend, both);
  EXPECT_EQ(enough.opened.memory, Opened(kFrontend));
  EXPECT_EQ(enough.ordered.memory, Ordered(kFrontend));
  EXPECT_EQ(enough.returned.memory, returned);
  EXPECT_EQ(enough.kept.memory, kept);
  EXPECT_EQ(enough.lists(), both);
  EXPECT_EQ(enough.later(), both);
  // Neither fits where the onions lay.
  EXPECT_EQ(enough.untouched(), returned + kept);
  EXPECT_EQ(enough.untouched_kept(), kept);

  const RoundMemory less = DivideMemory(kFrontend, both - 1);
  EXPECT_EQ(less.returned.memory, returned);
  EXPECT_EQ(less.kept.bytes, kept);
  EXPECT_EQ(less.kept.memory, 0u);
  EXPECT_LT(less.lists(), both);

  const uint64_t one = Forward(kFrontend) + returned;
  EXPECT_EQ(DivideMemory(kFrontend, one).returned.memory, returned);
  EXPECT_EQ(DivideMemory(kFrontend, one).kept.memory, 0u);
  // Where not even these fit, those that are kept may.
  EXPECT_EQ(DivideMemory(kFrontend, one - 1).returned.memory, 0u);
  EXPECT_EQ(DivideMemory(kFrontend, one - 1).kept.memory, kept);
}

// The opened onions keep their memory. The rest is divided again for the noise that was drawn.
TEST(RoundMemoryTest, LaterListsFollowTheNoiseThatWasDrawn) {
  const RoundMemory expected = DivideMemory(kMiddle, kPlenty);
  RoundSize drawn = kMiddle;
  drawn.noise += 50;
  const RoundMemory memory = DivideLater(drawn, expected.opened, kPlenty);
  EXPECT_EQ(memory.opened.memory, expected.opened.memory);
  EXPECT_EQ(memory.ordered.memory, ReturnedBytes(drawn));
  EXPECT_GT(memory.ordered.memory, expected.ordered.memory);
}

// Lists never get more memory than is free.
TEST(RoundMemoryTest, NeverMoreThanIsFree) {
  for (const RoundSize& size : {kFrontend, kMiddle, kBackend}) {
    for (uint64_t free = 0; free < 4'000'000; free += 997) {
      EXPECT_LE(DivideMemory(size, free).lists(), free);
    }
  }
}

}  // namespace
}  // namespace shoal::server
