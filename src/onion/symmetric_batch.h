// The symmetric part of sealed boxes in batches, one item per vector lane: BLAKE2b for the nonces
// (RFC 7693), HSalsa20 for the keys and Salsa20 for the streams (Bernstein, "Extending the Salsa20
// nonce"). None of it branches on data or looks anything up.
//
// Vec32 and Vec64 are vectors of 32-bit and of 64-bit lanes; kernel_ifma.cc shows what they must
// offer.
#ifndef SHOAL_SRC_ONION_SYMMETRIC_BATCH_H_
#define SHOAL_SRC_ONION_SYMMETRIC_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/onion/kernel.h"

namespace shoal::onion {

template <typename Vec32, typename Vec64>
struct SymmetricBatch {
  static void DeriveKeys(const uint8_t* shared, const uint8_t* ephemeral, size_t stride,
                         const uint8_t* recipient, uint8_t* keys, size_t n) {
    constexpr size_t kLanes = Vec32::kLanes;
    alignas(64) uint8_t nonces[kLanes][24];
    for (size_t begin = 0; begin < n; begin += kLanes) {
      const size_t lanes = n - begin < kLanes ? n - begin : kLanes;
      for (size_t i = 0; i < lanes; i += Vec64::kLanes) {
        const size_t part = lanes - i < Vec64::kLanes ? lanes - i : Vec64::kLanes;
        Nonces(ephemeral + (begin + i) * stride, stride, recipient, nonces[i], part);
      }
      Vec32 key[8], input[4], out[8];
      Load(shared + begin * 32, 32, lanes, key);
      for (Vec32& word : input) word = Vec32::Set1(0);
      HSalsa20(key, input, out);
      Load(nonces[0], 24, lanes, input);
      HSalsa20(out, input, key);
      Store(key, keys + begin * kKernelStreamKeyBytes, kKernelStreamKeyBytes, lanes);
      for (size_t i = 0; i < lanes; ++i) {
        __builtin_memcpy(keys + (begin + i) * kKernelStreamKeyBytes + 32, nonces[i] + 16, 8);
      }
      Wipe(key, sizeof key);
      Wipe(out, sizeof out);
    }
  }

  static void StreamBlock(const uint8_t* keys, uint64_t counter, uint8_t* blocks, size_t n) {
    constexpr size_t kLanes = Vec32::kLanes;
    for (size_t begin = 0; begin < n; begin += kLanes) {
      const size_t lanes = n - begin < kLanes ? n - begin : kLanes;
      Vec32 key[10];  // the key, then the nonce
      Load(keys + begin * kKernelStreamKeyBytes, kKernelStreamKeyBytes, lanes, key);
      const Vec32 input[4] = {key[8], key[9], Vec32::Set1(static_cast<uint32_t>(counter)),
                              Vec32::Set1(static_cast<uint32_t>(counter >> 32))};
      Vec32 start[16], x[16];
      Setup(key, input, start);
      for (int i = 0; i < 16; ++i) x[i] = start[i];
      Rounds(x);
      for (int i = 0; i < 16; ++i) x[i] = x[i] + start[i];
      Store(x, blocks + begin * 64, 64, lanes);
      Wipe(key, sizeof key);
      Wipe(start, sizeof start);
      Wipe(x, sizeof x);
    }
  }

 private:
  SHOAL_INLINE static void Wipe(void* memory, size_t bytes) {
    __builtin_memset(memory, 0, bytes);
    __asm__ __volatile__("" : : "r"(memory) : "memory");
  }

  // Word w of item l becomes lane l of word[w]; lanes from n on repeat the last item.
  template <typename Vec, size_t kWords>
  SHOAL_INLINE static void Load(const uint8_t* items, size_t stride, size_t n,
                                Vec (&word)[kWords]) {
    using Word = typename Vec::Word;
    alignas(64) Word lanes[kWords][Vec::kLanes];
    Word item[kWords];
    for (size_t lane = 0; lane < Vec::kLanes; ++lane) {
      __builtin_memcpy(item, items + (lane < n ? lane : n - 1) * stride, sizeof item);
      for (size_t w = 0; w < kWords; ++w) lanes[w][lane] = item[w];
    }
    for (size_t w = 0; w < kWords; ++w) word[w] = Vec::Load(lanes[w]);
    Wipe(lanes, sizeof lanes);
    Wipe(item, sizeof item);
  }

  template <typename Vec, size_t kWords>
  SHOAL_INLINE static void Store(const Vec (&word)[kWords], uint8_t* items, size_t stride,
                                 size_t n) {
    using Word = typename Vec::Word;
    alignas(64) Word lanes[kWords][Vec::kLanes];
    for (size_t w = 0; w < kWords; ++w) word[w].Store(lanes[w]);
    Word item[kWords];
    for (size_t lane = 0; lane < n; ++lane) {
      for (size_t w = 0; w < kWords; ++w) item[w] = lanes[w][lane];
      __builtin_memcpy(items + lane * stride, item, sizeof item);
    }
    Wipe(lanes, sizeof lanes);
    Wipe(item, sizeof item);
  }

