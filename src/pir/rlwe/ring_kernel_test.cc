// Small PIR's loops: every instruction set against the definition, at the ends of ranges.
#include "src/pir/rlwe/ring_kernel.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"
#include "src/pir/rlwe/small_public.h"

namespace shoal::pir::rlwe {
namespace {

using shoal::testing::StatusIs;
using shoal::testing::TestRandom;

class RingKernelTest : public ::testing::TestWithParam<const RingKernel*> {
 protected:
  // One in four is the largest number there is.
  std::vector<uint32_t> Residues(uint32_t k, size_t count) {
    std::vector<uint32_t> words(count);
    for (uint32_t& word : words) {
      word =
          random_.Below(4) == 0 ? kPrime[k] - 1 : static_cast<uint32_t>(random_.Below(kPrime[k]));
    }
    return words;
  }
  TestRandom random_{3};
  const RingKernel& kernel_ = *GetParam();
};

INSTANTIATE_TEST_SUITE_P(Kernels, RingKernelTest, ::testing::ValuesIn(SupportedRingKernels()),
                         [](const auto& tested) { return std::string(tested.param->name); });

TEST_P(RingKernelTest, SumsAreTheDefinitionOfThem) {
  constexpr size_t kMost = RingKernel::kMaxTerms;
  for (uint32_t k = 0; k < kPrimes; ++k) {
    const std::vector<uint32_t> largest(kMost * 4 * 16, kPrime[k] - 1);
    for (const auto& tile : {Residues(k, kMost * 4 * 16), largest}) {
      std::vector<std::vector<uint32_t>> vectors;
      const uint32_t* at[4];
      for (size_t v = 0; v < 4; ++v) {
        vectors.push_back(v == 3 ? largest : Residues(k, kMost * 16));
      }
      for (size_t v = 0; v < 4; ++v) at[v] = vectors[v].data();
      for (const size_t terms : {size_t{1}, size_t{5}, kMost}) {
        for (size_t count = 1; count <= 4; ++count) {
          std::vector<uint32_t> out(count * 64 + 1, 77);
          kernel_.sums(k, tile.data(), terms, at, count, out.data());
          for (size_t i = 0; i < count * 64; ++i) {
            unsigned __int128 sum = 0;
            for (size_t t = 0; t < terms; ++t) {
              sum += uint64_t{tile[t * 64 + i % 64]} * vectors[i / 64][t * 16 + i % 16];
            }
            ASSERT_EQ(out[i], static_cast<uint32_t>(sum % kPrime[k])) << i << " " << terms;
          }
          ASSERT_EQ(out.back(), 77u);
        }
      }
    }
  }
}

TEST_P(RingKernelTest, DotsAreTheDefinitionOfThem) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    const std::vector<uint32_t> a = Residues(k, 14 * kDegree), b = Residues(k, 14 * kDegree);
    std::vector<uint32_t> add = Residues(k, kDegree), out(kDegree);
    for (const bool added : {false, true}) {
      kernel_.dot(k, a.data(), kDegree, b.data(), kDegree, 14, added ? add.data() : nullptr,
                  out.data());
      for (size_t w = 0; w < kDegree; ++w) {
        unsigned __int128 sum = added ? add[w] : 0;
        for (size_t t = 0; t < 14; ++t) sum += uint64_t{a[t * kDegree + w]} * b[t * kDegree + w];
        ASSERT_EQ(out[w], static_cast<uint32_t>(sum % kPrime[k])) << w;
      }
    }
  }
}

