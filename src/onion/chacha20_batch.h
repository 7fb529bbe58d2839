// ChaCha20 (RFC 8439) in batches, one key per vector lane. Nothing branches on data or looks
// anything up.
//
// Vec has 32-bit lanes; kernel_ifma.cc shows what it must offer.
#ifndef SHOAL_SRC_ONION_CHACHA20_BATCH_H_
#define SHOAL_SRC_ONION_CHACHA20_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/onion/kernel.h"
#include "src/onion/lanes.h"

namespace shoal::onion {

template <typename Vec>
struct ChaCha20Batch {
  static void StreamBlock(const uint8_t* stream_keys, uint32_t counter, uint8_t* blocks, size_t n) {
    for (size_t begin = 0; begin < n; begin += Vec::kLanes) {
      const size_t lanes = Lanes<Vec>::Count(n, begin);
      Vec key[11], x[16];  // the key's 8 words, then the nonce's 3
      Lanes<Vec>::Load(stream_keys + begin * kKernelStreamKeyBytes, kKernelStreamKeyBytes, lanes,
                       key);
      Block(key, Vec::Set1(counter), x);
      Lanes<Vec>::Store(x, blocks + begin * 64, 64, lanes);
      Lanes<Vec>::Wipe(key, sizeof key);
      Lanes<Vec>::Wipe(x, sizeof x);
    }
  }

 private:
  SHOAL_INLINE static void Start(const Vec key[11], Vec counter, Vec x[16]) {
    x[0] = Vec::Set1(0x61707865);  // "expand 32-byte k"
    x[1] = Vec::Set1(0x3320646e);
    x[2] = Vec::Set1(0x79622d32);
    x[3] = Vec::Set1(0x6b206574);
    SHOAL_UNROLL for (int i = 0; i < 8; ++i) x[4 + i] = key[i];
    x[12] = counter;
    SHOAL_UNROLL for (int i = 0; i < 3; ++i) x[13 + i] = key[8 + i];
  }

  SHOAL_INLINE static void QuarterRound(Vec& a, Vec& b, Vec& c, Vec& d) {
    a = a + b;
    d = (d ^ a).template RotateRight<16>();
    c = c + d;
    b = (b ^ c).template RotateRight<20>();
    a = a + b;
    d = (d ^ a).template RotateRight<24>();
    c = c + d;
    b = (b ^ c).template RotateRight<25>();
  }

  SHOAL_NOINLINE static void Block(const Vec key[11], Vec counter, Vec out[16]) {
    Vec x[16];
    Start(key, counter, x);
    for (int round = 0; round < 20; round += 2) {
      QuarterRound(x[0], x[4], x[8], x[12]);
      QuarterRound(x[1], x[5], x[9], x[13]);
      QuarterRound(x[2], x[6], x[10], x[14]);
      QuarterRound(x[3], x[7], x[11], x[15]);
      QuarterRound(x[0], x[5], x[10], x[15]);
      QuarterRound(x[1], x[6], x[11], x[12]);
      QuarterRound(x[2], x[7], x[8], x[13]);
      QuarterRound(x[3], x[4], x[9], x[14]);
    }
    Start(key, counter, out);
    SHOAL_UNROLL for (int i = 0; i < 16; ++i) out[i] = out[i] + x[i];
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_CHACHA20_BATCH_H_
