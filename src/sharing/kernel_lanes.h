// The kernel of kernel.h on vectors of 32-bit lanes, one seed in a lane: ChaCha20 (RFC 8439) on as
// many keys as there are lanes, and arithmetic modulo p = 2^31 - 1 on its words. No branch and no
// address depends on a secret. Seeds and key stream are left on the stack: the caller wipes
// kKernelStackBytes of it.
//
// The vectors are gcc's vector types, so that one source serves every width and instruction set:
// where the target has no registers of that width, the compiler splits the vector. The file of an
// instruction set instantiates Batch<Lanes> with its own `Lanes` in an unnamed namespace, so that
// the linker cannot take one file's code for another's.
//
//   struct Lanes {
//     static constexpr unsigned kCount = 8;          // 4, 8 or 16
//     static constexpr bool kShuffleBytes = true;    // rotate by whole bytes by shuffling them
//   };
#ifndef SHOAL_SRC_SHARING_KERNEL_LANES_H_
#define SHOAL_SRC_SHARING_KERNEL_LANES_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/base/poly1305_lanes.h"
#include "src/sharing/kernel.h"

namespace shoal::sharing {

// Lanes of 32 bits, and the same bits as bytes and as half as many lanes of 64.
//
// Two operations are written out. MulEven multiplies 64-bit lanes that hold 32 bits: gcc does not
// find the one instruction for it by itself. IfEqual(a, b, c, d) is c where a == b and d elsewhere:
// for a vector wider than the target's registers gcc would compare lane by lane with branches, so
// the vector is halved here.
template <unsigned kLanes>
struct Vectors;

template <>
struct Vectors<4> {
  typedef uint32_t Words __attribute__((vector_size(16)));
  typedef uint64_t Wide __attribute__((vector_size(16)));
  typedef uint8_t Octets __attribute__((vector_size(16)));
  SHOAL_INLINE static Wide MulEven(Wide a, Wide b) {
#ifdef __SSE2__
    typedef int Ints __attribute__((vector_size(16)));
    return (Wide)__builtin_ia32_pmuludq128((Ints)a, (Ints)b);
#else
    return a * b;
#endif
  }
  SHOAL_INLINE static Words IfEqual(Words a, Words b, Words c, Words d) { return a == b ? c : d; }
};

template <>
struct Vectors<8> {
  typedef uint32_t Words __attribute__((vector_size(32)));
  typedef uint64_t Wide __attribute__((vector_size(32)));
  typedef uint8_t Octets __attribute__((vector_size(32)));
  using Half = Vectors<4>;
  SHOAL_INLINE static Half::Words Low(Words a) { return __builtin_shufflevector(a, a, 0, 1, 2, 3); }
  SHOAL_INLINE static Half::Words High(Words a) {
    return __builtin_shufflevector(a, a, 4, 5, 6, 7);
  }
  SHOAL_INLINE static Words Join(Half::Words low, Half::Words high) {
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
  }
  SHOAL_INLINE static Wide MulEven(Wide a, Wide b) {
#ifdef __AVX2__
    typedef int Ints __attribute__((vector_size(32)));
    return (Wide)__builtin_ia32_pmuludq256((Ints)a, (Ints)b);
#else
    return a * b;
#endif
  }
  SHOAL_INLINE static Words IfEqual(Words a, Words b, Words c, Words d) {
#ifdef __AVX2__
    return a == b ? c : d;
#else
    return Join(Half::IfEqual(Low(a), Low(b), Low(c), Low(d)),
                Half::IfEqual(High(a), High(b), High(c), High(d)));
#endif
  }
};

template <>
struct Vectors<16> {
  typedef uint32_t Words __attribute__((vector_size(64)));
  typedef uint64_t Wide __attribute__((vector_size(64)));
  typedef uint8_t Octets __attribute__((vector_size(64)));
  using Half = Vectors<8>;
  SHOAL_INLINE static Half::Words Low(Words a) {
    return __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7);
  }
  SHOAL_INLINE static Half::Words High(Words a) {
    return __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  SHOAL_INLINE static Words Join(Half::Words low, Half::Words high) {
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  SHOAL_INLINE static Wide MulEven(Wide a, Wide b) {
#ifdef __AVX512F__
    typedef int Ints __attribute__((vector_size(64)));
    typedef long long Longs __attribute__((vector_size(64)));
    return (Wide)__builtin_ia32_pmuludq512_mask((Ints)a, (Ints)b, Longs{}, 0xff);
#else
    return a * b;
#endif
  }
  SHOAL_INLINE static Words IfEqual(Words a, Words b, Words c, Words d) {
#ifdef __AVX512F__
    return a == b ? c : d;
#else
    return Join(Half::IfEqual(Low(a), Low(b), Low(c), Low(d)),
                Half::IfEqual(High(a), High(b), High(c), High(d)));
#endif
  }
};

template <unsigned... kIndex>
struct Indices {};

template <typename Lanes>
class Batch {
 public:
  static constexpr unsigned kLanes = Lanes::kCount;

  static void ExpandShares(const uint8_t* seeds, const uint32_t* positions, size_t n,
                           const uint8_t* nonce, uint32_t* shares) {
    for (size_t at = 0; at < n; at += kLanes) {
      const Group group(seeds, positions, at, n);
      Words key[8], x[16];
      LoadKeys(group.seed, key);
      Block(key, Counters(0), nonce, x);
      const Share share = ShareOf(x);
      uint32_t xs[kLanes], ys[kLanes];
      Store(xs, share.x);
      Store(ys, share.y);
      for (unsigned lane = 0; lane < group.live; ++lane) {
        shares[2 * (at + lane)] = xs[lane];
        shares[2 * (at + lane) + 1] = ys[lane];
      }
    }
  }

  static void XorMasks(const uint8_t* seeds, const uint32_t* positions, size_t n,
                       const uint8_t* nonce, uint32_t first_block, size_t answer_bytes,
                       size_t stride, uint8_t* answers) {
    Words key[8];
    alignas(64) uint8_t rows[kLanes * kBlockBytes];
    const size_t whole_blocks = answer_bytes / kBlockBytes;
    for (size_t at = 0; at < n; at += kLanes) {
      const Group group(seeds, positions, at, n);
      uint8_t* const mine = answers + at * stride;
      // First whole vectors that hold blocks of one key, in order of addresses.
      size_t done = 0;
      if (whole_blocks >= kLanes) {
        done = whole_blocks / kLanes * kLanes;
        for (unsigned lane = 0; lane < group.live; ++lane) {
          BroadcastKey(group.seed[lane], key);
          for (size_t block = 0; block < done; block += kLanes) {
            Words x[16];
            Block(key, Counters(static_cast<uint32_t>(first_block + block)) + kLaneNumbers, nonce,
                  x);
            uint8_t* const to = mine + lane * stride + block * kBlockBytes;
            EachRow(x, [to](unsigned row, unsigned offset, Words v) SHOAL_INLINE_LAMBDA {
              uint8_t* const place = to + row * kBlockBytes + offset;
              Store(place, Load(place) ^ v);
            });
          }
        }
      }
      // Then the remaining blocks, one block of every key at a time.
      if (done * kBlockBytes == answer_bytes) continue;
      LoadKeys(group.seed, key);
      for (size_t block = done; block * kBlockBytes < answer_bytes; ++block) {
        Words x[16];
        Block(key, Counters(static_cast<uint32_t>(first_block + block)), nonce, x);
        uint8_t* const to = mine + block * kBlockBytes;
        if (block < whole_blocks && group.live == kLanes) {
          EachRow(x, [to, stride](unsigned row, unsigned offset, Words v) SHOAL_INLINE_LAMBDA {
            uint8_t* const place = to + row * stride + offset;
            Store(place, Load(place) ^ v);
          });
          continue;
        }
        EachRow(x, [&rows](unsigned row, unsigned offset, Words v)
                       SHOAL_INLINE_LAMBDA { Store(rows + row * kBlockBytes + offset, v); });
        const size_t left = answer_bytes - block * kBlockBytes;
        const size_t bytes = left < kBlockBytes ? left : kBlockBytes;
        for (unsigned lane = 0; lane < group.live; ++lane) {
          XorBytes(to + lane * stride, rows + lane * kBlockBytes, bytes);
        }
      }
    }
  }

  // The first or the second 32 bytes of a block.
  template <unsigned kPart>
  static void ExpandKeys(const uint8_t* seeds, const uint32_t* positions, size_t n,
                         const uint8_t* nonce, uint32_t counter, size_t stride, uint8_t* keys) {
    for (size_t at = 0; at < n; at += kLanes) {
      const Group group(seeds, positions, at, n);
      Words key[8], x[16];
      LoadKeys(group.seed, key);
      Block(key, Counters(counter), nonce, x);
      SHOAL_UNROLL for (unsigned half = 0; half < 2; ++half) {
        Words* const words = x + 8 * kPart + 4 * half;
        Transpose4(words);
        alignas(64) Chunk rows[4][kChunks];
        SHOAL_UNROLL for (unsigned r = 0; r < 4; ++r) Store(rows[r], words[r]);
        for (unsigned lane = 0; lane < group.live; ++lane) {
          __builtin_memcpy(keys + (at + lane) * stride + 16 * half, &rows[lane % 4][lane / 4], 16);
        }
      }
    }
  }

  // One message in each 64-bit lane: as many messages as there are 32-bit lanes take two vectors,
  // and neither waits for the other's products.
  static void TagAnswers(const uint8_t* keys, size_t n, size_t covered, size_t tag_at,
                         size_t stride, uint8_t* answers) {
    const size_t whole = covered / 16 * 16;
    for (size_t at = 0; at < n; at += kLanes) {
      const unsigned live = n - at < kLanes ? static_cast<unsigned>(n - at) : kLanes;
      // Lanes past the end repeat the last message.
      const uint8_t* key[kLanes];
      uint8_t* message[kLanes];
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        const size_t i = at + (lane < live ? lane : live - 1);
        key[lane] = keys + 32 * i;
        message[lane] = answers + stride * i;
      }
      LongWords word[2][2];
      SHOAL_UNROLL for (unsigned v = 0; v < 2; ++v) GatherWords(key, 0, v, word[v]);
      Poly1305Lanes<LongWords> poly[2] = {Poly1305Lanes<LongWords>(word[0]),
                                          Poly1305Lanes<LongWords>(word[1])};
      for (size_t offset = 0; offset < whole; offset += 16) {
        SHOAL_UNROLL for (unsigned v = 0; v < 2; ++v) {
          GatherWords(message, offset, v, word[v]);
          poly[v].Absorb(word[v]);
        }
      }
      if (whole < covered) {
        uint8_t last[kLanes][16] = {};
        const uint8_t* from[kLanes];
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          __builtin_memcpy(last[lane], message[lane] + whole, covered - whole);
          last[lane][covered - whole] = 1;
          from[lane] = last[lane];
        }
        SHOAL_UNROLL for (unsigned v = 0; v < 2; ++v) {
          GatherWords(from, 0, v, word[v]);
          poly[v].AbsorbShort(word[v]);
        }
      }
      alignas(64) uint8_t tags[kLanes][16];
      SHOAL_UNROLL for (unsigned v = 0; v < 2; ++v) {
        LongWords tag[2];
        GatherWords(key, 16, v, word[v]);
        poly[v].Finish(word[v], tag);
        ScatterWords(tag, v, tags);
      }
      for (unsigned lane = 0; lane < live; ++lane) {
        __builtin_memcpy(message[lane] + tag_at, tags[lane], 16);
      }
    }
  }

