// Moves items between memory and vector lanes: word w of item l is lane l of word[w].
#ifndef SHOAL_SRC_ONION_LANES_H_
#define SHOAL_SRC_ONION_LANES_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"

namespace shoal::onion {

template <typename Vec>
struct Lanes {
  using Word = typename Vec::Word;
  static constexpr size_t kLanes = Vec::kLanes;

  SHOAL_INLINE static void Wipe(void* memory, size_t bytes) {
    __builtin_memset(memory, 0, bytes);
    __asm__ __volatile__("" : : "r"(memory) : "memory");
  }

  // How many of `n` items the group from `begin` on has.
  SHOAL_INLINE static size_t Count(size_t n, size_t begin) {
    return n - begin < kLanes ? n - begin : kLanes;
  }

  // Lanes from n on repeat the last item.
  template <size_t kWords>
  SHOAL_INLINE static void Load(const uint8_t* items, size_t stride, size_t n,
                                Vec (&word)[kWords]) {
    Load<kWords, false>(items, stride, n, word);
  }
  template <size_t kWords>
  SHOAL_INLINE static void LoadBigEndian(const uint8_t* items, size_t stride, size_t n,
                                         Vec (&word)[kWords]) {
    Load<kWords, true>(items, stride, n, word);
  }
  template <size_t kWords>
  SHOAL_INLINE static void Store(const Vec (&word)[kWords], uint8_t* items, size_t stride,
                                 size_t n) {
    Store<kWords, false>(word, items, stride, n);
  }
  template <size_t kWords>
  SHOAL_INLINE static void StoreBigEndian(const Vec (&word)[kWords], uint8_t* items, size_t stride,
                                          size_t n) {
    Store<kWords, true>(word, items, stride, n);
  }

 private:
  template <bool kSwap>
  SHOAL_INLINE static Word Swap(Word word) {
    if constexpr (kSwap) return __builtin_bswap32(word);
    return word;
  }

  template <size_t kWords, bool kSwap>
  SHOAL_INLINE static void Load(const uint8_t* items, size_t stride, size_t n,
                                Vec (&word)[kWords]) {
    alignas(64) Word lanes[kWords][kLanes];
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint8_t* item = items + (lane < n ? lane : n - 1) * stride;
      SHOAL_UNROLL for (size_t w = 0; w < kWords; ++w) {
        Word value;
        __builtin_memcpy(&value, item + w * sizeof value, sizeof value);
        lanes[w][lane] = Swap<kSwap>(value);
      }
    }
    for (size_t w = 0; w < kWords; ++w) word[w] = Vec::Load(lanes[w]);
    Wipe(lanes, sizeof lanes);
  }

  template <size_t kWords, bool kSwap>
  SHOAL_INLINE static void Store(const Vec (&word)[kWords], uint8_t* items, size_t stride,
                                 size_t n) {
    alignas(64) Word lanes[kWords][kLanes];
    for (size_t w = 0; w < kWords; ++w) word[w].Store(lanes[w]);
    for (size_t lane = 0; lane < n; ++lane) {
      SHOAL_UNROLL for (size_t w = 0; w < kWords; ++w) {
        const Word value = Swap<kSwap>(lanes[w][lane]);
        __builtin_memcpy(items + lane * stride + w * sizeof value, &value, sizeof value);
      }
    }
    Wipe(lanes, sizeof lanes);
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_LANES_H_
