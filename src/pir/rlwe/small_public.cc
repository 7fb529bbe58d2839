#include "src/pir/rlwe/small_public.h"

#include <algorithm>
#include <unordered_map>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/pir/rlwe/small_transform.h"

namespace shoal::pir::rlwe {

Digest SmallPublicSeed(const wire::PirSetup& setup) {
  return Transcript("shoal small pir public parts v1").Blob(setup.table_id()).Finish();
}

void ExpandSmallPublic(const Digest& seed, uint32_t element, std::span<uint32_t> out) {
  SHOAL_CHECK(out.size() == kPolynomialWords);
  SeededRandom stream(seed, "shoal small pir public part", element);
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

const UnpackConstants& UnpackConstants::Get() {
  static const UnpackConstants constants;
  return constants;
}

UnpackConstants::UnpackConstants()
    : from_(kPolynomialWords), monomials_(kPackLog * kPolynomialWords) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    // Word w is the polynomial at some odd power of a root of unity: at which is seen from X.
    std::vector<uint32_t> x(kDegree);
    x[1] = 1;
    Transform(k, x.data());
    std::unordered_map<uint32_t, uint32_t> exponent_of;
    uint64_t power = 1;
    for (uint32_t e = 0; e < 2 * kDegree; ++e, power = power * kRootOfUnity[k] % kPrime[k]) {
      exponent_of[static_cast<uint32_t>(power)] = e;
    }
    std::vector<uint32_t> word_of(2 * kDegree);
    for (uint32_t w = 0; w < kDegree; ++w) word_of[exponent_of.at(x[w])] = w;
    for (uint32_t w = 0; w < kDegree; ++w) {
      from_[k * kDegree + w] = word_of[exponent_of.at(x[w]) * kUnpackExponent % (2 * kDegree)];
    }
    for (uint32_t level = 0; level < kPackLog; ++level) {
      uint32_t* out = monomials_.data() + level * kPolynomialWords + k * kDegree;
      out[kDegree - (1u << level)] = kPrime[k] - 1;  // X^-m = -X^(d - m)
      Transform(k, out);
    }
  }
}

void UnpackConstants::Apply(const uint32_t* in, uint32_t* out) const {
  for (size_t k = 0; k < kPrimes; ++k) {
    for (size_t w = k * kDegree; w < (k + 1) * kDegree; ++w) out[w] = in[k * kDegree + from_[w]];
  }
}

void AddPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out) {
  for (size_t k = 0; k < kPrimes; ++k) {
    for (size_t w = k * kDegree; w < (k + 1) * kDegree; ++w) {
      const uint32_t sum = a[w] + b[w];
      out[w] = std::min(sum, sum - kPrime[k]);
    }
  }
}

void SubtractPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out) {
  for (size_t k = 0; k < kPrimes; ++k) {
    for (size_t w = k * kDegree; w < (k + 1) * kDegree; ++w) {
      const uint32_t difference = a[w] - b[w];
      out[w] = std::min(difference, difference + kPrime[k]);
    }
  }
}

void MultiplyPolynomials(const uint32_t* a, const uint32_t* b, uint32_t* out) {
  const SmallKernel& kernel = FastestSmallKernel();
  for (uint32_t k = 0; k < kPrimes; ++k) {
    kernel.dot(k, a + k * kDegree, 0, b + k * kDegree, 0, 1, nullptr, out + k * kDegree);
  }
}

}  // namespace shoal::pir::rlwe
