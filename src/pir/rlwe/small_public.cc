#include "src/pir/rlwe/small_public.h"

#include <algorithm>
#include <unordered_map>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/pir/rlwe/ring_transform.h"

namespace shoal::pir::rlwe {

void SmallPublicPart(const SmallShape& shape, uint32_t element, std::span<uint32_t> out) {
  static const Digest seed = Transcript("shoal small pir public parts v2").Finish();
  constexpr uint32_t kFirst = kUnpackGadget.digits + kSquareGadget.digits;
  constexpr uint32_t kFirstValues = 16, kFirstPositions = 32;
  static_assert(kFirst <= kFirstValues && SmallShape::kMaxFolds * kFoldGadget.digits <=
                                              (kFirstPositions - kFirstValues) << kFoldPackLog);
  const uint32_t positions = shape.position_elements();
  uint32_t stream = element;
  if (element >= kFirst + positions) {
    stream = kFirstValues + element - kFirst - positions;
  } else if (element >= kFirst) {
    stream = kFirstPositions + element - kFirst;
  }
  ExpandRingPublic(seed, stream, out);
}

Digest SmallDitherSeed(BytesView query) {
  return Transcript("shoal small pir dither v1").Blob(query).Finish();
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
    std::vector<bool> seen(kDegree);
    for (uint32_t w = 0; w < kDegree; ++w) {
      if (seen[w]) continue;
      uint32_t next = w;
      for (size_t place = 0; place < RingKernel::kOrbitWords; ++place) {
        SHOAL_CHECK(!seen[next]);
        seen[next] = true;
        orbits_.push_back(next);
        next = from_[k * kDegree + next];
      }
      SHOAL_CHECK(next == w);
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

void SplitPolynomials(uint32_t level, bool both, uint32_t* node, uint32_t* image) {
  std::vector<uint32_t> difference;
  if (both) {
    difference.resize(kPolynomialWords);
    SubtractPolynomials(node, image, difference.data());
  }
  AddPolynomials(node, image, image);
  if (both) {
    MultiplyPolynomials(difference.data(), UnpackConstants::Get().InverseMonomial(level), node);
  }
}

}  // namespace shoal::pir::rlwe
