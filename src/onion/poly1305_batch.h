// Poly1305 tags (RFC 8439, section 2.8) in batches, one message per vector lane, for
// ChaCha20-Poly1305 with an empty aad. Nothing branches on data or looks anything up.
//
// Vec has 64-bit lanes; kernel_ifma.cc shows what it must offer.
#ifndef SHOAL_SRC_ONION_POLY1305_BATCH_H_
#define SHOAL_SRC_ONION_POLY1305_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/base/poly1305_lanes.h"
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

  SHOAL_NOINLINE static void Group(const uint8_t* keys, size_t key_stride,
                                   const uint8_t* ciphertexts, size_t stride, size_t bytes,
                                   uint8_t* tags, size_t n) {
    Vec word[2];
    Lanes<Vec>::Load(keys, key_stride, n, word);
    Poly1305Lanes<Vec> poly(word);
    // Every block is full: zeros follow the ciphertext.
    size_t at = 0;
    for (; at + 16 <= bytes; at += 16) {
      Lanes<Vec>::Load(ciphertexts + at, stride, n, word);
      poly.Absorb(word);
    }
    if (at < bytes) {
      uint8_t last[kLanes][16] = {};
      for (size_t lane = 0; lane < n; ++lane) {
        __builtin_memcpy(last[lane], ciphertexts + lane * stride + at, bytes - at);
      }
      Lanes<Vec>::Load(last[0], 16, n, word);
      poly.Absorb(word);
    }
    word[0] = Vec::Set1(0);
    word[1] = Vec::Set1(bytes);
    poly.Absorb(word);
    Vec tag[2];
    Lanes<Vec>::Load(keys + 16, key_stride, n, word);
    poly.Finish(word, tag);
    Lanes<Vec>::Store(tag, tags, 16, n);
    Lanes<Vec>::Wipe(word, sizeof word);
    Lanes<Vec>::Wipe(&poly, sizeof poly);
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_POLY1305_BATCH_H_
