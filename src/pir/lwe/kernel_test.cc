// Every kernel computes the same sums as plain arithmetic, on random data and at the limits of its
// planes. The templates for wide registers also run over emulated registers, so that their logic is
// tested on processors that lack the instructions.
#include "src/pir/lwe/kernel.h"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/bytes.h"
#include "src/base/testing/guarded_bytes.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/kernel_impl.h"

namespace shoal::pir::lwe {
namespace {

// In lanes of 32 bits, a + b * 2^kBits.
template <int kBits, typename V>
V LanesPlusShifted(V a, V b) {
  for (size_t at = 0; at < sizeof(V); at += 4) {
    uint32_t x, y;
    std::memcpy(&x, reinterpret_cast<const char*>(&a) + at, 4);
    std::memcpy(&y, reinterpret_cast<const char*>(&b) + at, 4);
    x += y << kBits;
    std::memcpy(reinterpret_cast<char*>(&a) + at, &x, 4);
  }
  return a;
}

// The sums of all 32-bit lanes of each of four registers.
template <typename V>
void SumsOfLanes(const V (&of)[4], uint32_t* out) {
  for (size_t i = 0; i < 4; ++i) {
    out[i] = 0;
    for (size_t at = 0; at < sizeof(V); at += 4) {
      uint32_t lane;
      std::memcpy(&lane, reinterpret_cast<const char*>(&of[i]) + at, 4);
      out[i] += lane;
    }
  }
}

// What vpdpbusd does, in a loop.
struct EmulatedBytes64 {
  static constexpr size_t kBytes = 64;
  uint8_t v[64];

  static EmulatedBytes64 LoadKept(const uint8_t* from) {
    EmulatedBytes64 out;
    std::memcpy(out.v, from, 64);
    return out;
  }
  static EmulatedBytes64 Zero() { return {}; }
  static EmulatedBytes64 AddProducts(EmulatedBytes64 acc, EmulatedBytes64 a, EmulatedBytes64 b) {
    for (size_t lane = 0; lane < 16; ++lane) {
      uint32_t sum;
      std::memcpy(&sum, acc.v + 4 * lane, 4);
      for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) {
        sum += static_cast<uint32_t>(int32_t{a.v[i]} * int32_t{static_cast<int8_t>(b.v[i])});
      }
      std::memcpy(acc.v + 4 * lane, &sum, 4);
    }
    return acc;
  }
  template <int kBits>
  EmulatedBytes64 PlusShifted(EmulatedBytes64 other) const {
    return LanesPlusShifted<kBits>(*this, other);
  }
  static void Sums(const EmulatedBytes64 (&of)[4], uint32_t* out) { SumsOfLanes(of, out); }
};

// What vpmaddwd does.
struct EmulatedWords {
  static constexpr size_t kBytes = 32;
  int16_t v[kBytes / 2];

  static EmulatedWords LoadKept(const uint8_t* from) {
    EmulatedWords out;
    std::memcpy(out.v, from, kBytes);
    return out;
  }
  static EmulatedWords Zero() { return {}; }
  EmulatedWords LowBytes() const {
    EmulatedWords out;
    for (size_t i = 0; i < kBytes / 2; ++i) out.v[i] = static_cast<int16_t>(v[i] & 0xff);
    return out;
  }
  EmulatedWords HighBytes() const {
    EmulatedWords out;
    for (size_t i = 0; i < kBytes / 2; ++i) {
      out.v[i] = static_cast<int16_t>(static_cast<uint16_t>(v[i]) >> 8);
    }
    return out;
  }
  static EmulatedWords AddProducts(EmulatedWords acc, EmulatedWords a, EmulatedWords b) {
    for (size_t lane = 0; lane < kBytes / 4; ++lane) {
      // The sum must fit 32 signed bits, as in the instruction: the loop alone would not show an
      // overflow.
      const int64_t pair =
          int64_t{a.v[2 * lane]} * b.v[2 * lane] + int64_t{a.v[2 * lane + 1]} * b.v[2 * lane + 1];
      EXPECT_EQ(pair, static_cast<int32_t>(pair));
      uint32_t sum;
      std::memcpy(&sum, acc.v + 2 * lane, 4);
      sum += static_cast<uint32_t>(pair);
      std::memcpy(acc.v + 2 * lane, &sum, 4);
    }
    return acc;
  }
  template <int kBits>
  EmulatedWords PlusShifted(EmulatedWords other) const {
    return LanesPlusShifted<kBits>(*this, other);
  }
  static void Sums(const EmulatedWords (&of)[4], uint32_t* out) { SumsOfLanes(of, out); }
};

Kernel EmulatedWordsKernel(const char* name) {
  Kernel kernel = PortableKernel();
  kernel.name = name;
  kernel.pack = PackWords<EmulatedWords>;
  kernel.multiply = MultiplyWords<EmulatedWords>;
  return kernel;
}

std::vector<Kernel> AllKernels() {
  std::vector<Kernel> kernels;
  for (const Kernel* kernel : SupportedKernels()) kernels.push_back(*kernel);
  kernels.push_back(EmulatedWordsKernel("emulated words"));
  Kernel bytes = PortableKernel();
  bytes.name = "emulated bytes";
  bytes.pack = PackBytes<EmulatedBytes64>;
  bytes.multiply = MultiplyBytes<EmulatedBytes64>;
  kernels.push_back(bytes);
  return kernels;
}

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};
std::unique_ptr<uint8_t, Free> Aligned(size_t bytes) {
  return std::unique_ptr<uint8_t, Free>(
      static_cast<uint8_t*>(std::aligned_alloc(kKernelAlignment, bytes)));
}

