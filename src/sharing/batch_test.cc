#include "src/sharing/batch.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/instruction_set.h"
#include "src/base/testing/test_random.h"
#include "src/parallel/thread_pool.h"
#include "src/sharing/kernel.h"
#include "src/sharing/testing/kernel_wide.h"

namespace shoal::sharing {
namespace {

using ::shoal::testing::TestRandom;

struct NamedKernel {
  std::string name;
  const Kernel* kernel;
};

// The kernels that this machine can run, and the widest one compiled for AVX2 (WideKernel).
std::vector<NamedKernel> AllKernels() {
  std::vector<NamedKernel> kernels = {{"portable", PortableKernel()}};
  if (IsSupported(InstructionSet::kAvx2)) {
    kernels.push_back({"avx2", Avx2Kernel()});
    kernels.push_back({"wide", testing::WideKernel()});
  }
  if (IsSupported(InstructionSet::kAvx512)) kernels.push_back({"avx512", Avx512Kernel()});
  return kernels;
}

class KernelTest : public ::testing::TestWithParam<NamedKernel> {
 protected:
  const Kernel& kernel() const { return *GetParam().kernel; }
};

INSTANTIATE_TEST_SUITE_P(Kernels, KernelTest, ::testing::ValuesIn(AllKernels()),
                         [](const auto& each) { return each.param.name; });

// Memory of exactly so many bytes, so that AddressSanitizer sees a byte too far.
template <typename T>
std::unique_ptr<T[]> Exactly(size_t n) {
  return std::make_unique<T[]>(n);
}

// Seeds, and positions that skip some and repeat none.
struct Input {
  Input(size_t n, uint64_t seed) : random(seed) {
    random.Fill(round_id);
    for (size_t i = 0, at = 0; i < n; ++i, ++at) {
      at += random.Below(3);
      positions.push_back(static_cast<uint32_t>(at));
    }
    positions.shrink_to_fit();  // exactly as long as its content, like the arrays below
    const size_t seed_count = n == 0 ? 0 : positions.back() + 1;
    seeds = Exactly<uint8_t>(32 * seed_count);
    random.Fill({seeds.get(), 32 * seed_count});
  }
  BytesView SeedOf(size_t i) const { return {seeds.get() + size_t{32} * positions[i], 32}; }
  size_t size() const { return positions.size(); }