  // "expand 32-byte k", the key's halves, sixteen bytes of input.
  SHOAL_INLINE static void Setup(const Vec32* key, const Vec32 input[4], Vec32 x[16]) {
    x[0] = Vec32::Set1(0x61707865);
    x[5] = Vec32::Set1(0x3320646e);
    x[10] = Vec32::Set1(0x79622d32);
    x[15] = Vec32::Set1(0x6b206574);
    for (int i = 0; i < 4; ++i) {
      x[1 + i] = key[i];
      x[6 + i] = input[i];
      x[11 + i] = key[4 + i];
    }
  }

  SHOAL_INLINE static void QuarterRound(Vec32& a, Vec32& b, Vec32& c, Vec32& d) {
    b = b ^ (a + d).template RotateLeft<7>();
    c = c ^ (b + a).template RotateLeft<9>();
    d = d ^ (c + b).template RotateLeft<13>();
    a = a ^ (d + c).template RotateLeft<18>();
  }

  SHOAL_INLINE static void Rounds(Vec32 x[16]) {
    for (int round = 0; round < 20; round += 2) {
      QuarterRound(x[0], x[4], x[8], x[12]);
      QuarterRound(x[5], x[9], x[13], x[1]);
      QuarterRound(x[10], x[14], x[2], x[6]);
      QuarterRound(x[15], x[3], x[7], x[11]);
      QuarterRound(x[0], x[1], x[2], x[3]);
      QuarterRound(x[5], x[6], x[7], x[4]);
      QuarterRound(x[10], x[11], x[8], x[9]);
      QuarterRound(x[15], x[12], x[13], x[14]);
    }
  }

  SHOAL_NOINLINE static void HSalsa20(const Vec32 key[8], const Vec32 input[4], Vec32 out[8]) {
    Vec32 x[16];
    Setup(key, input, x);
    Rounds(x);
    constexpr int kPicked[8] = {0, 5, 10, 15, 6, 7, 8, 9};
    for (int i = 0; i < 8; ++i) out[i] = x[kPicked[i]];
  }

  SHOAL_INLINE static void Mix(Vec64& a, Vec64& b, Vec64& c, Vec64& d, Vec64 x, Vec64 y) {
    a = a + b + x;
    d = (d ^ a).template RotateRight<32>();
    c = c + d;
    b = (b ^ c).template RotateRight<24>();
    a = a + b + y;
    d = (d ^ a).template RotateRight<16>();
    c = c + d;
    b = (b ^ c).template RotateRight<63>();
  }

  // BLAKE2b-192 of ephemeral key and recipient: one block, half of it zeros.
  SHOAL_NOINLINE static void Nonces(const uint8_t* ephemeral, size_t stride,
                                    const uint8_t* recipient, uint8_t* nonces, size_t n) {
    constexpr uint64_t kIv[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b,
                                 0xa54ff53a5f1d36f1, 0x510e527fade682d1, 0x9b05688c2b3e6c1f,
                                 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
    constexpr uint8_t kSigma[10][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                        {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
                                        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
                                        {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
                                        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
                                        {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
                                        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
                                        {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
                                        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
                                        {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};
    constexpr uint64_t kParameters = 0x01010000 ^ 24;  // 24 bytes of digest, no key
    Vec64 keys[2][4], m[16], h[8], v[16];
    Load(ephemeral, stride, n, keys[0]);
    Load(recipient, 0, 1, keys[1]);
    for (int i = 0; i < 16; ++i) m[i] = i < 8 ? keys[i / 4][i % 4] : Vec64::Set1(0);
    for (int i = 0; i < 8; ++i) {
      h[i] = Vec64::Set1(i == 0 ? kIv[0] ^ kParameters : kIv[i]);
      v[i] = h[i];
      v[8 + i] = Vec64::Set1(kIv[i]);
    }
    v[12] = Vec64::Set1(kIv[4] ^ 64);            // bytes so far
    v[14] = Vec64::Set1(kIv[6] ^ ~uint64_t{0});  // the last block
    for (int round = 0; round < 12; ++round) {
      const uint8_t* s = kSigma[round % 10];
      for (int i = 0; i < 4; ++i) {
        Mix(v[i], v[4 + i], v[8 + i], v[12 + i], m[s[2 * i]], m[s[2 * i + 1]]);
      }
      for (int i = 0; i < 4; ++i) {
        Mix(v[i], v[4 + (i + 1) % 4], v[8 + (i + 2) % 4], v[12 + (i + 3) % 4], m[s[8 + 2 * i]],
            m[s[9 + 2 * i]]);
      }
    }
    const Vec64 digest[3] = {h[0] ^ v[0] ^ v[8], h[1] ^ v[1] ^ v[9], h[2] ^ v[2] ^ v[10]};
    Store(digest, nonces, 24, n);
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_SYMMETRIC_BATCH_H_
