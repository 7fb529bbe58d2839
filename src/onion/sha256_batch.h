// SHA-256 (FIPS 180-4) and HMAC (RFC 2104) in batches, one item per vector lane. Nothing branches
// on data or looks anything up.
//
// Vec has 32-bit lanes; kernel_ifma.cc shows what it must offer. A Vec whose instruction set has
// SHA-256 offers Sha256Rounds and Sha256FixedRounds in place of arithmetic (kernel_sha.cc).
#ifndef SHOAL_SRC_ONION_SHA256_BATCH_H_
#define SHOAL_SRC_ONION_SHA256_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/onion/kernel.h"
#include "src/onion/lanes.h"
#include "src/onion/sha256_constants.h"

namespace shoal::onion {

template <typename Vec>
inline constexpr bool kHasSha256 = requires(Vec* words) {
  Vec::Sha256Rounds(words, words);
};

template <typename Vec>
struct Sha256Batch {
  struct State {
    Vec word[8];
  };

  SHOAL_INLINE static State Broadcast(const uint32_t word[8]) {
    State state;
    SHOAL_UNROLL for (int i = 0; i < 8; ++i) state.word[i] = Vec::Set1(word[i]);
    return state;
  }

  // One block of words, which are overwritten.
  SHOAL_NOINLINE static void Compress(State& state, Vec w[16]) {
    if constexpr (kHasSha256<Vec>) {
      Vec::Sha256Rounds(state.word, w);
    } else {
      CompressByArithmetic(state, w);
    }
  }

  // One block that is the same for all items.
  SHOAL_NOINLINE static void CompressFixed(State& state, const FixedBlock& block) {
    if constexpr (kHasSha256<Vec>) {
      Vec::Sha256FixedRounds(state.word, block.round);
    } else {
      Variables v(state);
      for (int t = 0; t < 64; t += 8) {
        EightRounds(v, [&](int i) SHOAL_INLINE_LAMBDA { return Vec::Set1(block.round[t + i]); });
      }
      v.AddTo(state);
    }
  }

  // The two states of HMAC after a key of 32 bytes.
  struct HmacKey {
    State inner, outer;
    ~HmacKey() { Lanes<Vec>::Wipe(this, sizeof *this); }
  };
  SHOAL_NOINLINE static void SetKey(const State& key, HmacKey& hmac) {
    Vec w[16];
    Pad(key, 0x36363636, w);
    hmac.inner = Broadcast(kSha256Start);
    Compress(hmac.inner, w);
    Pad(key, 0x5c5c5c5c, w);
    hmac.outer = Broadcast(kSha256Start);
    Compress(hmac.outer, w);
    Lanes<Vec>::Wipe(w, sizeof w);
  }

  // The outer hash, of the inner hash's `digest` of 32 bytes. Overwrites both.
  SHOAL_NOINLINE static void FinishHmac(State& digest, State& outer) {
    Vec w[16];
    SHOAL_UNROLL for (int i = 0; i < 8; ++i) w[i] = digest.word[i];
    w[8] = Vec::Set1(0x80000000);
    SHOAL_UNROLL for (int i = 9; i < 15; ++i) w[i] = Vec::Set1(0);
    w[15] = Vec::Set1((64 + 32) * 8);
    Compress(outer, w);
    digest = outer;
    Lanes<Vec>::Wipe(w, sizeof w);
  }

 private:
  SHOAL_INLINE static void CompressByArithmetic(State& state, Vec w[16]) {
    Variables v(state);
    EightRounds(v, [&](int i) SHOAL_INLINE_LAMBDA { return w[i] + Constant(i); });
    EightRounds(v, [&](int i) SHOAL_INLINE_LAMBDA { return w[8 + i] + Constant(8 + i); });
    for (int t = 16; t < 64; t += 16) {
      EightRounds(v, [&](int i) SHOAL_INLINE_LAMBDA { return Extend(w, i) + Constant(t + i); });
      EightRounds(
          v, [&](int i) SHOAL_INLINE_LAMBDA { return Extend(w, 8 + i) + Constant(t + 8 + i); });
    }
    v.AddTo(state);
  }

