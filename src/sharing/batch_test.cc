#include "src/sharing/batch.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
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
      kernel().xor_masks(input.seeds.get(), input.positions.data(), n, input.round_id.data(), 1,
                         bytes, bytes, answers.get());
      ASSERT_EQ(Bytes(answers.get(), answers.get() + n * bytes), expected) << bytes << " x " << n;
    }
  }
}

// What is between the answers stays.
TEST_P(KernelTest, MasksAnswersThatStandApart) {
  for (size_t bytes : {1, 63, 64, 80, 112, 300, 1088}) {
    for (size_t gap : {1, 16, 32}) {
      for (size_t n : {1, 8, 17}) {
        Input input(n, bytes + n);
        const size_t stride = bytes + gap;
        Bytes answers(n * stride);
        input.random.Fill(answers);
        Bytes expected = answers;
        for (size_t i = 0; i < n; ++i) {
          XorMask(input.SeedOf(i), input.round_id,
                  MutableBytes(expected).subspan(i * stride, bytes));
        }
        kernel().xor_masks(input.seeds.get(), input.positions.data(), n, input.round_id.data(), 1,
                           bytes, stride, answers.data());
        ASSERT_EQ(answers, expected) << bytes << " and " << gap << " x " << n;
      }
    }
  }
}

// Masks that begin at other blocks than that of an answer.
TEST_P(KernelTest, MasksFromAnyBlock) {
  for (const uint32_t first : {0u, 2u, 5u}) {
    for (size_t bytes : {1, 36, 64, 100, 1024, 1100}) {
      for (size_t n : {1, 9, 31}) {
        Input input(n, first * 100 + bytes + n);
        const auto answers = Exactly<uint8_t>(n * bytes);
        Bytes expected(n * bytes);
        for (size_t i = 0; i < n; ++i) {
          uint8_t* const at = expected.data() + i * bytes;
          crypto_stream_chacha20_ietf_xor_ic(at, at, bytes, input.round_id.data(), first,
                                             input.SeedOf(i).data());
        }
        kernel().xor_masks(input.seeds.get(), input.positions.data(), n, input.round_id.data(),
                           first, bytes, bytes, answers.get());
        ASSERT_EQ(Bytes(answers.get(), answers.get() + n * bytes), expected) << first;
      }
    }
  }
}

TEST_P(KernelTest, ExpandsTagKeysAsOneByOne) {
  for (size_t n : Counts()) {
    Input input(n, 5 + n);
    for (uint32_t counter : {0u, 3u, 0xffffffffu}) {
      for (size_t stride : {32, 112}) {
        const auto keys = Exactly<uint8_t>(n * stride);
        Bytes expected(n * stride);
        for (size_t i = 0; i < n; ++i) {
          uint8_t* const key = expected.data() + i * stride;
          crypto_stream_chacha20_ietf_xor_ic(key, key, kTagKeyBytes, input.round_id.data(), counter,
                                             input.SeedOf(i).data());
        }
        kernel().expand_tag_keys(input.seeds.get(), input.positions.data(), n,
                                 input.round_id.data(), counter, stride, keys.get());
        ASSERT_EQ(Bytes(keys.get(), keys.get() + n * stride), expected) << n;
        // The rest of the block.
        for (size_t i = 0; i < n; ++i) {
          Bytes block(64);
          crypto_stream_chacha20_ietf_xor_ic(block.data(), block.data(), block.size(),
                                             input.round_id.data(), counter,
                                             input.SeedOf(i).data());
          std::copy_n(block.begin() + 32, kTagKeyBytes,
                      expected.begin() + static_cast<ptrdiff_t>(i * stride));
        }
        kernel().expand_second_keys(input.seeds.get(), input.positions.data(), n,
                                    input.round_id.data(), counter, stride, keys.get());
        ASSERT_EQ(Bytes(keys.get(), keys.get() + n * stride), expected) << n;
      }
    }
  }
}

// Tags of libsodium's Poly1305, over what a party covers: all but the tag, and all with it.
TEST_P(KernelTest, TagsAnswersAsOneByOne) {
  TestRandom random(9);
  // 0xff everywhere gives the largest carries, and keys of zeros a tag that is the pad alone.
  const auto fill = [&](size_t n, size_t kind) {
    Bytes bytes(n, kind == 1 ? 0xff : 0);
    if (kind == 0) random.Fill(bytes);
    return bytes;
  };
  for (size_t bytes : {0, 1, 15, 16, 17, 31, 32, 52, 80, 112, 304, 1072}) {
    for (size_t n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 100}) {
      for (size_t kind : {0, 1, 2}) {
        for (const size_t covered : {bytes, bytes + kAnswerTagBytes}) {
          const size_t stride = bytes + kAnswerTagBytes;
          const Bytes keys = fill(n * kTagKeyBytes, kind);
          const Bytes before = fill(n * stride, kind == 2 ? 1 : kind);
          const auto answers = Exactly<uint8_t>(n * stride);
          std::ranges::copy(before, answers.get());
          Bytes expected = before;
          for (size_t i = 0; i < n; ++i) {
            crypto_onetimeauth_poly1305(expected.data() + i * stride + bytes,
                                        before.data() + i * stride, covered,
                                        keys.data() + i * kTagKeyBytes);
          }
          kernel().tag_answers(keys.data(), n, covered, bytes, stride, answers.get());
          ASSERT_EQ(Bytes(answers.get(), answers.get() + n * stride), expected)
              << covered << " bytes x " << n << ", kind " << kind;
        }
      }
    }
  }
}

