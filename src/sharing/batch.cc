#include "src/sharing/batch.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sodium.h"
#include "src/base/check.h"
#include "src/sharing/active_kernel.h"
#include "src/sharing/kernel.h"

namespace shoal::sharing {
namespace {

// Of a seed's expansion, where the mask of the answer begins.
constexpr uint32_t kFirstMaskBlock = 1;

// Calls work(positions, answers, keys) for some answers after the others, `keys` being room for the
// keys of their tags. Returns how many answers that were.
template <typename Work>
size_t InParts(std::span<const uint32_t> positions, MutableBytes answers, size_t tagged_bytes,
               const Work& work) {
  uint8_t keys[kPart * kTagKeyBytes];
  size_t done = 0;
  while (done < positions.size()) {
    const size_t n = std::min(kPart, positions.size() - done);
    work(positions.subspan(done, n), answers.data() + done * tagged_bytes, keys);
    done += n;
  }
  sodium_memzero(keys, sizeof keys);
  return done;
}

void Tag(const uint8_t* keys, size_t n, size_t answer_bytes, TagCovers covers, uint8_t* answers) {
  const size_t tagged_bytes = TaggedBytes(answer_bytes);
  Run(&Kernel::tag_answers, keys, n, covers == TagCovers::kAnswer ? answer_bytes : tagged_bytes,
      answer_bytes, tagged_bytes, answers);
}

void Xor(uint8_t* __restrict to, const uint8_t* __restrict mask, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) to[i] ^= mask[i];
}

}  // namespace

void ExpandShares(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                  std::span<QueryShare> shares) {
  SHOAL_CHECK(shares.size() == positions.size());
  static_assert(sizeof(QueryShare) == 8 && offsetof(QueryShare, x) == 0 &&
                offsetof(QueryShare, y) == 4);
  Run(&Kernel::expand_shares, seeds, positions.data(), positions.size(), round_id.data(),
      reinterpret_cast<uint32_t*>(shares.data()));
}

size_t MaskAnswers(const uint8_t* seeds, std::span<const uint32_t> positions,
                   const Digest& round_id, size_t answer_bytes, TagCovers covers,
                   MutableBytes answers) {
  const size_t tagged_bytes = TaggedBytes(answer_bytes);
  SHOAL_CHECK(answers.size() == positions.size() * tagged_bytes);
  return InParts(positions, answers, tagged_bytes,
                 [&](std::span<const uint32_t> some, uint8_t* theirs, uint8_t* keys) {
                   Run(&Kernel::xor_masks, seeds, some.data(), some.size(), round_id.data(),
                       kFirstMaskBlock, answer_bytes, tagged_bytes, theirs);
                   Run(&Kernel::expand_tag_keys, seeds, some.data(), some.size(), round_id.data(),
                       TagKeyBlock(answer_bytes), kTagKeyBytes, keys);
                   Tag(keys, some.size(), answer_bytes, covers, theirs);
                 });
}

void ExpandPads(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                size_t answer_bytes, MutableBytes pads) {
  const size_t pad_bytes = PadBytes(answer_bytes);
  SHOAL_CHECK(pads.size() == positions.size() * pad_bytes);
  std::ranges::fill(pads, 0);  // also: the first touch of a page should be a write
  Run(&Kernel::xor_masks, seeds, positions.data(), positions.size(), round_id.data(),
      kFirstMaskBlock, answer_bytes, pad_bytes, pads.data());
  Run(&Kernel::expand_tag_keys, seeds, positions.data(), positions.size(), round_id.data(),
      TagKeyBlock(answer_bytes), pad_bytes, pads.data() + answer_bytes);
}

size_t MaskAnswersFromPads(const uint8_t* pads, std::span<const uint32_t> positions,
                           size_t answer_bytes, TagCovers covers, MutableBytes answers) {
  const size_t tagged_bytes = TaggedBytes(answer_bytes), pad_bytes = PadBytes(answer_bytes);
  SHOAL_CHECK(answers.size() == positions.size() * tagged_bytes);
  return InParts(positions, answers, tagged_bytes,
                 [&](std::span<const uint32_t> some, uint8_t* theirs, uint8_t* keys) {
                   for (size_t i = 0; i < some.size(); ++i) {
                     const uint8_t* const pad = pads + some[i] * pad_bytes;
                     Xor(theirs + i * tagged_bytes, pad, answer_bytes);
                     std::copy_n(pad + answer_bytes, kTagKeyBytes, keys + i * kTagKeyBytes);
                   }
                   Tag(keys, some.size(), answer_bytes, covers, theirs);
                 });
}

