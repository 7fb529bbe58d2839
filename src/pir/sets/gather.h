// XORs of records at many places, and searches through the choices of many sets: nearly all of the
// work of engines with hints (half_sets.h, permuted_sets.h). Every instruction set has one table of
// functions (gather_dispatch.h).
#ifndef SHOAL_SRC_PIR_SETS_GATHER_H_
#define SHOAL_SRC_PIR_SETS_GATHER_H_

#include <cstddef>
#include <cstdint>

namespace shoal::pir::sets {

// A choice of half_sets.h as a word, the bit on top, for arrays of either.
using ChoiceWord [[gnu::may_alias]] = uint16_t;

struct GatherKernel {
  // Of add_words.
  static constexpr size_t kMaxTables = 8;
  // No place of a hint.
  static constexpr uint32_t kNowhere = ~uint32_t{0};

  const char* name;

  // sums[s][0 .. bytes) ^= the XOR of the records at the next counts[s] places, for s < sums_count.
  // All records have `bytes` bytes, anywhere. Records are fetched ahead into the first cache.
  // Which places there are shows in time and addresses.
  void (*gather)(const uint8_t* const* places, const uint32_t* counts, size_t sums_count,
                 size_t bytes, uint8_t* const* sums);

  // Records of 8 bytes. words[t] is a table with a word 0 of zero, and the record at offset o at
  // 1 + o; choices[t][s] is the choice of set s for it, whose highest bit is `bit` (0 or 1), or
  // else the set does not count: sums[8 * stride * s ..] ^= words[t][1 + offset], for t < tables, s
  // < sets.
  void (*add_words)(const uint64_t* const* words, const ChoiceWord* const* choices, size_t tables,
                    size_t sets, unsigned bit, uint8_t* sums, size_t stride);

  // The first i < count with choices[i] = wanted and live[i] = 0xffff (else it is 0), or kNowhere.
  // Constant time. count <= 2^15.
  uint32_t (*first_live)(const ChoiceWord* choices, const uint16_t* live, size_t count,
                         uint16_t wanted);

  // The least places[i], i < count, with choices[i] ^ halves[i] = wanted, or with beside[i] = row;
  // kNowhere if there is none. Constant time.
  uint32_t (*least_place)(const ChoiceWord* choices, const uint16_t* halves, const uint32_t* places,
                          const uint64_t* beside, size_t count, uint16_t wanted, uint64_t row);

  // Which of `count` sets match, as bits: kHitWords words for every kHitSets sets, of which the
  // last ones need not be there; HitAt tells whose bit is whose. Constant time.
  static constexpr size_t kHitSets = 512, kHitWords = kHitSets / 64;
  static constexpr size_t HitWords(size_t count) {
    return (count + kHitSets - 1) / kHitSets * kHitWords;
  }
  static constexpr size_t HitAt(size_t word, size_t bit) {
    return word / kHitWords * kHitSets + bit % 16 * 32 + word % kHitWords * 4 + bit / 16;
  }
  // Those with choices[i] ^ flips[i] = wanted, and live[i] = 0xffff (else it is 0). Without flips
  // (null) as if they were zeros, without live as if all were.
  void (*match)(const ChoiceWord* choices, const uint16_t* flips, const uint16_t* live,
                size_t count, uint16_t wanted, uint64_t* hits);
  // Adds those with beside[i] = row to the bits that are there.
  void (*match_beside)(const uint64_t* beside, size_t count, uint64_t row, uint64_t* hits);

  // The i < count with values[i] = wanted, of which there is at most one; 0 if there is none.
  // Constant time.
  uint32_t (*find)(const uint32_t* values, size_t count, uint32_t wanted);
};

// Null if this processor, or this build, does not have the instructions.
const GatherKernel& PortableGather();
const GatherKernel* Avx2Gather();
const GatherKernel* Avx512Gather();

}  // namespace shoal::pir::sets

#endif  // SHOAL_SRC_PIR_SETS_GATHER_H_
