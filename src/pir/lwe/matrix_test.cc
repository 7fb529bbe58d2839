#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/aes/streams.h"
#include "src/pir/lwe/byte_matrix.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/lwe.h"
#include "src/pir/lwe/public_matrix.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/pages.h"

namespace shoal::pir::lwe {
namespace {

const Digest kSeed = PublicMatrixSeed("test", Digest{1}, 1);

// The expansion is plain AES-128 in counter mode: the seed and the place of one element are FIPS
// 197's example key and block.
TEST(PublicMatrixTest, IsAesInCounterMode) {
  Digest key = {};
  for (uint8_t i = 0; i < 16; ++i) key[i] = i;
  PublicMatrix matrix(key, nullptr);
  std::vector<uint32_t> words(4);
  matrix.Expand(0, 0, words);
  // AES-128 of the zero block under 000102..0f.
  const uint8_t expected[16] = {0xc6, 0xa1, 0x3b, 0x37, 0x87, 0x8f, 0x5b, 0x82,
                                0x6f, 0x4f, 0x81, 0x62, 0xa1, 0xc8, 0xd8, 0x79};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(words[i], LoadLe<uint32_t>(expected + 4 * i));
}

TEST(PublicMatrixTest, AnyPartIsTheSame) {
  PublicMatrix matrix(kSeed, nullptr);
  std::vector<uint32_t> whole(1000), part(37);
  matrix.Expand(7, 0, whole);
  matrix.Expand(7, 500, part);
  for (size_t i = 0; i < part.size(); ++i) EXPECT_EQ(part[i], whole[500 + i]);
  std::vector<uint32_t> column(9);
  for (uint64_t c : {0, 1, 502, 999}) {
    matrix.ExpandColumn(c, column);
    EXPECT_EQ(column[7], whole[c]) << c;
  }
  std::vector<uint32_t> other(1000);
  matrix.Expand(8, 0, other);
  EXPECT_EQ(column[8], other[999]);
  EXPECT_NE(other, whole);
  PublicMatrix(PublicMatrixSeed("test", Digest{1}, 2), nullptr).Expand(7, 0, other);
  EXPECT_NE(other, whole) << "every level has its own";
}

// Every stream that this processor has agrees with OpenSSL: for lengths that end inside a batch of
// blocks and for the largest numbers, with nothing written behind the end.
TEST(PublicMatrixTest, StreamsAgreeWithOpenSsl) {
  if (SupportedStreams().empty()) GTEST_SKIP() << "no AES instructions here";
  PublicMatrix plain(kSeed, nullptr);
  constexpr uint32_t kUntouched = 0x5eed5eed;
  for (const CounterStream* stream : SupportedStreams()) {
    PublicMatrix fast(kSeed, stream);
    for (size_t length : {0, 4, 8, 60, 64, 68, 128, 129, 2044, 2048}) {
      for (uint64_t first : {uint64_t{0}, uint64_t{2048}, (uint64_t{1} << 34) - 4096}) {
        for (uint32_t k : {0u, 1u, kDimension - 1, 0xffffffffu}) {
          std::vector<uint32_t> got(length + 16, kUntouched), expected(length + 16, kUntouched);
          fast.Expand(k, first, std::span(got).first(length));
          plain.Expand(k, first, std::span(expected).first(length));
          EXPECT_EQ(got, expected)
              << stream->name << ": " << length << " from " << first << ", row " << k;
        }
      }
    }
  }
}

TEST(PublicMatrixTest, AddScaledIsExpandTimesFactors) {
  std::vector<const CounterStream*> streams = SupportedStreams();
  streams.push_back(nullptr);
  constexpr uint32_t kUntouched = 0x5eed5eed, kRows = PublicMatrix::kRowsTogether;
  const std::vector<int32_t> factors = {1, -1, 0, 196, -0x7fffffff - 1, 7, -3,
                                        0, 0,  1, 2,   0x7fffffff};
  for (const CounterStream* stream : streams) {
    PublicMatrix matrix(kSeed, stream);
    for (size_t columns : {64, 192, 1024}) {
      for (size_t count = 0; count <= factors.size() / kRows; ++count) {
        const size_t stride = columns + 5;
        std::vector<uint32_t> row(columns), sums(count * stride + 5, kUntouched);
        std::vector<uint32_t> expected = sums;
        for (uint32_t i = 0; i < kRows; ++i) {
          matrix.Expand(9 + i, 512, row);
          for (size_t v = 0; v < count; ++v) {
            const auto factor = static_cast<uint32_t>(factors[v * kRows + i]);
            for (size_t j = 0; j < columns; ++j) expected[v * stride + j] += row[j] * factor;
          }
        }
        matrix.AddScaled(FastestKernel(), 9, 512, columns, std::span(factors).first(count * kRows),
                         sums.data(), stride);
        EXPECT_EQ(sums, expected) << (stream == nullptr ? "OpenSSL" : stream->name) << ", "
                                  << columns << " columns, " << count;
      }
    }
  }
}

TEST(RoundingTest, RoundsToNearestAndPacksEveryWidth) {
  testing::TestRandom random(5);
  for (uint32_t dropped = 0; dropped < 32; ++dropped) {
    std::vector<uint32_t> words(37);
    for (uint32_t& word : words) word = static_cast<uint32_t>(random.U64());
    words[0] = 0xffffffff;  // rounds up to 2^32 = 0 if any bit is dropped
    Bytes packed;
    AppendRounded(words, dropped, packed);
    EXPECT_EQ(packed.size(), RoundedBytes(words.size(), dropped));
    std::vector<uint32_t> back(words.size());
    SHOAL_ASSERT_OK(ParseRounded(packed, dropped, back));
    for (size_t i = 0; i < words.size(); ++i) {
      const int32_t error = static_cast<int32_t>(back[i] - words[i]);
      EXPECT_LE(std::abs(int64_t{error}), dropped == 0 ? 0 : int64_t{1} << (dropped - 1));
      EXPECT_EQ(back[i] & ((uint32_t{1} << dropped) - 1), 0u);
    }
    EXPECT_FALSE(ParseRounded(BytesView(packed).first(packed.size() - 1), dropped, back).ok());
    packed.push_back(0);
    EXPECT_FALSE(ParseRounded(packed, dropped, back).ok());
  }
  // One word of 12 bits leaves 4 bits of the second byte, which must be zero.
  std::vector<uint32_t> one(1);
  EXPECT_THAT(ParseRounded(Bytes{0, 0x10}, 20, one),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "after the last word"));
  SHOAL_EXPECT_OK(ParseRounded(Bytes{0, 0x0f}, 20, one));
}

TEST(PagesTest, MoreMemoryThanThereIsIsRefused) {
  EXPECT_THAT(AllocatePages(uint64_t{1} << 50, "a table"),
              testing::StatusIs(absl::StatusCode::kResourceExhausted, "a table takes"));
}

// Numbers of rows that are not multiples of the blocks, several stripes, a part of the rows,
// several threads.
TEST(ByteMatrixTest, ProductsAgreeWithArithmetic) {
  testing::TestRandom random(6);
  ThreadPool pool(3);
  for (const Kernel* kernel : SupportedKernels()) {
    for (uint64_t rows : {1, 3, 8, 45}) {
      for (uint64_t columns : {1, 64, 2048, 4200}) {
        SHOAL_ASSERT_OK_AND_ASSIGN(ByteMatrix matrix, ByteMatrix::Create(rows, columns));
        ASSERT_EQ(matrix.columns(), PaddedColumns(columns));
        for (uint64_t r = 0; r < rows; ++r) {
          Bytes bytes(columns);
          random.Fill(bytes);
          for (uint64_t c = 0; c < columns; ++c) matrix.Set(r, c, bytes[c]);
        }
        SHOAL_ASSERT_OK_AND_ASSIGN(PackedVectors packed,
                                   PackedVectors::Create(*kernel, matrix.columns(), 3));
        std::vector<std::vector<uint32_t>> vectors(3, std::vector<uint32_t>(matrix.columns()));
        for (int v = 0; v < 3; ++v) {
          random.Fill({reinterpret_cast<uint8_t*>(vectors[v].data()), 4 * matrix.columns()});
          packed.Set(v, vectors[v]);
        }
        const uint64_t first = rows / 3, count = rows - first;
        const auto products = matrix.Multiply(packed, first, count, &pool);
        for (int v = 0; v < 3; ++v) {
          ASSERT_EQ(products[v].size(), count);
          for (uint64_t r = 0; r < count; ++r) {
            uint32_t expected = 0;
            for (uint64_t c = 0; c < matrix.columns(); ++c) {
              expected += (uint32_t{matrix.Get(first + r, c)} - 128) * vectors[v][c];
            }
            ASSERT_EQ(products[v][r], expected) << kernel->name << " " << rows << "x" << columns;
          }
        }
      }
    }
  }
}

TEST(ByteMatrixTest, ProductWithThePublicMatrix) {
  testing::TestRandom random(7);
  ThreadPool pool(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(ByteMatrix matrix, ByteMatrix::Create(35, 2100));
  for (uint64_t r = 0; r < 35; ++r) {
    for (uint64_t c = 0; c < 2100; ++c) matrix.Set(r, c, static_cast<uint8_t>(random.U64()));
  }
  PublicMatrix expander(kSeed, nullptr);
  std::vector<std::vector<uint32_t>> a(kDimension, std::vector<uint32_t>(matrix.columns()));
  for (uint32_t k = 0; k < kDimension; ++k) expander.Expand(k, 0, a[k]);
  std::vector<uint32_t> expected(35 * kDimension);
  for (uint64_t r = 0; r < 35; ++r) {
    for (uint32_t k = 0; k < kDimension; ++k) {
      for (uint64_t c = 0; c < matrix.columns(); ++c) {
        expected[r * kDimension + k] += (uint32_t{matrix.Get(r, c)} - 128) * a[k][c];
      }
    }
  }
  for (const Kernel* kernel : SupportedKernels()) {
    // Twice in the same room, which holds the last, shorter panel after the first time.
    SHOAL_ASSERT_OK_AND_ASSIGN(PackedVectors room, PanelRoom(*kernel));
    EXPECT_EQ(matrix.MultiplyPublic(room, kSeed, &pool), expected) << kernel->name;
    EXPECT_EQ(matrix.MultiplyPublic(room, kSeed, nullptr), expected) << kernel->name;
    SHOAL_ASSERT_OK_AND_ASSIGN(const PackedVectors packed,
                               PackPublicMatrix(*kernel, kSeed, matrix.columns(), &pool));
    const auto products = matrix.Multiply(packed, 0, 35, &pool);
    for (uint32_t k = 0; k < kDimension; ++k) {
      for (uint64_t r = 0; r < 35; ++r) {
        ASSERT_EQ(products[k][r], expected[r * kDimension + k]) << kernel->name;
      }
    }
  }
}

}  // namespace
}  // namespace shoal::pir::lwe
