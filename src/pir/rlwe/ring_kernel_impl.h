// The kernels, for vectors of any width: a type Lanes of 64-bit lanes, kLanes of them, with
//   Load, Store   2 kLanes 32-bit words; word 2 i is the lower half of lane i
//   Repeat        one number in all lanes
//   Multiply      the product of the lower halves
//   Add, Subtract of lanes; Subtract32 of 32-bit halves
//   Right, Left   shifts
//   Add32, MultiplyLow32   of 32-bit halves
//   And
//   Min32         of unsigned 32-bit halves
//   kTogether     vectors that fit the registers in Sums
//   Transpose16   optional: 16 words of 16 rows in place
// ring_kernel_avx2.cc and ring_kernel_avx512.cc have vectors, ring_kernel_portable.cc one lane.
#ifndef SHOAL_SRC_PIR_RLWE_RING_KERNEL_IMPL_H_
#define SHOAL_SRC_PIR_RLWE_RING_KERNEL_IMPL_H_

#include <utility>

#include "src/base/inline.h"
#include "src/pir/rlwe/ring_kernel.h"

namespace shoal::pir::rlwe {

// Inverse of a modulo the prime m, by Fermat.
constexpr uint64_t InverseModulo(uint64_t a, uint64_t m) {
  uint64_t result = 1, power = a % m;
  for (uint64_t e = m - 2; e != 0; e >>= 1) {
    if (e & 1) result = result * power % m;
    power = power * power % m;
  }
  return result;
}

template <typename Lanes>
class RingKernelOf {
 public:
  static constexpr RingKernel Make(const char* name) {
    return {.name = name,
            .sums = Sums,
            .dot = Dot,
            .slide = Slide,
            .decompose = Decompose,
            .decompose_dithered = DecomposeDithered,
            .unpack_step = UnpackStep,
            .unpack_split = UnpackSplit,
            .add = AddWords,
            .subtract = SubtractWords,
            .transform = Transform,
            .transform_back = TransformBack};
  }

 private:
  static constexpr size_t kWords = 2 * Lanes::kLanes;
  // Words between what is read and what is fetched.
  static constexpr size_t kAheadWords = 1024;

  // Numbers of at most 64 bits modulo a prime p, 2^26 < p < 2^27 (Barrett).
  struct Prime {
    Lanes p, twice, mu, fold, low40;
    SHOAL_INLINE explicit Prime(uint32_t k)
        : p(Lanes::Repeat(kPrime[k])),
          twice(Lanes::Repeat(2 * uint64_t{kPrime[k]})),
          mu(Lanes::Repeat((uint64_t{1} << 58) / kPrime[k])),
          fold(Lanes::Repeat((uint64_t{1} << 40) % kPrime[k])),
          low40(Lanes::Repeat((uint64_t{1} << 40) - 1)) {}
    // x < 2^58: the quotient floor(floor(x / 2^26) mu / 2^32) is at most 2 too small, since mu is
    // less than 1 and floor(x / 2^26) less than 1 too small.
    SHOAL_INLINE Lanes Reduce58(Lanes x) const {
      const Lanes quotient = Lanes::Right(Lanes::Multiply(Lanes::Right(x, 26), mu), 32);
      Lanes rest = Lanes::Subtract(x, Lanes::Multiply(quotient, p));
      rest = Lanes::Min32(rest, Lanes::Subtract32(rest, twice));
      return Lanes::Min32(rest, Lanes::Subtract32(rest, p));
    }
    // Of x, 2^40 times the upper 24 bits become 2^51 at most.
    SHOAL_INLINE Lanes Reduce64(Lanes x) const {
      return Reduce58(Lanes::Add(Lanes::Multiply(Lanes::Right(x, 40), fold), Lanes::And(x, low40)));
    }
  };

  // The words of even and odd places, each in the lower half of its lane, as words side by side.
  SHOAL_INLINE static Lanes Join(Lanes even, Lanes odd) {
    return Lanes::Add(even, Lanes::Left(odd, 32));
  }

