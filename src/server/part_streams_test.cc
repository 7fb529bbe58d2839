#include "src/server/part_streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::server {
namespace {

using ::shoal::testing::StatusIs;

Bytes Numbers(size_t bytes) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(i * 31 + i / 256);
  return out;
}

std::string TempDirectory() { return ::testing::TempDir(); }

absl::Status TakeIn(PartJoin::Part& part, BytesView bytes, size_t piece) {
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::Status taken = part.Take(bytes.subspan(at, std::min(piece, bytes.size() - at)));
    if (!taken.ok()) return taken;
  }
  return absl::OkStatus();
}

TEST(PartJoinTest, PartsThatComeAtTheSameTimeAreOneString) {
  const Bytes all = Numbers(1'000'000);
  for (const uint64_t memory : {uint64_t{0}, uint64_t{1} << 30}) {
    SpoolPlace spools(TempDirectory(), memory);
    PartJoin join(all.size(), &spools);
    const std::vector<size_t> ends = {0, 300'000, 300'001, 300'001, 700'000, 1'000'000};
    std::vector<std::thread> senders;
    for (size_t i = ends.size() - 1; i > 0; --i) {  // the last one begins first
      SHOAL_ASSERT_OK_AND_ASSIGN(std::shared_ptr<PartJoin::Part> part,
                                 join.Begin(ends[i - 1], ends[i] - ends[i - 1]));
      senders.emplace_back([&all, &ends, i, part] {
        SHOAL_EXPECT_OK(TakeIn(*part, BytesView(all).subspan(ends[i - 1], ends[i] - ends[i - 1]),
                               7000 + 100 * i));
        EXPECT_TRUE(part->complete());
      });
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got, ReadAll(join));
    EXPECT_EQ(got, all);
    for (std::thread& sender : senders) sender.join();
    // What was read is kept no longer.
    EXPECT_EQ(spools.file_bytes(), 0u);
    EXPECT_EQ(spools.free_bytes(), memory);
  }
}

// No sender waits for another, and what has come in order can be read before the rest is there.
TEST(PartJoinTest, APartIsTakenBeforeThoseInFrontOfIt) {
  const Bytes all = Numbers(1000);
  SpoolPlace spools(TempDirectory(), 1 << 20);
  PartJoin join(all.size(), &spools);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto second, join.Begin(600, 400));
  SHOAL_ASSERT_OK(second->Take(BytesView(all).subspan(600)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto first, join.Begin(0, 600));
  SHOAL_ASSERT_OK(first->Take(BytesView(all).first(10)));
  SHOAL_ASSERT_OK_AND_ASSIGN(BytesView piece, join.Next());
  EXPECT_TRUE(std::ranges::equal(piece, BytesView(all).first(10)));
  SHOAL_ASSERT_OK(first->Take(BytesView(all).subspan(10, 590)));
  SHOAL_ASSERT_OK_AND_ASSIGN(piece, join.Next());
  EXPECT_TRUE(std::ranges::equal(piece, BytesView(all).subspan(10, 590)));
  SHOAL_ASSERT_OK_AND_ASSIGN(piece, join.Next());
  EXPECT_TRUE(std::ranges::equal(piece, BytesView(all).subspan(600)));
  SHOAL_ASSERT_OK_AND_ASSIGN(piece, join.Next());
  EXPECT_TRUE(piece.empty());
}

// What was read is freed while the rest waits.
TEST(PartJoinTest, LongPartsWaitInSpoolsThatAreFreedAsTheyAreRead) {
  const Bytes all = Numbers(20'000'000);
  constexpr uint64_t kMemory = uint64_t{1} << 30;
  SpoolPlace spools(TempDirectory(), kMemory);
  PartJoin join(all.size(), &spools);
  const auto first = *join.Begin(0, 4'000'001), second = *join.Begin(4'000'001, 15'999'999);
  SHOAL_ASSERT_OK(TakeIn(*second, BytesView(all).subspan(4'000'001), 1'234'567));
  SHOAL_ASSERT_OK(TakeIn(*first, BytesView(all).first(4'000'001), 777'777));
  Bytes got;
  for (uint64_t most = kMemory - spools.free_bytes(); got.size() < all.size();) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const BytesView piece, join.Next());
    Append(got, piece);
    // An eighth of the second part may be read only in part, and the piece is still there.
    EXPECT_LE(kMemory - spools.free_bytes(), most - got.size() + 6'000'000);
  }
  EXPECT_EQ(got, all);
  SHOAL_ASSERT_OK_AND_ASSIGN(const BytesView end, join.Next());
  EXPECT_TRUE(end.empty());
  EXPECT_EQ(spools.free_bytes(), kMemory);
}

