// The numbers of SmallNorms, from which docs/small-pir.md proves that records are decrypted
// rightly: norms of the maps from the errors of a query's keys to the errors of what is unpacked.
// The public parts are constants, and so are these maps; here they are computed over the complex
// numbers from the digits that a server uses.
//
// Everything is written by frequencies: a polynomial p is its values at the powers zeta^(2 j + 1)
// of a complex root of unity, j < d. Products are products of values, tau permutes them, and a real
// polynomial has conjugate values in pairs, so that d / 2 of them are enough.
#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/test_random.h"
#include "src/pir/rlwe/ring_kernel.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/small_public.h"
#include "src/pir/rlwe/small_shape.h"

namespace shoal::pir::rlwe {
namespace {

using shoal::testing::TestRandom;
using Value = std::complex<float>;
using Values = std::vector<Value>;  // kHalf of them: frequency j is the one at zeta^Exponent(j)

constexpr size_t kHalf = kDegree / 2;
constexpr uint32_t kDigits = kUnpackGadget.digits;

// 5 generates the odd numbers modulo 2 d up to their sign: frequency j is at zeta^(5^j), j < d / 2,
// so that tau shifts them by a constant number of places.
class Frequencies {
 public:
  Frequencies() : place_(2 * kDegree, kHalf), roots_(2 * kDegree) {
    uint32_t e = 1;
    for (uint32_t j = 0; j < kHalf; ++j, e = e * 5 % (2 * kDegree)) {
      exponent_.push_back(e);
      place_[e] = j;
    }
    shift_ = place_[kUnpackExponent];
    EXPECT_LT(shift_, kHalf);
    for (size_t i = 0; i < roots_.size(); ++i) {
      roots_[i] = std::polar(1.0, std::numbers::pi * static_cast<double>(i) / kDegree);
    }
  }
  // tau(p) at frequency j is p at frequency Shifted(j).
  size_t Shifted(size_t j) const { return (j + shift_) % kHalf; }
  // X^-m at frequency j.
  Value InverseMonomial(size_t j, uint32_t m) const {
    return Value(std::conj(roots_[uint64_t{exponent_[j]} * m % (2 * kDegree)]));
  }
  // Of a polynomial with these coefficients.
  Values Of(const std::vector<double>& coefficients) const {
    // p(zeta^(2 k + 1)) is the transform of coefficients times zeta^i.
    std::vector<std::complex<double>> x(kDegree);
    for (size_t i = 0; i < kDegree; ++i) {
      size_t to = 0;
      for (uint32_t bit = 0; bit < kLogDegree; ++bit)
        to |= (i >> bit & 1) << (kLogDegree - 1 - bit);
      x[to] = coefficients[i] * roots_[i];
    }
    for (size_t size = 2; size <= kDegree; size *= 2) {
      for (size_t at = 0; at < kDegree; at += size) {
        for (size_t i = 0; i < size / 2; ++i) {
          const auto y = x[at + size / 2 + i] * roots_[2 * kDegree / size * i];
          x[at + size / 2 + i] = x[at + i] - y;
          x[at + i] += y;
        }
      }
    }
    Values out(kHalf);
    for (size_t j = 0; j < kHalf; ++j) out[j] = Value(x[exponent_[j] / 2]);
    return out;
  }

