#include "src/pir/rlwe/ring_public.h"

#include <array>
#include <bit>
#include <vector>

#include "src/base/check.h"
#include "src/base/random.h"
#include "src/pir/rlwe/ring_transform.h"

namespace shoal::pir::rlwe {

void ExpandRingPublic(const Digest& seed, uint32_t number, std::span<uint32_t> out) {
  SHOAL_CHECK(out.size() == kPolynomialWords);
  SeededRandom stream(seed, "shoal small pir public part", number);
  std::array<uint8_t, 4096> bytes;
  size_t used = bytes.size();
  for (size_t k = 0; k < kPrimes; ++k) {
    for (size_t w = 0; w < kDegree;) {
      if (used == bytes.size()) {
        stream.Fill(bytes);
        used = 0;
      }
      const uint32_t word = LoadLe<uint32_t>(bytes.data() + used) & ((1u << kPrimeBits) - 1);
      used += 4;
      if (word < kPrime[k]) out[k * kDegree + w++] = word;
    }
  }
}

void PublicDigits(const RingKernel& kernel, const Gadget& gadget, const uint32_t* polynomial,
                  uint32_t* digits) {
  const auto negate = [](uint32_t k, uint32_t* words) {
    for (uint32_t w = 0; w < kDegree; ++w) {
      const bool negative = std::popcount(w & (w >> 1)) % 2 == 1;
      if (negative && words[w] != 0) words[w] = kPrime[k] - words[w];
    }
  };
  std::vector<uint32_t> coefficients(polynomial, polynomial + kPolynomialWords);
  for (uint32_t k = 0; k < kPrimes; ++k) {
    TransformBack(k, coefficients.data() + k * kDegree);
    negate(k, coefficients.data() + k * kDegree);
  }
  kernel.decompose(gadget, coefficients.data(), coefficients.data() + kDegree, digits);
  for (uint32_t i = 0; i < gadget.digits; ++i) {
    for (uint32_t k = 0; k < kPrimes; ++k) {
      uint32_t* const words = digits + i * kPolynomialWords + k * kDegree;
      negate(k, words);
      Transform(k, words);
    }
  }
}

void AddPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out) {
  const RingKernel& kernel = FastestRingKernel();
  for (uint32_t k = 0; k < kPrimes; ++k) {
    kernel.add(k, a + k * kDegree, b + k * kDegree, out + k * kDegree);
  }
}

void SubtractPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out) {
  const RingKernel& kernel = FastestRingKernel();
  for (uint32_t k = 0; k < kPrimes; ++k) {
    kernel.subtract(k, a + k * kDegree, b + k * kDegree, out + k * kDegree);
  }
}

void MultiplyPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out) {
  const RingKernel& kernel = FastestRingKernel();
  for (uint32_t k = 0; k < kPrimes; ++k) {
    kernel.dot(k, a + k * kDegree, 0, b + k * kDegree, 0, 1, nullptr, out + k * kDegree);
  }
}

}  // namespace shoal::pir::rlwe