  // Words [part, part + kWords) of kRows blocks of a tile, for kCount vectors.
  template <size_t kCount, size_t kRows>
  SHOAL_INLINE static void PartSums(const Prime& prime, const uint32_t* table, size_t terms,
                                    const uint32_t* const* vectors, size_t part, uint32_t* out) {
    constexpr size_t kTileRows = RingKernel::kTileRows, kBlock = RingKernel::kBlock;
    Lanes even[kCount][kRows], odd[kCount][kRows];
    SHOAL_UNROLL for (size_t v = 0; v < kCount; ++v) {
      SHOAL_UNROLL for (size_t r = 0; r < kRows; ++r) even[v][r] = odd[v][r] = Lanes::Repeat(0);
    }
    for (size_t i = 0; i < terms; ++i) {
      Lanes factor[kCount], factor_odd[kCount];
      SHOAL_UNROLL for (size_t v = 0; v < kCount; ++v) {
        factor[v] = Lanes::Load(vectors[v] + kBlock * i + part);
        factor_odd[v] = Lanes::Right(factor[v], 32);
      }
      SHOAL_UNROLL for (size_t r = 0; r < kRows; ++r) {
        const uint32_t* words = table + kBlock * (kTileRows * i + r) + part;
        // The table is read front to back over many calls; the processor's own prefetching stops
        // at every page.
        __builtin_prefetch(words + kAheadWords);
        const Lanes row = Lanes::Load(words), row_odd = Lanes::Right(row, 32);
        SHOAL_UNROLL for (size_t v = 0; v < kCount; ++v) {
          even[v][r] = Lanes::Add(even[v][r], Lanes::Multiply(row, factor[v]));
          odd[v][r] = Lanes::Add(odd[v][r], Lanes::Multiply(row_odd, factor_odd[v]));
        }
      }
    }
    SHOAL_UNROLL for (size_t v = 0; v < kCount; ++v) {
      SHOAL_UNROLL for (size_t r = 0; r < kRows; ++r) {
        Join(prime.Reduce64(even[v][r]), prime.Reduce64(odd[v][r]))
            .Store(out + kBlock * (kTileRows * v + r) + part);
      }
    }
  }

  static void Sums(uint32_t k, const uint32_t* table, size_t terms, const uint32_t* const* vectors,
                   size_t count, uint32_t* out) {
    const Prime prime(k);
    constexpr size_t kOutWords = RingKernel::kTileRows * RingKernel::kBlock;
    constexpr size_t kRows = RingKernel::kTileRows, kBlock = RingKernel::kBlock;
    // Twice as many vectors with half the rows take as many registers, and read the table once.
    constexpr size_t kMany = 2 * Lanes::kTogether;
    for (size_t v = 0; v < count;) {
      // More vectors at a time do not fit the registers.
      const size_t left = count - v;
      const size_t together = left >= kMany              ? kMany
                              : left >= Lanes::kTogether ? Lanes::kTogether
                                                         : 1;
      uint32_t* const to = out + v * kOutWords;
      for (size_t part = 0; part < kBlock; part += kWords) {
        if (together == kMany) {
          for (size_t row = 0; row < kRows; row += kRows / 2) {
            PartSums<kMany, kRows / 2>(prime, table + row * kBlock, terms, vectors + v, part,
                                       to + row * kBlock);
          }
        } else if (together == 1) {
          PartSums<1, kRows>(prime, table, terms, vectors + v, part, to);
        } else {
          PartSums<Lanes::kTogether, kRows>(prime, table, terms, vectors + v, part, to);
        }
      }
      v += together;
    }
  }

