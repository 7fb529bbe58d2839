#include "src/sharing/sharing.h"

#include <algorithm>

#include "sodium.h"
#include "src/base/check.h"

namespace shoal::sharing {
namespace {

constexpr size_t kBlockBytes = 64;
constexpr size_t kWords = (kBlockBytes - kTokenBytes) / 4;
static_assert(crypto_stream_chacha20_ietf_KEYBYTES == 32);
static_assert(crypto_stream_chacha20_ietf_NONCEBYTES <= sizeof(Digest));

// All ones if a < b, for a and b below 2^31.
uint32_t MaskLess(uint32_t a, uint32_t b) {
  return -static_cast<uint32_t>((static_cast<uint64_t>(a) - b) >> 63);
}

}  // namespace

uint32_t Inverse(uint32_t a) {
  SHOAL_CHECK(a != 0 && a < kModulus);
  // p - 2 = 2^31 - 3 = binary 1...101: thirty ones but for the second lowest bit.
  uint32_t result = 1;
  for (int bit = 30; bit >= 0; --bit) {
    result = MulAdd(result, result, 0);
    if (((kModulus - 2) >> bit) & 1) result = MulAdd(result, a, 0);
  }
  return result;
}

Expansion Expand(BytesView seed, const Digest& round_id) {
  SHOAL_CHECK(seed.size() == 32);
  uint8_t block[kBlockBytes];
  crypto_stream_chacha20_ietf(block, sizeof block, round_id.data(), seed.data());
  Expansion out;
  std::copy_n(block, kTokenBytes, out.token.begin());
  // Takes the first usable words without a branch that depends on them.
  uint32_t x = 0, y = 1, have_x = 0, have_y = 0;  // have_*: all ones once taken
  for (size_t i = 0; i < kWords; ++i) {
    const uint32_t word = LoadLe<uint32_t>(block + kTokenBytes + 4 * i) & kModulus;
    const uint32_t below_p = MaskLess(word, kModulus);
    const uint32_t nonzero = MaskLess(0, word);
    const uint32_t take_y = have_x & ~have_y & below_p & nonzero;
    const uint32_t take_x = ~have_x & below_p;
    y = (y & ~take_y) | (word & take_y);
    x = (x & ~take_x) | (word & take_x);
    have_y |= take_y;
    have_x |= take_x;
  }
  out.share = {x, y};
  sodium_memzero(block, sizeof block);
  return out;
}

void XorMask(BytesView seed, const Digest& round_id, MutableBytes answer) {
  SHOAL_CHECK(seed.size() == 32);
  crypto_stream_chacha20_ietf_xor_ic(answer.data(), answer.data(), answer.size(), round_id.data(),
                                     /*ic=*/1, seed.data());
}

void MaskAnswer(BytesView seed, const Digest& round_id, TagCovers covers, MutableBytes tagged) {
  SHOAL_CHECK(tagged.size() >= kAnswerTagBytes);
  const MutableBytes answer = tagged.first(tagged.size() - kAnswerTagBytes);
  XorMask(seed, round_id, answer);
  uint8_t key[kTagKeyBytes] = {};
  static_assert(kTagKeyBytes == crypto_onetimeauth_poly1305_KEYBYTES);
  static_assert(kAnswerTagBytes == crypto_onetimeauth_poly1305_BYTES);
  crypto_stream_chacha20_ietf_xor_ic(key, key, sizeof key, round_id.data(),
                                     TagKeyBlock(answer.size()), seed.data());
  uint8_t tag[kAnswerTagBytes];
  crypto_onetimeauth_poly1305(tag, tagged.data(),
                              covers == TagCovers::kAnswer ? answer.size() : tagged.size(), key);
  std::copy_n(tag, kAnswerTagBytes, tagged.last(kAnswerTagBytes).begin());
  sodium_memzero(key, sizeof key);
}

void MaskByAll(std::span<const AnswerSeed> seeds, MutableBytes tagged) {
  for (size_t j = seeds.size(); j-- > 0;) {
    MaskAnswer(seeds[j].seed, seeds[j].id, TagCoversAt(j + 1 == seeds.size()), tagged);
  }
}

bool UnmaskAnswer(std::span<const AnswerSeed> seeds, MutableBytes tagged) {
  SHOAL_CHECK(!seeds.empty() && tagged.size() >= kAnswerTagBytes);
  const MutableBytes answer = tagged.first(tagged.size() - kAnswerTagBytes);
  const MutableBytes tag = tagged.last(kAnswerTagBytes);
  for (const AnswerSeed& party : seeds) XorMask(party.seed, party.id, answer);
  SecretVector<uint8_t> again(answer.begin(), answer.end());
  again.resize(tagged.size());
  MaskByAll(seeds, again);
  const bool right = EqualSecret(BytesView(again).last(kAnswerTagBytes), tag);
  std::ranges::fill(right ? tag : tagged, 0);
  return right;
}

uint32_t FirstTally(std::span<const QueryShare> shares, uint32_t query) {
  SHOAL_CHECK(query < kModulus);
  uint32_t tally = query;
  for (size_t j = shares.size(); j-- > 0;) {
    tally = MulAdd(Sub(tally, shares[j].x), Inverse(shares[j].y), 0);
  }
  return tally;
}

}  // namespace shoal::sharing