  TestRandom random;
  Digest round_id;
  std::vector<uint32_t> positions;
  std::unique_ptr<uint8_t[]> seeds;
};

// None, every remainder modulo the number of lanes, and several whole vectors.
std::vector<size_t> Counts() {
  std::vector<size_t> counts(38);
  std::iota(counts.begin(), counts.end(), size_t{0});
  counts.insert(counts.end(), {64, 100, 255, 256, 257, 300, 1000});
  return counts;
}

TEST_P(KernelTest, ExpandsSharesAsOneByOne) {
  for (size_t n : Counts()) {
    Input input(n, 1 + n);
    const auto shares = Exactly<uint32_t>(2 * n);
    kernel().expand_shares(input.seeds.get(), input.positions.data(), n, input.round_id.data(),
                           shares.get());
    for (size_t i = 0; i < n; ++i) {
      const QueryShare expected = Expand(input.SeedOf(i), input.round_id).share;
      ASSERT_EQ(shares[2 * i], expected.x) << n << " " << i;
      ASSERT_EQ(shares[2 * i + 1], expected.y) << n << " " << i;
    }
  }
}

TEST_P(KernelTest, MasksAnswersAsOneByOne) {
  std::vector<size_t> lengths(200);
  std::iota(lengths.begin(), lengths.end(), size_t{1});
  // Numbers of blocks around those that fill a vector with one key's blocks: 4, 8, 16 and some
  // more.
  for (size_t blocks : {4, 8, 12, 16, 17, 24, 32}) {
    for (size_t around : {-49, -1, 0, 1, 16, 63}) lengths.push_back(64 * blocks + around);
  }
  lengths.insert(lengths.end(), {304, 1072, 4144, 5000});
  for (size_t bytes : lengths) {
    for (size_t n : {0, 1, 3, 4, 7, 8, 9, 16, 17, 31, 37}) {
      Input input(n, bytes * 100 + n);
      const auto answers = Exactly<uint8_t>(n * bytes);
      input.random.Fill({answers.get(), n * bytes});
      Bytes expected(answers.get(), answers.get() + n * bytes);
      for (size_t i = 0; i < n; ++i) {
        XorMask(input.SeedOf(i), input.round_id, MutableBytes(expected).subspan(i * bytes, bytes));
      }
      kernel().xor_masks(input.seeds.get(), input.positions.data(), n, input.round_id.data(), bytes,
                         answers.get());
      ASSERT_EQ(Bytes(answers.get(), answers.get() + n * bytes), expected) << bytes << " x " << n;
    }
  }
}

TEST_P(KernelTest, ExpandsAndComparesTokensAsOneByOne) {
  for (size_t n : Counts()) {
    Input input(n, 7 + n);
    const auto tokens = Exactly<uint8_t>(n * kTokenBytes);
    const auto wrong = Exactly<uint8_t>(n);
    const auto compare = [&] {
      kernel().compare_tokens(input.seeds.get(), input.positions.data(), n, input.round_id.data(),
                              tokens.get(), wrong.get());
      return Bytes(wrong.get(), wrong.get() + n);
    };
    kernel().expand_tokens(input.seeds.get(), input.positions.data(), n, input.round_id.data(),
                           tokens.get());
    for (size_t i = 0; i < n; ++i) {
      const Token expected = Expand(input.SeedOf(i), input.round_id).token;
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), tokens.get() + i * kTokenBytes))
          << n << " " << i;
    }
    ASSERT_EQ(compare(), Bytes(n)) << n;
    Bytes expected(n);
    for (size_t i = 0; i < n; i += 1 + input.random.Below(3)) {
      const size_t bit = input.random.Below(8 * kTokenBytes);
      tokens[i * kTokenBytes + bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      expected[i] = 1;
    }
    ASSERT_EQ(compare(), expected) << n;
  }
}

