#include "src/pir/rlwe/hintless_pack.h"

#include <algorithm>
#include <array>

#include "src/base/check.h"
#include "src/base/status_macros.h"
#include "src/pir/lwe/rounding.h"
#include "src/pir/pages.h"
#include "src/pir/rlwe/hintless_public.h"
#include "src/pir/rlwe/ring_kernel_impl.h"
#include "src/pir/rlwe/ring_public.h"
#include "src/pir/rlwe/ring_transform.h"
#include "src/pir/rlwe/ring_words.h"

namespace shoal::pir::rlwe {
namespace {

constexpr size_t kBlock = RingKernel::kBlock;
constexpr size_t kSquareWords = size_t{kDegree} * kDegree;
constexpr uint64_t kInverseDegree[kPrimes] = {InverseModulo(kDegree, kPrime[0]),
                                              InverseModulo(kDegree, kPrime[1])};

// A block's polynomials of one prime.
using Rows = std::array<std::array<uint32_t, kDegree>, kBlock>;

// Where the pair of a chain's step is, of `count` steps, for the first place of a block.
constexpr size_t PairOf(size_t chain, size_t block, size_t count, size_t step) {
  return kPrimes * kBlock * ((chain * kPackBlocks + block) * count + step);
}

template <size_t kPrimeIndex>
uint32_t Modulo(uint64_t x) {
  return static_cast<uint32_t>(x % kPrime[kPrimeIndex]);
}

// One polynomial of a chain, from or to pairs.
void LoadStep(const uint32_t* pairs, size_t chain, size_t count, size_t step, uint32_t* places) {
  for (size_t block = 0; block < kPackBlocks; ++block) {
    const uint32_t* const from = pairs + PairOf(chain, block, count, step);
    for (size_t k = 0; k < kPrimes; ++k) {
      for (size_t lane = 0; lane < kBlock; ++lane) {
        places[k * kDegree + block * kBlock + lane] = from[kPrimes * lane + k];
      }
    }
  }
}
void StoreStep(const uint32_t* places, size_t chain, size_t count, size_t step, uint32_t* pairs) {
  for (size_t block = 0; block < kPackBlocks; ++block) {
    uint32_t* const to = pairs + PairOf(chain, block, count, step);
    for (size_t k = 0; k < kPrimes; ++k) {
      for (size_t lane = 0; lane < kBlock; ++lane) {
        to[kPrimes * lane + k] = places[k * kDegree + block * kBlock + lane];
      }
    }
  }
}

// Coefficients from values in the order of places, and back. `words` has kPolynomialWords.
void ToCoefficients(const uint32_t* places, uint32_t* words) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    Orbit::Get().From(places + k * kDegree, words + k * kDegree);
    TransformBack(k, words + k * kDegree);
  }
}
void ToPlaces(std::vector<uint32_t> words, uint32_t* places) {
  for (uint32_t k = 0; k < kPrimes; ++k) {
    Transform(k, words.data() + k * kDegree);
    Orbit::Get().To(words.data() + k * kDegree, places + k * kDegree);
  }
}

}  // namespace

absl::StatusOr<Packer::Room> Packer::Room::Create() {
  Room room;
  constexpr uint64_t kBytes = kPrimes * kSquareWords * sizeof(uint32_t);
  SHOAL_ASSIGN_OR_RETURN(room.squares, AllocatePages(kBytes, "hintless: packing"));
  SHOAL_ASSIGN_OR_RETURN(room.steps, AllocatePages(kBytes, "hintless: packing"));
  return room;
}

PackNorms Packer::Made::largest() const {
  return {.rotation = *std::ranges::max_element(rotation),
          .conjugation = conjugation,
          .secret = *std::ranges::max_element(secret)};
}

Packer::Packer(const Digest& seed, const RingKernel& kernel)
    : kernel_(kernel), rotation_(2 * kPolynomialWords), conjugation_(2 * kPolynomialWords) {
  for (const auto& [key, out] :
       {std::pair(kRotationKey, &rotation_), std::pair(kConjugationKey, &conjugation_)}) {
    const std::vector<uint32_t> words = ExpandCollapseKey(seed, key);
    for (size_t i = 0; i < kPolynomialWords; ++i) {
      const size_t k = i / kDegree, half = i % kDegree / kOrbit, a = i % kOrbit;
      const uint32_t word = words[k * kDegree + Orbit::Get().word(i % kDegree)];
      for (size_t copy = 0; copy < 2; ++copy) {
        (*out)[((k * 2 + half) * 2 + copy) * kOrbit + a] = word == 0 ? 0 : kPrime[k] - word;
      }
    }
  }
}

