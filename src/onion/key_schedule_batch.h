// The key schedule of HPKE (RFC 9180, sections 4.1, 5.1 and 5.3) in batches, one item per vector
// lane: 20 compressions of SHA-256 from a shared point to an export, 6 more for key and nonce.
//
//   prk             = HMAC("", "HPKE-v1" suite "eae_prk" point)                         2
//   shared_secret   = HMAC(prk, "\0\x20HPKE-v1" suite "shared_secret" enc pk "\1")      5, 1 fixed
//   secret          = HMAC(shared_secret, "HPKE-v1" suite "secret")                     4, 1 fixed
//   exporter_secret = HMAC(secret, "\0\x20HPKE-v1" suite "exp" context "\1")            5, 2 fixed
//   key, base_nonce = the same with "key", "base_nonce"                                 3, 2 fixed
//   export          = HMAC(exporter_secret, "\0\x20HPKE-v1" suite "sec" context "\1")   4, 1 fixed
//
// Blocks without a byte of the item are fixed (kernel.h).
#ifndef SHOAL_SRC_ONION_KEY_SCHEDULE_BATCH_H_
#define SHOAL_SRC_ONION_KEY_SCHEDULE_BATCH_H_

#include <stddef.h>
#include <stdint.h>

#include "src/base/inline.h"
#include "src/onion/kernel.h"
#include "src/onion/lanes.h"
#include "src/onion/sha256_batch.h"

namespace shoal::onion {

template <typename Vec>
struct KeyScheduleBatch {
  static void KeySchedule(const KeyScheduleBlocks& blocks, const uint8_t* shared,
                          const uint8_t* encs, size_t enc_stride, const KeyScheduleOutputs& out,
                          size_t n) {
    for (size_t begin = 0; begin < n; begin += kLanes) {
      const size_t lanes = Lanes<Vec>::Count(n, begin);
      State secret;
      SharedSecret(blocks, shared + begin * 32, encs + begin * enc_stride, enc_stride, lanes,
                   secret);
      HmacKey hmac;
      Sha::SetKey(secret, hmac);
      HmacFixed(hmac, &blocks.secret, 1, secret);
      Sha::SetKey(secret, hmac);
      if (out.stream_keys != nullptr) {
        uint8_t* const keys = out.stream_keys + begin * kKernelStreamKeyBytes;
        HmacFixed(hmac, blocks.key, 2, secret);
        Lanes<Vec>::StoreBigEndian(secret.word, keys, kKernelStreamKeyBytes, lanes);
        HmacFixed(hmac, blocks.base_nonce, 2, secret);
        Vec nonce[3] = {secret.word[0], secret.word[1], secret.word[2]};
        Lanes<Vec>::StoreBigEndian(nonce, keys + 32, kKernelStreamKeyBytes, lanes);
        Lanes<Vec>::Wipe(nonce, sizeof nonce);
      }
      if (out.exporter_secrets != nullptr || out.exports != nullptr) {
        HmacFixed(hmac, blocks.exporter_secret, 2, secret);
      }
      if (out.exporter_secrets != nullptr) {
        Lanes<Vec>::StoreBigEndian(secret.word, out.exporter_secrets + begin * 32, 32, lanes);
      }
      if (out.exports != nullptr) {
        Sha::SetKey(secret, hmac);
        HmacFixed(hmac, &blocks.exported, 1, secret);
        Lanes<Vec>::StoreBigEndian(secret.word, out.exports + begin * out.export_stride,
                                   out.export_stride, lanes);
      }
      Lanes<Vec>::Wipe(&secret, sizeof secret);
    }
  }