  static void Dot(uint32_t k, const uint32_t* a, size_t a_stride, const uint32_t* b,
                  size_t b_stride, size_t terms, const uint32_t* add, uint32_t* out) {
    const Prime prime(k);
    const Lanes low32 = Lanes::Repeat(0xffffffff);
    // Several neighbours at a time, as the factors of different terms lie far apart.
    constexpr size_t kSide = 4;
    for (size_t w = 0; w < kDegree; w += kSide * kWords) {
      Lanes even[kSide], odd[kSide];
      SHOAL_UNROLL for (size_t i = 0; i < kSide; ++i) {
        const Lanes sum = add == nullptr ? Lanes::Repeat(0) : Lanes::Load(add + w + i * kWords);
        even[i] = Lanes::And(sum, low32);
        odd[i] = Lanes::Right(sum, 32);
      }
      for (size_t t = 0; t < terms; ++t) {
        const uint32_t* const x_at = a + t * a_stride + w;
        const uint32_t* const y_at = b + t * b_stride + w;
        SHOAL_UNROLL for (size_t i = 0; i < kSide; ++i) {
          const Lanes x = Lanes::Load(x_at + i * kWords), y = Lanes::Load(y_at + i * kWords);
          even[i] = Lanes::Add(even[i], Lanes::Multiply(x, y));
          odd[i] = Lanes::Add(odd[i], Lanes::Multiply(Lanes::Right(x, 32), Lanes::Right(y, 32)));
        }
      }
      SHOAL_UNROLL for (size_t i = 0; i < kSide; ++i) {
        Join(prime.Reduce64(even[i]), prime.Reduce64(odd[i])).Store(out + w + i * kWords);
      }
    }
  }

  // Pairs [first, first + kSide kLanes) of a block, for kCount keys.
  template <size_t kCount, size_t kSide>
  SHOAL_INLINE static void PartSlide(const Prime& even_prime, const Prime& odd_prime,
                                     const uint32_t* digits, size_t steps,
                                     const uint32_t* const* keys, size_t first, uint32_t* out) {
    constexpr size_t kPair = RingKernel::kBlock * 2;  // words of a block
    Lanes even[kCount][kSide], odd[kCount][kSide];
    SHOAL_UNROLL for (size_t v = 0; v < kCount; ++v) {
      SHOAL_UNROLL for (size_t j = 0; j < kSide; ++j) even[v][j] = odd[v][j] = Lanes::Repeat(0);
    }
    for (size_t i = 0; i < steps; ++i) {
      SHOAL_UNROLL for (size_t j = 0; j < kSide; ++j) {
        const size_t word = 2 * first + j * kWords;
        const uint32_t* const at = digits + kPair * i + word;
        __builtin_prefetch(at + kAheadWords);
        const Lanes digit = Lanes::Load(at), digit_odd = Lanes::Right(digit, 32);
        SHOAL_UNROLL for (size_t v = 0; v < kCount; ++v) {
          const Lanes key = Lanes::Load(keys[v] + 2 * i + word);
          even[v][j] = Lanes::Add(even[v][j], Lanes::Multiply(digit, key));
          odd[v][j] = Lanes::Add(odd[v][j], Lanes::Multiply(digit_odd, Lanes::Right(key, 32)));
        }
      }
    }
    SHOAL_UNROLL for (size_t v = 0; v < kCount; ++v) {
      SHOAL_UNROLL for (size_t j = 0; j < kSide; ++j) {
        Join(even_prime.Reduce64(even[v][j]), odd_prime.Reduce64(odd[v][j]))
            .Store(out + v * kPair + 2 * first + j * kWords);
      }
    }
  }

  static void Slide(const uint32_t* digits, size_t steps, const uint32_t* const* keys, size_t count,
                    uint32_t* out) {
    const Prime even_prime(0), odd_prime(1);
    constexpr size_t kBlock = RingKernel::kBlock;
    // As many sums as fit the registers.
    constexpr size_t kSide = Lanes::kLanes == 1 ? 1 : kBlock / Lanes::kLanes;
    constexpr size_t kMany = Lanes::kLanes >= 8 ? 4 : 1;
    for (size_t v = 0; v < count;) {
      const size_t together = count - v >= kMany ? kMany : 1;
      uint32_t* const to = out + v * kBlock * 2;
      for (size_t first = 0; first < kBlock; first += kSide * Lanes::kLanes) {
        if (together == 1) {
          PartSlide<1, kSide>(even_prime, odd_prime, digits, steps, keys + v, first, to);
        } else {
          PartSlide<kMany, kSide>(even_prime, odd_prime, digits, steps, keys + v, first, to);
        }
      }
      v += together;
    }
  }