Packer::Made Packer::Make(size_t rows, const std::function<void(size_t, uint32_t*)>& row,
                          Room& room, uint32_t* digits) const {
  auto* const squares = reinterpret_cast<uint32_t*>(room.squares.data());
  auto* const steps = reinterpret_cast<uint32_t*>(room.steps.data());
  Made made;
  TransformRows(rows, row, squares);
  SpreadMasks(squares, steps);
  Collapse(steps, digits, made);
  // Digit i stands at the image of the key under 5^(i - 1), remainder i at that of the secret under
  // 5^i.
  made.rotation = Norms(digits, kChainSteps, squares);
  made.secret = Norms(steps, kOrbit, squares);
  return made;
}

// squares[prime][r][place]: of alpha_r / d.
void Packer::TransformRows(size_t rows, const std::function<void(size_t, uint32_t*)>& row,
                           uint32_t* squares) const {
  std::vector<uint32_t> words(kPolynomialWords), hint(kDegree);
  for (size_t r = 0; r < kDegree; ++r) {
    if (r >= rows) {
      for (size_t k = 0; k < kPrimes; ++k) {
        std::fill_n(squares + k * kSquareWords + r * kDegree, kDegree, 0);
      }
      continue;
    }
    row(r, hint.data());
    for (size_t w = 0; w < kDegree; ++w) {
      // hint / 2^32 of a turn, to nearest.
      const auto x = static_cast<uint64_t>(
          (static_cast<unsigned __int128>(hint[w]) * kModulus + (uint64_t{1} << 31)) >> 32);
      words[w] = Modulo<0>(Modulo<0>(x) * kInverseDegree[0]);
      words[kDegree + w] = Modulo<1>(Modulo<1>(x) * kInverseDegree[1]);
    }
    for (uint32_t k = 0; k < kPrimes; ++k) {
      Transform(k, words.data() + k * kDegree, kernel_);
      Orbit::Get().To(words.data() + k * kDegree, squares + k * kSquareWords + r * kDegree);
    }
  }
}

// A_t at a place s is the sum over r of (s's power)^r times alpha_r / d at the place that t brings
// to s: for all t and s that lead to one place, a transform over r.
void Packer::SpreadMasks(const uint32_t* squares, uint32_t* steps) const {
  std::vector<Rows> at(kPrimes);
  for (size_t block = 0; block < kPackBlocks; ++block) {
    for (uint32_t k = 0; k < kPrimes; ++k) {
      for (size_t r = 0; r < kDegree; ++r) {
        const uint32_t* const from = squares + k * kSquareWords + r * kDegree + block * kBlock;
        for (size_t j = 0; j < kBlock; ++j) at[k][j][r] = from[j];
      }
      for (size_t j = 0; j < kBlock; ++j) Transform(k, at[k][j].data(), kernel_);
    }
    const size_t half = block * kBlock / kOrbit, first = block * kBlock % kOrbit;
    for (size_t s = 0; s < kDegree; ++s) {
      const uint32_t word = Orbit::Get().word(s);
      const size_t chain = half ^ (s / kOrbit);
      uint32_t* const to = steps + PairOf(chain, s / kBlock, kOrbit, 0) + kPrimes * (s % kBlock);
      for (size_t j = 0; j < kBlock; ++j) {
        const size_t step = (first + j + kOrbit - s % kOrbit) % kOrbit;
        uint32_t* const pair = to + kPrimes * kBlock * step;
        pair[0] = at[0][j][word];
        pair[1] = at[1][j][word];
      }
    }
  }
}

