// Tests the rule that divides memory among a round's lists, at its borders.
#include "src/server/round_memory.h"

#include "gtest/gtest.h"
#include "src/base/query_buckets.h"
#include "src/select/select.h"
#include "src/server/round_context.h"
#include "src/server/testing/some_noise.h"
#include "src/sharing/halves.h"
#include "src/shuffle/scatter.h"

namespace shoal::server {
namespace {

constexpr RoundSize kFrontend = {
    .positions = 1000, .noise = 100, .inner_bytes = 224, .answer_bytes = 304};
constexpr RoundSize kMiddle = {
    .positions = 1000, .noise = 100, .inner_bytes = 112, .answer_bytes = 304};
constexpr RoundSize kBackend = {.positions = 1000, .answer_bytes = 304};
constexpr uint64_t kPlenty = uint64_t{1} << 40;

constexpr uint64_t Opened(const RoundSize& size) { return size.positions * size.inner_bytes; }
// For each answer a mask and the key of its tag.
constexpr uint64_t Pads(const RoundSize& size) { return size.positions * (size.answer_bytes + 32); }
uint64_t Forward(const RoundSize& size) { return size.next_positions() * kForwardPositionBytes; }
uint64_t Ordered(const RoundSize& size) {
  return shuffle::Scatter::MemoryBytes(size.next_positions(), size.inner_bytes);
}

TEST(RoundMemoryTest, WithPlentyEverythingIsInMemoryWithRoomForTheAnswers) {
  const RoundMemory memory = DivideMemory(kFrontend, kPlenty);
  EXPECT_EQ(memory.opened.bytes, Opened(kFrontend));
  EXPECT_EQ(memory.opened.memory, Opened(kFrontend));
  EXPECT_EQ(memory.pads.memory, Pads(kFrontend));
  EXPECT_EQ(memory.forward.memory, Forward(kFrontend));
  EXPECT_EQ(memory.ordered.bytes, Ordered(kFrontend));
  EXPECT_EQ(memory.ordered.memory, ReturnedBytes(kFrontend));
  EXPECT_EQ(memory.returned.memory, ReturnedBytes(kFrontend));
  EXPECT_EQ(memory.lists(), memory.pads.memory + memory.forward.memory + memory.opened.memory +
                                memory.ordered.memory);
  // The answers lie where the list for the next party lay.
  EXPECT_EQ(memory.lists(), memory.opened.memory + memory.later());
  EXPECT_EQ(memory.untouched(), 0u);
}

TEST(RoundMemoryTest, TheBackendHasPadsAlone) {
  const RoundMemory memory = DivideMemory(kBackend, kPlenty);
  EXPECT_EQ(memory.lists(), Pads(kBackend));
  EXPECT_EQ(kBackend.next_positions(), 0u);
}

TEST(RoundMemoryTest, WithNothingFreeListsAreInFilesAndNothingIsMadeAhead) {
  for (const RoundSize& size : {kFrontend, kMiddle, kBackend}) {
    const RoundMemory memory = DivideMemory(size, 0);
    EXPECT_EQ(memory.lists(), 0u);
    EXPECT_EQ(memory.opened.bytes, Opened(size));
  }
}

// Pads must leave as much memory as they take, and so must the queries' places after them.
TEST(RoundMemoryTest, WhatIsMadeAheadLeavesAsMuchFree) {
  const uint64_t border = Opened(kMiddle) + 2 * Pads(kMiddle);
  EXPECT_EQ(DivideMemory(kMiddle, border).pads.memory, Pads(kMiddle));
  EXPECT_EQ(DivideMemory(kMiddle, border - 1).pads.memory, 0u);
  const uint64_t later = Opened(kMiddle) + 2 * Forward(kMiddle);
  EXPECT_EQ(DivideMemory(kMiddle, later).forward.memory, Forward(kMiddle));
  EXPECT_EQ(DivideMemory(kMiddle, later - 1).forward.memory, 0u);
}

// A list gets its own bytes before it gets room for answers.
TEST(RoundMemoryTest, RoomForAnswersLeavesTwiceAsMuchFree) {
  const uint64_t room = ReturnedBytes(kFrontend);
  const uint64_t before = Opened(kFrontend) + Pads(kFrontend) + Forward(kFrontend);
  EXPECT_EQ(DivideMemory(kFrontend, before + 3 * room).ordered.memory, room);
  EXPECT_EQ(DivideMemory(kFrontend, before + 3 * room - 1).ordered.memory, Ordered(kFrontend));
  EXPECT_EQ(DivideMemory(kFrontend, Opened(kFrontend)).opened.memory, Opened(kFrontend));
  EXPECT_EQ(DivideMemory(kFrontend, Opened(kFrontend) - 1).opened.memory, 0u);
}

// Answers are longer than onions here. They have what the offline stage's lists had together, or
// are in a file.
TEST(RoundMemoryTest, AnswersGetWhatTheOnionsLeave) {
  const uint64_t returned = ReturnedBytes(kMiddle);
  const uint64_t border = Forward(kMiddle) + returned;
  const RoundMemory enough = DivideMemory(kMiddle, border);
  EXPECT_EQ(enough.opened.memory, Opened(kMiddle));
  EXPECT_EQ(enough.ordered.memory, Ordered(kMiddle));
  EXPECT_EQ(enough.returned.memory, returned);
  EXPECT_EQ(enough.lists(), border);
  EXPECT_EQ(enough.later(), border);
  EXPECT_EQ(enough.untouched(), returned);  // which do not fit where a list lay

  const RoundMemory less = DivideMemory(kMiddle, border - 1);
  EXPECT_EQ(less.returned.bytes, returned);
  EXPECT_EQ(less.returned.memory, 0u);
  EXPECT_EQ(less.lists(), Forward(kMiddle) + Opened(kMiddle) + Ordered(kMiddle));
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

// Each of several machines holds what goes on as a batch, and encodes that; and where answers lie
// in files, it holds buckets of those for others. A party of one machine before one does neither.
TEST(RoundMemoryTest, OneOfSeveralMachinesNeedsMore) {
  // So much noise that the online stage takes the most.
  RoundSize alone = kMiddle;
  alone.noise = 100'000;
  RoundSize several = alone;
  several.others = 400;
  several.batch = true;
  RoundMemory in_files, in_memory;
  in_memory.returned.memory = 1;
  const auto more = [&](const RoundMemory& memory) {
    return PeakArrayBytes(several, memory) - PeakArrayBytes(alone, memory);
  };
  // Place and tally, and a number, of each query for another machine; position and tally of each
  // query of the message; header and bitmap.
  const uint64_t next = several.next_positions(), decoded = 8 * next + 5 + (next + 7) / 8;
  EXPECT_EQ(more(in_memory), 12 * 400 + decoded);
  EXPECT_EQ(more(in_files), 12 * 400 + decoded + 2 * 400 * (304 + 16 + 4));
  several.others = 10'000'000;
  EXPECT_EQ(more(in_files), 12 * several.others + decoded + 2 * shuffle::Scatter::kBucketBytes);
}

// A party of one machine before one of several holds what goes on as a batch, too.
TEST(RoundMemoryTest, OneMachineBeforeSeveralNeedsMore) {
  RoundContext context = {.counter = RoundCounter(1),
                          .round_id = {},
                          .party = PartyNumber(1),
                          .parties = 2,
                          .answer_bytes = 304,
                          .max_rows = 10,
                          .max_slots = 10,
                          .noise = SomeNoise(),
                          .next_recipients = {}};
  const auto peak = [&] {
    return PeakArrayBytes(SizeOf(context, 1000, 100'000, {}), RoundMemory());
  };
  const uint64_t before = peak();
  context.next_machines = 2;
  // Position and tally of each query; header and bitmap.
  constexpr uint64_t kNext = 101'000;
  EXPECT_EQ(peak(), before + 8 * kNext + 5 + (kNext + 7) / 8);
}

// What a half of a round of two tiers takes is counted where it differs from rows: no shares and
// masks; records in place of tallies; at the tail all answers, and what the scan needs.
RoundContext HalfContext(sharing::Half half, uint32_t party) {
  return {.counter = RoundCounter(1),
          .round_id = {},
          .party = PartyNumber(party),
          .parties = 2,
          .answer_bytes = 304,
          .max_rows = 40,
          .max_slots = 1000,
          .noise = SomeNoise(),
          .next_recipients = {},
          .half = RoundContext::OfHalf{half, sharing::HalfIds({}), QueryBuckets(40'000, 40)}};
}
constexpr size_t kSelection = 128, kForwarded[] = {20 + kSelection, 20},
                 kPart[] = {72 + kSelection, 36};  // of A and B; 1,000 places

TEST(RoundMemoryTest, TheHeadOfAHalfKeepsRecordsAndNoShares) {
  for (const sharing::Half half : {sharing::Half::kA, sharing::Half::kB}) {
    const size_t of = half == sharing::Half::kA ? 0 : 1;
    // So many queries that the online stage takes the most.
    constexpr uint64_t kPositions = 1000, kNoise = 100'000, kNext = kPositions + kNoise;
    const RoundSize size = SizeOf(HalfContext(half, 1), kPositions, kNoise, {});
    EXPECT_EQ(size.next_positions(), kNext);
    const RoundMemory memory = DivideMemory(size, kPlenty);
    EXPECT_EQ(memory.pads.bytes, 0u);
    EXPECT_EQ(memory.forward.memory, kNext * kForwardPositionBytes);
    EXPECT_EQ(memory.returned.memory, shuffle::Scatter::MemoryBytes(kNext, 304 + 16));
    // Seed and place; place, tally and v of noise.
    const uint64_t rest = (32 + 4) * kPositions + (8 + kForwarded[of]) * kNoise;
    EXPECT_EQ(RestArrayBytes(size), rest);
    // Positions and parts as they came, v and whether the tag was wrong, and the message.
    EXPECT_EQ(PeakArrayBytes(size, memory), rest +
                                                (4 + kPart[of] + kForwarded[of] + 1) * kPositions +
                                                5 + (kNext + 7) / 8 + kForwarded[of] * kNext);
    EXPECT_EQ(PeakArrayBytes(size, RoundMemory()) - PeakArrayBytes(size, memory),
              kNext * kForwardPositionBytes);
  }
}

TEST(RoundMemoryTest, TheTailOfAHalfHoldsAllAnswers) {
  for (const sharing::Half half : {sharing::Half::kA, sharing::Half::kB}) {
    const size_t of = half == sharing::Half::kA ? 0 : 1;
    constexpr uint64_t kPositions = 100'000;
    const RoundSize size = SizeOf(HalfContext(half, 2), kPositions, 0, {});
    const RoundMemory memory = DivideMemory(size, kPlenty);
    EXPECT_EQ(memory.lists(), kPositions * (304 + 16));
    EXPECT_EQ(memory.returned.memory, memory.lists());
    EXPECT_EQ(memory.untouched(), memory.lists());
    EXPECT_EQ(DivideMemory(size, memory.lists() - 1).lists(), 0u);
    EXPECT_EQ(RestArrayBytes(size), (32 + 4) * kPositions);
    // Positions and v as they came; bucket, selection, whether the tag was wrong; the scan's.
    EXPECT_EQ(PeakArrayBytes(size, memory),
              RestArrayBytes(size) + (4 + kForwarded[of]) * kPositions +
                  (4 + kSelection + 1 + sizeof(select::BucketQuery)) * kPositions +
                  40 * sizeof(select::Rows) + select::ScheduleBytes(40, kPositions));
  }
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