  // The number below Q with these residues, in lower halves, less Q if it is above Q / 2, plus
  // `offset`, which makes it positive.
  struct Composer {
    Prime prime{1};
    Lanes twice = Lanes::Repeat(2 * uint64_t{kPrime[1]});
    Lanes inverse = Lanes::Repeat(InverseModulo(kPrime[0], kPrime[1]));
    Lanes first = Lanes::Repeat(kPrime[0]);
    Lanes half = Lanes::Repeat(kModulus / 2), modulus = Lanes::Repeat(kModulus);
    Lanes zero = Lanes::Repeat(0), offset = Lanes::Repeat(0);

    SHOAL_INLINE Lanes Number(Lanes low, Lanes high) const {
      const Lanes difference = Lanes::Subtract(Lanes::Add(high, twice), low);
      const Lanes step = prime.Reduce58(Lanes::Multiply(difference, inverse));
      return Lanes::Add(low, Lanes::Multiply(step, first));
    }
    SHOAL_INLINE Lanes operator()(Lanes low, Lanes high) const {
      const Lanes x = Number(low, high);
      const Lanes above = Lanes::Subtract(zero, Lanes::Right(Lanes::Subtract(half, x), 63));
      return Lanes::Subtract(Lanes::Add(x, offset), Lanes::And(above, modulus));
    }
  };

  static void Decompose(const Gadget& gadget, const uint32_t* low, const uint32_t* high,
                        uint32_t* out) {
    const uint32_t bits = gadget.bits, drop = gadget.drop();
    // Half a step, and half of a digit's range in each digit: then digits are what bits say, less
    // that half.
    uint64_t offset = drop == 0 ? 0 : uint64_t{1} << (drop - 1);
    for (uint32_t i = 0; i < gadget.digits; ++i)
      offset += uint64_t{1} << (drop + bits * (i + 1) - 1);
    Composer compose;
    compose.offset = Lanes::Repeat(offset);
    const Lanes low32 = Lanes::Repeat(0xffffffff);
    const Splitter split(gadget);
    for (size_t w = 0; w < kDegree; w += kWords) {
      const Lanes r0 = Lanes::Load(low + w), r1 = Lanes::Load(high + w);
      // The last digit takes all bits that are left: it is at most 2^bits.
      split(compose(Lanes::And(r0, low32), Lanes::And(r1, low32)),
            compose(Lanes::Right(r0, 32), Lanes::Right(r1, 32)), Lanes::Repeat(~uint64_t{0}),
            out + w);
    }
  }

  // Writes the digits of numbers in even and odd places, each less half its range.
  struct Splitter {
    const Gadget gadget;
    const Lanes mask, half;
    Lanes minus[kPrimes];  // half - p in both halves
    SHOAL_INLINE explicit Splitter(const Gadget& g)
        : gadget(g),
          mask(Lanes::Repeat((uint64_t{1} << g.bits) - 1)),
          half(Lanes::Repeat((uint64_t{1} << (g.bits - 1)) * 0x100000001u)) {
      SHOAL_UNROLL for (size_t k = 0; k < kPrimes; ++k) {
        minus[k] = Lanes::Subtract32(half, Lanes::Repeat(uint64_t{kPrime[k]} * 0x100000001u));
      }
    }
    // Of the last digit, the bits of `last` are kept.
    SHOAL_INLINE void operator()(Lanes even, Lanes odd, Lanes last, uint32_t* out) const {
      for (uint32_t i = 0; i < gadget.digits; ++i) {
        const uint32_t shift = gadget.drop() + gadget.bits * i;
        const Lanes keep = i + 1 == gadget.digits ? last : mask;
        const Lanes digit = Join(Lanes::And(Lanes::Right(even, shift), keep),
                                 Lanes::And(Lanes::Right(odd, shift), keep));
        const Lanes plus = Lanes::Subtract32(digit, half);
        SHOAL_UNROLL for (size_t k = 0; k < kPrimes; ++k) {
          // digit - half, or that plus p if it is negative: the smaller one, unsigned.
          Lanes::Min32(plus, Lanes::Subtract32(digit, minus[k]))
              .Store(out + (i * kPrimes + k) * kDegree);
        }
      }
    }
  };

