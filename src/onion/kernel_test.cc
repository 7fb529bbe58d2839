// X25519 of every kernel against libsodium: random inputs, and every point and scalar where
// implementations are known to differ. Expected values come from libsodium while the test runs.
#include <algorithm>
#include <cfenv>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/testing/test_random.h"
#include "src/onion/curve_batch.h"
#include "src/onion/dispatch.h"
#include "src/onion/field51.h"
#include "src/onion/field51_fma.h"
#include "src/onion/sealed_box.h"
#include "src/onion/testing/edge_points.h"
#include "src/onion/testing/vec_scalar.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::EdgePoints;
using ::shoal::onion::testing::EdgeScalars;
using ::shoal::onion::testing::VecScalar;
using ::shoal::testing::TestRandom;

template <typename Field>
const Kernel* ScalarKernel(const char* name) {
  using Batch = CurveBatch<Field>;
  static const Kernel kernel = {name,
                                Batch::Multiply,
                                sizeof(typename Batch::Table),
                                Batch::BuildTable,
                                Batch::MultiplyFixed,
                                nullptr,
                                nullptr};
  return &kernel;
}

// The kernels that this machine can run, and both fields in plain C++, which every machine can run.
std::vector<const Kernel*> AllKernels() {
  std::vector<const Kernel*> kernels = {ScalarKernel<Field51<VecScalar>>("scalar51"),
                                        ScalarKernel<Field51Fma<VecScalar>>("scalar51fma")};
  for (InstructionSet set : kAllInstructionSets) {
    if (KernelOf(set) != nullptr) kernels.push_back(KernelOf(set));
  }
  return kernels;
}

Bytes Draw(RandomSource& random, size_t n) {
  Bytes bytes(n);
  random.Fill(bytes);
  return bytes;
}

// All zeros where libsodium refuses.
PublicKey Sodium(const uint8_t* scalar, const uint8_t* point) {
  PublicKey product;
  if (crypto_scalarmult(product.data(), scalar, point) != 0) product.fill(0);
  return product;
}

class KernelTest : public ::testing::TestWithParam<const Kernel*> {
 protected:
  static void SetUpTestSuite() { ASSERT_GE(sodium_init(), 0); }
  const Kernel& kernel() const { return *GetParam(); }

  // One lane of plain C++ takes its time: every seventh edge is enough for the formulas.
  size_t Step() const { return std::string(kernel().name).rfind("scalar", 0) == 0 ? 7 : 1; }

  // Null for a point on the twist.
  TableMemory Table(const uint8_t* point) const {
    TableMemory table = AllocateTable(kernel());
    if (!kernel().build_table(point, table.get())) table.reset();
    return table;
  }
};

TEST_P(KernelTest, MultipliesEdgePointsByEdgeScalars) {
  const std::vector<PublicKey> points = EdgePoints(), scalars = EdgeScalars();
  for (size_t at = 0; at < scalars.size(); at += Step()) {
    const PublicKey& scalar = scalars[at];
    for (size_t begin = 0; begin < points.size(); begin += kKernelBatch) {
      const size_t n = std::min(points.size() - begin, kKernelBatch);
      Bytes products(n * 32, 0xee);
      kernel().multiply(scalar.data(), 0, points[begin].data(), 32, products.data(), n);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_EQ(Hex(BytesView(products).subspan(i * 32, 32)),
                  Hex(Sodium(scalar.data(), points[begin + i].data())))
            << "scalar " << Hex(scalar) << ", point " << Hex(points[begin + i]);
      }
    }
  }
}

TEST_P(KernelTest, MultipliesRandomPointsInBatchesOfEverySize) {
  TestRandom random(1);
  for (size_t n = 1; n <= kKernelBatch; n += n < 20 ? 1 : 27) {
    const Bytes scalars = Draw(random, n * 40), points = Draw(random, n * 50);
    Bytes products(n * 32 + 32, 0xee);
    kernel().multiply(scalars.data(), 40, points.data(), 50, products.data(), n);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(Hex(BytesView(products).subspan(i * 32, 32)),
                Hex(Sodium(scalars.data() + i * 40, points.data() + i * 50)))
          << "item " << i << " of " << n;
    }
    EXPECT_EQ(Hex(BytesView(products).subspan(n * 32)), Hex(Bytes(32, 0xee))) << n;
  }
}

// Points of low order among others: the shared inversion must not spread their zeros.
TEST_P(KernelTest, LowOrderPointsSpoilNoNeighbour) {
  TestRandom random(2);
  const std::vector<PublicKey> edges = EdgePoints();
  for (int trial = 0; trial < 10; ++trial) {
    Bytes points = Draw(random, kKernelBatch * 32);
    for (size_t i = 0; i < kKernelBatch; ++i) {
      if (random.Below(2) == 0) continue;
      const PublicKey& edge = edges[random.Below(edges.size())];
      std::copy(edge.begin(), edge.end(), points.begin() + i * 32);
    }
    const Bytes scalars = Draw(random, kKernelBatch * 32);
    Bytes products(kKernelBatch * 32);
    kernel().multiply(scalars.data(), 32, points.data(), 32, products.data(), kKernelBatch);
    for (size_t i = 0; i < kKernelBatch; ++i) {
      ASSERT_EQ(Hex(BytesView(products).subspan(i * 32, 32)),
                Hex(Sodium(scalars.data() + i * 32, points.data() + i * 32)));
    }
  }
}