// Digits are as small as promised, and their sum is the number, but for the rest.
TEST_P(RingKernelTest, DigitsMakeTheNumber) {
  for (const Gadget& gadget : {kUnpackGadget, kSquareGadget, kFoldGadget}) {
    std::vector<uint64_t> numbers = {0, 1, kModulus - 1, kModulus / 2, kModulus / 2 + 1};
    while (numbers.size() < kDegree) numbers.push_back(random_.Below(kModulus));
    std::vector<uint32_t> low, high, out(gadget.digits * kPolynomialWords);
    for (const uint64_t x : numbers) {
      low.push_back(static_cast<uint32_t>(x % kPrime[0]));
      high.push_back(static_cast<uint32_t>(x % kPrime[1]));
      ASSERT_EQ(Compose(low.back(), high.back()), x);
    }
    kernel_.decompose(gadget, low.data(), high.data(), out.data());
    for (size_t w = 0; w < kDegree; ++w) {
      __int128 left = static_cast<__int128>(numbers[w]);
      for (uint32_t i = 0; i < gadget.digits; ++i) {
        int64_t digit[kPrimes];
        for (size_t k = 0; k < kPrimes; ++k) {
          digit[k] = out[(i * kPrimes + k) * kDegree + w];
          ASSERT_LT(digit[k], kPrime[k]);
          if (digit[k] > kPrime[k] / 2) digit[k] -= kPrime[k];
        }
        ASSERT_EQ(digit[0], digit[1]);
        ASSERT_LE(std::abs(digit[0]), int64_t{1} << (gadget.bits - 1));
        left -= static_cast<__int128>(digit[0]) << (gadget.drop() + gadget.bits * i);
      }
      const auto modulus = static_cast<__int128>(kModulus);
      left = (left % modulus + modulus) % modulus;
      if (left > modulus / 2) left -= modulus;
      const int64_t most = gadget.drop() == 0 ? 0 : int64_t{1} << (gadget.drop() - 1);
      ASSERT_LE(left < 0 ? -left : left, most) << numbers[w];
    }
  }
}

// Up to as many steps as there may be, all of them the largest numbers; any number of keys.
TEST_P(RingKernelTest, SlidesAreTheDefinitionOfThem) {
  constexpr size_t kMost = RingKernel::kMaxSteps, kBlock = RingKernel::kBlock;
  // Pairs of words of both primes.
  const auto pairs = [&](size_t count, bool largest) {
    const std::vector<uint32_t> low = Residues(0, count), high = Residues(1, count);
    std::vector<uint32_t> words;
    for (size_t i = 0; i < count; ++i) {
      words.push_back(largest ? kPrime[0] - 1 : low[i]);
      words.push_back(largest ? kPrime[1] - 1 : high[i]);
    }
    return words;
  };
  for (const bool largest : {false, true}) {
    const std::vector<uint32_t> digits = pairs(kMost * kBlock, largest);
    std::vector<std::vector<uint32_t>> keys;
    std::vector<const uint32_t*> at;
    for (size_t v = 0; v < 6; ++v) keys.push_back(pairs(kMost + kBlock, largest || v == 2));
    for (const std::vector<uint32_t>& key : keys) at.push_back(key.data());
    for (const size_t steps : {size_t{1}, size_t{6}, kMost}) {
      for (size_t count = 1; count <= keys.size(); ++count) {
        std::vector<uint32_t> out(2 * count * kBlock + 1, 77);
        kernel_.slide(digits.data(), steps, at.data(), count, out.data());
        for (size_t i = 0; i < 2 * count * kBlock; ++i) {
          const size_t v = i / (2 * kBlock), word = i % (2 * kBlock);
          unsigned __int128 sum = 0;
          for (size_t step = 0; step < steps; ++step) {
            sum += uint64_t{digits[2 * kBlock * step + word]} * keys[v][2 * step + word];
          }
          ASSERT_EQ(out[i], static_cast<uint32_t>(sum % kPrime[word % 2])) << i << " " << steps;
        }
        ASSERT_EQ(out.back(), 77u);
      }
    }
  }
}

