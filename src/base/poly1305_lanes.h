// Poly1305 (RFC 8439, section 2.5) on one message in each lane of a vector: the arithmetic modulo
// p = 2^130 - 5, of which src/onion and src/sharing make tags of their own messages. Five limbs of
// 26 bits, products by 32-bit multipliers. Nothing branches on data or looks anything up.
//
// Between blocks all limbs of h are below 2^26, but for one carry into h1. Then a column of five
// products is below 2^59 (//src/onion:interval_test proves it).
//
// Vec has 64-bit lanes: kLanes, Set1, +, &, |, Srl, Sll, and Mul32, the product of the low halves.
#ifndef SHOAL_SRC_BASE_POLY1305_LANES_H_
#define SHOAL_SRC_BASE_POLY1305_LANES_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"

namespace shoal {

template <typename Vec>
class Poly1305Lanes {
 public:
  // `key`: the two words of the key's first half, of every lane; clamped here.
  SHOAL_INLINE explicit Poly1305Lanes(const Vec key[2]) {
    const Vec word[2] = {key[0] & Vec::Set1(0x0ffffffc0fffffff),
                         key[1] & Vec::Set1(0x0ffffffc0ffffffc)};
    r_ = FromWords(word);
    SHOAL_UNROLL for (int i = 0; i < 5; ++i) {
      times5_.limb[i] = Times5(r_.limb[i]);
      h_.limb[i] = Vec::Set1(0);
    }
  }

  // h = (h + block) r, for a block of 16 bytes.
  SHOAL_INLINE void Absorb(const Vec word[2]) {
    Number block = FromWords(word);
    block.limb[4] = block.limb[4] | Vec::Set1(uint64_t{1} << 24);
    AbsorbNumber(block);
  }
  // The same for the last block of a message, if it is shorter: `word` has a byte of 1 after the
  // message's, then zeros.
  SHOAL_INLINE void AbsorbShort(const Vec word[2]) { AbsorbNumber(FromWords(word)); }

  // The tags: h modulo p, plus the key's second half, modulo 2^128. No comparisons: compilers make
  // branches of them. To be called once.
  SHOAL_INLINE void Finish(const Vec pad[2], Vec tag[2]) {
    // h is below 2 p, and not below p if h + 5 passes 2^130: then h + 5, without that bit, is the
    // result. The sum below is taken modulo 2^130, and at last modulo 2^128.
    Number other = h_;
    other.limb[0] = other.limb[0] + Vec::Set1(5);
    h_.limb[0] = h_.limb[0] + Times5(Carry(other, 0));
    other = FromWords(pad);
    SHOAL_UNROLL for (int i = 0; i < 5; ++i) h_.limb[i] = h_.limb[i] + other.limb[i];
    Carry(h_, 0);
    tag[0] = h_.limb[0] | h_.limb[1].template Sll<26>() | h_.limb[2].template Sll<52>();
    tag[1] = h_.limb[2].template Srl<12>() | h_.limb[3].template Sll<14>() |
             h_.limb[4].template Sll<40>();
  }

 private:
  static constexpr uint64_t kMask = (uint64_t{1} << 26) - 1;

  struct Number {
    Vec limb[5];
  };

  // The 128 bits of two words.
  SHOAL_INLINE static Number FromWords(const Vec word[2]) {
    const Vec mask = Vec::Set1(kMask);
    return {{word[0] & mask, word[0].template Srl<26>() & mask,
             (word[0].template Srl<52>() | word[1].template Sll<12>()) & mask,
             word[1].template Srl<14>() & mask, word[1].template Srl<40>()}};
  }

  // Carries from limb `first` to the last; what passes 2^130 is returned.
  SHOAL_INLINE static Vec Carry(Number& h, int first) {
    const Vec mask = Vec::Set1(kMask);
    SHOAL_UNROLL for (int k = first; k < 4; ++k) {
      h.limb[k + 1] = h.limb[k + 1] + h.limb[k].template Srl<26>();
      h.limb[k] = h.limb[k] & mask;
    }
    const Vec passed = h.limb[4].template Srl<26>();
    h.limb[4] = h.limb[4] & mask;
    return passed;
  }
  SHOAL_INLINE static Vec Times5(Vec a) { return a + a.template Sll<2>(); }

  SHOAL_INLINE void AbsorbNumber(const Number& block) {
    Vec x[5];
    SHOAL_UNROLL for (int i = 0; i < 5; ++i) x[i] = h_.limb[i] + block.limb[i];
    SHOAL_UNROLL for (int k = 0; k < 5; ++k) {
      h_.limb[k] = Vec::Mul32(x[0], r_.limb[k]);
      SHOAL_UNROLL for (int i = 1; i < 5; ++i) {
        h_.limb[k] =
            h_.limb[k] + Vec::Mul32(x[i], i <= k ? r_.limb[k - i] : times5_.limb[5 + k - i]);
      }
    }
    const Vec passed = Carry(h_, 0);
    h_.limb[0] = h_.limb[0] + Times5(passed);
    // Less than 2^10 is carried here. So if Finish() carries all the way round, h1 is small.
    h_.limb[1] = h_.limb[1] + h_.limb[0].template Srl<26>();
    h_.limb[0] = h_.limb[0] & Vec::Set1(kMask);
  }

  Number r_, times5_, h_;
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_POLY1305_LANES_H_
