#include "src/sharing/halves.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/masks.h"
#include "src/sharing/active_kernel.h"
#include "src/sharing/kernel.h"

namespace shoal::sharing {
namespace {

static_assert(kQueryTagBytes == kAnswerTagBytes, "one kernel makes both");

// Up to kPart seeds of one call, in one role of one half.
struct SomeSeeds {
  const uint8_t* seeds;
  std::span<const uint32_t> positions;
  const Digest& id;
  Half half;
  Role role;
  size_t selection_bytes;

  size_t size() const { return positions.size(); }
  size_t pad_bytes() const { return QueryPadBytes(half, role, selection_bytes); }

  // XORs a part of every seed's stream into what is at `to` + stride * i.
  void XorStream(uint32_t first_block, size_t bytes, size_t stride, uint8_t* to) const {
    Run(&Kernel::xor_masks, seeds, positions.data(), positions.size(), id.data(), first_block,
        bytes, stride, to);
  }
  void XorPad(size_t stride, uint8_t* to) const { XorStream(kPadBlock, pad_bytes(), stride, to); }
  void XorMask(size_t answer_bytes, size_t stride, uint8_t* to) const {
    XorStream(MaskBlock(half, role, selection_bytes), answer_bytes, stride, to);
  }
};

// keys[i]: the key at byte `at` of every seed's stream, in the first or in the second half of a
// block.
void ExpandKeys(const SomeSeeds& some, size_t at, uint8_t* keys) {
  static_assert(kTagKeyBytes == 32);
  SHOAL_CHECK(at % 32 == 0);
  Run(at % 64 == 0 ? &Kernel::expand_tag_keys : &Kernel::expand_second_keys, some.seeds,
      some.positions.data(), some.size(), some.id.data(), static_cast<uint32_t>(at / 64),
      kTagKeyBytes, keys);
}

// Makes the tag of the first `covered` bytes of each of `items`, which are `stride` apart, and puts
// it at byte `tag_at` of the item.
class Tags {
 public:
  Tags() : keys_(kPart * kTagKeyBytes) {}
  // Under the keys at byte `key_at` of the seeds' expansions.
  void Make(size_t key_at, const SomeSeeds& some, size_t covered, size_t tag_at, size_t stride,
            uint8_t* items) {
    ExpandKeys(some, key_at, keys_.data());
    Run(&Kernel::tag_answers, keys_.data(), some.size(), covered, tag_at, stride, items);
  }

 private:
  SecretVector<uint8_t> keys_;
};

// Calls work(first, n) for all items, up to kPart of them at a time.
template <typename Work>
void InParts(size_t items, const Work& work) {
  for (size_t first = 0; first < items; first += kPart) work(first, std::min(kPart, items - first));
}

// selections[i], which are zeros: k1 of the seeds of the tail of B.
void ExpandSelections(const SomeSeeds& some, MutableBytes selections) {
  SecretVector<uint8_t> seeds(kPart * kTagKeyBytes);
  ExpandKeys(some, kSelectionSeedAt, seeds.data());
  std::array<uint32_t, kPart> all;
  std::iota(all.begin(), all.end(), 0u);
  Run(&Kernel::xor_masks, seeds.data(), all.data(), some.size(), some.id.data(), uint32_t{0},
      some.selection_bytes, some.selection_bytes, selections.data());
}

// Flips one bit of a selection, of whole words; every word is read and written.
void FlipPlace(uint32_t place, MutableBytes selection) {
  const uint64_t bit = uint64_t{1} << (place % 64);
  for (size_t word = 0; 8 * word < selection.size(); ++word) {
    const uint64_t same = EqualMask(word, place / 64);
    uint8_t* const at = selection.data() + 8 * word;
    StoreLe<uint64_t>(at, LoadLe<uint64_t>(at) ^ (bit & same));
  }
}

// Turns m, at the first bytes of every item, into v = u | MAC_tail(u).
void SealForTail(const SomeSeeds& tail, size_t stride, uint8_t* items, Tags& tags) {
  const size_t message = MessageBytes(tail.half, tail.selection_bytes);
  tail.XorPad(stride, items);
  tags.Make(kQueryKeyAt, tail, message, message, stride, items);
}

// Makes y | T or z | T' of what `items` hold, stride apart: row | signature at a tail, y | T at a
// head.
void MaskAndTag(const SomeSeeds& some, size_t answer_bytes, size_t stride, uint8_t* items,
                Tags& tags) {
  some.XorMask(answer_bytes, stride, items);
  const size_t covered = some.role == Role::kTail ? answer_bytes : TaggedBytes(answer_bytes);
  tags.Make(kAnswerKeyAt, some, covered, answer_bytes, stride, items);
}

// The seeds of queries [first, first + n) of a client in one role of a half.
class ClientSeeds {
 public:
  ClientSeeds(BytesView seeds, const HalfIds& ids, size_t selection_bytes)
      : seeds_(seeds.data()), ids_(ids), selection_bytes_(selection_bytes) {}
  void Take(size_t first, size_t n) {
    first_ = first;
    n_ = n;
    for (size_t i = 0; i < n; ++i) positions_[i] = static_cast<uint32_t>(kSeedsPerQuery * i);
  }
  SomeSeeds Of(Half half, Role role) const {
    const size_t number = (half == Half::kB ? 2 : 0) + (role == Role::kTail ? 1 : 0);
    return {.seeds = seeds_ + 32 * (kSeedsPerQuery * first_ + number),
            .positions = std::span(positions_).first(n_),
            .id = ids_.of(half),
            .half = half,
            .role = role,
            .selection_bytes = selection_bytes_};
  }