// Digits of x and a dither, less those of the dither, count x again, but for what they leave out;
// and any dither that is uniform makes them so.
TEST_P(RingKernelTest, DitheredDigitsLessThoseOfTheDitherMakeUpNumbers) {
  const Gadget gadget = kFoldGadget;
  std::vector<uint64_t> numbers, dither(kDegree);
  std::vector<uint32_t> low, high, zeros(kDegree);
  for (size_t w = 0; w < kDegree; ++w) {
    const uint64_t extremes[] = {0, 1, kModulus / 2, kModulus / 2 + 1, kModulus - 1};
    numbers.push_back(w < 5 ? extremes[w] : random_.Below(kModulus));
    low.push_back(static_cast<uint32_t>(numbers[w] % kPrime[0]));
    high.push_back(static_cast<uint32_t>(numbers[w] % kPrime[1]));
    dither[w] = random_.U64();
  }
  std::vector<uint32_t> all(gadget.digits * kPrimes * kDegree), of_dither(all.size()),
      reference(all.size());
  kernel_.decompose_dithered(gadget, low.data(), high.data(), dither.data(), all.data());
  kernel_.decompose_dithered(gadget, zeros.data(), zeros.data(), dither.data(), of_dither.data());
  PortableRingKernel().decompose_dithered(gadget, low.data(), high.data(), dither.data(),
                                          reference.data());
  EXPECT_EQ(all, reference);
  const auto digit = [&](const std::vector<uint32_t>& words, uint32_t i, size_t w) {
    int64_t value[kPrimes];
    for (size_t k = 0; k < kPrimes; ++k) {
      value[k] = words[(i * kPrimes + k) * kDegree + w];
      EXPECT_LT(value[k], kPrime[k]);
      if (value[k] > kPrime[k] / 2) value[k] -= kPrime[k];
    }
    EXPECT_EQ(value[0], value[1]);
    EXPECT_GE(value[0], -(int64_t{1} << (gadget.bits - 1)));
    EXPECT_LT(value[0], int64_t{1} << (gadget.bits - 1));
    return value[0];
  };
  for (size_t w = 0; w < kDegree; ++w) {
    auto left = static_cast<__int128>(numbers[w]);
    const uint64_t added = dither[w % 2 == 0 ? w / 2 : (kDegree + w) / 2];
    for (uint32_t i = 0; i < gadget.digits; ++i) {
      const int64_t d = digit(of_dither, i, w);
      ASSERT_EQ(d, static_cast<int64_t>(added >> (gadget.drop() + gadget.bits * i) & 31) - 16);
      left -= static_cast<__int128>(FoldStep(i)) * (digit(all, i, w) - d);
    }
    const auto modulus = static_cast<__int128>(kModulus);
    left = (left % modulus + modulus) % modulus;
    if (left > modulus / 2) left -= modulus;
    ASSERT_LE(left < 0 ? -left : left, (int64_t{1} << gadget.drop()) + (1 << 15)) << numbers[w];
  }
}

TEST_P(RingKernelTest, SumsAndDifferencesAreThoseModuloThePrime) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    std::vector<uint32_t> a = Residues(k, kDegree), b = Residues(k, kDegree), out(kDegree);
    a[0] = b[0] = a[1] = b[2] = 0;
    b[1] = a[2] = a[3] = b[3] = kPrime[k] - 1;
    kernel_.add(k, a.data(), b.data(), out.data());
    for (size_t w = 0; w < kDegree; ++w) ASSERT_EQ(out[w], (a[w] + b[w]) % kPrime[k]);
    kernel_.subtract(k, a.data(), b.data(), out.data());
    for (size_t w = 0; w < kDegree; ++w) ASSERT_EQ(out[w], (a[w] + kPrime[k] - b[w]) % kPrime[k]);
  }
}

// Word by word, transforms multiply polynomials modulo X^d + 1; and they come back.
TEST_P(RingKernelTest, TransformsMultiplyPolynomials) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    const std::vector<uint32_t> a = Residues(k, kDegree), b = Residues(k, kDegree);
    std::vector<uint64_t> expected(kDegree);
    for (size_t i = 0; i < kDegree; ++i) {
      for (size_t j = 0; j < kDegree; ++j) {
        const uint64_t product = uint64_t{a[i]} * b[j] % kPrime[k];
        uint64_t& sum = expected[(i + j) % kDegree];
        sum = (sum + (i + j < kDegree ? product : kPrime[k] - product)) % kPrime[k];
      }
    }
    std::vector<uint32_t> x = a, y = b, product(kDegree);
    Transform(k, x.data(), kernel_);
    Transform(k, y.data(), kernel_);
    EXPECT_LT(*std::ranges::max_element(x), kPrime[k]);
    std::vector<uint32_t> reference = a;
    Transform(k, reference.data(), PortableRingKernel());
    EXPECT_EQ(x, reference);
    for (size_t w = 0; w < kDegree; ++w) {
      product[w] = static_cast<uint32_t>(uint64_t{x[w]} * y[w] % kPrime[k]);
    }
    TransformBack(k, product.data(), kernel_);
    EXPECT_TRUE(std::ranges::equal(product, expected));
    TransformBack(k, x.data(), kernel_);
    EXPECT_EQ(x, a);
  }
}

