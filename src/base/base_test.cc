#include <algorithm>
#include <map>

#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/base/secret.h"
#include "src/base/testing/test_clock.h"
#include "src/base/testing/test_random.h"

namespace shoal {
namespace {

using ::shoal::testing::TestClock;
using ::shoal::testing::TestRandom;

TEST(ClockTest, AnUndisturbedClockIsNotSet) {
  TestClock wall(1'000'000);
  const UndisturbedClock clock(wall);
  wall.now_s += 3 * 3600;
  EXPECT_GE(clock.NowSeconds(), 1'000'000u);
  EXPECT_LE(clock.NowSeconds(), 1'000'000u + 600);
}

TEST(TranscriptTest, FieldBoundariesMatter) {
  // "ab" + "c" and "a" + "bc" are different messages.
  EXPECT_NE(Transcript("d").Blob("ab").Blob("c").Finish(),
            Transcript("d").Blob("a").Blob("bc").Finish());
  EXPECT_NE(Transcript("d").Finish(), Transcript("e").Finish());
}

TEST(TranscriptTest, IsBlake2bOfTheDocumentedEncoding) {
  Bytes encoded;
  AppendLe<uint64_t>(encoded, 1);
  Append(encoded, AsBytes("d"));
  AppendLe<uint64_t>(encoded, 7);
  AppendLe<uint64_t>(encoded, 2);
  Append(encoded, AsBytes("xy"));
  Digest expected;
  crypto_generichash(expected.data(), 32, encoded.data(), encoded.size(), nullptr, 0);
  EXPECT_EQ(Transcript("d").U64(7).Blob("xy").Finish(), expected);
}

TEST(TranscriptTest, ABlobInPiecesIsTheSameBlob) {
  EXPECT_EQ(Transcript("d").Blob("abcdef").U64(1).Finish(), Transcript("d")
                                                                .BeginBlob(6)
                                                                .BlobPiece(AsBytes("abc"))
                                                                .BlobPiece(AsBytes("def"))
                                                                .U64(1)
                                                                .Finish());
  EXPECT_DEATH(Transcript("d").BeginBlob(6).BlobPiece(AsBytes("abc")).U64(1), "blob_left_");
  EXPECT_DEATH(Transcript("d").BeginBlob(2).BlobPiece(AsBytes("abc")), "blob_left_");
}

TEST(SeededRandomTest, IsAFunctionOfSeedDomainAndStream) {
  const Bytes seed(32, 1);
  Bytes a(10000), b(10000);
  SeededRandom(seed, "x").Fill(a);
  SeededRandom again(seed, "x");
  // Read in pieces of odd sizes: the stream does not depend on how it is read.
  for (size_t at = 0; at < b.size();) {
    const size_t n = std::min<size_t>(37, b.size() - at);
    again.Fill(MutableBytes(b).subspan(at, n));
    at += n;
  }
  EXPECT_EQ(a, b);
  SeededRandom(seed, "y").Fill(b);
  EXPECT_NE(a, b);
  SeededRandom(seed, "x", 1).Fill(b);
  EXPECT_NE(a, b);
}

TEST(RandomSourceTest, BelowIsUniformAndInRange) {
  TestRandom random(1);
  std::map<uint64_t, int> counts;
  for (int i = 0; i < 60000; ++i) ++counts[random.Below(6)];
  ASSERT_EQ(counts.size(), 6u);
  double chi_squared = 0;
  for (const auto& [value, count] : counts) {
    EXPECT_LT(value, 6u);
    chi_squared += (count - 10000.0) * (count - 10000.0) / 10000.0;
  }
  EXPECT_LT(chi_squared, 20.5);  // 5 degrees of freedom, p = 0.001
}

TEST(SecretArrayTest, MovedFromIsWiped) {
  Seed seed(Bytes(32, 9));
  Seed moved = std::move(seed);
  EXPECT_TRUE(EqualSecret(seed.view(), Bytes(32, 0)));  // NOLINT: that is the point
  EXPECT_TRUE(EqualSecret(moved.view(), Bytes(32, 9)));
  EXPECT_FALSE(EqualSecret(moved.view(), Bytes(31, 9)));
}

TEST(CheckTest, StopsTheProcess) { EXPECT_DEATH(SHOAL_CHECK(1 == 2), "invariant broken: 1 == 2"); }

}  // namespace
}  // namespace shoal