// The digits of both chains; the masks in `steps` become their remainders, that of the identity
// what the rounding of the mask leaves.
void Packer::Collapse(uint32_t* steps, uint32_t* digits, Made& made) const {
  std::vector<uint32_t> mask(kPolynomialWords), next(kPolynomialWords);
  std::vector<uint32_t> words(kPolynomialWords), digit(kPolynomialWords), key(kPolynomialWords);
  // Splits `mask` into a digit, in the order of places, and its remainder, which takes its place.
  // Leaves the digit's coefficients in `words`. The first of them is `more` larger than it need be.
  const auto split = [&](uint32_t more) {
    ToCoefficients(mask.data(), words.data());
    std::vector<uint32_t> coefficients(words);
    kernel_.decompose(kCollapseGadget, coefficients.data(), coefficients.data() + kDegree,
                      words.data());
    words[0] = Modulo<0>(uint64_t{words[0]} + more);
    words[kDegree] = Modulo<1>(uint64_t{words[kDegree]} + more);
    ToPlaces(words, digit.data());
    for (size_t w = 0; w < kDegree; ++w) {
      const auto rest = [&]<size_t k>(uint32_t m, uint32_t d) {
        const uint64_t part = Modulo<k>(uint64_t{d} << kCollapseGadget.drop());
        return Modulo<k>(m + kPrime[k] - part);
      };
      mask[w] = rest.template operator()<0>(mask[w], digit[w]);
      mask[kDegree + w] = rest.template operator()<1>(mask[kDegree + w], digit[kDegree + w]);
    }
  };
  // out = add - digit times the key's mask under (-1)^chain 5^rotation.
  const auto take = [&](const std::vector<uint32_t>& key_mask, size_t chain, size_t rotation,
                        const uint32_t* add, uint32_t* out) {
    for (uint32_t k = 0; k < kPrimes; ++k) {
      for (size_t half = 0; half < 2; ++half) {
        std::copy_n(key_mask.data() + (k * 2 + (half ^ chain)) * 2 * kOrbit + rotation, kOrbit,
                    key.data() + k * kDegree + half * kOrbit);
      }
      kernel_.dot(k, digit.data() + k * kDegree, 0, key.data() + k * kDegree, 0, 1,
                  add + k * kDegree, out + k * kDegree);
    }
  };
  std::vector<uint32_t> ends[kChains];
  for (size_t chain = 0; chain < kChains; ++chain) {
    LoadStep(steps, chain, kOrbit, kOrbit - 1, mask.data());
    for (size_t i = kOrbit - 1; i > 0; --i) {
      // Of a pack whose only row is row 0, the digits of the second chain would be the images of
      // those of the first, and the errors of both would add up instead of being like independent
      // ones. One digit that is off by one makes the chains differ from the next step on.
      split(chain == 1 && i == kOrbit - 1 ? 1 : 0);
      StoreStep(digit.data(), chain, kChainSteps, i - 1, digits);
      StoreStep(mask.data(), chain, kOrbit, i, steps);
      LoadStep(steps, chain, kOrbit, i - 1, next.data());
      take(rotation_, chain, i - 1, next.data(), mask.data());
    }
    ends[chain] = mask;
  }
  split(0);
  StoreStep(mask.data(), 1, kOrbit, 0, steps);
  uint32_t* const last = digits + PairOf(kChains, 0, kChainSteps, 0);
  for (size_t place = 0; place < kDegree; ++place) {
    for (size_t k = 0; k < kPrimes; ++k) last[kPrimes * place + k] = digit[k * kDegree + place];
  }
  for (size_t w = 0; w < kDegree; ++w) {
    const auto value = static_cast<double>(ComposeSigned(words[w], words[kDegree + w]));
    made.conjugation += value * value;
  }
  take(conjugation_, 0, 0, ends[0].data(), mask.data());

  ToCoefficients(mask.data(), words.data());
  std::vector<uint32_t> turns(kDegree);
  for (size_t w = 0; w < kDegree; ++w) turns[w] = TurnOf(Compose(words[w], words[kDegree + w]));
  lwe::AppendRounded(turns, 32 - kHintlessMaskBits, made.mask);
  std::vector<uint32_t> sent(kDegree);
  SHOAL_CHECK(lwe::ParseRounded(made.mask, 32 - kHintlessMaskBits, sent).ok());
  for (size_t w = 0; w < kDegree; ++w) {
    const uint64_t mask_sent = static_cast<uint64_t>(
        (static_cast<unsigned __int128>(sent[w]) * kModulus + (uint64_t{1} << 31)) >> 32);
    words[w] = Modulo<0>(words[w] + uint64_t{kPrime[0]} - Modulo<0>(mask_sent));
    words[kDegree + w] = Modulo<1>(words[kDegree + w] + uint64_t{kPrime[1]} - Modulo<1>(mask_sent));
  }
  ToPlaces(words, mask.data());
  StoreStep(mask.data(), 0, kOrbit, 0, steps);
}

