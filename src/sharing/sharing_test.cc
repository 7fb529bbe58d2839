#include "src/sharing/sharing.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/testing/test_random.h"
#include "src/sharing/field.h"

namespace shoal::sharing {
namespace {

using ::shoal::testing::TestRandom;

Digest RoundId(uint8_t fill) {
  Digest id;
  id.fill(fill);
  return id;
}

TEST(FieldTest, ReduceAgreesWithRemainder) {
  TestRandom random(1);
  const uint64_t edges[] = {0,
                            1,
                            kModulus - 1ull,
                            kModulus,
                            kModulus + 1ull,
                            2ull * kModulus,
                            (1ull << 62) - 1,
                            uint64_t{kModulus - 1} * (kModulus - 1) + kModulus - 1};
  for (uint64_t x : edges) EXPECT_EQ(Reduce(x), x % kModulus) << x;
  for (int i = 0; i < 100000; ++i) {
    const uint64_t x = random.U64() >> 2;
    ASSERT_EQ(Reduce(x), x % kModulus) << x;
  }
}

TEST(FieldTest, InverseIsInverse) {
  TestRandom random(2);
  for (uint32_t a : {1u, 2u, kModulus - 1}) EXPECT_EQ(MulAdd(a, Inverse(a), 0), 1u);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t a = static_cast<uint32_t>(1 + random.Below(kModulus - 1));
    ASSERT_EQ(MulAdd(a, Inverse(a), 0), 1u) << a;
  }
}

TEST(SharingTest, SharesTakeTheFirstTallyToTheQuery) {
  TestRandom random(3);
  for (size_t parties = 1; parties <= 8; ++parties) {
    for (uint32_t query : {0u, 1u, 12345u, kModulus - 1}) {
      std::vector<QueryShare> shares;
      for (size_t j = 0; j < parties; ++j) {
        shares.push_back(Expand(random.NewSeed().view(), RoundId(7)).share);
      }
      uint32_t tally = FirstTally(shares, query);
      for (const QueryShare& share : shares) tally = Advance(share, tally);
      EXPECT_EQ(tally, query);
    }
  }
}

// Non-malleability (definition 3): if the honest party is given another tally l* instead of l, its
// output is uniform over its secret share, given the output for l. For fixed l and l*, the pair
// (out, out*) takes every pair of distinct values equally often, so out* - out is uniform on the
// non-zero elements. The test counts the lowest bits of out* - out over many shares.
TEST(SharingTest, TamperedTalliesComeOutUniform) {
  TestRandom random(4);
  std::map<uint32_t, int> counts;
  constexpr int kTrials = 64000, kCells = 64;
  for (int i = 0; i < kTrials; ++i) {
    const QueryShare share = Expand(random.NewSeed().view(), RoundId(1)).share;
    const uint32_t difference = Sub(Advance(share, 1001), Advance(share, 1000));
    EXPECT_NE(difference, 0u);
    ++counts[difference % kCells];
  }
  double chi_squared = 0;
  for (int c = 0; c < kCells; ++c) {
    const double d = counts[static_cast<uint32_t>(c)] - kTrials / static_cast<double>(kCells);
    chi_squared += d * d / (kTrials / static_cast<double>(kCells));
  }
  EXPECT_LT(chi_squared, 103.4);  // 63 degrees of freedom, p = 0.001
}

TEST(ExpandTest, FollowsTheDocumentedLayout) {
  const Bytes seed(32, 5);
  const Digest id = RoundId(9);
  uint8_t stream[64 * 4];
  crypto_stream_chacha20_ietf(stream, sizeof stream, id.data(), seed.data());
  const Expansion expansion = Expand(seed, id);
  EXPECT_EQ(Bytes(expansion.token.begin(), expansion.token.end()), Bytes(stream, stream + 16));
  EXPECT_EQ(expansion.share.x, LoadLe<uint32_t>(stream + 16) & kModulus);
  EXPECT_EQ(expansion.share.y, LoadLe<uint32_t>(stream + 20) & kModulus);
  Bytes mask(190, 0);
  XorMask(seed, id, mask);
  EXPECT_EQ(mask, Bytes(stream + 64, stream + 64 + 190));
  XorMask(seed, id, mask);
  EXPECT_EQ(mask, Bytes(190, 0));
}

TEST(ExpandTest, DependsOnSeedAndRound) {
  EXPECT_NE(Expand(Bytes(32, 5), RoundId(9)).token, Expand(Bytes(32, 6), RoundId(9)).token);
  EXPECT_NE(Expand(Bytes(32, 5), RoundId(9)).token, Expand(Bytes(32, 5), RoundId(8)).token);
}

// docs/protocol.md, "Answers", and the same in web/test/vectors.ts.
TEST(AnswerTagTest, HasTheDocumentedValues) {
  const Bytes first(32, 1), second(32, 2);
  Bytes sent(TaggedBytes(80));
  for (uint8_t i = 0; i < 80; ++i) sent[i] = i;
  const auto tag = [&] { return Hex(BytesView(sent).last(kAnswerTagBytes)); };
  MaskAnswer(second, RoundId(9), TagCovers::kAnswer, sent);
  EXPECT_EQ(Hex(BytesView(sent).first(8)), "127612cecdf817e0");
  EXPECT_EQ(tag(), "015db810f1f37bfaf3380d4572647ff8");
  MaskAnswer(first, RoundId(9), TagCovers::kAnswerAndTag, sent);
  EXPECT_EQ(Hex(BytesView(sent).first(8)), "9cfff6bda398be06");
  EXPECT_EQ(tag(), "96466963a3e7ae97fb65e71d139056ab");
}

// The key is the first half of the block after the mask's last one, and no part of the mask.
TEST(AnswerTagTest, TheKeyIsNoPartOfTheMask) {
  for (const size_t bytes : {1, 63, 64, 65, 80, 127, 128, 129, 1072}) {
    const size_t blocks = (bytes + 63) / 64;
    EXPECT_EQ(TagKeyBlock(bytes), 1 + blocks) << bytes;
    Bytes stream(64 * (blocks + 2));
    const Bytes seed(32, 5);
    crypto_stream_chacha20_ietf(stream.data(), stream.size(), RoundId(9).data(), seed.data());
    Bytes sent(TaggedBytes(bytes));
    MaskAnswer(seed, RoundId(9), TagCovers::kAnswer, sent);
    EXPECT_EQ(Hex(BytesView(sent).first(bytes)), Hex(BytesView(stream).subspan(64, bytes)));
    Bytes tag(kAnswerTagBytes);
    crypto_onetimeauth_poly1305(tag.data(), sent.data(), bytes, stream.data() + 64 * (blocks + 1));
    EXPECT_EQ(Hex(BytesView(sent).last(kAnswerTagBytes)), Hex(tag));
  }
}

}  // namespace
}  // namespace shoal::sharing