// Nothing is copied to a spool for somebody who waits for it.
TEST(PartJoinTest, WhatIsWaitedForLiesInNoSpool) {
  const Bytes all = Numbers(100 * 50'000);
  constexpr uint64_t kMemory = uint64_t{1} << 30;
  SpoolPlace spools(TempDirectory(), kMemory);
  PartJoin join(all.size(), &spools);
  const auto part = *join.Begin(0, all.size());
  absl::StatusOr<Bytes> got;
  std::thread reader([&] { got = ReadAll(join); });
  int handed_over = 0;
  for (size_t at = 0; at < all.size(); at += 50'000) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    SHOAL_EXPECT_OK(part->Take(BytesView(all).subspan(at, 50'000)));
    handed_over += spools.free_bytes() == kMemory;
  }
  reader.join();
  SHOAL_ASSERT_OK(got);
  EXPECT_EQ(*got, all);
  EXPECT_GT(handed_over, 0);
}

TEST(PartJoinTest, APartThatBreaksOffEndsTheString) {
  SpoolPlace spools(TempDirectory(), 1 << 20);
  PartJoin join(20, &spools);
  SHOAL_ASSERT_OK_AND_ASSIGN(auto other, join.Begin(10, 10));
  SHOAL_ASSERT_OK(other->Take(Bytes(5)));
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto part, join.Begin(0, 10));
    SHOAL_ASSERT_OK(part->Take(Bytes(9)));
  }
  EXPECT_THAT(join.Next(), StatusIs(absl::StatusCode::kUnavailable, "broke off"));
  // Nothing is reserved any more, for however long the other part is kept.
  EXPECT_EQ(spools.free_bytes(), uint64_t{1} << 20);
  EXPECT_THAT(other->Take(Bytes(1)), StatusIs(absl::StatusCode::kUnavailable, "broke off"));
}

TEST(PartJoinTest, APartIsNoLongerThanAnnounced) {
  SpoolPlace spools(TempDirectory(), 1 << 20);
  PartJoin join(20, &spools);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto part, join.Begin(0, 10));
  SHOAL_ASSERT_OK(part->Take(Bytes(9)));
  EXPECT_THAT(part->Take(Bytes(2)), StatusIs(absl::StatusCode::kInvalidArgument, "longer"));
  SHOAL_ASSERT_OK(part->Take(Bytes(1)));
  EXPECT_THAT(part->Take(Bytes(1)), StatusIs(absl::StatusCode::kInvalidArgument, "longer"));
}

TEST(PartJoinTest, WhoHasReadAllHearsOfNoError) {
  SpoolPlace spools(TempDirectory(), 1 << 20);
  PartJoin join(20, &spools);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto part, join.Begin(0, 20));
  SHOAL_ASSERT_OK(part->Take(Bytes(20)));
  SHOAL_ASSERT_OK(join.Next().status());
  EXPECT_FALSE(join.Stop(absl::AbortedError("too late")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const BytesView end, join.Next());
  EXPECT_TRUE(end.empty());

  PartJoin other(20, &spools);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto its, other.Begin(0, 20));
  SHOAL_ASSERT_OK(its->Take(Bytes(20)));
  EXPECT_TRUE(other.Stop(absl::AbortedError("in time")));
  EXPECT_THAT(other.Next(), StatusIs(absl::StatusCode::kAborted, "in time"));
  PartJoin empty(0, &spools);
  EXPECT_FALSE(empty.Stop(absl::AbortedError("too late")));
}

TEST(PartJoinTest, WhoeverWaitsHearsOfTheEnd) {
  SpoolPlace spools(TempDirectory(), 1 << 20);
  std::atomic<bool> over = false;
  std::optional<PartJoin> join(std::in_place, 20, &spools, [&over] {
    return over ? absl::CancelledError("the round has ended") : absl::OkStatus();
  });
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto part, join->Begin(0, 10));
  std::thread ends([&] { over = true; });
  EXPECT_THAT(join->Next(), StatusIs(absl::StatusCode::kCancelled, "has ended"));
  ends.join();
  join->Fail(absl::AbortedError("first"));
  join->Fail(absl::AbortedError("second"));
  EXPECT_THAT(part->Take(Bytes(1)), StatusIs(absl::StatusCode::kAborted, "first"));
  EXPECT_THAT(join->Begin(10, 10), StatusIs(absl::StatusCode::kAborted, "first"));
  join.reset();  // a part may live longer
  EXPECT_FALSE(part->Take(Bytes(1)).ok());
}