// For each coefficient w of the sum over chains and steps i < count of the polynomial of `pairs`
// times the image of x under +-5^i: the sum of the squares of its factors for the coefficients of
// x.
//
// The factor polynomial of x's coefficient k, L_k, has at a place s the value sum over places t of
// (the pair of s and t) times (t's power)^k: a transform back over t, whose points are exchanged
// with their inverses, times d. Its coefficients are below 2^38, so that they are what they are
// modulo Q.
std::vector<double> Packer::Norms(const uint32_t* pairs, size_t count, uint32_t* squares) const {
  const Orbit& orbit = Orbit::Get();
  std::vector<Rows> at(kPrimes);
  for (size_t block = 0; block < kPackBlocks; ++block) {
    const size_t half = block * kBlock / kOrbit, first = block * kBlock % kOrbit;
    for (Rows& rows : at) std::ranges::for_each(rows, [](auto& row) { row.fill(0); });
    for (size_t chain = 0; chain < kChains; ++chain) {
      const uint32_t* pair = pairs + PairOf(chain, block, count, 0);
      const size_t inverse_half = 1 ^ half ^ chain;
      for (size_t i = 0; i < count; ++i) {
        for (size_t lane = 0; lane < kBlock; ++lane, pair += kPrimes) {
          const uint32_t word = orbit.word(inverse_half * kOrbit + (first + lane + i) % kOrbit);
          at[0][lane][word] = pair[0];
          at[1][lane][word] = pair[1];
        }
      }
    }
    for (uint32_t k = 0; k < kPrimes; ++k) {
      for (size_t lane = 0; lane < kBlock; ++lane) {
        TransformBack(k, at[k][lane].data(), kernel_);
        std::ranges::copy(at[k][lane],
                          squares + k * kSquareWords + (block * kBlock + lane) * kDegree);
      }
    }
  }
  std::vector<double> norms(kDegree);
  for (size_t block = 0; block < kPackBlocks; ++block) {
    for (uint32_t k = 0; k < kPrimes; ++k) {
      for (size_t s = 0; s < kDegree; ++s) {
        const uint32_t* const from = squares + k * kSquareWords + s * kDegree + block * kBlock;
        for (size_t j = 0; j < kBlock; ++j) at[k][j][orbit.word(s)] = from[j];
      }
      for (size_t j = 0; j < kBlock; ++j) TransformBack(k, at[k][j].data(), kernel_);
    }
    for (size_t j = 0; j < kBlock; ++j) {
      for (size_t w = 0; w < kDegree; ++w) {
        const auto value =
            static_cast<double>(ComposeSigned(Modulo<0>(uint64_t{at[0][j][w]} * kDegree),
                                              Modulo<1>(uint64_t{at[1][j][w]} * kDegree)));
        norms[w] += value * value;
      }
    }
  }
  return norms;
}

void SumOfPack(const RingKernel& kernel, const uint32_t* digits,
               std::span<const PackKeys* const> keys, std::vector<std::vector<uint32_t>>& sums) {
  const size_t count = keys.size();
  sums.resize(count);
  std::vector<std::vector<uint32_t>> places(count, std::vector<uint32_t>(kPolynomialWords));
  std::vector<const uint32_t*> windows(count);
  std::vector<uint32_t> out(count * kPrimes * kBlock);
  for (size_t chain = 0; chain < kChains; ++chain) {
    for (size_t block = 0; block < kPackBlocks; ++block) {
      const size_t half = block * kBlock / kOrbit, first = block * kBlock % kOrbit;
      for (size_t v = 0; v < count; ++v) {
        windows[v] = keys[v]->rotation.data() + kPrimes * ((half ^ chain) * kDegree + first);
      }
      kernel.slide(digits + PairOf(chain, block, kChainSteps, 0), kChainSteps, windows.data(),
                   count, out.data());
      for (size_t v = 0; v < count; ++v) {
        for (size_t lane = 0; lane < kBlock; ++lane) {
          for (size_t k = 0; k < kPrimes; ++k) {
            uint32_t& sum = places[v][k * kDegree + block * kBlock + lane];
            sum += out[kPrimes * (v * kBlock + lane) + k];
            sum = std::min(sum, sum - kPrime[k]);
          }
        }
      }
    }
  }
  const uint32_t* const last = digits + PairOf(kChains, 0, kChainSteps, 0);
  for (size_t v = 0; v < count; ++v) {
    for (size_t place = 0; place < kDegree; ++place) {
      const uint32_t* const key =
          keys[v]->conjugation.data() + kPrimes * (place / kOrbit * kDegree + place % kOrbit);
      const uint32_t* const digit = last + kPrimes * place;
      uint32_t& low = places[v][place];
      uint32_t& high = places[v][kDegree + place];
      low = Modulo<0>(uint64_t{digit[0]} * key[0] + low);
      high = Modulo<1>(uint64_t{digit[1]} * key[1] + high);
    }
    sums[v].resize(kPolynomialWords);
    ToCoefficients(places[v].data(), sums[v].data());
  }
}

}  // namespace shoal::pir::rlwe
