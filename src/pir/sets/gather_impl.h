// The kernels, written once over a register V of one width. Private to the gather_*.cc files, each
// of which is compiled for its own instruction set; loops without V are left to the compiler.
//
// Needed of V:
//   kBytes              in a register
//   Load(p), Store(p)   anywhere
//   a ^ b
//   Narrower            a register of half the width or less, for what is left of a record. Loads
//                       with a mask are slower: they read the next line, too.
#ifndef SHOAL_SRC_PIR_SETS_GATHER_IMPL_H_
#define SHOAL_SRC_PIR_SETS_GATHER_IMPL_H_

#include <algorithm>
#include <array>
#include <cstring>

#include "src/base/inline.h"
#include "src/pir/sets/gather.h"

namespace shoal::pir::sets {
namespace {  // NOLINT: every file that includes this has its own, for its own instruction set

SHOAL_INLINE void FetchRecord(const uint8_t* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
  __builtin_prefetch(from + bytes - 1);
}

struct ByteRegister {
  static constexpr size_t kBytes = 1;
  uint8_t v;
  SHOAL_INLINE static ByteRegister Load(const uint8_t* from) { return {*from}; }
  SHOAL_INLINE void Store(uint8_t* to) const { *to = v; }
  SHOAL_INLINE ByteRegister operator^(ByteRegister other) const {
    return {static_cast<uint8_t>(v ^ other.v)};
  }
};

struct WordRegister {
  static constexpr size_t kBytes = 8;
  using Narrower = ByteRegister;
  uint64_t v;
  SHOAL_INLINE static WordRegister Load(const uint8_t* from) {
    WordRegister out;
    std::memcpy(&out.v, from, 8);
    return out;
  }
  SHOAL_INLINE void Store(uint8_t* to) const { std::memcpy(to, &v, 8); }
  SHOAL_INLINE WordRegister operator^(WordRegister other) const { return {v ^ other.v}; }
};

// Of every record, the bytes of kRegisters registers.
template <typename V, int kRegisters>
SHOAL_INLINE void AddColumns(const uint8_t* const* places, size_t count, size_t at, uint8_t* sum) {
  V of[kRegisters];
  SHOAL_UNROLL
  for (int r = 0; r < kRegisters; ++r) of[r] = V::Load(sum + at + r * V::kBytes);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t* const from = places[i] + at;
    SHOAL_UNROLL
    for (int r = 0; r < kRegisters; ++r) of[r] = of[r] ^ V::Load(from + r * V::kBytes);
  }
  SHOAL_UNROLL
  for (int r = 0; r < kRegisters; ++r) of[r].Store(sum + at + r * V::kBytes);
}

// sum[at .. bytes) ^= the same bytes of all records.
template <typename V>
SHOAL_INLINE void AddRecords(const uint8_t* const* places, size_t count, size_t at, size_t bytes,
                             uint8_t* sum) {
  const auto columns = [&]<int kRegisters>() SHOAL_INLINE_LAMBDA {
    AddColumns<V, kRegisters>(places, count, at, sum);
    at += kRegisters * V::kBytes;
  };
  while (bytes - at >= 8 * V::kBytes) columns.template operator()<8>();
  if (bytes - at >= 4 * V::kBytes) columns.template operator()<4>();
  if (bytes - at >= 2 * V::kBytes) columns.template operator()<2>();
  if (bytes - at >= V::kBytes) columns.template operator()<1>();
  if (at == bytes) return;
  if constexpr (V::kBytes > 1) {
    AddRecords<typename V::Narrower>(places, count, at, bytes, sum);
  }
}

template <typename V>
void Gather(const uint8_t* const* places, const uint32_t* counts, size_t sums_count, size_t bytes,
            uint8_t* const* sums) {
  // A column of registers goes through so many records, which lie in the first cache by then.
  const size_t lines = 1 + (bytes + 62) / 64;
  const size_t together = std::max<size_t>(4, 128 / lines);
  // More lines on their way than the processor can have, or one record.
  const size_t ahead = std::max<size_t>(1, 64 / lines);
  size_t total = 0;
  for (size_t s = 0; s < sums_count; ++s) total += counts[s];
  size_t done = 0, fetched = 0;
  for (size_t s = 0; s < sums_count; ++s) {
    for (size_t left = counts[s]; left > 0;) {
      const size_t count = std::min(left, together);
      if (bytes > 64) {  // a processor has enough narrow ones on their way by itself
        const size_t end = std::min(total, done + count + ahead);
        for (; fetched < end; ++fetched) FetchRecord(places[fetched], bytes);
      }
      AddRecords<V>(places + done, count, 0, bytes, sums[s]);
      done += count;
      left -= count;
    }
  }
}

template <size_t kTables>
SHOAL_INLINE void AddBlockOfWords(const uint64_t* const* words, const uint16_t (*places)[256],
                                  size_t sets, uint8_t* sums, size_t stride) {
  for (size_t s = 0; s < sets; ++s) {
    uint64_t sum;
    std::memcpy(&sum, sums + 8 * stride * s, 8);
    SHOAL_UNROLL
    for (size_t t = 0; t < kTables; ++t) sum ^= words[t][places[t][s]];
    std::memcpy(sums + 8 * stride * s, &sum, 8);
  }
}

inline void AddWords(const uint64_t* const* words, const ChoiceWord* const* choices, size_t tables,
                     size_t sets, unsigned bit, uint8_t* sums, size_t stride) {
  constexpr size_t kSets = 256;
  uint16_t places[GatherKernel::kMaxTables][kSets];
  const auto flip = static_cast<uint16_t>(bit == 1 ? 0 : 0x8000);
  for (size_t done = 0; done < sets; done += kSets) {
    const size_t count = std::min(kSets, sets - done);
    for (size_t t = 0; t < tables; ++t) {
      const ChoiceWord* const from = choices[t] + done;
      for (size_t s = 0; s < count; ++s) {
        // All ones where the choice has the bit.
        const auto mask = static_cast<uint16_t>(static_cast<int16_t>(from[s] ^ flip) >> 15);
        places[t][s] = static_cast<uint16_t>(((from[s] & 0x7fff) + 1) & mask);
      }
    }
    uint8_t* const to = sums + 8 * stride * done;
    size_t t = 0;
    for (; t + 8 <= tables; t += 8) AddBlockOfWords<8>(words + t, places + t, count, to, stride);
    for (; t + 4 <= tables; t += 4) AddBlockOfWords<4>(words + t, places + t, count, to, stride);
    for (; t < tables; ++t) AddBlockOfWords<1>(words + t, places + t, count, to, stride);
  }
}

// Vectors of gcc's, which it makes of the instructions that there are. Comparisons give masks, so
// that there is no branch on what they compare.
template <typename T, size_t kLanes>
using Lanes [[gnu::vector_size(sizeof(T) * kLanes)]] = T;

inline uint32_t FirstLive(const ChoiceWord* choices, const uint16_t* live, size_t count,
                          uint16_t wanted) {
  constexpr size_t kLanes = 32;
  using V = Lanes<uint16_t, kLanes>;
  V first = ~V{}, at = {};
  for (size_t i = 0; i < kLanes; ++i) at[i] = static_cast<uint16_t>(i);
  const auto add = [&](const V& of_choices, const V& of_live) SHOAL_INLINE_LAMBDA {
    const V hit = reinterpret_cast<V>(of_choices == wanted) & of_live;
    const V here = at | ~hit;
    first = here < first ? here : first;
    at += kLanes;
  };
  V some_choices = {}, some_live = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    std::memcpy(&some_choices, choices + i, sizeof(V));
    std::memcpy(&some_live, live + i, sizeof(V));
    add(some_choices, some_live);
  }
  if (i < count) {
    some_live = V{};  // past the end is none
    std::memcpy(&some_choices, choices + i, 2 * (count - i));
    std::memcpy(&some_live, live + i, 2 * (count - i));
    add(some_choices, some_live);
  }
  uint16_t least = 0xffff;
  for (size_t l = 0; l < kLanes; ++l) least = std::min<uint16_t>(least, first[l]);
  return uint32_t{least} | (0 - static_cast<uint32_t>(least == 0xffff));
}