 private:
  std::vector<uint32_t> exponent_, place_;
  std::vector<std::complex<double>> roots_;
  size_t shift_ = 0;
};

const Frequencies& TheFrequencies() {
  static const Frequencies frequencies;
  return frequencies;
}

// The digits of a polynomial in the domain of the transforms, digit after digit, as frequencies.
Values DigitFrequencies(const Gadget& gadget, const uint32_t* polynomial) {
  std::vector<uint32_t> digits(gadget.digits * kPolynomialWords);
  PublicDigits(FastestRingKernel(), gadget, polynomial, digits.data());
  Values out;
  std::vector<double> coefficients(kDegree);
  for (uint32_t i = 0; i < gadget.digits; ++i) {
    TransformBack(0, digits.data() + i * kPolynomialWords);
    for (size_t w = 0; w < kDegree; ++w) {
      const uint32_t word = digits[i * kPolynomialWords + w];
      coefficients[w] = word > kPrime[0] / 2 ? -static_cast<double>(kPrime[0] - word) : word;
    }
    const Values values = TheFrequencies().Of(coefficients);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

// Product of digits (of `polynomial`) and key, in the domain of the transforms.
void Switch(const Gadget& gadget, const std::vector<uint32_t>& key, uint32_t* polynomial) {
  std::vector<uint32_t> digits(gadget.digits * kPolynomialWords);
  PublicDigits(FastestRingKernel(), gadget, polynomial, digits.data());
  std::fill_n(polynomial, kPolynomialWords, 0);
  std::vector<uint32_t> product(kPolynomialWords);
  for (uint32_t i = 0; i < gadget.digits; ++i) {
    MultiplyPolynomials(digits.data() + i * kPolynomialWords, key.data() + i * kPolynomialWords,
                        product.data());
    AddPolynomials(polynomial, product.data(), polynomial);
  }
}

std::vector<uint32_t> PublicParts(const SmallShape& shape, uint32_t first, uint32_t count) {
  std::vector<uint32_t> words(count * kPolynomialWords);
  for (uint32_t i = 0; i < count; ++i) {
    SmallPublicPart(shape, first + i,
                    std::span(words).subspan(i * kPolynomialWords, kPolynomialWords));
  }
  return words;
}

// The map from the errors e_i of the automorphism's key, i < kDigits, to those of the values that
// packed elements are unpacked to.
class UnpackMap {
 public:
  // `count` values of elements with room for 2^log, of which the first is `element`.
  UnpackMap(const SmallShape& shape, uint32_t element, uint32_t log, uint64_t count)
      : log_(log), count_(count) {
    const std::vector<uint32_t> key = PublicParts(shape, 0, kDigits);
    const std::vector<uint32_t> square_key = PublicParts(shape, kDigits, kSquareGadget.digits);
    std::vector<uint32_t> image(kPolynomialWords);
    for (uint64_t first = 0; first < count; first += uint64_t{1} << log, ++element) {
      const auto apply = [&](uint32_t* polynomial) {
        UnpackConstants::Get().Apply(polynomial, image.data());
        steps_.push_back(DigitFrequencies(kUnpackGadget, image.data()));
        Switch(kUnpackGadget, key, image.data());
        std::ranges::copy(image, polynomial);
      };
      const auto leaf = [&](uint64_t, const uint32_t* polynomial) {
        const Values digits = DigitFrequencies(kSquareGadget, polynomial);
        square_row_.resize(kHalf);
        for (size_t i = 0; i < digits.size(); ++i) square_row_[i % kHalf] += std::norm(digits[i]);
      };
      UnpackTree(log, std::min<uint64_t>(count - first, uint64_t{1} << log),
                 PublicParts(shape, element, 1), apply, SplitPolynomials, leaf);
    }
  }
  uint64_t count() const { return count_; }

  // The largest singular value is at most this, but with a probability of 2^-41 over the start. G
  // is the map's square. A Gaussian start's part along the largest singular vector is a complex
  // number of variance 2, which is below 2^-20 with that probability; after q times G it has grown
  // by norm^(2 q), and no more than the whole.
  double Norm(int q) const {
    TestRandom random(11);
    Values z(kDigits * kHalf);
    // Of real polynomials, values at frequencies are complex and independent.
    for (Value& value : z) {
      const double radius =
          std::sqrt(-2 * std::log((static_cast<double>(random.U64() >> 11) + 0.5) * 0x1p-53));
      const double angle = 2 * std::numbers::pi * static_cast<double>(random.U64() >> 11) * 0x1p-53;
      value = Value(std::polar(radius, angle));
    }
    double log_growth = 0;
    for (int i = 0; i < q; ++i) {
      Values next(z.size());
      BackAndForth(z, next);
      double square = 0;
      for (const Value& value : next) square += std::norm(value);
      const double length = std::sqrt(square);
      log_growth += std::log2(length);
      for (size_t j = 0; j < z.size(); ++j) z[j] = next[j] / static_cast<float>(length);
    }
    return std::exp2((log_growth + 20) / (2 * q));
  }

  // For each frequency, the sum over all values of the squares of what they take from any frequency
  // of any error.
  double Row() const {
    std::vector<double> rows(kHalf);
    size_t step = 0;
    for (uint64_t first = 0; first < count_; first += uint64_t{1} << log_) {
      // [times that tau was applied][digit][frequency]
      Rows(std::vector<Values>(), 0, first, step, rows);
    }
    return *std::ranges::max_element(rows);
  }
  double SquareRow() const { return *std::ranges::max_element(square_row_); }

 private:
  // in -> out = transpose(M) M in, by trees: forward to every leaf, and back.
  void BackAndForth(const Values& in, Values& out) const {
    size_t step = 0;
    for (uint64_t first = 0; first < count_; first += uint64_t{1} << log_) {
      Values node(kHalf);
      Tree(in, out, 0, first, first, step, node);
    }
  }

  // `node` is the error of a node; afterwards the gradient of half the sum of the squares of its
  // leaves' errors. Adds to `out` what that gives for e.
  void Tree(const Values& in, Values& out, uint32_t depth, uint64_t first, uint64_t value,
            size_t& step, Values& node) const {
    if (depth == log_) return;
    const Frequencies& at = TheFrequencies();
    const size_t times = size_t{1} << (log_ - 1 - depth);
    const size_t first_step = step;
    Values image = node, before(kHalf);
    for (size_t t = 0; t < times; ++t, ++step) {
      before.swap(image);
      const Value* const digits = steps_[step].data();
      for (size_t j = 0; j < kHalf; ++j) image[j] = before[at.Shifted(j)];
      for (uint32_t d = 0; d < kDigits; ++d) {
        for (size_t j = 0; j < kHalf; ++j) image[j] += digits[d * kHalf + j] * in[d * kHalf + j];
      }
    }
    const uint64_t second_value = value + (uint64_t{1} << depth);
    const bool both = second_value - first < (uint64_t{1} << log_) && second_value < count_;
    Values second(kHalf), sum(kHalf);
    const uint32_t m = 1u << (kPackLog - log_ + depth);
    for (size_t j = 0; j < kHalf; ++j) {
      sum[j] = node[j] + image[j];
      if (both) second[j] = (node[j] - image[j]) * at.InverseMonomial(j, m);
    }
    Tree(in, out, depth + 1, first, value, step, sum);
    if (both) Tree(in, out, depth + 1, first, second_value, step, second);
    for (size_t j = 0; j < kHalf; ++j) {
      const Value back = both ? second[j] * std::conj(at.InverseMonomial(j, m)) : Value();
      node[j] = sum[j] + back;
      image[j] = sum[j] - back;
    }
    for (size_t t = times; t-- > 0;) {
      const Value* const digits = steps_[first_step + t].data();
      for (uint32_t d = 0; d < kDigits; ++d) {
        for (size_t j = 0; j < kHalf; ++j) {
          out[d * kHalf + j] += std::conj(digits[d * kHalf + j]) * image[j];
        }
      }
      for (size_t j = 0; j < kHalf; ++j) before[at.Shifted(j)] = image[j];
      before.swap(image);
    }
    for (size_t j = 0; j < kHalf; ++j) node[j] += image[j];
  }

  // `node[t * kDigits + d]` is what the node's error takes at frequency j from frequency j shifted
  // t times of error d.
  void Rows(std::vector<Values> node, uint32_t depth, uint64_t value, size_t& step,
            std::vector<double>& rows) const {
    if (depth == log_) {
      for (const Values& values : node) {
        for (size_t j = 0; j < kHalf; ++j) rows[j] += std::norm(values[j]);
      }
      return;
    }
    const Frequencies& at = TheFrequencies();
    std::vector<Values> image = node;
    for (size_t t = 0; t < size_t{1} << (log_ - 1 - depth); ++t, ++step) {
      std::vector<Values> next;
      for (uint32_t d = 0; d < kDigits; ++d) {
        next.emplace_back(steps_[step].begin() + d * kHalf, steps_[step].begin() + (d + 1) * kHalf);
      }
      for (const Values& values : image) {
        Values& shifted = next.emplace_back(kHalf);
        for (size_t j = 0; j < kHalf; ++j) shifted[j] = values[at.Shifted(j)];
      }
      image = std::move(next);
    }
    node.resize(image.size(), Values(kHalf));
    const uint64_t second_value = value + (uint64_t{1} << depth);
    const bool both = second_value < count_;
    std::vector<Values> second(both ? node.size() : 0, Values(kHalf));
    for (size_t i = 0; i < node.size(); ++i) {
      for (size_t j = 0; j < kHalf; ++j) {
        const Value a = node[i][j], b = image[i][j];
        node[i][j] = a + b;
        // The monomial changes no absolute value, but shifts of it differ between frequencies.
        if (both) {
          second[i][j] = (a - b) * at.InverseMonomial(j, 1u << (kPackLog - log_ + depth));
        }
      }
    }
    Rows(std::move(node), depth + 1, value, step, rows);
    if (both) Rows(std::move(second), depth + 1, second_value, step, rows);
  }

  const uint32_t log_;
  const uint64_t count_;
  std::vector<Values> steps_;  // [automorphism][digit][frequency]
  std::vector<double> square_row_;
};

SmallShape ShapeOf(uint32_t terms) {
  return {.group_rows = 1, .slices = 1, .terms = terms, .folds = SmallShape::kMaxFolds};
}
constexpr uint32_t kFirstPacked = kUnpackGadget.digits + kSquareGadget.digits;

// Numbers of single precision are summed: a millionth for each addition in a row, generously.
constexpr double kRounding = 1.001;

TEST(SmallNorms, OfPositions) {
  const SmallShape shape = ShapeOf(SmallShape::kMaxTerms);
  const UnpackMap map(shape, kFirstPacked, kPackLog, shape.terms);
  const double norm = map.Norm(60) * kRounding;
  std::printf("positions: %.4g\n", norm);
  EXPECT_LE(norm, kSmallNorms.positions);
  EXPECT_GE(norm, kSmallNorms.positions / 1.1);  // the constant is no larger than it need be
  // Fewer positions in one element are unpacked by other trees.
  for (uint32_t log = 1; log < kPackLog; ++log) {
    const SmallShape small = ShapeOf(1u << log);
    ASSERT_EQ(small.pack_log(), log);
    EXPECT_LE(UnpackMap(small, kFirstPacked, log, 1u << log).Norm(30) * kRounding,
              kSmallNorms.positions);
  }
}

TEST(SmallNorms, OfValuesAndTheirProductsWithTheSecret) {
  const SmallShape shape = ShapeOf(1);
  const UnpackMap map(shape, kFirstPacked + shape.position_elements(), kFoldPackLog,
                      shape.fold_values());
  const double norm = map.Norm(100) * kRounding, row = map.Row() * kRounding,
               square = map.SquareRow() * kRounding;
  std::printf("values: %.4g, row %.4g, products %.4g\n", norm, row, square);
  EXPECT_LE(norm, kSmallNorms.values);
  EXPECT_GE(norm, kSmallNorms.values / 1.1);
  EXPECT_LE(row, kSmallNorms.values_row);
  EXPECT_GE(row, kSmallNorms.values_row / 1.1);
  EXPECT_LE(square, kSmallNorms.products_row);
  EXPECT_GE(square, kSmallNorms.products_row / 1.1);
}

}  // namespace
}  // namespace shoal::pir::rlwe