 private:
  const uint8_t* seeds_;
  const HalfIds& ids_;
  const size_t selection_bytes_;
  std::array<uint32_t, kPart> positions_;
  size_t first_ = 0, n_ = 0;
};
static_assert(static_cast<int>(QuerySeed::kTailA) == 1 &&
              static_cast<int>(QuerySeed::kHeadB) == 2 && static_cast<int>(QuerySeed::kTailB) == 3);

}  // namespace

Digest HalfId(const Digest& round_id, Half half) {
  return Transcript("shoal half v1").Blob(round_id).U64(static_cast<uint64_t>(half)).Finish();
}

Seed HalfRoot(BytesView root, Half half) {
  return SeedOf(DeriveKey(root, "shoal half root v1", static_cast<uint64_t>(half)));
}

void MakeParts(BytesView seeds, const HalfIds& ids, const QueryBuckets& buckets,
               std::span<const uint32_t> rows, MutableBytes parts) {
  const size_t s = buckets.selection_bytes(), stride = PartsBytes(s);
  SHOAL_CHECK(seeds.size() == 32 * kSeedsPerQuery * rows.size());
  SHOAL_CHECK(parts.size() == stride * rows.size());
  const size_t bytes_a = PartBytes(Half::kA, s), forwarded_a = ForwardedBytes(Half::kA, s);
  const size_t forwarded_b = ForwardedBytes(Half::kB, s);
  // Part A's tag covers what stands before and after it, so that it is made elsewhere: w_A | part
  // B.
  const size_t covered = forwarded_a + PartBytes(Half::kB, s), scratch_stride = covered + 16;
  SecretVector<uint8_t> scratch(kPart * scratch_stride), selections(kPart * s);
  ClientSeeds of(seeds, ids, s);
  Tags tags;
  InParts(rows.size(), [&](size_t first, size_t n) {
    of.Take(first, n);
    uint8_t* const part_a = parts.data() + first * stride;
    uint8_t* const part_b = part_a + bytes_a;
    std::ranges::fill(selections, 0);
    ExpandSelections(of.Of(Half::kB, Role::kTail), MutableBytes(selections).first(n * s));
    for (size_t i = 0; i < n; ++i) {
      const QueryBuckets::Place at = buckets.Of(rows[first + i]);
      const MutableBytes k2 = MutableBytes(selections).subspan(i * s, s);
      FlipPlace(at.place, k2);
      StoreLe<uint32_t>(part_a + i * stride, at.bucket);
      std::ranges::copy(k2, part_a + i * stride + kBucketBytes);
      StoreLe<uint32_t>(part_b + i * stride, at.bucket);
    }
    SealForTail(of.Of(Half::kB, Role::kTail), stride, part_b, tags);
    SealForTail(of.Of(Half::kA, Role::kTail), stride, part_a, tags);
    of.Of(Half::kB, Role::kHead).XorPad(stride, part_b);
    of.Of(Half::kA, Role::kHead).XorPad(stride, part_a);
    tags.Make(kQueryKeyAt, of.Of(Half::kB, Role::kHead), forwarded_b, forwarded_b, stride, part_b);
    for (size_t i = 0; i < n; ++i) {
      uint8_t* const whole = scratch.data() + i * scratch_stride;
      std::copy_n(part_a + i * stride, forwarded_a, whole);
      std::copy_n(part_b + i * stride, covered - forwarded_a, whole + forwarded_a);
    }
    tags.Make(kQueryKeyAt, of.Of(Half::kA, Role::kHead), covered, covered, scratch_stride,
              scratch.data());
    for (size_t i = 0; i < n; ++i) {
      std::copy_n(scratch.data() + i * scratch_stride + covered, kQueryTagBytes,
                  part_a + i * stride + forwarded_a);
    }
  });
}

void UnmaskHalves(BytesView seeds, const HalfIds& ids, size_t selection_bytes, size_t answer_bytes,
                  BytesView tagged, MutableBytes answers) {
  const size_t count = answer_bytes == 0 ? 0 : answers.size() / answer_bytes;
  const size_t one = TaggedBytes(answer_bytes);
  SHOAL_CHECK(answers.size() == count * answer_bytes);
  SHOAL_CHECK(tagged.size() == count * HalvesAnswerBytes(answer_bytes));
  SHOAL_CHECK(seeds.size() == 32 * kSeedsPerQuery * count);
  SecretVector<uint8_t> again(kPart * one);
  std::array<uint8_t, kPart> keep;
  ClientSeeds of(seeds, ids, selection_bytes);
  Tags tags;
  InParts(count, [&](size_t first, size_t n) {
    of.Take(first, n);
    uint8_t* const rows = answers.data() + first * answer_bytes;
    std::fill_n(rows, n * answer_bytes, uint8_t{0});
    keep.fill(0xff);
    for (const Half half : {Half::kA, Half::kB}) {
      const SomeSeeds head = of.Of(half, Role::kHead), tail = of.Of(half, Role::kTail);
      const uint8_t* const came = tagged.data() + first * 2 * one + (half == Half::kA ? 0 : one);
      for (size_t i = 0; i < n; ++i) std::copy_n(came + i * 2 * one, one, again.data() + i * one);
      head.XorMask(answer_bytes, one, again.data());
      tail.XorMask(answer_bytes, one, again.data());
      for (size_t i = 0; i < n; ++i) {
        for (size_t k = 0; k < answer_bytes; ++k) rows[i * answer_bytes + k] ^= again[i * one + k];
      }
      // All that honest parties make of this x is made again, and its last tag compared.
      MaskAndTag(tail, answer_bytes, one, again.data(), tags);
      MaskAndTag(head, answer_bytes, one, again.data(), tags);
      for (size_t i = 0; i < n; ++i) {
        keep[i] &=
            MaskIfEqual(again.data() + i * one + answer_bytes, came + i * 2 * one + answer_bytes);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t k = 0; k < answer_bytes; ++k) rows[i * answer_bytes + k] &= keep[i];
    }
  });
}

void OpenParts(const uint8_t* seeds, std::span<const uint32_t> positions, const HalfIds& ids,
               Half half, size_t selection_bytes, BytesView parts, MutableBytes forwarded,
               std::span<uint8_t> wrong) {
  const size_t v_bytes = ForwardedBytes(half, selection_bytes);
  const size_t own = PartBytes(half, selection_bytes);
  const size_t stride = half == Half::kA ? PartsBytes(selection_bytes) : own;
  SHOAL_CHECK(parts.size() == stride * positions.size() && wrong.size() == positions.size());
  SHOAL_CHECK(forwarded.size() == v_bytes * positions.size());
  // w, and in half A part B after it.
  const size_t covered = v_bytes + stride - own, scratch_stride = covered + kQueryTagBytes;
  SecretVector<uint8_t> scratch(kPart * scratch_stride);
  Tags tags;
  InParts(positions.size(), [&](size_t first, size_t n) {
    const SomeSeeds some{
        seeds, positions.subspan(first, n), ids.of(half), half, Role::kHead, selection_bytes};
    const uint8_t* const part = parts.data() + first * stride;
    uint8_t* const v = forwarded.data() + first * v_bytes;
    for (size_t i = 0; i < n; ++i) {
      uint8_t* const whole = scratch.data() + i * scratch_stride;
      std::copy_n(part + i * stride, v_bytes, whole);
      std::copy_n(part + i * stride + own, stride - own, whole + v_bytes);
      std::copy_n(part + i * stride, v_bytes, v + i * v_bytes);
    }
    tags.Make(kQueryKeyAt, some, covered, covered, scratch_stride, scratch.data());
    some.XorPad(v_bytes, v);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t keep =
          MaskIfEqual(scratch.data() + i * scratch_stride + covered, part + i * stride + v_bytes);
      for (size_t k = 0; k < v_bytes; ++k) v[i * v_bytes + k] &= keep;
      wrong[first + i] = static_cast<uint8_t>(1 & ~keep);
    }
  });
}