  static void ExpandTokens(const uint8_t* seeds, const uint32_t* positions, size_t n,
                           const uint8_t* nonce, uint8_t* tokens) {
    for (size_t at = 0; at < n; at += kLanes) {
      const Group group(seeds, positions, at, n);
      Words key[8], x[16];
      LoadKeys(group.seed, key);
      Block(key, Counters(0), nonce, x);
      Transpose4(x);
      alignas(64) Chunk rows[4][kChunks];
      SHOAL_UNROLL for (unsigned r = 0; r < 4; ++r) Store(rows[r], x[r]);
      for (unsigned lane = 0; lane < group.live; ++lane) {
        __builtin_memcpy(tokens + (at + lane) * 16, &rows[lane % 4][lane / 4], 16);
      }
    }
  }

  static void CompareTokens(const uint8_t* seeds, const uint32_t* positions, size_t n,
                            const uint8_t* nonce, const uint8_t* tokens, uint8_t* wrong) {
    for (size_t at = 0; at < n; at += kLanes) {
      const Group group(seeds, positions, at, n);
      Words key[8], x[16], token[4];
      LoadKeys(group.seed, key);
      Block(key, Counters(0), nonce, x);
      const uint8_t* from[kLanes];
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        from[lane] = tokens + 16 * (at + (lane < group.live ? lane : group.live - 1));
      }
      SHOAL_UNROLL for (unsigned r = 0; r < 4; ++r) token[r] = GatherChunks(from + r, 0);
      Transpose4(token);
      Words differ = Set(0);
      SHOAL_UNROLL for (unsigned w = 0; w < 4; ++w) differ |= x[w] ^ token[w];
      uint32_t each[kLanes];
      Store(each, IfEqual(differ, Set(0), Set(0), Set(1)));
      for (unsigned lane = 0; lane < group.live; ++lane) {
        wrong[at + lane] = static_cast<uint8_t>(each[lane]);
      }
    }
  }

  static void FirstTallies(const uint8_t* seeds, size_t parties, size_t n, const uint8_t* nonce,
                           const uint32_t* queries, uint32_t* tallies) {
    // The parties' steps, applied in order, map l_0 to y l_0 + x, where y is the product of all y_j
    // and x is what they map zero to. So each query needs one inverse, that of y. Montgomery's
    // trick computes the inverses of kTogether queries of a lane with one inversion.
    constexpr size_t kTogether = 16;
    Words x[kTogether], y[kTogether], product[kTogether];
    for (size_t begin = 0; begin < n; begin += kTogether * kLanes) {
      size_t groups = 0;
      Words all = Set(1);
      for (size_t at = begin; at < n && groups < kTogether; at += kLanes, ++groups) {
        Words sum = Set(0), factor = Set(1);
        for (size_t j = 0; j < parties; ++j) {
          const uint8_t* seed[kLanes];
          for (unsigned lane = 0; lane < kLanes; ++lane) {
            const size_t i = at + lane < n ? at + lane : n - 1;
            seed[lane] = seeds + kSeedBytes * (i * parties + j);
          }
          Words key[8], stream[16];
          LoadKeys(seed, key);
          Block(key, Counters(0), nonce, stream);
          const Share share = ShareOf(stream);
          sum = MulAdd(share.y, sum, share.x);
          factor = MulAdd(factor, share.y, Set(0));
        }
        x[groups] = sum;
        y[groups] = factor;
        product[groups] = all;  // the product of the groups before this one
        all = MulAdd(all, factor, Set(0));
      }
      Words inverse = Inverse(all);
      for (size_t group = groups; group-- > 0;) {
        const Words mine = MulAdd(inverse, product[group], Set(0));
        inverse = MulAdd(inverse, y[group], Set(0));
        const size_t at = begin + group * kLanes, live = n - at < kLanes ? n - at : kLanes;
        uint32_t some[kLanes] = {};
        Copy(some, queries + at, live);
        Store(some, MulAdd(Sub(Load(some), x[group]), mine, Set(0)));
        Copy(tallies + at, some, live);
      }
    }
  }

  static void SharesOfBlocks(const uint8_t* blocks, size_t n, uint32_t* x, uint32_t* y) {
    for (size_t at = 0; at < n; at += kLanes) {
      uint32_t words[16][kLanes];
      Words stream[16];
      for (unsigned word = 0; word < 16; ++word) {
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          __builtin_memcpy(&words[word][lane], blocks + kBlockBytes * (at + lane) + 4 * word, 4);
        }
        stream[word] = Load(words[word]);
      }
      const Share share = ShareOf(stream);
      Store(x + at, share.x);
      Store(y + at, share.y);
    }
  }

  static constexpr Kernel MakeKernel() {
    return {kLanes,     ExpandShares, XorMasks,      ExpandKeys<0>, ExpandKeys<1>,
            TagAnswers, ExpandTokens, CompareTokens, FirstTallies,  SharesOfBlocks};
  }

 private:
  using Words = typename Vectors<kLanes>::Words;
  using Wide = typename Vectors<kLanes>::Wide;
  using Octets = typename Vectors<kLanes>::Octets;
  using Chunk = Vectors<4>::Words;  // 128 bits: most shuffles stay within one

  // 64-bit lanes, as Poly1305Lanes wants them.
  struct LongWords {
    Wide v;

    SHOAL_INLINE static LongWords Set1(uint64_t a) { return {Wide{} + a}; }
    SHOAL_INLINE friend LongWords operator+(LongWords a, LongWords b) { return {a.v + b.v}; }
    SHOAL_INLINE friend LongWords operator&(LongWords a, LongWords b) { return {a.v & b.v}; }
    SHOAL_INLINE friend LongWords operator|(LongWords a, LongWords b) { return {a.v | b.v}; }
    template <int kBits>
    SHOAL_INLINE LongWords Srl() const {
      return {v >> kBits};
    }
    template <int kBits>
    SHOAL_INLINE LongWords Sll() const {
      return {v << kBits};
    }
    // The factors of Poly1305 are below 2^32.
    SHOAL_INLINE static LongWords Mul32(LongWords a, LongWords b) {
      return {Vectors<kLanes>::MulEven(a.v, b.v)};
    }
  };

  static constexpr unsigned kChunks = kLanes / 4;
  static constexpr size_t kSeedBytes = 32, kBlockBytes = 64;
  static constexpr uint32_t kModulus = 0x7fffffff;
  static constexpr uint64_t kLow = 0xffffffff;

  // The indices 0, 1, ... of a vector, for shuffles whose indices a formula gives.
  static constexpr Indices<__integer_pack(kLanes)...> kEach{};
  static constexpr Indices<__integer_pack(4 * kLanes)...> kEachOctet{};

  // The seeds of one vector. Lanes past the end repeat the last seed.
  struct Group {
    const uint8_t* seed[kLanes];
    unsigned live;
    SHOAL_INLINE Group(const uint8_t* seeds, const uint32_t* positions, size_t at, size_t n) {
      live = n - at < kLanes ? static_cast<unsigned>(n - at) : kLanes;
      if (live == kLanes) {
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          seed[lane] = seeds + kSeedBytes * positions[at + lane];
        }
      } else {
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          seed[lane] = seeds + kSeedBytes * positions[at + (lane < live ? lane : live - 1)];
        }
      }
      // Positions rise but skip some, so the processor cannot predict the addresses: prefetch the
      // seeds of the third group from here.
      if (n - at >= 4 * kLanes) {
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          __builtin_prefetch(seeds + kSeedBytes * positions[at + 3 * kLanes + lane]);
        }
      }
    }
  };

  struct Share {
    Words x, y;
  };

  // --- Moving words about.

  SHOAL_INLINE static Words Set(uint32_t a) { return Words{} + a; }
  SHOAL_INLINE static Words Load(const void* from) {
    Words v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  SHOAL_INLINE static Words IfEqual(Words a, Words b, Words c, Words d) {
    return Vectors<kLanes>::IfEqual(a, b, c, d);
  }
  SHOAL_INLINE static void Store(void* to, Words v) { __builtin_memcpy(to, &v, sizeof v); }
  SHOAL_INLINE static void Copy(uint32_t* to, const uint32_t* from, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i] = from[i];
  }

  template <unsigned... kIndex>
  static constexpr Words LaneNumbers(Indices<kIndex...>) {
    return Words{kIndex...};
  }
  static constexpr Words kLaneNumbers = LaneNumbers(kEach);
  SHOAL_INLINE static Words Counters(uint32_t counter) { return Set(counter); }

  // Gives in every chunk a0 b0 a1 b1 (half 0) or a2 b2 a3 b3 (half 1).
  template <unsigned kHalf, unsigned... kIndex>
  SHOAL_INLINE static Words Interleave32(Words a, Words b, Indices<kIndex...>) {
    return __builtin_shuffle(
        a, b, Words{(kIndex / 4 * 4 + kHalf * 2 + kIndex % 4 / 2 + kIndex % 2 * kLanes)...});
  }
  // Gives in every chunk a0 a1 b0 b1 (half 0) or a2 a3 b2 b3 (half 1).
  template <unsigned kHalf, unsigned... kIndex>
  SHOAL_INLINE static Words Interleave64(Words a, Words b, Indices<kIndex...>) {
    return __builtin_shuffle(
        a, b, Words{(kIndex / 4 * 4 + kHalf * 2 + kIndex % 2 + kIndex % 4 / 2 * kLanes)...});
  }
  // Half of the result's chunks from a, half from b: chunks kFirst, kFirst + kStep, ...
  template <unsigned kFirst, unsigned kStep, unsigned... kIndex>
  SHOAL_INLINE static Words PickChunks(Words a, Words b, Indices<kIndex...>) {
    return __builtin_shuffle(a, b,
                             Words{((kFirst + kIndex / 4 % (kChunks / 2) * kStep) * 4 + kIndex % 4 +
                                    kIndex / (kLanes / 2) * kLanes)...});
  }

  // Transposes, in every chunk, the four words of four vectors. It is its own inverse.
  SHOAL_INLINE static void Transpose4(Words* v) {
    const Words a = Interleave32<0>(v[0], v[1], kEach), b = Interleave32<0>(v[2], v[3], kEach);
    const Words c = Interleave32<1>(v[0], v[1], kEach), d = Interleave32<1>(v[2], v[3], kEach);
    v[0] = Interleave64<0>(a, b, kEach);
    v[1] = Interleave64<1>(a, b, kEach);
    v[2] = Interleave64<0>(c, d, kEach);
    v[3] = Interleave64<1>(c, d, kEach);
  }

  // 16 bytes at `offset` of each of from[0], from[4], from[8], ...
  template <typename Byte>
  SHOAL_INLINE static Words GatherChunks(Byte* const* from, size_t offset) {
    Chunk chunk[kChunks];
    SHOAL_UNROLL for (unsigned k = 0; k < kChunks; ++k) {
      __builtin_memcpy(&chunk[k], from[4 * k] + offset, sizeof(Chunk));
    }
    if constexpr (kChunks == 1) {
      return chunk[0];
    } else if constexpr (kChunks == 2) {
      return Vectors<8>::Join(chunk[0], chunk[1]);
    } else {
      return Vectors<16>::Join(Vectors<8>::Join(chunk[0], chunk[1]),
                               Vectors<8>::Join(chunk[2], chunk[3]));
    }
  }

  // The first and the second 8 bytes at `offset` of half of the messages: of numbers 2 v and 2 v +
  // 1 of every four.
  template <typename Byte>
  SHOAL_INLINE static void GatherWords(Byte* const* from, size_t offset, unsigned v,
                                       LongWords word[2]) {
    const Words even = GatherChunks(from + 2 * v, offset);
    const Words odd = GatherChunks(from + 2 * v + 1, offset);
    word[0].v = (Wide)Interleave64<0>(even, odd, kEach);
    word[1].v = (Wide)Interleave64<1>(even, odd, kEach);
  }
  // The inverse of it.
  SHOAL_INLINE static void ScatterWords(const LongWords word[2], unsigned v, uint8_t (*to)[16]) {
    Chunk even[kChunks], odd[kChunks];
    Store(even, Interleave64<0>((Words)word[0].v, (Words)word[1].v, kEach));
    Store(odd, Interleave64<1>((Words)word[0].v, (Words)word[1].v, kEach));
    SHOAL_UNROLL for (unsigned k = 0; k < kChunks; ++k) {
      __builtin_memcpy(to[4 * k + 2 * v], &even[k], sizeof(Chunk));
      __builtin_memcpy(to[4 * k + 2 * v + 1], &odd[k], sizeof(Chunk));
    }
  }

  // key[w]: word w of every lane's seed.
  SHOAL_INLINE static void LoadKeys(const uint8_t* const* seed, Words* key) {
    SHOAL_UNROLL for (unsigned half = 0; half < 2; ++half) {
      SHOAL_UNROLL for (unsigned r = 0; r < 4; ++r) {
        key[4 * half + r] = GatherChunks(seed + r, 16 * half);
      }
      Transpose4(key + 4 * half);
    }
  }
  SHOAL_INLINE static void BroadcastKey(const uint8_t* seed, Words* key) {
    SHOAL_UNROLL for (unsigned w = 0; w < 8; ++w) key[w] = Set(Word(seed, w));
  }
  SHOAL_INLINE static uint32_t Word(const uint8_t* bytes, unsigned w) {
    uint32_t word;
    __builtin_memcpy(&word, bytes + 4 * w, 4);
    return word;
  }

  // Calls sink(lane, offset, v): v are the bytes from `offset` of lane's block. Overwrites x.
  template <typename Sink>
  SHOAL_INLINE static void EachRow(Words* x, Sink sink) {
    SHOAL_UNROLL for (unsigned g = 0; g < 4; ++g) Transpose4(x + 4 * g);
    // Now chunk k of x[4 g + r] is words 4 g to 4 g + 3 of lane 4 k + r.
    SHOAL_UNROLL for (unsigned r = 0; r < 4; ++r) {
      if constexpr (kChunks == 1) {
        SHOAL_UNROLL for (unsigned g = 0; g < 4; ++g) sink(r, 16 * g, x[4 * g + r]);
      } else if constexpr (kChunks == 2) {
        SHOAL_UNROLL for (unsigned g = 0; g < 4; g += 2) {
          sink(r, 16 * g, PickChunks<0, 1>(x[4 * g + r], x[4 * g + 4 + r], kEach));
          sink(4 + r, 16 * g, PickChunks<1, 1>(x[4 * g + r], x[4 * g + 4 + r], kEach));
        }
      } else {
        const Words a = PickChunks<0, 1>(x[r], x[4 + r], kEach);
        const Words b = PickChunks<0, 1>(x[8 + r], x[12 + r], kEach);
        const Words c = PickChunks<2, 1>(x[r], x[4 + r], kEach);
        const Words d = PickChunks<2, 1>(x[8 + r], x[12 + r], kEach);
        sink(r, 0, PickChunks<0, 2>(a, b, kEach));
        sink(4 + r, 0, PickChunks<1, 2>(a, b, kEach));
        sink(8 + r, 0, PickChunks<0, 2>(c, d, kEach));
        sink(12 + r, 0, PickChunks<1, 2>(c, d, kEach));
      }
    }
  }

  // bytes <= 64.
  SHOAL_INLINE static void XorBytes(uint8_t* to, const uint8_t* from, size_t bytes) {
    for (; bytes >= 16; bytes -= 16, to += 16, from += 16) XorPiece<Chunk>(to, from);
    if (bytes & 8) XorPiece<uint64_t>(to, from), to += 8, from += 8;
    if (bytes & 4) XorPiece<uint32_t>(to, from), to += 4, from += 4;
    if (bytes & 2) XorPiece<uint16_t>(to, from), to += 2, from += 2;
    if (bytes & 1) XorPiece<uint8_t>(to, from);
  }
  template <typename Piece>
  SHOAL_INLINE static void XorPiece(uint8_t* to, const uint8_t* from) {
    Piece a, b;
    __builtin_memcpy(&a, to, sizeof a);
    __builtin_memcpy(&b, from, sizeof b);
    a ^= b;
    __builtin_memcpy(to, &a, sizeof a);
  }

  // --- ChaCha20.

  template <unsigned kBits, unsigned... kIndex>
  SHOAL_INLINE static Words RotateOctets(Words a, Indices<kIndex...>) {
    return (Words)__builtin_shuffle(
        (Octets)a, Octets{static_cast<uint8_t>(kIndex / 4 * 4 + (kIndex + 4 - kBits / 8) % 4)...});
  }
  template <unsigned kBits>
  SHOAL_INLINE static Words RotateLeft(Words a) {
    if constexpr (Lanes::kShuffleBytes && kBits % 8 == 0) return RotateOctets<kBits>(a, kEachOctet);
    return (a << kBits) | (a >> (32 - kBits));
  }
  SHOAL_INLINE static void QuarterRound(Words& a, Words& b, Words& c, Words& d) {
    a += b, d = RotateLeft<16>(d ^ a);
    c += d, b = RotateLeft<12>(b ^ c);
    a += b, d = RotateLeft<8>(d ^ a);
    c += d, b = RotateLeft<7>(b ^ c);
  }
  // x[w]: word w of every lane's block.
  SHOAL_INLINE static void Block(const Words* key, Words counter, const uint8_t* nonce, Words* x) {
    constexpr uint32_t kConstants[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    SHOAL_UNROLL for (unsigned i = 0; i < 4; ++i) x[i] = Set(kConstants[i]);
    SHOAL_UNROLL for (unsigned i = 0; i < 8; ++i) x[4 + i] = key[i];
    x[12] = counter;
    SHOAL_UNROLL for (unsigned i = 0; i < 3; ++i) x[13 + i] = Set(Word(nonce, i));
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
    SHOAL_UNROLL for (unsigned i = 0; i < 4; ++i) x[i] += kConstants[i];
    SHOAL_UNROLL for (unsigned i = 0; i < 8; ++i) x[4 + i] += key[i];
    x[12] += counter;
    SHOAL_UNROLL for (unsigned i = 0; i < 3; ++i) x[13 + i] += Word(nonce, i);
  }

  // --- Arithmetic modulo p.

  // x is the first of words 4..15 below p, y the first after it in [1, p). The loop goes from the
  // last word to the first and keeps the share that the words seen so far would give.
  SHOAL_INLINE static Share ShareOf(const Words* stream) {
    const Words p = Set(kModulus);
    Share from_here = {Set(0), Set(1)};
    Words next_y = Set(1);  // the first word from here on that can be a y
    SHOAL_UNROLL for (unsigned i = 15; i >= 4; --i) {
      const Words word = stream[i] & kModulus;
      from_here.x = IfEqual(word, p, from_here.x, word);
      from_here.y = IfEqual(word, p, from_here.y, next_y);
      next_y = IfEqual(word, p, next_y, IfEqual(word, Set(0), next_y, word));
    }
    return from_here;
  }

  // a b + c, for a, b and c below p.
  SHOAL_INLINE static Words MulAdd(Words a, Words b, Words c) {
    Wide even = Vectors<kLanes>::MulEven((Wide)a & kLow, (Wide)b & kLow) + ((Wide)c & kLow);
    Wide odd = Vectors<kLanes>::MulEven((Wide)a >> 32, (Wide)b >> 32) + ((Wide)c >> 32);
    even = (even & kModulus) + (even >> 31);  // at most 2 p
    odd = (odd & kModulus) + (odd >> 31);
    return ReduceOnce((Words)(even | odd << 32));
  }
  // a - b.
  SHOAL_INLINE static Words Sub(Words a, Words b) { return ReduceOnce(a + kModulus - b); }
  // The representative below p of any a <= 2 p. For a, b and c below p, the low 31 bits of a b + c
  // plus its high bits are at most 2 p.
  SHOAL_INLINE static Words ReduceOnce(Words a) {
    a = (a & kModulus) + (a >> 31);  // <= p
    return IfEqual(a, Set(kModulus), Set(0), a);
  }
  // a^(p-2).
  SHOAL_INLINE static Words Inverse(Words a) {
    // p - 2 = 2^31 - 3 = binary 1...101: thirty ones but for the second lowest bit.
    Words result = a;
    for (int bit = 29; bit >= 0; --bit) {
      result = MulAdd(result, result, Set(0));
      if (bit != 1) result = MulAdd(result, a, Set(0));
    }
    return result;
  }
};

}  // namespace shoal::sharing

#endif  // SHOAL_SRC_SHARING_KERNEL_LANES_H_