// Runs `kernel` on a matrix and vectors of these sizes, and compares with plain sums.
void CheckProducts(const Kernel& kernel, size_t blocks, size_t groups, size_t vectors,
                   const std::function<uint8_t(size_t, size_t)>& byte,
                   const std::function<uint32_t(size_t, size_t)>& word) {
  SCOPED_TRACE(std::string(kernel.name) + ", blocks " + std::to_string(blocks) + ", groups " +
               std::to_string(groups) + ", vectors " + std::to_string(vectors));
  const size_t rows = blocks * kBlockRows, columns = groups * kGroupColumns;
  auto tiles = Aligned(rows * columns);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      tiles.get()[r / kBlockRows * kBlockRows * columns + c / kGroupColumns * kGroupTileBytes +
                  r % kBlockRows * kGroupColumns + c % kGroupColumns] = byte(r, c);
    }
  }
  auto planes = Aligned(vectors * columns * kPlaneBytesPerColumn);
  for (size_t v = 0; v < vectors; ++v) {
    std::vector<uint32_t> vector(columns);
    for (size_t c = 0; c < columns; ++c) vector[c] = word(v, c);
    kernel.pack(vector.data(), groups, planes.get() + v * columns * kPlaneBytesPerColumn);
  }
  const size_t stride = rows + 3;
  std::vector<uint32_t> sums(vectors * stride, 7);
  // The next tiles are prefetched but never loaded: here their address is not valid.
  kernel.multiply(tiles.get(), blocks, groups, planes.get(), vectors, sums.data(), stride,
                  reinterpret_cast<const uint8_t*>(64), rows * columns);
  for (size_t v = 0; v < vectors; ++v) {
    for (size_t r = 0; r < stride; ++r) {
      uint32_t expected = 7;  // sums are added to what was there, and the gaps between them stay
      for (size_t c = 0; c < columns && r < rows; ++c) expected += byte(r, c) * word(v, c);
      ASSERT_EQ(sums[v * stride + r], expected) << "vector " << v << ", row " << r;
    }
  }
}

// Kernels read nothing behind the tiles and the planes: these end at a page that must not be read.
TEST(KernelTest, ReadsNothingPastItsInput) {
  for (const Kernel& kernel : AllKernels()) {
    for (size_t blocks : {1, 3}) {
      for (size_t groups : {1, 5}) {
        for (size_t vectors : {1, 2, 3}) {
          const size_t columns = groups * kGroupColumns;
          testing::GuardedBytes tiles(blocks * kBlockRows * columns, /*at_end=*/true);
          testing::GuardedBytes plane_bytes(vectors * columns * kPlaneBytesPerColumn,
                                            /*at_end=*/true);
          auto* const planes = plane_bytes.As<uint8_t>();
          std::vector<uint32_t> vector(columns, 5), sums(vectors * blocks * kBlockRows);
          for (size_t v = 0; v < vectors; ++v) {
            kernel.pack(vector.data(), groups, planes + v * columns * kPlaneBytesPerColumn);
          }
          kernel.multiply(tiles.As<uint8_t>(), blocks, groups, planes, vectors, sums.data(),
                          blocks * kBlockRows, nullptr, 0);
          EXPECT_EQ(sums, std::vector<uint32_t>(sums.size())) << kernel.name;
        }
      }
    }
  }
}