void UnmaskAnswers(BytesView seeds, std::span<const Digest> ids, size_t answer_bytes,
                   BytesView tagged, MutableBytes answers) {
  const size_t tagged_bytes = TaggedBytes(answer_bytes), parties = ids.size();
  const size_t count = answer_bytes == 0 ? 0 : answers.size() / answer_bytes;
  SHOAL_CHECK(parties > 0 && answers.size() == count * answer_bytes);
  SHOAL_CHECK(tagged.size() == count * tagged_bytes && seeds.size() == 32 * parties * count);
  SecretVector<uint8_t> again(kPart * tagged_bytes);
  std::vector<uint32_t> positions(std::min(kPart, count));
  const auto of_party = [&](size_t j, size_t n) {
    for (size_t i = 0; i < n; ++i) positions[i] = static_cast<uint32_t>(i * parties + j);
    return std::span<const uint32_t>(positions).first(n);
  };
  for (size_t at = 0; at < count; at += kPart) {
    const size_t n = std::min(kPart, count - at);
    const uint8_t* const these = seeds.data() + 32 * parties * at;
    const uint8_t* const came = tagged.data() + at * tagged_bytes;
    const MutableBytes all = MutableBytes(again).first(n * tagged_bytes);
    std::copy_n(came, all.size(), all.begin());
    for (size_t j = 0; j < parties; ++j) {
      const auto party = of_party(j, n);
      Run(&Kernel::xor_masks, these, party.data(), n, ids[j].data(), kFirstMaskBlock, answer_bytes,
          tagged_bytes, all.data());
    }
    uint8_t* const rows = answers.data() + at * answer_bytes;
    for (size_t i = 0; i < n; ++i) {
      std::copy_n(all.data() + i * tagged_bytes, answer_bytes, rows + i * answer_bytes);
    }
    for (size_t j = parties; j-- > 0;) {
      MaskAnswers(these, of_party(j, n), ids[j], answer_bytes, TagCoversAt(j + 1 == parties), all);
    }
    for (size_t i = 0; i < n; ++i) {
      const uint8_t* const tag = all.data() + i * tagged_bytes + answer_bytes;
      const uint8_t keep = MaskIfEqual(tag, came + i * tagged_bytes + answer_bytes);
      uint8_t* const row = rows + i * answer_bytes;
      for (size_t k = 0; k < answer_bytes; ++k) row[k] &= keep;
    }
  }
}

void ExpandTokens(const uint8_t* seeds, std::span<const uint32_t> positions, const Digest& round_id,
                  std::span<Token> tokens) {
  SHOAL_CHECK(tokens.size() == positions.size());
  Run(&Kernel::expand_tokens, seeds, positions.data(), positions.size(), round_id.data(),
      reinterpret_cast<uint8_t*>(tokens.data()));
}

size_t FirstWrongToken(const uint8_t* seeds, std::span<const uint32_t> positions,
                       const Digest& round_id, std::span<const Token> tokens) {
  SHOAL_CHECK(tokens.size() == positions.size());
  // Which tokens are wrong is not secret. The kernel does not branch on it; the code below does.
  constexpr size_t kAtOnce = 256;
  uint8_t wrong[kAtOnce];
  for (size_t at = 0; at < tokens.size(); at += kAtOnce) {
    const size_t n = std::min(kAtOnce, tokens.size() - at);
    Run(&Kernel::compare_tokens, seeds, positions.data() + at, n, round_id.data(),
        tokens[at].data(), wrong);
    const uint8_t* const first = std::find(wrong, wrong + n, 1);
    if (first != wrong + n) return at + static_cast<size_t>(first - wrong);
  }
  return tokens.size();
}

void FirstTallies(BytesView seeds, size_t parties, const Digest& round_id,
                  std::span<const uint32_t> queries, std::span<uint32_t> tallies) {
  SHOAL_CHECK(tallies.size() == queries.size());
  SHOAL_CHECK(seeds.size() == 32 * parties * queries.size());
  SHOAL_CHECK(
      std::all_of(queries.begin(), queries.end(), [](uint32_t query) { return query < kModulus; }));
  Run(&Kernel::first_tallies, seeds.data(), parties, queries.size(), round_id.data(),
      queries.data(), tallies.data());
}

}  // namespace shoal::sharing
