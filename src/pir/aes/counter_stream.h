// AES-128 of many blocks, on processors with AES instructions, of which some work on several blocks
// at once. On other processors callers use OpenSSL (aes128.h).
//
// Neither time nor addresses depend on keys, blocks or factors. Round keys that are left in
// registers and on the stack are not wiped.
#ifndef SHOAL_SRC_PIR_AES_COUNTER_STREAM_H_
#define SHOAL_SRC_PIR_AES_COUNTER_STREAM_H_

#include <cstddef>
#include <cstdint>

namespace shoal::pir {

struct CounterStream {
  static constexpr size_t kRoundKeyBytes = 11 * 16;
  // A multiple of the number of blocks that any stream computes at a time.
  static constexpr size_t kBatchBlocks = 16;

  const char* name;

  // The round keys of FIPS 197, section 5.2.
  void (*schedule)(const uint8_t* key, uint8_t* round_keys);

  // out[16 * i ..] = AES of the big-endian number first + i, i < blocks, which stays below 2^64.
  void (*fill)(const uint8_t* round_keys, uint64_t first, size_t blocks, uint8_t* out);

  // Replaces each of the blocks by its AES.
  void (*encrypt)(const uint8_t* round_keys, size_t blocks, uint8_t* data);

  // The blocks of `fill`, a multiple of kBatchBlocks, as little-endian 32-bit words w[0 .. 4 *
  // blocks), which are not stored: sums[j] += factor * w[j].
  void (*add_scaled)(const uint8_t* round_keys, uint64_t first, size_t blocks, int32_t factor,
                     uint32_t* sums);
};

// Null if this processor, or this build, does not have the instructions. streams.h chooses.
const CounterStream* AesNiStream();
const CounterStream* Vaes256Stream();
const CounterStream* Vaes512Stream();

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_AES_COUNTER_STREAM_H_
