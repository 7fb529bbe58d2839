// The loops of the ring engines' servers (small_pir.h, hintless.h): products and sums modulo the
// primes of params.h.
// One file for each instruction set; all of them give the same words, each below its prime.
//
// Everything here works on public numbers and on ciphertexts. No time depends on a value.
#ifndef SHOAL_SRC_PIR_RLWE_RING_KERNEL_H_
#define SHOAL_SRC_PIR_RLWE_RING_KERNEL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/pir/rlwe/params.h"

namespace shoal::pir::rlwe {

// Digits of numbers modulo Q: x = sum of 2^(drop + bits i) digit_i + rest, i < digits, where each
// digit is in [-2^(bits - 1), 2^(bits - 1)], and the rest in [-2^(drop - 1), 2^(drop - 1)], or 0 if
// the digits have 54 bits and more.
struct Gadget {
  uint32_t bits = 0;
  uint32_t digits = 0;
  constexpr uint32_t drop() const { return bits * digits < 54 ? 54 - bits * digits : 0; }
};

// Powers of a root of unity, each with the first 32 bits of its quotient by the prime, for number-
// theoretic transforms (ring_transform.h).
struct TransformTable {
  // Words of the last levels' butterflies are brought 16 apart.
  static constexpr uint32_t kInner = 16;
  static constexpr uint32_t kOuter = kDegree / kInner;  // 128
  struct Powers {
    std::vector<uint32_t> value, quotient;
  };
  // Node i of the level with m nodes: outer[m + i], m < kOuter.
  // Level s of the last four, sub-node j < 2^s, of the groups of kInner words 16 block + lane:
  // inner[(block * 15 + 2^s - 1 + j) * 16 + lane].
  Powers outer, inner;
  uint32_t last = 0, last_quotient = 0;  // 1 / kDegree, for transforms back
};

struct RingKernel {
  // A tile has kTileRows blocks of kBlock words for each term: words of as many ring elements.
  static constexpr size_t kBlock = 16;
  static constexpr size_t kTileRows = 4;
  // Terms of a sum at most: products are below 2^54, and their sums must stay below 2^63.
  static constexpr size_t kMaxTerms = 512;
  static constexpr size_t kOrbitWords = 64, kOrbitStride = 80;

  const char* name;

  // out[(4 v + r) * 16 + w] = the sum over i < terms of tile[(4 i + r) * 16 + w] * vectors[v][16 i
  // + w] modulo prime k, for v < count, r < 4, w < 16. Words behind the tile are prefetched.
  void (*sums)(uint32_t k, const uint32_t* tile, size_t terms, const uint32_t* const* vectors,
               size_t count, uint32_t* out);

  // out[w] = (add[w] + the sum over t < terms of a[t * stride + w] * b[t * stride + w]) modulo
  // prime k, w < kDegree; strides in words. `add` may be null or `out`. At most kMaxTerms - 1
  // terms.
  void (*dot)(uint32_t k, const uint32_t* a, size_t a_stride, const uint32_t* b, size_t b_stride,
              size_t terms, const uint32_t* add, uint32_t* out);

  // Sums along windows that slide over `count` keys, for pairs of words: word 2 w of prime 0, word
  // 2 w + 1 of prime 1. out[v][w] = the sum over i < steps of digits[kBlock i + w] * keys[v][i +
  // w], modulo each prime, for v < count and w < kBlock. At most kMaxSteps steps. Digits behind the
  // last ones are prefetched.
  static constexpr size_t kMaxSteps = 1024;
  void (*slide)(const uint32_t* digits, size_t steps, const uint32_t* const* keys, size_t count,
                uint32_t* out);

  // The digits of the kDegree numbers whose residues are `low` (of prime 0) and `high` (of prime
  // 1), as residues: out[(digit * kPrimes + k) * kDegree + w].
  void (*decompose)(const Gadget& gadget, const uint32_t* low, const uint32_t* high, uint32_t* out);

  // The same of numbers from 0 to Q that are brought to [0, 2^54) and to which `dither` is added,
  // modulo 2^54: y = x 2^54 / Q + dither is, up to 2^14 and a constant,
  // sum of 2^(drop + bits i) digit_i + rest, with 0 <= rest < 2^drop and digits in
  // [-2^(bits - 1), 2^(bits - 1)). bits * digits < 54. The number at word w has the dither
  // [w / 2] if w is even, [(kDegree + w) / 2] if it is odd.
  void (*decompose_dithered)(const Gadget& gadget, const uint32_t* low, const uint32_t* high,
                             const uint64_t* dither, uint32_t* out);

  // Unpacking works on orbits: the kOrbitWords words of a ring element between which tau
  // (small_public.h) moves words, in the order in which tau takes word j from word j + 1. `rows`
  // are the orbits of `count` queries, kOrbitStride words apart, of which words [kOrbitWords,
  // kOrbitStride) are scratch.
  //
  // The row of query q becomes tau of it plus the sum over d < digits of the product of words
  // digit_words[d * kOrbitWords + j] and keys[q][d * kOrbitWords + j]. digits < 16.
  void (*unpack_step)(uint32_t k, const uint32_t* digit_words, size_t digits,
                      const uint32_t* const* keys, size_t count, uint32_t* rows);
  // first becomes node + first; and if `both`, node becomes (node - first) * factor.
  void (*unpack_split)(uint32_t k, const uint32_t* factor, size_t count, bool both, uint32_t* node,
                       uint32_t* first);

  // a + b and a - b, kDegree words modulo prime k. out may be a or b.
  void (*add)(uint32_t k, const uint32_t* a, const uint32_t* b, uint32_t* out);
  void (*subtract)(uint32_t k, const uint32_t* a, const uint32_t* b, uint32_t* out);

  // kDegree words modulo prime k, in place (ring_transform.h).
  void (*transform)(uint32_t k, const TransformTable& table, uint32_t* words);
  void (*transform_back)(uint32_t k, const TransformTable& table, uint32_t* words);
};

// Null if this processor, or this build, does not have the instructions.
const RingKernel& PortableRingKernel();
const RingKernel* Avx2RingKernel();
const RingKernel* Avx512RingKernel();

// The kernels that this processor can run, the slowest (portable) first.
std::vector<const RingKernel*> SupportedRingKernels();
const RingKernel& FastestRingKernel();

}  // namespace shoal::pir::rlwe

#endif  // SHOAL_SRC_PIR_RLWE_RING_KERNEL_H_