// Three parts of 1,000,000 bytes, each sent by a thread of its own once Begin says so, and a short
// one.
class PartsAsTheyComeTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMemory = uint64_t{1} << 30;
  static constexpr uint64_t kPart = 1'000'000, kShort = 100;

  ~PartsAsTheyComeTest() override {
    for (std::thread& sender : senders_) sender.join();
  }
  // Sends part `number`; its pieces have other lengths than those of other parts.
  void Begin(uint64_t number) {
    const std::shared_ptr<PartJoin::Part> part = *join_->Begin(number * kPart, kPart);
    senders_.emplace_back([this, number, part] {
      SHOAL_EXPECT_OK(
          TakeIn(*part, BytesView(all_).subspan(number * kPart, kPart), 50'000 + 7'000 * number));
    });
  }
  // From then on everybody knows that somebody reads: the short part has been.
  void BeginToRead() {
    const std::shared_ptr<PartJoin::Part> part = *join_->Begin(3 * kPart, kShort);
    senders_.emplace_back(
        [this, part] { SHOAL_EXPECT_OK(part->Take(BytesView(all_).last(kShort))); });
    Next();
  }
  // The next piece, which goes to its place in got_. The number of its part.
  uint64_t Next() {
    const absl::StatusOr<PartedSource::Piece> piece = join_->NextOfAny();
    SHOAL_EXPECT_OK(piece.status());
    if (!piece.ok() || piece->bytes.empty()) return kEnd;
    std::ranges::copy(piece->bytes, got_.begin() + static_cast<ptrdiff_t>(piece->offset));
    return piece->offset / kPart;
  }
  static constexpr uint64_t kEnd = ~uint64_t{0};

  const Bytes all_ = Numbers(3 * kPart + kShort);
  Bytes got_ = Bytes(3 * kPart + kShort);
  SpoolPlace spools_{TempDirectory(), kMemory};
  std::optional<PartJoin> join_{std::in_place, 3 * kPart + kShort, &spools_, nullptr,
                                PartJoin::Reading::kAsItComes};
  std::vector<std::thread> senders_;
};

// Once somebody reads, each part is read while it comes, whatever lacks in front of it, and nothing
// is copied.
TEST_F(PartsAsTheyComeTest, NoPartWaitsForAnotherAndNothingLiesInASpool) {
  BeginToRead();
  Begin(2);
  Begin(1);
  int pieces = 0;
  for (uint64_t part = Next(); part != kEnd; part = Next()) {
    EXPECT_EQ(spools_.free_bytes(), kMemory);
    if (++pieces == 10) Begin(0);
    EXPECT_TRUE(part != 0 || pieces > 10);
  }
  EXPECT_EQ(got_, all_);
}

// Who sends to somebody who does not read yet is not held up: others may have to send first.
TEST_F(PartsAsTheyComeTest, WhatComesBeforeAnybodyReadsIsTaken) {
  for (const uint64_t part : {2, 0}) Begin(part);
  for (std::thread& sender : senders_) sender.join();
  senders_.clear();
  EXPECT_LT(spools_.free_bytes(), kMemory);
  Begin(1);
  BeginToRead();
  while (Next() != kEnd) {
  }
  EXPECT_EQ(got_, all_);
  EXPECT_EQ(spools_.free_bytes(), kMemory);
}

// What is handed over stays where it is until it has been read.
TEST_F(PartsAsTheyComeTest, WhoSendsWaitsUntilItsBytesWereRead) {
  // The sender must not be woken before its time. Whether it would have been shows only if it runs
  // before the reader goes on: so both do this often.
  for (int i = 0; i < 100; ++i) {
    join_.emplace(3 * kPart + kShort, &spools_, nullptr, PartJoin::Reading::kAsItComes);
    BeginToRead();
    const std::shared_ptr<PartJoin::Part> part = *join_->Begin(0, kPart);
    std::atomic<bool> read = false, returned = false;
    senders_.emplace_back([&] {
      Bytes piece(100, 7);
      SHOAL_EXPECT_OK(part->Take(piece));
      EXPECT_TRUE(read);
      returned = true;
      std::ranges::fill(piece, uint8_t{0});
      EXPECT_THAT(part->Take(piece), StatusIs(absl::StatusCode::kAborted, "over"));
    });
    SHOAL_ASSERT_OK_AND_ASSIGN(const PartedSource::Piece piece, join_->NextOfAny());
    EXPECT_EQ(piece.offset, 0u);
    // Whoever only waits for its turn hears of the error.
    const std::shared_ptr<PartJoin::Part> other = *join_->Begin(kPart, kPart);
    senders_.emplace_back([&] {
      EXPECT_THAT(other->Take(Bytes(100)), StatusIs(absl::StatusCode::kAborted, "over"));
    });
    // Not even an error lets the sender go.
    join_->Fail(absl::AbortedError("over"));
    senders_.back().join();
    senders_.pop_back();
    EXPECT_FALSE(returned);
    EXPECT_EQ(Bytes(piece.bytes.begin(), piece.bytes.end()), Bytes(100, 7));
    read = true;
    EXPECT_THAT(join_->NextOfAny(), StatusIs(absl::StatusCode::kAborted, "over"));
    for (std::thread& sender : senders_) sender.join();
    senders_.clear();
    EXPECT_TRUE(returned);
  }
}