  static void ExportNumbered(const NumberedBlock& block, uint32_t first,
                             const uint8_t* exporter_secret, uint8_t* exports, size_t n) {
    if (n == 0) return;
    State key, inner, outer;
    Lanes<Vec>::LoadBigEndian(exporter_secret, 0, 1, key.word);
    HmacKey hmac;
    Sha::SetKey(key, hmac);
    // The number's bytes, in the order of a big-endian word, lie in one or two words.
    const size_t at = block.number_at / 4, shift = block.number_at % 4 * 8;
    for (size_t begin = 0; begin < n; begin += kLanes) {
      alignas(64) uint32_t high[kLanes], low[kLanes];
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const uint64_t number =
            static_cast<uint64_t>(__builtin_bswap32(static_cast<uint32_t>(first + begin + lane)))
            << (32 - shift);
        high[lane] = static_cast<uint32_t>(number >> 32);
        low[lane] = static_cast<uint32_t>(number);
      }
      Vec w[16];
      for (size_t i = 0; i < 16; ++i) w[i] = Vec::Set1(block.word[i]);
      w[at] = w[at] ^ Vec::Load(high);
      w[at + 1] = w[at + 1] ^ Vec::Load(low);
      inner = hmac.inner;
      outer = hmac.outer;
      Sha::Compress(inner, w);
      Sha::FinishHmac(inner, outer);
      Lanes<Vec>::StoreBigEndian(inner.word, exports + begin * 32, 32, Lanes<Vec>::Count(n, begin));
    }
    Lanes<Vec>::Wipe(&key, sizeof key);
    Lanes<Vec>::Wipe(&inner, sizeof inner);
    Lanes<Vec>::Wipe(&outer, sizeof outer);
  }

 private:
  static constexpr size_t kLanes = Vec::kLanes;
  using Sha = Sha256Batch<Vec>;
  using State = typename Sha::State;
  using HmacKey = typename Sha::HmacKey;

  // HMAC of one or two fixed blocks.
  SHOAL_INLINE static void HmacFixed(const HmacKey& hmac, const FixedBlock* message, size_t blocks,
                                     State& digest) {
    State outer = hmac.outer;
    digest = hmac.inner;
    for (size_t i = 0; i < blocks; ++i) Sha::CompressFixed(digest, message[i]);
    Sha::FinishHmac(digest, outer);
    Lanes<Vec>::Wipe(&outer, sizeof outer);
  }

  // A block's words, and in them the item's 32 bytes from byte 4 kFirst + 3 on.
  template <int kFirst>
  SHOAL_INLINE static void Insert(const uint32_t block[16], const Vec item[8], Vec w[16]) {
    SHOAL_UNROLL for (int i = 0; i < 16; ++i) w[i] = Vec::Set1(block[i]);
    w[kFirst] = w[kFirst] ^ item[0].template Srl<24>();
    SHOAL_UNROLL for (int i = 1; i < 8; ++i) {
      w[kFirst + i] = item[i - 1].template Sll<8>() ^ item[i].template Srl<24>();
    }
    w[kFirst + 8] = w[kFirst + 8] ^ item[7].template Sll<8>();
  }

  SHOAL_NOINLINE static void SharedSecret(const KeyScheduleBlocks& blocks, const uint8_t* shared,
                                          const uint8_t* encs, size_t enc_stride, size_t lanes,
                                          State& secret) {
    Vec item[8], w[16];
    State outer = Sha::Broadcast(blocks.empty_outer);
    secret = Sha::Broadcast(blocks.empty_inner);
    Lanes<Vec>::LoadBigEndian(shared, 32, lanes, item);
    Insert<4>(blocks.eae_prk, item, w);
    Sha::Compress(secret, w);
    Sha::FinishHmac(secret, outer);
    HmacKey hmac;
    Sha::SetKey(secret, hmac);
    Lanes<Vec>::LoadBigEndian(encs, enc_stride, lanes, item);
    Insert<6>(blocks.kem_context, item, w);
    secret = hmac.inner;
    Sha::Compress(secret, w);
    Sha::CompressFixed(secret, blocks.recipient);
    Sha::FinishHmac(secret, hmac.outer);
    Lanes<Vec>::Wipe(item, sizeof item);
    Lanes<Vec>::Wipe(w, sizeof w);
    Lanes<Vec>::Wipe(&outer, sizeof outer);
  }
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_KEY_SCHEDULE_BATCH_H_