  static void DecomposeDithered(const Gadget& gadget, const uint32_t* low, const uint32_t* high,
                                const uint64_t* dither, uint32_t* out) {
    const Composer compose;
    const Lanes low32 = Lanes::Repeat(0xffffffff);
    const Splitter split(gadget);
    // x 2^54 / Q = x + x (2^54 - Q) / Q, of which floor(x / 2^22) and the factor's first bits make
    // all but 2^13 + 2^13.
    constexpr unsigned __int128 kMissing = (uint64_t{1} << 54) - kModulus;
    const Lanes factor = Lanes::Repeat(static_cast<uint64_t>((kMissing << 41) / kModulus));
    const auto number = [&](Lanes r0, Lanes r1, const uint64_t* added) SHOAL_INLINE_LAMBDA {
      const Lanes x = compose.Number(r0, r1);
      const Lanes more = Lanes::Right(Lanes::Multiply(Lanes::Right(x, 22), factor), 19);
      return Lanes::Add(Lanes::Add(x, more), Lanes::Load(reinterpret_cast<const uint32_t*>(added)));
    };
    for (size_t w = 0; w < kDegree; w += kWords) {
      const Lanes r0 = Lanes::Load(low + w), r1 = Lanes::Load(high + w);
      split(number(Lanes::And(r0, low32), Lanes::And(r1, low32), dither + w / 2),
            number(Lanes::Right(r0, 32), Lanes::Right(r1, 32), dither + (kDegree + w) / 2),
            split.mask, out + w);
    }
  }

  template <size_t kCount>
  SHOAL_INLINE static void StepRows(const Prime& prime, const uint32_t* digit_words, size_t digits,
                                    const uint32_t* const* keys, uint32_t* rows) {
    constexpr size_t kOrbitWords = RingKernel::kOrbitWords, kStride = RingKernel::kOrbitStride;
    const Lanes low32 = Lanes::Repeat(0xffffffff);
    for (size_t q = 0; q < kCount; ++q) rows[q * kStride + kOrbitWords] = rows[q * kStride];
    for (size_t w = 0; w < kOrbitWords; w += kWords) {
      Lanes even[kCount], odd[kCount];
      SHOAL_UNROLL for (size_t q = 0; q < kCount; ++q) {
        const Lanes moved = Lanes::Load(rows + q * kStride + w + 1);
        even[q] = Lanes::And(moved, low32);
        odd[q] = Lanes::Right(moved, 32);
      }
      for (size_t d = 0; d < digits; ++d) {
        const Lanes x = Lanes::Load(digit_words + d * kOrbitWords + w), x_odd = Lanes::Right(x, 32);
        SHOAL_UNROLL for (size_t q = 0; q < kCount; ++q) {
          const Lanes y = Lanes::Load(keys[q] + d * kOrbitWords + w);
          even[q] = Lanes::Add(even[q], Lanes::Multiply(x, y));
          odd[q] = Lanes::Add(odd[q], Lanes::Multiply(x_odd, Lanes::Right(y, 32)));
        }
      }
      SHOAL_UNROLL for (size_t q = 0; q < kCount; ++q) {
        Join(prime.Reduce58(even[q]), prime.Reduce58(odd[q])).Store(rows + q * kStride + w);
      }
    }
  }

  static void UnpackStep(uint32_t k, const uint32_t* digit_words, size_t digits,
                         const uint32_t* const* keys, size_t count, uint32_t* rows) {
    const Prime prime(k);
    for (; count >= 4; count -= 4, keys += 4, rows += 4 * RingKernel::kOrbitStride) {
      StepRows<4>(prime, digit_words, digits, keys, rows);
    }
    for (; count > 0; --count, ++keys, rows += RingKernel::kOrbitStride) {
      StepRows<1>(prime, digit_words, digits, keys, rows);
    }
  }