TEST_P(KernelTest, EveryBitOfATokenCounts) {
  const size_t n = kernel().lanes;
  Input input(n, 3);
  Bytes tokens(n * kTokenBytes), wrong(n);
  kernel().expand_tokens(input.seeds.get(), input.positions.data(), n, input.round_id.data(),
                         tokens.data());
  for (size_t bit = 0; bit < 8 * tokens.size(); ++bit) {
    tokens[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    kernel().compare_tokens(input.seeds.get(), input.positions.data(), n, input.round_id.data(),
                            tokens.data(), wrong.data());
    Bytes expected(n);
    expected[bit / (8 * kTokenBytes)] = 1;
    ASSERT_EQ(wrong, expected) << bit;
    tokens[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
}

TEST_P(KernelTest, FirstTalliesAsOneByOne) {
  for (size_t parties : {1, 2, 3, 5, 8}) {
    for (size_t n : Counts()) {
      TestRandom random(100 * parties + n);
      Digest round_id;
      random.Fill(round_id);
      const auto seeds = Exactly<uint8_t>(32 * parties * n);
      random.Fill({seeds.get(), 32 * parties * n});
      const auto queries = Exactly<uint32_t>(n);
      const auto tallies = Exactly<uint32_t>(n);
      std::vector<uint32_t> expected;
      for (size_t i = 0; i < n; ++i) {
        const uint32_t edges[] = {0, 1, kModulus - 1};
        queries[i] = i < 3 ? edges[i] : static_cast<uint32_t>(random.Below(kModulus));
        std::vector<QueryShare> shares;
        for (size_t j = 0; j < parties; ++j) {
          shares.push_back(Expand({seeds.get() + 32 * (i * parties + j), 32}, round_id).share);
        }
        expected.push_back(FirstTally(shares, queries[i]));
      }
      kernel().first_tallies(seeds.get(), parties, n, round_id.data(), queries.get(),
                             tallies.get());
      ASSERT_EQ(std::vector<uint32_t>(tallies.get(), tallies.get() + n), expected)
          << n << " queries, " << parties << " parties";
      kernel().first_tallies(seeds.get(), parties, n, round_id.data(), queries.get(),
                             queries.get());
      ASSERT_EQ(std::vector<uint32_t>(queries.get(), queries.get() + n), expected) << "in place";
    }
  }
}

// No known seed expands to a word of 0 or p, so the choice of x and y is tested on made-up blocks,
// against the rule in sharing.h.
TEST_P(KernelTest, PicksSharesByTheRule) {
  TestRandom random(5);
  const size_t n = 96 * kernel().lanes;
  Bytes blocks(64 * n);
  random.Fill(blocks);
  std::vector<uint32_t> expected_x(n), expected_y(n), x(n), y(n);
  for (size_t i = 0; i < n; ++i) {
    uint8_t* const words = blocks.data() + 64 * i + 16;
    // Many bad words, with either top bit; the last blocks have nothing else.
    for (size_t w = 0; w < 12; ++w) {
      const uint64_t pick = random.Below(i < n / 2 ? 4 : 9);
      const uint32_t top = random.Below(2) != 0 ? 0x80000000u : 0;
      if (i + 8 >= n || pick == 0) StoreLe<uint32_t>(words + 4 * w, top | kModulus);
      if (i + 8 < n && pick == 1) StoreLe<uint32_t>(words + 4 * w, top);
      if (i + 8 < n && pick == 2) StoreLe<uint32_t>(words + 4 * w, top | (kModulus - 1));
    }
    std::vector<uint32_t> usable;
    size_t w = 0;
    const auto word = [&] { return LoadLe<uint32_t>(words + 4 * w) & kModulus; };
    while (w < 12 && word() == kModulus) ++w;
    expected_x[i] = w < 12 ? word() : 0;
    for (++w; w < 12 && (word() == kModulus || word() == 0);) ++w;
    expected_y[i] = w < 12 ? word() : 1;
  }
  kernel().shares_of_blocks(blocks.data(), n, x.data(), y.data());
  EXPECT_EQ(x, expected_x);
  EXPECT_EQ(y, expected_y);
}

// The dispatcher: the same through every instruction set that the machine has.
TEST(BatchTest, AgreesWithOneByOneUnderEveryInstructionSet) {
  const InstructionSet before = ActiveInstructionSet();
  for (InstructionSet set : kAllInstructionSets) {
    if (!IsSupported(set)) continue;
    UseInstructionSet(set);
    constexpr size_t kCount = 77, kAnswerBytes = 112, kParties = 3;
    Input input(kCount, 11);
    std::vector<uint32_t> tallies(kCount);
    std::vector<Token> tokens(kCount);
    Bytes answers(kCount * kAnswerBytes, 1);
    std::vector<QueryShare> shares(kCount);
    ExpandShares(input.seeds.get(), input.positions, input.round_id, shares);
    XorMasks(input.seeds.get(), input.positions, input.round_id, kAnswerBytes, answers);
    ExpandTokens(input.seeds.get(), input.positions, input.round_id, tokens);
    EXPECT_EQ(FirstWrongToken(input.seeds.get(), input.positions, input.round_id, tokens), kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const Expansion expansion = Expand(input.SeedOf(i), input.round_id);
      EXPECT_EQ(tokens[i], expansion.token);
      EXPECT_EQ(shares[i], expansion.share);
      Bytes answer(kAnswerBytes, 1);
      XorMask(input.SeedOf(i), input.round_id, answer);
      EXPECT_EQ(ToBytes(BytesView(answers).subspan(i * kAnswerBytes, kAnswerBytes)), answer);
    }
    tokens[70][15] ^= 0x80;
    EXPECT_EQ(FirstWrongToken(input.seeds.get(), input.positions, input.round_id, tokens), 70u);

    Bytes seeds(32 * kParties * kCount);
    input.random.Fill(seeds);
    std::vector<uint32_t> queries(kCount);
    std::iota(queries.begin(), queries.end(), 0u);
    FirstTallies(seeds, kParties, input.round_id, queries, tallies);
    // Party j's seeds stand at j, j + m, j + 2 m, ...
    for (uint32_t j = 0; j < kParties; ++j) {
      std::vector<uint32_t> mine(kCount);
      for (size_t i = 0; i < kCount; ++i) mine[i] = static_cast<uint32_t>(i * kParties + j);
      ExpandShares(seeds.data(), mine, input.round_id, shares);
      for (size_t i = 0; i < kCount; ++i) tallies[i] = Advance(shares[i], tallies[i]);
    }
    EXPECT_EQ(tallies, queries);
  }
  UseInstructionSet(before);
}

// Callers may cut the work into pieces on several threads: a call touches nothing but its own
// answers and shares (ThreadSanitizer checks that), and the result does not depend on the cut.
TEST(BatchTest, PiecesCanRunAtTheSameTime) {
  constexpr size_t kCount = 1000, kAnswerBytes = 75, kPiece = 37;
  Input input(kCount, 12);
  std::vector<QueryShare> whole(kCount), cut(kCount);
  Bytes whole_answers(kCount * kAnswerBytes), cut_answers(kCount * kAnswerBytes);
  ExpandShares(input.seeds.get(), input.positions, input.round_id, whole);
  XorMasks(input.seeds.get(), input.positions, input.round_id, kAnswerBytes, whole_answers);
  ThreadPool pool(3);
  pool.ParallelFor(kCount, kPiece, [&](size_t begin, size_t end) {
    const auto positions = std::span<const uint32_t>(input.positions).subspan(begin, end - begin);
    ExpandShares(input.seeds.get(), positions, input.round_id,
                 std::span(cut).subspan(begin, end - begin));
    XorMasks(input.seeds.get(), positions, input.round_id, kAnswerBytes,
             MutableBytes(cut_answers).subspan(begin * kAnswerBytes, (end - begin) * kAnswerBytes));
  });
  EXPECT_EQ(cut, whole);
  EXPECT_EQ(cut_answers, whole_answers);
}

TEST(BatchTest, NamesTheFirstWrongToken) {
  for (size_t n : {0, 1, 255, 256, 257, 600}) {
    Input input(n, n);
    std::vector<Token> tokens(n);
    const auto first_wrong = [&] {
      return FirstWrongToken(input.seeds.get(), input.positions, input.round_id, tokens);
    };
    ExpandTokens(input.seeds.get(), input.positions, input.round_id, tokens);
    EXPECT_EQ(first_wrong(), n);
    // Tokens are spoiled from the last to the first, and every third stays wrong.
    for (size_t i = n; i-- > 0;) {
      tokens[i][i % kTokenBytes] ^= 1;
      ASSERT_EQ(first_wrong(), i) << n;
      if (i % 3 != 0) tokens[i][i % kTokenBytes] ^= 1;
    }
  }
}

TEST(BatchDeathTest, RefusesWrongShapes) {
  const Bytes seeds(64);
  const std::vector<uint32_t> positions = {0, 1}, queries = {1, kModulus};
  std::vector<QueryShare> one(1);
  std::vector<uint32_t> two(2);
  Bytes answers(19);
  EXPECT_DEATH(ExpandShares(seeds.data(), positions, {}, one), "shares.size");
  EXPECT_DEATH(XorMasks(seeds.data(), positions, {}, 10, answers), "answers.size");
  EXPECT_DEATH(FirstTallies(seeds, 1, {}, queries, two), "kModulus");
  EXPECT_DEATH(FirstTallies(seeds, 2, {}, positions, two), "seeds.size");
}

}  // namespace
}  // namespace shoal::sharing