  struct Variables {
    Vec a, b, c, d, e, f, g, h;
    Vec bc;  // b ^ c, for Vec::Majority

    SHOAL_INLINE explicit Variables(const State& state)
        : a(state.word[0]),
          b(state.word[1]),
          c(state.word[2]),
          d(state.word[3]),
          e(state.word[4]),
          f(state.word[5]),
          g(state.word[6]),
          h(state.word[7]),
          bc(b ^ c) {}
    SHOAL_INLINE void AddTo(State& state) const {
      const Vec v[8] = {a, b, c, d, e, f, g, h};
      SHOAL_UNROLL for (int i = 0; i < 8; ++i) state.word[i] = state.word[i] + v[i];
    }
  };

  SHOAL_INLINE static Vec Constant(int t) { return Vec::Set1(kSha256Rounds[t]); }

  template <int kA, int kB, int kC>
  SHOAL_INLINE static Vec Sum(Vec x) {
    return Vec::Xor(x.template RotateRight<kA>(), x.template RotateRight<kB>(),
                    x.template RotateRight<kC>());
  }
  template <int kA, int kB, int kC>
  SHOAL_INLINE static Vec SmallSum(Vec x) {
    return Vec::Xor(x.template RotateRight<kA>(), x.template RotateRight<kB>(),
                    x.template Srl<kC>());
  }

  // The next word of the message schedule, in place of the one 16 before.
  SHOAL_INLINE static Vec Extend(Vec w[16], int i) {
    w[i] = (w[i] + SmallSum<7, 18, 3>(w[(i + 1) % 16])) +
           (w[(i + 9) % 16] + SmallSum<17, 19, 10>(w[(i + 14) % 16]));
    return w[i];
  }

  // `kw` is the sum of constant and schedule word.
  SHOAL_INLINE static void Round(Vec a, Vec b, Vec c, Vec& d, Vec e, Vec f, Vec g, Vec& h, Vec& bc,
                                 Vec kw) {
    const Vec t = ((h + kw) + Vec::Choose(e, f, g)) + Sum<6, 11, 25>(e);
    d = d + t;
    h = (t + Vec::Majority(a, b, c, bc)) + Sum<2, 13, 22>(a);
  }

  template <typename Kw>
  SHOAL_INLINE static void EightRounds(Variables& v, const Kw& kw) {
    Round(v.a, v.b, v.c, v.d, v.e, v.f, v.g, v.h, v.bc, kw(0));
    Round(v.h, v.a, v.b, v.c, v.d, v.e, v.f, v.g, v.bc, kw(1));
    Round(v.g, v.h, v.a, v.b, v.c, v.d, v.e, v.f, v.bc, kw(2));
    Round(v.f, v.g, v.h, v.a, v.b, v.c, v.d, v.e, v.bc, kw(3));
    Round(v.e, v.f, v.g, v.h, v.a, v.b, v.c, v.d, v.bc, kw(4));
    Round(v.d, v.e, v.f, v.g, v.h, v.a, v.b, v.c, v.bc, kw(5));
    Round(v.c, v.d, v.e, v.f, v.g, v.h, v.a, v.b, v.bc, kw(6));
    Round(v.b, v.c, v.d, v.e, v.f, v.g, v.h, v.a, v.bc, kw(7));
  }

  SHOAL_INLINE static void Pad(const State& key, uint32_t pad, Vec w[16]) {
    SHOAL_UNROLL for (int i = 0; i < 8; ++i) w[i] = key.word[i] ^ Vec::Set1(pad);
    SHOAL_UNROLL for (int i = 8; i < 16; ++i) w[i] = Vec::Set1(pad);
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_SHA256_BATCH_H_
