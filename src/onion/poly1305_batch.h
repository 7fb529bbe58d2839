// Poly1305 (RFC 8439, sections 2.5 and 2.8) in batches, one message per vector lane, for the tags
// of ChaCha20-Poly1305 with an empty aad. Five limbs of 26 bits, products by 32-bit multipliers.
// Nothing branches on data or looks anything up.
//
// Between blocks all limbs of h are below 2^26, but for one carry into h1. Then a column of five
// products is below 2^59 (interval_test proves it).
//
// Vec has 64-bit lanes; kernel_ifma.cc shows what it must offer.
#ifndef SHOAL_SRC_ONION_POLY1305_BATCH_H_
#define SHOAL_SRC_ONION_POLY1305_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/onion/lanes.h"

namespace shoal::onion {

template <typename Vec>
struct Poly1305Batch {
  static void Tags(const uint8_t* tag_keys, size_t key_stride, const uint8_t* ciphertexts,
                   size_t ciphertext_stride, size_t bytes, uint8_t* tags, size_t n) {
    for (size_t begin = 0; begin < n; begin += kLanes) {
      Group(tag_keys + begin * key_stride, key_stride, ciphertexts + begin * ciphertext_stride,
            ciphertext_stride, bytes, tags + begin * 16, Lanes<Vec>::Count(n, begin));
    }
  }

 private:
  static constexpr size_t kLanes = Vec::kLanes;
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

  // h = (h + block) r; times5 is 5 r.
  SHOAL_INLINE static void Absorb(Number& h, const Number& block, const Number& r,
                                  const Number& times5) {
    Vec x[5];
    Number d;
    SHOAL_UNROLL for (int i = 0; i < 5; ++i) x[i] = h.limb[i] + block.limb[i];
    SHOAL_UNROLL for (int k = 0; k < 5; ++k) {
      d.limb[k] = Vec::Mul32(x[0], r.limb[k]);
      SHOAL_UNROLL for (int i = 1; i < 5; ++i) {
        d.limb[k] = d.limb[k] + Vec::Mul32(x[i], i <= k ? r.limb[k - i] : times5.limb[5 + k - i]);
      }
    }
    const Vec passed = Carry(d, 0);
    h = d;
    h.limb[0] = h.limb[0] + Times5(passed);
    // Less than 2^10 is carried here. So if Finish() carries all the way round, h1 is small.
    h.limb[1] = h.limb[1] + h.limb[0].template Srl<26>();
    h.limb[0] = h.limb[0] & Vec::Set1(kMask);
  }

  // Reduces h fully and adds the key's second half, modulo 2^128. No comparisons: compilers make
  // branches of them.
  SHOAL_INLINE static void Finish(Number& h, const uint8_t* keys, size_t key_stride, uint8_t* tags,
                                  size_t n) {
    h.limb[0] = h.limb[0] + Times5(Carry(h, 1));
    h.limb[1] = h.limb[1] + h.limb[0].template Srl<26>();  // less than 2^26: see Absorb
    h.limb[0] = h.limb[0] & Vec::Set1(kMask);
    // h is not below p = 2^130 - 5 if h + 5 passes 2^130; then h + 5 - 2^130 is the result.
    Number plus5 = h;
    plus5.limb[0] = plus5.limb[0] + Vec::Set1(5);
    h.limb[0] = h.limb[0] + Times5(Carry(plus5, 0));
    Carry(h, 0);
    const Vec word[2] = {
        h.limb[0] | h.limb[1].template Sll<26>() | h.limb[2].template Sll<52>(),
        h.limb[2].template Srl<12>() | h.limb[3].template Sll<14>() | h.limb[4].template Sll<40>()};
    alignas(64) uint64_t lanes[2][kLanes];
    for (int w = 0; w < 2; ++w) word[w].Store(lanes[w]);
    for (size_t lane = 0; lane < n; ++lane) {
      unsigned __int128 pad, tag = lanes[1][lane];
      __builtin_memcpy(&pad, keys + lane * key_stride + 16, 16);
      tag = (tag << 64 | lanes[0][lane]) + pad;
      __builtin_memcpy(tags + lane * 16, &tag, 16);
    }
    Lanes<Vec>::Wipe(lanes, sizeof lanes);
    Lanes<Vec>::Wipe(&plus5, sizeof plus5);
  }

  SHOAL_NOINLINE static void Group(const uint8_t* keys, size_t key_stride,
                                   const uint8_t* ciphertexts, size_t stride, size_t bytes,
                                   uint8_t* tags, size_t n) {
    Vec word[2];
    Lanes<Vec>::Load(keys, key_stride, n, word);
    word[0] = word[0] & Vec::Set1(0x0ffffffc0fffffff);
    word[1] = word[1] & Vec::Set1(0x0ffffffc0ffffffc);
    Number r = FromWords(word), times5, h;
    SHOAL_UNROLL for (int i = 0; i < 5; ++i) {
      times5.limb[i] = Times5(r.limb[i]);
      h.limb[i] = Vec::Set1(0);
    }
    const Vec bit128 = Vec::Set1(uint64_t{1} << 24);
    // Every block is full: zeros follow the ciphertext.
    const auto absorb = [&] {
      Number block = FromWords(word);
      block.limb[4] = block.limb[4] | bit128;
      Absorb(h, block, r, times5);
    };
    size_t at = 0;
    for (; at + 16 <= bytes; at += 16) {
      Lanes<Vec>::Load(ciphertexts + at, stride, n, word);
      absorb();
    }
    if (at < bytes) {
      uint8_t last[kLanes][16] = {};
      for (size_t lane = 0; lane < n; ++lane) {
        __builtin_memcpy(last[lane], ciphertexts + lane * stride + at, bytes - at);
      }
      Lanes<Vec>::Load(last[0], 16, n, word);
      absorb();
    }
    word[0] = Vec::Set1(0);
    word[1] = Vec::Set1(bytes);
    absorb();
    Finish(h, keys, key_stride, tags, n);
    Lanes<Vec>::Wipe(word, sizeof word);
    Lanes<Vec>::Wipe(&r, sizeof r);
    Lanes<Vec>::Wipe(&times5, sizeof times5);
    Lanes<Vec>::Wipe(&h, sizeof h);
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_POLY1305_BATCH_H_