TEST_P(KernelTest, TheCombAgreesOnEveryPointThatHasATable) {
  TestRandom random(3);
  std::vector<PublicKey> points = EdgePoints();
  for (int i = 0; i < 20; ++i) {
    PublicKey point;
    random.Fill(point);
    points.push_back(point);
  }
  Bytes scalars;
  for (const PublicKey& scalar : EdgeScalars()) Append(scalars, scalar);
  Append(scalars, Draw(random, 20 * 32));
  const size_t n = scalars.size() / 32;
  ASSERT_LE(n, kKernelBatch);

  const uint8_t base[32] = {9};
  const TableMemory base_table = Table(base);
  ASSERT_NE(base_table, nullptr);
  size_t on_curve = 0, on_twist = 0;
  size_t tried = 0;
  for (size_t at = 0; at < points.size(); at += Step()) {
    const PublicKey& point = points[at];
    if (Sodium(scalars.data(), point.data()) == PublicKey{}) continue;  // low order
    ++tried;
    const TableMemory table = Table(point.data());
    if (table == nullptr) {
      ++on_twist;
      continue;
    }
    ++on_curve;
    Bytes first(n * 32), second(n * 32);
    const void* tables[2] = {base_table.get(), table.get()};
    uint8_t* products[2] = {first.data(), second.data()};
    kernel().multiply_fixed(tables, 2, scalars.data(), 32, products, n);
    for (size_t i = 0; i < n; ++i) {
      PublicKey expected;
      crypto_scalarmult_base(expected.data(), scalars.data() + i * 32);
      ASSERT_EQ(Hex(BytesView(first).subspan(i * 32, 32)), Hex(expected));
      ASSERT_EQ(Hex(BytesView(second).subspan(i * 32, 32)),
                Hex(Sodium(scalars.data() + i * 32, point.data())))
          << "point " << Hex(point);
    }
  }
  // Half of all u are on the curve.
  EXPECT_GT(on_curve, tried / 4);
  EXPECT_GT(on_twist, tried / 4);
}

// Every digit in every row of the comb: scalars of one repeated digit reach all entries.
TEST_P(KernelTest, TheCombUsesEveryTableEntry) {
  TestRandom random(4);
  PublicKey point;
  crypto_scalarmult_base(point.data(), Draw(random, 32).data());
  const TableMemory table = Table(point.data());
  ASSERT_NE(table, nullptr);
  Bytes scalars(64 * 32);
  for (size_t digit = 0; digit < 64; ++digit) {
    for (size_t bit = 3; bit < 254; ++bit) {
      const size_t set = digit >> (bit - 3) % 6 & 1;
      scalars[digit * 32 + bit / 8] |= static_cast<uint8_t>(set << bit % 8);
    }
  }
  Bytes out(64 * 32);
  const void* tables[1] = {table.get()};
  uint8_t* products[1] = {out.data()};
  kernel().multiply_fixed(tables, 1, scalars.data(), 32, products, 64);
  for (size_t i = 0; i < 64; ++i) {
    ASSERT_EQ(Hex(BytesView(out).subspan(i * 32, 32)),
              Hex(Sodium(scalars.data() + i * 32, point.data())))
        << "digit " << i;
  }
}

// Neither the rounding mode of the caller nor a trap on inexact results may matter: one field
// computes with doubles, rounds on purpose, and its bounds are proved for rounding to nearest.
TEST_P(KernelTest, TheFloatingPointModeOfTheCallerDoesNotMatter) {
  TestRandom random(7);
  const Bytes scalars = Draw(random, 4 * 32), secret = Draw(random, 32);
  const uint8_t base[32] = {9};
  const PublicKey point = Sodium(secret.data(), base);
  for (int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    Bytes ladder(4 * 32), comb(4 * 32);
    ASSERT_EQ(std::fesetround(mode), 0);
    ASSERT_EQ(feenableexcept(FE_INEXACT), 0);
    kernel().multiply(scalars.data(), 32, point.data(), 0, ladder.data(), 4);
    const TableMemory table = Table(point.data());
    const void* tables[1] = {table.get()};
    uint8_t* products[1] = {comb.data()};
    kernel().multiply_fixed(tables, 1, scalars.data(), 32, products, 4);
    EXPECT_EQ(fedisableexcept(FE_INEXACT), FE_INEXACT);
    EXPECT_EQ(std::fegetround(), mode);
    ASSERT_EQ(std::fesetround(FE_TONEAREST), 0);
    for (size_t i = 0; i < 4; ++i) {
      const std::string expected = Hex(Sodium(scalars.data() + i * 32, point.data()));
      EXPECT_EQ(Hex(BytesView(ladder).subspan(i * 32, 32)), expected);
      EXPECT_EQ(Hex(BytesView(comb).subspan(i * 32, 32)), expected);
    }
  }
}

TEST_P(KernelTest, DoesNothingForNothing) {
  kernel().multiply(nullptr, 0, nullptr, 0, nullptr, 0);
  kernel().multiply_fixed(nullptr, 0, nullptr, 0, nullptr, 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, KernelTest, ::testing::ValuesIn(AllKernels()),
                         [](const auto& instance) { return std::string(instance.param->name); });

}  // namespace
}  // namespace shoal::onion
