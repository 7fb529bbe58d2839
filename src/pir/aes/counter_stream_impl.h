// The stream, written once over a register V of one width. Private to the counter_stream_*.cc
// files, which are compiled for AES-NI at least.
//
// Needed of V:
//   kBlocks             of 16 bytes in a register
//   Repeat(block)       one block in all places; Repeat32(word) likewise
//   Numbers(first)      64-bit number first + i in the low half of block i, 0 in the high one
//   Load(p), Store(p)   kBlocks * 16 bytes, anywhere
//   a ^ b, PlusNumbers(b) in 64-bit lanes, PlusProducts(a, b) in 32-bit lanes this + a * b
//   Turned()            every block with its bytes in the other order
//   Round(key), LastRound(key)    of AES
#ifndef SHOAL_SRC_PIR_AES_COUNTER_STREAM_IMPL_H_
#define SHOAL_SRC_PIR_AES_COUNTER_STREAM_IMPL_H_

#include <wmmintrin.h>

#include <cstring>
#include <iterator>

#include "src/base/inline.h"
#include "src/pir/aes/counter_stream.h"

namespace shoal::pir {

inline constexpr int kAesRounds = 10;

template <int kConstant>
SHOAL_INLINE __m128i NextRoundKey(__m128i key) {
  const __m128i word = _mm_shuffle_epi32(_mm_aeskeygenassist_si128(key, kConstant), 0xff);
  key = _mm_xor_si128(key, _mm_slli_si128(key, 4));
  key = _mm_xor_si128(key, _mm_slli_si128(key, 8));
  return _mm_xor_si128(key, word);
}

// `static`: every file that includes this has its own, for its own instruction set.
static inline void ScheduleAes(const uint8_t* key, uint8_t* round_keys) {
  __m128i keys[kAesRounds + 1];
  keys[0] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(key));
  keys[1] = NextRoundKey<0x01>(keys[0]);
  keys[2] = NextRoundKey<0x02>(keys[1]);
  keys[3] = NextRoundKey<0x04>(keys[2]);
  keys[4] = NextRoundKey<0x08>(keys[3]);
  keys[5] = NextRoundKey<0x10>(keys[4]);
  keys[6] = NextRoundKey<0x20>(keys[5]);
  keys[7] = NextRoundKey<0x40>(keys[6]);
  keys[8] = NextRoundKey<0x80>(keys[7]);
  keys[9] = NextRoundKey<0x1b>(keys[8]);
  keys[10] = NextRoundKey<0x36>(keys[9]);
  static_assert(sizeof keys == CounterStream::kRoundKeyBytes);
  std::memcpy(round_keys, keys, sizeof keys);
}

// All of AES but the first key.
template <typename V, size_t kRegisters>
SHOAL_INLINE void EncryptRounds(const V (&keys)[kAesRounds + 1], V (&state)[kRegisters]) {
#pragma GCC unroll 10
  for (int r = 1; r < kAesRounds; ++r) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kRegisters; ++i) state[i] = state[i].Round(keys[r]);
  }
#pragma GCC unroll 8
  for (size_t i = 0; i < kRegisters; ++i) state[i] = state[i].LastRound(keys[kAesRounds]);
}

// Registers of blocks at a time: enough to hide an instruction's latency, and few enough to leave
// registers for the keys.
template <typename V>
struct AesCounters {
  static constexpr size_t kRegisters = V::kBlocks == 4 ? 4 : 8;
  static constexpr size_t kBlocks = kRegisters * V::kBlocks;
  static_assert(CounterStream::kBatchBlocks % kBlocks == 0);

  V keys[kAesRounds + 1];
  V numbers;
  V step;

  SHOAL_INLINE AesCounters(const uint8_t* round_keys, uint64_t first)
      : numbers(V::Numbers(first)), step(StepOf()) {
    for (int r = 0; r <= kAesRounds; ++r) keys[r] = V::Repeat(round_keys + 16 * r);
  }

  static SHOAL_INLINE V StepOf() {
    const uint8_t block[16] = {V::kBlocks};
    return V::Repeat(block);
  }

  SHOAL_INLINE void Next(V (&state)[kRegisters]) {
#pragma GCC unroll 8
    for (size_t i = 0; i < kRegisters; ++i) {
      state[i] = numbers.Turned() ^ keys[0];
      numbers = numbers.PlusNumbers(step);
    }
    EncryptRounds(keys, state);
  }
};

template <typename V>
void FillStream(const uint8_t* round_keys, uint64_t first, size_t blocks, uint8_t* out) {
  constexpr size_t kBatch = AesCounters<V>::kBlocks;
  AesCounters<V> counters(round_keys, first);
  while (blocks > 0) {
    V state[AesCounters<V>::kRegisters];
    counters.Next(state);
    if (blocks < kBatch) {
      std::memcpy(out, state, 16 * blocks);
      return;
    }
    for (size_t i = 0; i < std::size(state); ++i) state[i].Store(out + 16 * V::kBlocks * i);
    out += 16 * kBatch;
    blocks -= kBatch;
  }
}

template <typename V>
void EncryptBlocks(const uint8_t* round_keys, size_t blocks, uint8_t* data) {
  constexpr size_t kRegisters = AesCounters<V>::kRegisters;
  constexpr size_t kBatch = AesCounters<V>::kBlocks;
  V keys[kAesRounds + 1];
  for (int r = 0; r <= kAesRounds; ++r) keys[r] = V::Repeat(round_keys + 16 * r);
  uint8_t rest[16 * kBatch] = {};
  for (; blocks > 0; data += 16 * kBatch) {
    const bool whole = blocks >= kBatch;
    uint8_t* const at = whole ? data : rest;
    if (!whole) std::memcpy(rest, data, 16 * blocks);
    V state[kRegisters];
    for (size_t i = 0; i < kRegisters; ++i) {
      state[i] = V::Load(at + 16 * V::kBlocks * i) ^ keys[0];
    }
    EncryptRounds(keys, state);
    for (size_t i = 0; i < kRegisters; ++i) state[i].Store(at + 16 * V::kBlocks * i);
    if (!whole) {
      std::memcpy(data, rest, 16 * blocks);
      return;
    }
    blocks -= kBatch;
  }
}

template <typename V>
void AddScaledStream(const uint8_t* round_keys, uint64_t first, size_t blocks, int32_t factor,
                     uint32_t* sums) {
  AesCounters<V> counters(round_keys, first);
  const V factors = V::Repeat32(factor);
  auto* sum = reinterpret_cast<uint8_t*>(sums);
  for (size_t b = 0; b < blocks; b += AesCounters<V>::kBlocks) {
    V state[AesCounters<V>::kRegisters];
    counters.Next(state);
    for (size_t i = 0; i < std::size(state); ++i, sum += 16 * V::kBlocks) {
      V::Load(sum).PlusProducts(state[i], factors).Store(sum);
    }
  }
}

template <typename V>
constexpr CounterStream StreamOf(const char* name) {
  return {.name = name,
          .schedule = ScheduleAes,
          .fill = FillStream<V>,
          .encrypt = EncryptBlocks<V>,
          .add_scaled = AddScaledStream<V>};
}

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_AES_COUNTER_STREAM_IMPL_H_