  static void UnpackSplit(uint32_t k, const uint32_t* factor, size_t count, bool both,
                          uint32_t* node, uint32_t* first) {
    const Prime prime(k);
    const Lanes p = Lanes::Repeat(uint64_t{kPrime[k]} * 0x100000001u);
    for (size_t q = 0; q < count; ++q) {
      for (size_t w = 0; w < RingKernel::kOrbitWords; w += kWords) {
        const size_t at = q * RingKernel::kOrbitStride + w;
        const Lanes a = Lanes::Load(node + at), b = Lanes::Load(first + at);
        const Lanes sum = Lanes::Add32(a, b), difference = Lanes::Subtract32(a, b);
        Lanes::Min32(sum, Lanes::Subtract32(sum, p)).Store(first + at);
        if (!both) continue;
        const Lanes x = Lanes::Min32(difference, Lanes::Add32(difference, p));
        const Lanes y = Lanes::Load(factor + w);
        Join(prime.Reduce58(Lanes::Multiply(x, y)),
             prime.Reduce58(Lanes::Multiply(Lanes::Right(x, 32), Lanes::Right(y, 32))))
            .Store(node + at);
      }
    }
  }

  static void AddWords(uint32_t k, const uint32_t* a, const uint32_t* b, uint32_t* out) {
    const Lanes p = Lanes::Repeat(uint64_t{kPrime[k]} * 0x100000001u);
    for (size_t w = 0; w < kDegree; w += kWords) {
      const Lanes sum = Lanes::Add32(Lanes::Load(a + w), Lanes::Load(b + w));
      Lanes::Min32(sum, Lanes::Subtract32(sum, p)).Store(out + w);
    }
  }

  static void SubtractWords(uint32_t k, const uint32_t* a, const uint32_t* b, uint32_t* out) {
    const Lanes p = Lanes::Repeat(uint64_t{kPrime[k]} * 0x100000001u);
    for (size_t w = 0; w < kDegree; w += kWords) {
      const Lanes difference = Lanes::Subtract32(Lanes::Load(a + w), Lanes::Load(b + w));
      Lanes::Min32(difference, Lanes::Add32(difference, p)).Store(out + w);
    }
  }

  // Products with a constant modulo p, of 32-bit words side by side, below 2 p (Shoup): the
  // quotient is at most 1 too small.
  struct Factor {
    Lanes value, quotient, quotient_odd;
    SHOAL_INLINE Factor(Lanes v, Lanes q)
        : value(v), quotient(q), quotient_odd(Lanes::Right(q, 32)) {}
    SHOAL_INLINE static Factor Same(uint32_t v, uint32_t q) {
      return {Lanes::Repeat(v * 0x100000001u), Lanes::Repeat(q * 0x100000001u)};
    }
    SHOAL_INLINE Lanes Times(Lanes x, Lanes p, Lanes high32) const {
      const Lanes even = Lanes::Right(Lanes::Multiply(x, quotient), 32);
      const Lanes odd = Lanes::And(Lanes::Multiply(Lanes::Right(x, 32), quotient_odd), high32);
      return Lanes::Subtract32(Lanes::MultiplyLow32(x, value),
                               Lanes::MultiplyLow32(Lanes::Add32(even, odd), p));
    }
  };

  struct Butterfly {
    Lanes p, twice, high32 = Lanes::Repeat(0xffffffff00000000u);
    SHOAL_INLINE explicit Butterfly(uint32_t k)
        : p(Lanes::Repeat(kPrime[k] * 0x100000001u)),
          twice(Lanes::Repeat(2 * kPrime[k] * 0x100000001u)) {}
    // Words below 4 p before and after.
    SHOAL_INLINE void Forward(const Factor& factor, uint32_t* at, uint32_t* beside) const {
      Lanes x = Lanes::Load(at);
      x = Lanes::Min32(x, Lanes::Subtract32(x, twice));
      const Lanes y = factor.Times(Lanes::Load(beside), p, high32);
      Lanes::Add32(x, y).Store(at);
      Lanes::Add32(Lanes::Subtract32(x, y), twice).Store(beside);
    }
    // Words below 2 p before and after.
    SHOAL_INLINE void Back(const Factor& factor, uint32_t* at, uint32_t* beside) const {
      const Lanes x = Lanes::Load(at), y = Lanes::Load(beside);
      const Lanes sum = Lanes::Add32(x, y);
      Lanes::Min32(sum, Lanes::Subtract32(sum, twice)).Store(at);
      factor.Times(Lanes::Add32(Lanes::Subtract32(x, y), twice), p, high32).Store(beside);
    }
  };

  static constexpr uint32_t kInner = TransformTable::kInner;

