#include "src/pir/rlwe/hintless_public.h"

#include <unordered_map>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/random.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"

namespace shoal::pir::rlwe {

Digest HintlessPublicSeed(const wire::PirSetup& setup, const HintlessShape& shape) {
  return Transcript("shoal hintless public parts v1")
      .Blob(setup.table_id())
      .U64(shape.draw)
      .Finish();
}

std::vector<uint32_t> ExpandCollapseKey(const Digest& seed, uint32_t key) {
  std::vector<uint32_t> words(kPolynomialWords);
  ExpandRingPublic(seed, key, words);
  return words;
}

std::vector<uint32_t> ExpandColumnBlock(const Digest& seed, uint64_t block) {
  SeededRandom stream(seed, "shoal hintless columns", block);
  std::array<uint8_t, kDegree * sizeof(uint32_t)> bytes;
  stream.Fill(bytes);
  std::vector<uint32_t> words(kPolynomialWords);
  for (size_t w = 0; w < kDegree; ++w) {
    const auto value = static_cast<int32_t>(LoadLe<uint32_t>(bytes.data() + w * sizeof(uint32_t)));
    for (size_t k = 0; k < kPrimes; ++k) {
      const int64_t residue = value % int64_t{kPrime[k]};
      words[k * kDegree + w] = static_cast<uint32_t>(residue < 0 ? residue + kPrime[k] : residue);
    }
  }
  for (uint32_t k = 0; k < kPrimes; ++k) Transform(k, words.data() + k * kDegree);
  return words;
}

int64_t ComposeSigned(uint32_t low, uint32_t high) {
  const uint64_t x = Compose(low, high);
  const uint64_t above = 0 - ((kModulus / 2 - x) >> 63);
  return static_cast<int64_t>(x - (above & kModulus));
}

const Orbit& Orbit::Get() {
  static const Orbit orbit;
  return orbit;
}

Orbit::Orbit() {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    // At which power of the root a word has the polynomial's value is seen from X.
    std::vector<uint32_t> x(kDegree);
    x[1] = 1;
    Transform(k, x.data());
    std::unordered_map<uint32_t, uint32_t> word_of;
    for (uint32_t w = 0; w < kDegree; ++w) word_of[x[w]] = w;
    std::vector<uint32_t> powers(2 * kDegree);
    uint64_t power = 1;
    for (uint32_t& each : powers) {
      each = static_cast<uint32_t>(power);
      power = power * kRootOfUnity[k] % kPrime[k];
    }
    size_t exponent = 1;
    for (size_t a = 0; a < kOrbit; ++a, exponent = exponent * 5 % (2 * kDegree)) {
      const uint32_t words[2] = {word_of.at(powers[exponent]),
                                 word_of.at(powers[2 * kDegree - exponent])};
      for (size_t h = 0; h < 2; ++h) {
        uint32_t& word = word_[h * kOrbit + a];
        SHOAL_CHECK(k == 0 || word == words[h]);
        word = words[h];
      }
    }
  }
}

void MakeSliding(const uint32_t* transformed, uint32_t* sliding) {
  const Orbit& orbit = Orbit::Get();
  for (size_t place = 0; place < kDegree; ++place) {
    const size_t half = place / kOrbit, a = place % kOrbit;
    for (size_t k = 0; k < kPrimes; ++k) {
      const uint32_t word = transformed[k * kDegree + orbit.word(place)];
      for (size_t copy = 0; copy < 2; ++copy) {
        sliding[kPrimes * (half * kDegree + copy * kOrbit + a) + k] = word;
      }
    }
  }
}

}  // namespace shoal::pir::rlwe
