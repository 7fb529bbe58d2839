// AES-128 in counter mode, from which the public matrix is expanded, for processors whose vector
// instructions do several blocks at once. Where there are none, PublicMatrix asks OpenSSL.
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
  static constexpr size_t kBatchBlocks = 16;

  const char* name;

  // The round keys of FIPS 197, section 5.2.
  void (*schedule)(const uint8_t* key, uint8_t* round_keys);

  // out[16 * i ..] = AES of the big-endian number first + i, i < blocks, which stays below 2^64.
  void (*fill)(const uint8_t* round_keys, uint64_t first, size_t blocks, uint8_t* out);

  // The same blocks as little-endian 32-bit words w, kBatchBlocks * batches of them, which are not
  // stored: sums[v * sums_stride + j] += factors[v] * w[j], v < count.
  void (*add_scaled)(const uint8_t* round_keys, uint64_t first, size_t batches,
                     const int32_t* factors, size_t count, uint32_t* sums, size_t sums_stride);
};

// Null where this processor, or this build, has not the instructions.
const CounterStream* Vaes256Stream();
const CounterStream* Vaes512Stream();

// All that run here, the slowest first; there may be none.
std::vector<const CounterStream*> SupportedStreams();
// The last of them, or null.
const CounterStream* FastestStream();

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_COUNTER_STREAM_H_