  // The words of 16 groups of 16, or back.
  SHOAL_INLINE static void Transpose(uint32_t* block) {
    if constexpr (requires { Lanes::Transpose16(block); }) {
      Lanes::Transpose16(block);
    } else {
      for (size_t i = 0; i < kInner; ++i) {
        for (size_t j = i + 1; j < kInner; ++j)
          std::swap(block[i * kInner + j], block[j * kInner + i]);
      }
    }
  }

  // Calls step(factor, at, beside) for the butterflies of the last four levels in a block.
  template <typename Step>
  SHOAL_INLINE static void InnerLevel(const TransformTable& table, size_t block_index, uint32_t s,
                                      uint32_t* block, const Step& step) {
    const size_t apart = kInner / 2 >> s;
    for (size_t j = 0; j < (size_t{1} << s); ++j) {
      const size_t power = (block_index * (kInner - 1) + (size_t{1} << s) - 1 + j) * kInner;
      for (size_t lane = 0; lane < kInner; lane += kWords) {
        const Factor factor(Lanes::Load(table.inner.value.data() + power + lane),
                            Lanes::Load(table.inner.quotient.data() + power + lane));
        for (size_t i = 0; i < apart; ++i) {
          uint32_t* const at = block + (2 * j * apart + i) * kInner + lane;
          step(factor, at, at + apart * kInner);
        }
      }
    }
  }

  static void Transform(uint32_t k, const TransformTable& table, uint32_t* words) {
    const Butterfly butterfly(k);
    const auto step = [&](const Factor& factor, uint32_t* at, uint32_t* beside)
                          SHOAL_INLINE_LAMBDA { butterfly.Forward(factor, at, beside); };
    for (uint32_t m = 1, apart = kDegree / 2; m < TransformTable::kOuter; m *= 2, apart /= 2) {
      for (uint32_t i = 0; i < m; ++i) {
        const Factor factor = Factor::Same(table.outer.value[m + i], table.outer.quotient[m + i]);
        uint32_t* const at = words + 2 * i * apart;
        for (uint32_t w = 0; w < apart; w += kWords) step(factor, at + w, at + apart + w);
      }
    }
    for (size_t b = 0; b < kDegree / (kInner * kInner); ++b) {
      uint32_t* const block = words + b * kInner * kInner;
      Transpose(block);
      for (uint32_t s = 0; s < 4; ++s) InnerLevel(table, b, s, block, step);
      for (size_t w = 0; w < kInner * kInner; w += kWords) {
        Lanes x = Lanes::Load(block + w);
        x = Lanes::Min32(x, Lanes::Subtract32(x, butterfly.twice));
        Lanes::Min32(x, Lanes::Subtract32(x, butterfly.p)).Store(block + w);
      }
    }
  }

  static void TransformBack(uint32_t k, const TransformTable& table, uint32_t* words) {
    const Butterfly butterfly(k);
    const auto step = [&](const Factor& factor, uint32_t* at, uint32_t* beside)
                          SHOAL_INLINE_LAMBDA { butterfly.Back(factor, at, beside); };
    for (size_t b = 0; b < kDegree / (kInner * kInner); ++b) {
      uint32_t* const block = words + b * kInner * kInner;
      for (uint32_t s = 4; s-- > 0;) InnerLevel(table, b, s, block, step);
      Transpose(block);
    }
    for (uint32_t m = TransformTable::kOuter / 2, apart = kInner; m > 0; m /= 2, apart *= 2) {
      for (uint32_t i = 0; i < m; ++i) {
        const Factor factor = Factor::Same(table.outer.value[m + i], table.outer.quotient[m + i]);
        uint32_t* const at = words + 2 * i * apart;
        for (uint32_t w = 0; w < apart; w += kWords) step(factor, at + w, at + apart + w);
      }
    }
    const Factor last = Factor::Same(table.last, table.last_quotient);
    for (size_t w = 0; w < kDegree; w += kWords) {
      const Lanes x = last.Times(Lanes::Load(words + w), butterfly.p, butterfly.high32);
      Lanes::Min32(x, Lanes::Subtract32(x, butterfly.p)).Store(words + w);
    }
  }
};

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_RING_KERNEL_IMPL_H_