inline uint32_t LeastPlace(const ChoiceWord* choices, const uint16_t* halves,
                           const uint32_t* places, const uint64_t* beside, size_t count,
                           uint16_t wanted, uint64_t row) {
  constexpr size_t kLanes = 8;
  using Of16 = Lanes<uint16_t, kLanes>;
  using Of32 = Lanes<uint32_t, kLanes>;
  using Of64 = Lanes<uint64_t, kLanes>;
  Of32 least = ~Of32{};
  const auto add = [&](const Of16& of_choices, const Of16& of_halves, const Of32& of_places,
                       const Of64& of_beside) SHOAL_INLINE_LAMBDA {
    const auto in_half = (of_choices ^ of_halves) == wanted;
    const auto is_beside = of_beside == row;
    const auto hit =
        reinterpret_cast<Of32>(__builtin_convertvector(in_half, Lanes<int32_t, kLanes>) |
                               __builtin_convertvector(is_beside, Lanes<int32_t, kLanes>));
    const Of32 here = of_places | ~hit;
    least = here < least ? here : least;
  };
  Of16 some_choices = {}, some_halves = {};
  Of32 some_places = {};
  Of64 some_beside = {};
  const auto load = [&](size_t i, size_t lanes) SHOAL_INLINE_LAMBDA {
    std::memcpy(&some_choices, choices + i, 2 * lanes);
    std::memcpy(&some_halves, halves + i, 2 * lanes);
    std::memcpy(&some_places, places + i, 4 * lanes);
    std::memcpy(&some_beside, beside + i, 8 * lanes);
    add(some_choices, some_halves, some_places, some_beside);
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) load(i, kLanes);
  some_places = ~Of32{};  // past the end is none
  if (i < count) load(i, count - i);
  uint32_t out = GatherKernel::kNowhere;
  for (size_t l = 0; l < kLanes; ++l) out = std::min<uint32_t>(out, least[l]);
  return out;
}