TEST(KernelTest, ProductsOfRandomBytesAndWords) {
  testing::TestRandom random(1);
  Bytes bytes(64 * 64 * 64), words(4 * 64 * 64 * 8);
  random.Fill(bytes);
  random.Fill(words);
  for (const Kernel& kernel : AllKernels()) {
    for (size_t blocks : {1, 2, 5}) {
      for (size_t groups : {1, 2, 7}) {
        for (size_t vectors : {1, 2, 3, 5}) {
          CheckProducts(
              kernel, blocks, groups, vectors,
              [&](size_t r, size_t c) { return bytes[r * 611 + c]; },
              [&](size_t v, size_t c) { return LoadLe<uint32_t>(&words[4 * (v * 512 + c)]); });
        }
      }
    }
  }
}

// The largest possible sums, and every pattern at which a plane's digit carries or changes sign.
TEST(KernelTest, ProductsAtTheEdges) {
  const uint32_t edges[] = {0,          1,          0x7f,       0x80,       0x7fff,     0x8000,
                            0x7f7f7f7f, 0x80808080, 0x7fff7fff, 0x80008000, 0x7fffffff, 0x80000000,
                            0xffffffff, 0xffff8000, 0xff7f7f80, 0x00ff00ff};
  for (const Kernel& kernel : AllKernels()) {
    for (uint32_t word : edges) {
      for (int byte : {0, 1, 127, 128, 255}) {
        CheckProducts(
            kernel, 1, 3, 2, [&](size_t, size_t) { return byte; },
            [&](size_t v, size_t) { return v == 0 ? word : ~word; });
      }
    }
    CheckProducts(
        kernel, 1, 32, 1, [](size_t, size_t) { return 255; },
        [&](size_t, size_t c) { return edges[c % std::size(edges)]; });
  }
}

TEST(KernelTest, AddScaledDotAndThresholds) {
  testing::TestRandom random(2);
  for (const Kernel& kernel : AllKernels()) {
    for (size_t count : {1, 3, 4, 9}) {
      for (size_t columns : {1, 4, 31, 200}) {
        std::vector<std::vector<uint32_t>> rows(count, std::vector<uint32_t>(columns));
        std::vector<const uint32_t*> pointers;
        std::vector<int32_t> factors(count);
        std::vector<uint32_t> sum(columns), expected(columns);
        for (size_t j = 0; j < columns; ++j) {
          expected[j] = sum[j] = static_cast<uint32_t>(random.U64());
        }
        for (size_t i = 0; i < count; ++i) {
          factors[i] = static_cast<int32_t>(random.U64());
          for (size_t j = 0; j < columns; ++j) {
            rows[i][j] = static_cast<uint32_t>(random.U64());
            expected[j] += rows[i][j] * static_cast<uint32_t>(factors[i]);
          }
          pointers.push_back(rows[i].data());
        }
        kernel.add_scaled(pointers.data(), factors.data(), count, columns, sum.data());
        EXPECT_EQ(sum, expected) << kernel.name;

        std::vector<int32_t> signs(columns);
        uint32_t dot = 0;
        for (size_t j = 0; j < columns; ++j) {
          signs[j] = static_cast<int32_t>(random.U64());
          dot += rows[0][j] * static_cast<uint32_t>(signs[j]);
        }
        EXPECT_EQ(kernel.dot(rows[0].data(), signs.data(), columns), dot) << kernel.name;
      }
    }
    // Around each threshold, in the high half and in the low one.
    const uint64_t top = (uint64_t{1} << 63) - 1;
    const std::vector<uint64_t> th = {0, 5, 5, 1000, top}, tl = {3, 0, 9, top, 0};
    const std::vector<uint64_t> high = {0, 0, 5, 5, 5, 4, 1000, 1000, top, top, 6};
    const std::vector<uint64_t> low = {2, 3, 0, 8, 9, top, top - 1, top, 0, top, 0};
    const std::vector<uint32_t> expected = {0, 1, 2, 2, 3, 1, 3, 4, 5, 5, 3};
    std::vector<uint32_t> magnitudes(high.size());
    kernel.count_thresholds(high.data(), low.data(), high.size(), th.data(), tl.data(), th.size(),
                            magnitudes.data());
    EXPECT_EQ(magnitudes, expected) << kernel.name;
  }
}

}  // namespace
}  // namespace shoal::pir::lwe