void MakeForwarded(const uint8_t* tail_seeds, std::span<const uint32_t> positions,
                   const HalfIds& ids, Half half, size_t selection_bytes,
                   std::span<const uint32_t> buckets, BytesView selections,
                   MutableBytes forwarded) {
  const size_t v_bytes = ForwardedBytes(half, selection_bytes);
  const size_t each = MessageBytes(half, selection_bytes) - kBucketBytes;
  SHOAL_CHECK(buckets.size() == positions.size());
  SHOAL_CHECK(selections.size() == each * positions.size());
  SHOAL_CHECK(forwarded.size() == v_bytes * positions.size());
  Tags tags;
  InParts(positions.size(), [&](size_t first, size_t n) {
    uint8_t* const v = forwarded.data() + first * v_bytes;
    for (size_t i = 0; i < n; ++i) {
      StoreLe<uint32_t>(v + i * v_bytes, buckets[first + i]);
      std::copy_n(selections.data() + (first + i) * each, each, v + i * v_bytes + kBucketBytes);
    }
    SealForTail(
        {tail_seeds, positions.subspan(first, n), ids.of(half), half, Role::kTail, selection_bytes},
        v_bytes, v, tags);
  });
}

void OpenForwarded(const uint8_t* seeds, std::span<const uint32_t> positions, const HalfIds& ids,
                   Half half, const QueryBuckets& buckets, BytesView forwarded,
                   std::span<uint32_t> asked, MutableBytes selections, std::span<uint8_t> wrong) {
  const size_t s = buckets.selection_bytes();
  const size_t v_bytes = ForwardedBytes(half, s), message = MessageBytes(half, s);
  SHOAL_CHECK(forwarded.size() == v_bytes * positions.size());
  SHOAL_CHECK(asked.size() == positions.size() && wrong.size() == positions.size());
  SHOAL_CHECK(selections.size() == s * positions.size());
  SecretVector<uint8_t> scratch(kPart * v_bytes);
  Tags tags;
  InParts(positions.size(), [&](size_t first, size_t n) {
    const SomeSeeds some{seeds, positions.subspan(first, n), ids.of(half), half, Role::kTail, s};
    const uint8_t* const v = forwarded.data() + first * v_bytes;
    std::copy_n(v, n * v_bytes, scratch.data());
    tags.Make(kQueryKeyAt, some, message, message, v_bytes, scratch.data());
    some.XorPad(v_bytes, scratch.data());
    const MutableBytes chosen = selections.subspan(first * s, n * s);
    std::ranges::fill(chosen, 0);
    if (half == Half::kB) ExpandSelections(some, chosen);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t* const m = scratch.data() + i * v_bytes;
      const uint8_t keep = MaskIfEqual(m + message, v + i * v_bytes + message);
      const uint32_t bucket = LoadLe<uint32_t>(m);
      asked[first + i] = buckets.Divide(bucket).bucket;
      // The bucket is there if the division left it as it is.
      const uint64_t past = bucket ^ asked[first + i];
      wrong[first + i] = static_cast<uint8_t>((1 & ~keep) | ((0 - past) >> 63));
      if (half == Half::kA) std::copy_n(m + kBucketBytes, s, chosen.data() + i * s);
    }
  });
}

void MaskHalf(const uint8_t* seeds, std::span<const uint32_t> positions, const HalfIds& ids,
              Half half, Role role, size_t selection_bytes, size_t answer_bytes,
              MutableBytes answers) {
  const size_t one = TaggedBytes(answer_bytes);
  SHOAL_CHECK(answers.size() == one * positions.size());
  Tags tags;
  InParts(positions.size(), [&](size_t first, size_t n) {
    MaskAndTag({seeds, positions.subspan(first, n), ids.of(half), half, role, selection_bytes},
               answer_bytes, one, answers.data() + first * one, tags);
  });
}

}  // namespace shoal::sharing
