// Proves the limb bounds: the kernels' own templates, run on intervals that stand for every input.
//
// Control flow of the kernels does not depend on data, so one run of each covers all inputs. The
// run proves that no lane ever overflows, no difference goes below zero and no factor exceeds the
// multiplier's width. The tests against libsodium check that the results are right modulo p.
#include <memory>

#include "gtest/gtest.h"
#include "src/onion/curve_batch.h"
#include "src/onion/field51.h"
#include "src/onion/field51_fma.h"
#include "src/onion/poly1305_batch.h"
#include "src/onion/testing/vec_interval.h"

namespace shoal::onion {
namespace {

using ::shoal::onion::testing::VecInterval;

template <typename Field>
class IntervalTest : public ::testing::Test {
 protected:
  using Batch = CurveBatch<Field>;

  void SetUp() override { VecInterval::Reset(); }
  void TearDown() override {
    const VecInterval::Record& record = VecInterval::record();
    for (const std::string& violation : record.violations) ADD_FAILURE() << violation;
    EXPECT_GT(record.largest_factor, 0u);
    RecordProperty("largest_factor", std::to_string(record.largest_factor));
    RecordProperty("largest_sum", std::to_string(record.largest_sum));
  }

  std::unique_ptr<typename Batch::Table> BuildTable() {
    auto table = std::make_unique<typename Batch::Table>();
    const uint8_t point[32] = {9};
    EXPECT_TRUE(Batch::BuildTable(point, table.get()));
    return table;
  }
};

using Fields = ::testing::Types<Field51<VecInterval>, Field51Fma<VecInterval>>;
TYPED_TEST_SUITE(IntervalTest, Fields);

TYPED_TEST(IntervalTest, TheLadderStaysInBounds) {
  const uint8_t scalars[32] = {}, points[32] = {};
  uint8_t products[2 * 32];
  // Two groups, so that the shared inversion is covered.
  CurveBatch<TypeParam>::Multiply(scalars, 0, points, 0, products, 2);
}

TYPED_TEST(IntervalTest, BuildingATableStaysInBounds) { this->BuildTable(); }

TYPED_TEST(IntervalTest, TheCombStaysInBounds) {
  const auto table = this->BuildTable();
  const uint8_t scalars[32] = {};
  uint8_t products[2][2 * 32];
  const void* tables[2] = {table.get(), table.get()};
  uint8_t* outputs[2] = {products[0], products[1]};
  CurveBatch<TypeParam>::MultiplyFixed(tables, 2, scalars, 0, outputs, 2);
}

// Many blocks, whole and not: the bounds after two are those after any number.
TEST(Poly1305IntervalTest, TagsStayInBounds) {
  VecInterval::Reset();
  const uint8_t key[32] = {}, text[200] = {};
  uint8_t tag[16];
  for (size_t bytes : {0, 1, 16, 200}) {
    Poly1305Batch<VecInterval>::Tags(key, 0, text, 0, bytes, tag, 1);
  }
  const VecInterval::Record& record = VecInterval::record();
  for (const std::string& violation : record.violations) ADD_FAILURE() << violation;
  EXPECT_GT(record.largest_factor, uint64_t{1} << 27);
  // What poly1305_batch.h says of a column.
  EXPECT_LT(record.largest_sum, uint64_t{1} << 59);
}

// The proof must be able to fail: inputs beyond the documented bounds are reported.
TEST(IntervalProofTest, SeesViolations) {
  using Field = Field51<VecInterval>;
  Field::Element too_wide;
  for (VecInterval& limb : too_wide.limb) limb = {0, uint64_t{1} << 52};
  VecInterval::Reset();
  Field::Mul(too_wide, Field::Constant(1));
  EXPECT_FALSE(VecInterval::record().violations.empty());

  Field::Product not_carried, zero = Field::Loose(Field::Constant(0));
  for (VecInterval& limb : not_carried.limb) limb = {0, uint64_t{1} << 62};
  VecInterval::Reset();
  Field::Sub(zero, not_carried);
  EXPECT_FALSE(VecInterval::record().violations.empty());

  using Fused = Field51Fma<VecInterval>;
  Fused::Element wide;
  for (VecInterval& limb : wide.limb) limb = {0, (uint64_t{1} << 52) - 1};
  VecInterval::Reset();
  Fused::Mul(Fused::Constant(1), wide);
  EXPECT_TRUE(VecInterval::record().violations.empty());
  Fused::Mul(wide, wide);  // beyond 2^103
  EXPECT_FALSE(VecInterval::record().violations.empty());
  for (VecInterval& limb : wide.limb) limb = {0, uint64_t{1} << 52};
  VecInterval::Reset();
  Fused::Mul(Fused::Constant(1), wide);  // does not fit a mantissa of 52 bits
  EXPECT_FALSE(VecInterval::record().violations.empty());

  // A column that starts at zero has no room for a negative low half.
  VecInterval low = VecInterval::Set1(0), high = VecInterval::Set1(0);
  VecInterval::Reset();
  VecInterval::AddProduct(VecInterval::Set1(1), VecInterval::Set1(1), low, high);
  EXPECT_FALSE(VecInterval::record().violations.empty());
}

}  // namespace
}  // namespace shoal::onion