// RFC 8439, sections 2.5.2 and A.3: key, text, tag.
TEST_P(KernelTest, TagsAsTheStandardSays) {
  const std::string ietf =
      "Any submission to the IETF intended by the Contributor for publication as all or part of an "
      "IETF Internet-Draft or RFC and any statement made within the context of an IETF activity is "
      "considered an \"IETF Contribution\". Such statements include oral statements in IETF "
      "sessions, as well as written and electronic communications made at any time or place, which "
      "are addressed to";
  const std::string jabberwocky =
      "'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\nAll mimsy were the "
      "borogoves,\nAnd the mome raths outgrabe.";
  const auto hex_of = [](absl::string_view text) { return absl::BytesToHexString(text); };
  const std::string zeros(32, '0'), ones(32, 'f');
  const std::string r36 = "36e5f6b5c5e06070f0efca96227a863e";
  const std::string r2 = "02" + std::string(30, '0'), r1 = "01" + std::string(30, '0');
  const std::string r14 = "01000000000000000400000000000000";
  const std::string e335 =
      "e33594d7505e43b900000000000000003394d7505e4379cd01000000000000000000000"
      "0000000000000000000000000";
  const struct {
    std::string key, text, tag;
  } vectors[] = {
      {"85d6be7857556d337f4452fe42d506a80103808afb0db2fd4abff6af4149f51b",
       hex_of("Cryptographic Forum Research Group"), "a8061dc1305136c6c22b8baf0c0127a9"},
      {zeros + zeros, std::string(128, '0'), zeros},
      {zeros + r36, hex_of(ietf), r36},
      {r36 + zeros, hex_of(ietf), "f3477e7cd95417af89a6b8794c310cf0"},
      {"1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0", hex_of(jabberwocky),
       "4541669a7eaaee61e708dc7cbcc5eb62"},
      {r2 + zeros, ones, "03" + std::string(30, '0')},
      {r2 + ones, "02" + std::string(30, '0'), "03" + std::string(30, '0')},
      {r1 + zeros, ones + "f0" + std::string(30, 'f') + "11" + std::string(30, '0'),
       "05" + std::string(30, '0')},
      {r1 + zeros,
       ones + "fb" +
           [] {
             std::string rest;
             for (int i = 0; i < 15; ++i) rest += "fe";
             for (int i = 0; i < 16; ++i) rest += "01";
             return rest;
           }(),
       zeros},
      {r2 + zeros, "fd" + std::string(30, 'f'), "fa" + std::string(30, 'f')},
      {r14 + zeros, e335 + "01" + std::string(30, '0'), "14000000000000005500000000000000"},
      {r14 + zeros, e335, "13" + std::string(30, '0')}};
  for (const auto& vector : vectors) {
    const std::string text = absl::HexStringToBytes(vector.text);
    // The same in every lane, and in the last of all.
    const size_t n = 2 * kernel().lanes + 1, stride = text.size() + kAnswerTagBytes;
    Bytes keys, answers;
    for (size_t i = 0; i < n; ++i) {
      Append(keys, AsBytes(absl::HexStringToBytes(vector.key)));
      Append(answers, AsBytes(text));
      answers.resize(answers.size() + kAnswerTagBytes);
    }
    kernel().tag_answers(keys.data(), n, text.size(), text.size(), stride, answers.data());
    for (size_t i = 0; i < n; ++i) {
      const BytesView tag = BytesView(answers).subspan(i * stride + text.size(), kAnswerTagBytes);
      ASSERT_EQ(absl::BytesToHexString(AsText(tag)), vector.tag) << vector.key << " " << i;
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
    std::vector<QueryShare> shares(kCount);
    ExpandShares(input.seeds.get(), input.positions, input.round_id, shares);
    for (const TagCovers covers : {TagCovers::kAnswer, TagCovers::kAnswerAndTag}) {
      Bytes tagged(kCount * TaggedBytes(kAnswerBytes));
      input.random.Fill(tagged);
      Bytes expected = tagged, from_pads = tagged;
      EXPECT_EQ(MaskAnswers(input.seeds.get(), input.positions, input.round_id, kAnswerBytes,
                            covers, tagged),
                kCount);
      for (size_t i = 0; i < kCount; ++i) {
        MaskAnswer(input.SeedOf(i), input.round_id, covers,
                   MutableBytes(expected).subspan(i * TaggedBytes(kAnswerBytes),
                                                  TaggedBytes(kAnswerBytes)));
      }
      EXPECT_EQ(tagged, expected);
      // Pads of all positions, and then answers to some.
      std::vector<uint32_t> all(input.positions.back() + 1);
      std::iota(all.begin(), all.end(), 0u);
      Bytes pads(all.size() * PadBytes(kAnswerBytes), 7);
      ExpandPads(input.seeds.get(), all, input.round_id, kAnswerBytes, pads);
      EXPECT_EQ(MaskAnswersFromPads(pads.data(), input.positions, kAnswerBytes, covers, from_pads),
                kCount);
      EXPECT_EQ(from_pads, expected);
    }
    ExpandTokens(input.seeds.get(), input.positions, input.round_id, tokens);
    EXPECT_EQ(FirstWrongToken(input.seeds.get(), input.positions, input.round_id, tokens), kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const Expansion expansion = Expand(input.SeedOf(i), input.round_id);
      EXPECT_EQ(tokens[i], expansion.token);
      EXPECT_EQ(shares[i], expansion.share);
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
  constexpr size_t kTagged = TaggedBytes(kAnswerBytes);
  Bytes whole_answers(kCount * kTagged), cut_answers(kCount * kTagged);
  ExpandShares(input.seeds.get(), input.positions, input.round_id, whole);
  MaskAnswers(input.seeds.get(), input.positions, input.round_id, kAnswerBytes,
              TagCovers::kAnswerAndTag, whole_answers);
  ThreadPool pool(3);
  pool.ParallelFor(kCount, kPiece, [&](size_t begin, size_t end) {
    const auto positions = std::span<const uint32_t>(input.positions).subspan(begin, end - begin);
    ExpandShares(input.seeds.get(), positions, input.round_id,
                 std::span(cut).subspan(begin, end - begin));
    MaskAnswers(input.seeds.get(), positions, input.round_id, kAnswerBytes,
                TagCovers::kAnswerAndTag,
                MutableBytes(cut_answers).subspan(begin * kTagged, (end - begin) * kTagged));
  });
  EXPECT_EQ(cut, whole);
  EXPECT_EQ(cut_answers, whole_answers);
}

// The chain of m parties on answers of every kind, and the client after it.
class AnswerTagTest : public ::testing::TestWithParam<size_t> {
 protected:
  static constexpr size_t kAnswerBytes = 80, kTagged = TaggedBytes(kAnswerBytes), kCount = 300;

  AnswerTagTest()
      : random_(GetParam()), seeds_(32 * parties() * kCount), rows_(kCount * kAnswerBytes) {
    random_.Fill(seeds_);
    random_.Fill(rows_);
    // In a refresh each party has an id of its own, in a round all have the same.
    for (size_t j = 0; j < parties(); ++j) random_.Fill(ids_.emplace_back());
  }
  size_t parties() const { return GetParam(); }
  BytesView SeedOf(size_t i, size_t j) const {
    return BytesView(seeds_).subspan(32 * (i * parties() + j), 32);
  }
  // What party `party` (from 0) and then those before it make of what it got.
  void Back(size_t party, Bytes& answers) const {
    for (size_t j = party + 1; j-- > 0;) {
      for (size_t i = 0; i < kCount; ++i) {
        MaskAnswer(SeedOf(i, j), ids_[j],
                   j + 1 == parties() ? TagCovers::kAnswer : TagCovers::kAnswerAndTag,
                   MutableBytes(answers).subspan(i * kTagged, kTagged));
      }
    }
  }
  Bytes Unread() const {
    Bytes answers(kCount * kTagged, 0xaa);
    for (size_t i = 0; i < kCount; ++i) {
      std::copy_n(rows_.data() + i * kAnswerBytes, kAnswerBytes, answers.data() + i * kTagged);
    }
    return answers;
  }
  // Which answers the client takes. All that it takes are the rows, and all others zeros.
  std::vector<bool> Taken(const Bytes& tagged) const {
    Bytes answers(kCount * kAnswerBytes, 1);
    UnmaskAnswers(seeds_, ids_, kAnswerBytes, tagged, answers);
    std::vector<bool> taken;
    for (size_t i = 0; i < kCount; ++i) {
      const BytesView answer = BytesView(answers).subspan(i * kAnswerBytes, kAnswerBytes);
      const BytesView row = BytesView(rows_).subspan(i * kAnswerBytes, kAnswerBytes);
      taken.push_back(std::ranges::equal(answer, row));
      EXPECT_TRUE(taken.back() || std::ranges::all_of(answer, [](uint8_t b) { return b == 0; }));
      std::vector<AnswerSeed> seeds;
      for (size_t j = 0; j < parties(); ++j) seeds.push_back({SeedOf(i, j), ids_[j]});
      Bytes one = ToBytes(BytesView(tagged).subspan(i * kTagged, kTagged));
      EXPECT_EQ(UnmaskAnswer(seeds, one), taken.back());
      one.resize(kAnswerBytes);
      EXPECT_TRUE(std::ranges::equal(one, answer));
    }
    return taken;
  }

  TestRandom random_;
  Bytes seeds_, rows_;
  std::vector<Digest> ids_;
};

INSTANTIATE_TEST_SUITE_P(Parties, AnswerTagTest, ::testing::Values(1, 2, 3, 5, 8));

TEST_P(AnswerTagTest, HonestAnswersAreTaken) {
  Bytes answers = Unread();
  Back(parties() - 1, answers);
  EXPECT_EQ(Taken(answers), std::vector<bool>(kCount, true));
}

// Every bit of y and T, at every hop: only the answer in which it is altered is lost.
TEST_P(AnswerTagTest, AFlippedBitAtAnyHopLosesItsAnswerAlone) {
  for (size_t hop = 0; hop < parties(); ++hop) {  // what party `hop` sends
    std::vector<bool> flipped(kCount);
    for (size_t bit = 0; bit < 8 * kTagged; bit += kCount - 1) {
      Bytes answers = Unread();
      for (size_t j = parties(); j-- > hop;) {
        for (size_t i = 0; i < kCount; ++i) {
          MaskAnswer(SeedOf(i, j), ids_[j],
                     j + 1 == parties() ? TagCovers::kAnswer : TagCovers::kAnswerAndTag,
                     MutableBytes(answers).subspan(i * kTagged, kTagged));
        }
      }
      std::vector<bool> expected(kCount, true);
      for (size_t i = 1; i < kCount && bit + i - 1 < 8 * kTagged; ++i) {
        const size_t at = bit + i - 1;
        answers[i * kTagged + at / 8] ^= static_cast<uint8_t>(1 << at % 8);
        expected[i] = false;
      }
      if (hop > 0) Back(hop - 1, answers);
      ASSERT_EQ(Taken(answers), expected) << "sent by party " << hop + 1 << ", from bit " << bit;
    }
  }
}

// The attack that the tag is against: a mark that is XORed at the last party, and once more at the
// first or before the client.
TEST_P(AnswerTagTest, MarksDoNotCancel) {
  if (parties() == 1) return;
  for (const bool on_tag : {false, true}) {
    Bytes mark(kTagged);
    random_.Fill(MutableBytes(mark).first(on_tag ? kTagged : kAnswerBytes));
    const auto put = [&](size_t i, Bytes& answers) {
      for (size_t k = 0; k < kTagged; ++k) answers[i * kTagged + k] ^= mark[k];
    };
    Bytes answers = Unread();
    for (size_t i = 0; i < kCount; ++i) {
      MaskAnswer(SeedOf(i, parties() - 1), ids_.back(), TagCovers::kAnswer,
                 MutableBytes(answers).subspan(i * kTagged, kTagged));
    }
    // The answers that hold the row, and the answers of the client: 0 and 1 are both.
    for (size_t i : {0, 1, 2}) put(i, answers);
    Back(parties() - 2, answers);
    for (size_t i : {0, 1, 3}) put(i, answers);
    std::vector<bool> expected(kCount, true);
    std::fill_n(expected.begin(), 4, false);
    EXPECT_EQ(Taken(answers), expected);
  }
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
  Bytes answers(2 * 26 - 1);
  EXPECT_DEATH(ExpandShares(seeds.data(), positions, {}, one), "shares.size");
  EXPECT_DEATH(MaskAnswers(seeds.data(), positions, {}, 10, TagCovers::kAnswer, answers),
               "answers.size");
  EXPECT_DEATH(MaskAnswersFromPads(seeds.data(), positions, 10, TagCovers::kAnswer, answers),
               "answers.size");
  EXPECT_DEATH(ExpandPads(seeds.data(), positions, {}, 10, answers), "pads.size");
  const std::vector<Digest> ids(2);
  Bytes rows(20);
  EXPECT_DEATH(UnmaskAnswers(seeds, ids, 10, answers, rows), "tagged.size");
  EXPECT_DEATH(FirstTallies(seeds, 1, {}, queries, two), "kModulus");
  EXPECT_DEATH(FirstTallies(seeds, 2, {}, positions, two), "seeds.size");
}

}  // namespace
}  // namespace shoal::sharing