// Goes through `count` sets 32 at a time, and writes whether each of them is hit, as HitAt says.
// is_hit(i, lanes, out) says it of those from i on, of which `lanes` are there, as all ones or
// zeros.
template <typename IsHit>
SHOAL_INLINE void ForHits(size_t count, uint64_t* hits, const IsHit& is_hit) {
  constexpr size_t kLanes = 32;
  using V = Lanes<uint16_t, kLanes>;
  static_assert(sizeof(V) == 8 * GatherKernel::kHitWords && 16 * kLanes == GatherKernel::kHitSets);
  V at = {};
  for (size_t l = 0; l < kLanes; ++l) at[l] = static_cast<uint16_t>(l);
  for (size_t done = 0; done < count; hits += GatherKernel::kHitWords) {
    V found = {}, here = {};
    const size_t end = std::min(count, done + GatherKernel::kHitSets);
    V bit = V{} + 1;
    for (; done + kLanes <= end; done += kLanes, bit += bit) {
      is_hit(done, kLanes, here);
      found |= here & bit;
    }
    if (done < end) {
      const auto left = static_cast<uint16_t>(end - done);
      is_hit(done, left, here);
      found |= here & bit & reinterpret_cast<V>(at < left);
      done = end;
    }
    V before;
    std::memcpy(&before, hits, sizeof(V));
    found |= before;
    std::memcpy(hits, &found, sizeof(V));
  }
}

inline void Match(const ChoiceWord* choices, const uint16_t* flips, const uint16_t* live,
                  size_t count, uint16_t wanted, uint64_t* hits) {
  using V = Lanes<uint16_t, 32>;
  std::fill_n(hits, GatherKernel::HitWords(count), 0);
  ForHits(count, hits, [&](size_t i, size_t lanes, V& hit) SHOAL_INLINE_LAMBDA {
    V of_choices = {}, of_flips = {}, of_live = ~V{};
    std::memcpy(&of_choices, choices + i, 2 * lanes);
    if (flips != nullptr) std::memcpy(&of_flips, flips + i, 2 * lanes);
    if (live != nullptr) std::memcpy(&of_live, live + i, 2 * lanes);
    hit = reinterpret_cast<V>((of_choices ^ of_flips) == wanted) & of_live;
  });
}

inline void MatchBeside(const uint64_t* beside, size_t count, uint64_t row, uint64_t* hits) {
  constexpr size_t kLanes = 8;
  using Of64 = Lanes<uint64_t, kLanes>;
  using Of16 = Lanes<int16_t, kLanes>;
  ForHits(count, hits, [&](size_t i, size_t lanes, Lanes<uint16_t, 32>& hit) SHOAL_INLINE_LAMBDA {
    std::array<Of64, 4> of_beside = {};
    std::memcpy(of_beside.data(), beside + i, 8 * lanes);
    for (size_t v = 0; v < 4; ++v) {
      const Of16 here = __builtin_convertvector(of_beside[v] == row, Of16);
      std::memcpy(reinterpret_cast<uint8_t*>(&hit) + v * sizeof here, &here, sizeof here);
    }
  });
}

inline uint32_t Find(const uint32_t* values, size_t count, uint32_t wanted) {
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t differ = values[i] ^ wanted;
    const uint32_t equal = ((differ | (0 - differ)) >> 31) - 1;  // all ones, or zero
    at |= i & equal;
  }
  return at;
}

template <typename V>
constexpr GatherKernel GatherOf(const char* name) {
  return {.name = name,
          .gather = Gather<V>,
          .add_words = AddWords,
          .first_live = FirstLive,
          .least_place = LeastPlace,
          .match = Match,
          .match_beside = MatchBeside,
          .find = Find};
}

}  // namespace
}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_GATHER_IMPL_H_