// Which value is which word is on the wire (docs/protocol.md): words 256 b + 16 i + j, i and j <
// 16, is that at the root's power 2 r + 1, where r is 256 b + 16 j + i with its eleven bits
// reversed.
TEST(Transform, WordsHaveTheOrderOfTheProtocol) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    std::vector<uint32_t> x(kDegree), powers(2 * kDegree);
    x[1] = 1;
    Transform(k, x.data());
    uint64_t power = 1;
    for (uint32_t e = 0; e < 2 * kDegree; ++e, power = power * kRootOfUnity[k] % kPrime[k]) {
      powers[e] = static_cast<uint32_t>(power);
    }
    for (uint32_t w = 0; w < kDegree; ++w) {
      const uint32_t natural = w / 256 * 256 + w % 16 * 16 + w / 16 % 16;
      uint32_t reversed = 0;
      for (uint32_t bit = 0; bit < kLogDegree; ++bit) {
        reversed |= (natural >> bit & 1) << (kLogDegree - 1 - bit);
      }
      ASSERT_EQ(x[w], powers[2 * reversed + 1]) << k << " " << w;
    }
  }
}

// The permutation of transformed words is the automorphism X -> X^65 of coefficients.
TEST(UnpackConstants, AreTheAutomorphismAndTheMonomials) {
  TestRandom random(8);
  std::vector<uint32_t> words(kPolynomialWords), expected(kPolynomialWords), out(kPolynomialWords);
  for (size_t k = 0; k < kPrimes; ++k) {
    for (size_t i = 0; i < kDegree; ++i) {
      const auto word = static_cast<uint32_t>(random.Below(kPrime[k]));
      words[k * kDegree + i] = word;
      const size_t to = i * 65 % (2 * kDegree);
      expected[k * kDegree + to % kDegree] = to < kDegree || word == 0 ? word : kPrime[k] - word;
    }
  }
  const auto transform = [](std::vector<uint32_t>& polynomial) {
    for (uint32_t k = 0; k < kPrimes; ++k) Transform(k, polynomial.data() + k * kDegree);
  };
  transform(words);
  transform(expected);
  UnpackConstants::Get().Apply(words.data(), out.data());
  EXPECT_EQ(out, expected);

  for (uint32_t level = 0; level < kPackLog; ++level) {
    std::vector<uint32_t> monomial(kPolynomialWords);
    for (size_t k = 0; k < kPrimes; ++k) monomial[k * kDegree + (1u << level)] = 1;
    transform(monomial);
    MultiplyPolynomials(monomial.data(), UnpackConstants::Get().InverseMonomial(level), out.data());
    EXPECT_EQ(out, std::vector<uint32_t>(kPolynomialWords, 1)) << level;
  }
}

TEST(Residues, AreReadAsTheyWereWrittenAndBelowTheirPrimes) {
  TestRandom random(9);
  std::vector<uint32_t> words(kPolynomialWords), again(kPolynomialWords);
  for (size_t i = 0; i < words.size(); ++i) {
    words[i] = i % 100 == 0 ? kPrime[i / kDegree] - 1
                            : static_cast<uint32_t>(random.Below(kPrime[i / kDegree]));
  }
  Bytes bytes;
  AppendResidues(words, bytes);
  ASSERT_EQ(bytes.size(), kElementBytes);
  SHOAL_ASSERT_OK(ReadResidues(bytes, again));
  EXPECT_EQ(again, words);
  // The prime itself is refused, wherever it stands. Prime 0 is larger than prime 1.
  for (const size_t at :
       {size_t{0}, size_t{7}, size_t{kDegree - 1}, size_t{kDegree}, kPolynomialWords - 1}) {
    std::vector<uint32_t> bad = words;
    bad[at] = kPrime[at / kDegree];
    bytes.clear();
    AppendResidues(bad, bytes);
    EXPECT_THAT(ReadResidues(bytes, again),
                StatusIs(absl::StatusCode::kInvalidArgument, "not below its prime"));
  }
}

}  // namespace
}  // namespace shoal::pir::rlwe