// Whoever waits for its turn hears that nobody reads any more.
TEST_F(PartsAsTheyComeTest, WhoWaitsForAReaderHearsOfTheEnd) {
  BeginToRead();
  const std::shared_ptr<PartJoin::Part> first = *join_->Begin(0, kPart);
  const std::shared_ptr<PartJoin::Part> second = *join_->Begin(kPart, kPart);
  const auto send = [&](const std::shared_ptr<PartJoin::Part>& part) {
    senders_.emplace_back([part] {
      absl::Status taken;
      while (taken.ok()) taken = part->Take(Bytes(100));
      EXPECT_THAT(taken, StatusIs(absl::StatusCode::kCancelled, "nobody reads"));
    });
  };
  send(first);
  send(second);
  SHOAL_EXPECT_OK(join_->NextOfAny().status());
  SHOAL_EXPECT_OK(join_->NextOfAny().status());
  join_.reset();
}

TEST_F(PartsAsTheyComeTest, APartThatBreaksOffEndsTheString) {
  (*join_->Begin(0, 10)).reset();
  EXPECT_THAT(join_->NextOfAny(), StatusIs(absl::StatusCode::kUnavailable, "broke off"));
}

TEST(OnePartTest, IsReadInOrder) {
  const Bytes all = Numbers(1000);
  OnePart source(std::make_unique<BytesSource>(all));
  EXPECT_EQ(source.size(), 1000u);
  EXPECT_EQ(source.part_bytes().size(), 1u);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes got, ReadAll(source));
  EXPECT_EQ(got, all);
}

TEST(SplitSourceTest, PartsAreReadOneAfterTheOther) {
  const Bytes all = Numbers(1000);
  const std::vector<uint64_t> sizes = {0, 10, 0, 490, 500};
  std::vector<std::unique_ptr<ByteSource>> ready;
  SplitSource(std::make_unique<BytesSource>(all), sizes, [&](size_t i, auto part) {
    EXPECT_EQ(i, ready.size());
    SHOAL_ASSERT_OK(part.status());
    ready.push_back(*std::move(part));
  });
  uint64_t at = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ASSERT_EQ(ready.size(), i + 1);  // no later one
    EXPECT_EQ(ready[i]->size(), sizes[i]);
    Bytes got;
    while (got.size() < sizes[i]) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const BytesView piece, ready[i]->Next());
      ASSERT_FALSE(piece.empty());
      Append(got, piece);
    }
    EXPECT_EQ(ready.size(), i + 1);
    for (int end = 0; end < 2; ++end) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const BytesView piece, ready[i]->Next());
      EXPECT_TRUE(piece.empty());
    }
    EXPECT_TRUE(std::ranges::equal(got, BytesView(all).subspan(at, sizes[i])));
    at += sizes[i];
  }
  EXPECT_EQ(ready.size(), sizes.size());
}

TEST(SplitSourceTest, APartThatIsNotTakenFailsTheLaterOnes) {
  std::vector<absl::Status> told;
  std::unique_ptr<ByteSource> last;
  SplitSource(std::make_unique<BytesSource>(Numbers(30)), {10, 10, 10}, [&](size_t, auto part) {
    told.push_back(part.status());
    if (part.ok()) last = *std::move(part);
  });
  SHOAL_ASSERT_OK(last->Next().status());
  last.reset();
  ASSERT_EQ(told.size(), 3u);
  SHOAL_EXPECT_OK(told[0]);
  EXPECT_THAT(told[1], StatusIs(absl::StatusCode::kUnavailable, "not taken"));
  EXPECT_THAT(told[2], StatusIs(absl::StatusCode::kUnavailable, "not taken"));
}

}  // namespace
}  // namespace shoal::server
