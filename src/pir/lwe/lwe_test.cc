#include "src/pir/lwe/lwe.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/lwe/dispatch.h"
#include "src/pir/lwe/gaussian.h"
#include "src/pir/lwe/public_matrix.h"
#include "src/pir/lwe/shape.h"

namespace shoal::pir::lwe {
namespace {

// The paper's choice for a square table of 2^log2_elements elements and sigma = 6.4: the largest p
// with a failure of at most 2^-40 for one element.
uint32_t PaperPlaintextModulus(double log2_elements) {
  constexpr double kPaperSigma = 6.4;
  // 2 exp(-x^2 / 2) = 2^-40 at x standard deviations; the error of an answer has the deviation
  // sigma * p / 2 * sqrt(columns) and must stay below q / 2p.
  const double x = std::sqrt(2 * 41 * std::log(2.0));
  const double columns_root = std::exp2(log2_elements / 4);
  return static_cast<uint32_t>(
      std::sqrt(std::ldexp(1.0, 31) / (x * kPaperSigma / 2 * columns_root)));
}

// The bound on failures gives the paper's own table.
TEST(LweTest, ThePapersTableOfModuli) {
  const std::map<int, uint32_t> table = {{26, 991}, {28, 833}, {30, 701},
                                         {34, 495}, {38, 350}, {42, 247}};
  for (const auto& [log2_elements, p] : table) {
    EXPECT_EQ(PaperPlaintextModulus(log2_elements), p) << "2^" << log2_elements;
  }
}

// With the paper's error, p = 256 is allowed for up to 2^41 elements.
TEST(LweTest, BytesFitThePapersTable) { EXPECT_GE(PaperPlaintextModulus(41), 256u); }

TEST(LweTest, FailureIsBoundedAtTheEdges) {
  for (uint64_t columns : {64ull, 1024ull, 32768ull, 131072ull, 160000ull}) {
    for (uint64_t values : {1ull, 1072ull, 1ull << 20}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const uint32_t dropped, HintBitsToDrop(columns, values, 20));
      const Decryption chosen = {.columns = columns,
                                 .values = values,
                                 .hint_bits_dropped = dropped,
                                 .answer_bits_dropped = 20};
      EXPECT_LE(FailureLog2(chosen), -41);
      Decryption next = chosen;
      ++next.hint_bits_dropped;
      EXPECT_GT(FailureLog2(next), -41) << "one bit more would do as well";
    }
  }
  // The largest width that can be decrypted, and the next one.
  uint64_t last = 0;
  for (uint64_t step = 1 << 22; step > 0; step /= 2) {
    if (HintBitsToDrop(last + step, 1, 20).ok()) last += step;
  }
  EXPECT_GT(last, 190'000u);
  EXPECT_LT(last, 290'000u);
  EXPECT_THAT(HintBitsToDrop(last + 1, 1, 20),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, "too wide"));
  EXPECT_FALSE(HintBitsToDrop(64, 1, 24).ok()) << "an answer without its plaintext";
}

// The real error, for a table that makes it as large as possible, is as large as a Gaussian with
// the bound's deviation, so the formula is not off by a factor. With 2,000 sums, the largest is
// above 5 deviations with probability 0.001 (at fixed seed).
TEST(LweTest, ErrorsAreAsLargeAsComputed) {
  testing::TestRandom random(3);
  const uint64_t columns = 512;
  double squares = 0, largest = 0;
  const int trials = 2000;
  std::vector<int32_t> errors(columns);
  for (int t = 0; t < trials; ++t) {
    GaussianSampler::Get().Sample(FastestKernel(), random, errors);
    double sum = 0;
    for (int32_t e : errors) sum += static_cast<double>(kMaxPlaintext) * e;
    squares += sum * sum;
    largest = std::max(largest, std::abs(sum));
  }
  const double deviation = kSigma * kMaxPlaintext * std::sqrt(columns);
  EXPECT_NEAR(std::sqrt(squares / trials) / deviation, 1, 0.08);
  EXPECT_LT(largest, 5 * deviation);
}

// Without errors a query is a system of linear equations, and anybody finds the row. Takes the
// secret's part out of queries and looks at what is left: the marked column, and errors as wide as
// they should be, others in each query.
TEST(LweTest, EveryWordOfAQueryHasAnError) {
  constexpr uint64_t kColumns = 8 * kGroupColumns, kColumn = 5;
  const Digest seed = PublicMatrixSeed("test", {}, 1);
  testing::TestRandom random(9);
  Bytes queries[2];
  SecretVector<int32_t> secrets[2];
  const PublicProduct::Wanted wanted[] = {
      {.column = kColumn, .secret = &secrets[0], .query = &queries[0]},
      {.column = kColumn, .secret = &secrets[1], .query = &queries[1]}};
  PublicProduct(seed, kColumns, {}).Encrypt(wanted, random);
  PublicMatrix matrix(seed, nullptr);
  std::vector<uint32_t> column(kDimension);
  std::vector<int32_t> errors[2];
  double squares = 0;
  int zeros = 0;
  for (uint64_t j = 0; j < kColumns; ++j) {
    matrix.ExpandColumn(j, column);
    for (size_t q = 0; q < 2; ++q) {
      uint32_t left = LoadLe<uint32_t>(queries[q].data() + 4 * j);
      for (uint32_t k = 0; k < kDimension; ++k) {
        left -= column[k] * static_cast<uint32_t>(secrets[q][k]);
      }
      if (j == kColumn) left -= uint32_t{1} << kDeltaBits;
      const auto error = static_cast<int32_t>(left);
      ASSERT_LT(std::abs(error), 200) << j;  // the samples end there
      errors[q].push_back(error);
      squares += static_cast<double>(error) * error;
      zeros += error == 0 ? 1 : 0;
    }
  }
  EXPECT_NEAR(std::sqrt(squares / (2 * kColumns)) / kSigma, 1, 0.2);
  EXPECT_LT(zeros, 0.1 * 2 * kColumns);  // 2.5 % are expected
  EXPECT_NE(errors[0], errors[1]);
}

TEST(GaussianTest, ThresholdsAreTheDistribution) {
  const GaussianSampler& sampler = GaussianSampler::Get();
  long double norm = 0;
  for (int x = -400; x <= 400; ++x) norm += std::exp(-x * x / (2.0L * kSigma * kSigma));
  long double below = 0;
  ASSERT_EQ(sampler.max(), 196u);
  for (uint32_t m = 0; m < sampler.max(); ++m) {
    below += (m == 0 ? 1 : 2) * std::exp(-(m * 1.0L * m) / (2.0L * kSigma * kSigma)) / norm;
    const long double threshold =
        std::ldexp(static_cast<long double>(sampler.threshold_high()[m]), -63) +
        std::ldexp(static_cast<long double>(sampler.threshold_low()[m]), -126);
    EXPECT_NEAR(static_cast<double>(threshold - below), 0, 1e-17) << m;
  }
}

// Chi-squared over the values from -30 to 30 and the two tails: 62 degrees of freedom, beyond 110
// with probability below 2e-4 at fixed seed. Every kernel gives the same samples.
TEST(GaussianTest, SamplesFollowTheDistribution) {
  const size_t count = 200'000;
  std::vector<int32_t> first;
  for (const Kernel* kernel : SupportedKernels()) {
    testing::TestRandom random(4);
    std::vector<int32_t> samples(count);
    GaussianSampler::Get().Sample(*kernel, random, samples);
    if (first.empty()) {
      first = samples;
    } else {
      EXPECT_EQ(samples, first) << kernel->name;
    }
  }
  std::map<int, double> seen, expected;
  double norm = 0;
  for (int x = -400; x <= 400; ++x) norm += std::exp(-x * x / (2 * kSigma * kSigma));
  for (int x = -400; x <= 400; ++x) {
    expected[std::clamp(x, -31, 31)] += count * std::exp(-x * x / (2 * kSigma * kSigma)) / norm;
  }
  for (int32_t x : first) seen[std::clamp(x, -31, 31)] += 1;
  double chi = 0;
  for (const auto& [x, e] : expected) chi += (seen[x] - e) * (seen[x] - e) / e;
  EXPECT_LT(chi, 110);
  EXPECT_GT(chi, 30);
}

// A source that gives the same byte for ever.
class ConstantRandom final : public RandomSource {
 public:
  explicit ConstantRandom(uint8_t value) : value_(value) {}
  void Fill(MutableBytes out) override { std::fill(out.begin(), out.end(), value_); }

 private:
  uint8_t value_;
};

TEST(GaussianTest, TheEndsOfTheTable) {
  std::vector<int32_t> samples(9);
  ConstantRandom zeros(0), ones(0xff);
  GaussianSampler::Get().Sample(FastestKernel(), zeros, samples);
  EXPECT_EQ(samples, std::vector<int32_t>(9, 0));
  GaussianSampler::Get().Sample(FastestKernel(), ones, samples);
  EXPECT_EQ(samples, std::vector<int32_t>(9, -196));
}

}  // namespace
}  // namespace shoal::pir::lwe
