// AES-128 in counter mode, from which the public matrix is expanded, for processors that have AES
// instructions, at best for several blocks at once. Elsewhere PublicMatrix asks OpenSSL.
//
// The matrix is public, as is the key. Factors are secret: time and places touched do not depend on
// them.
#ifndef SHOAL_SRC_PIR_COUNTER_STREAM_H_
#define SHOAL_SRC_PIR_COUNTER_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shoal::pir {

struct CounterStream {
  static constexpr size_t kRoundKeyBytes = 11 * 16;
  // A multiple of the blocks that every stream has under way together.
  static constexpr size_t kBatchBlocks = 16;

  const char* name;

  // The round keys of FIPS 197, section 5.2.
  void (*schedule)(const uint8_t* key, uint8_t* round_keys);

  // out[16 * i ..] = AES of the big-endian number first + i, i < blocks, which stays below 2^64.
  void (*fill)(const uint8_t* round_keys, uint64_t first, size_t blocks, uint8_t* out);

  // The same blocks, a multiple of kBatchBlocks, as little-endian 32-bit words w[0 .. 4 * blocks), which
  // are not stored: sums[j] += factor * w[j].
  void (*add_scaled)(const uint8_t* round_keys, uint64_t first, size_t blocks, int32_t factor,
                     uint32_t* sums);
};

// Null where this processor, or this build, has not the instructions.
const CounterStream* AesNiStream();
const CounterStream* Vaes256Stream();
const CounterStream* Vaes512Stream();

// All that run here, the slowest first; there may be none.
std::vector<const CounterStream*> SupportedStreams();

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_COUNTER_STREAM_H_
