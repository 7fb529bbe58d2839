// The only source of randomness. It is passed in everywhere, so that tests, and only tests, can
// pass a deterministic one (src/base/testing).
#ifndef SHOAL_SRC_BASE_RANDOM_H_
#define SHOAL_SRC_BASE_RANDOM_H_

#include <cstdint>

#include "sodium.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"

namespace shoal {

class RandomSource {
 public:
  virtual ~RandomSource() = default;

  // Fills `out` with bytes indistinguishable from uniform ones.
  virtual void Fill(MutableBytes out) = 0;

  uint64_t U64() {
    uint8_t bytes[8];
    Fill(bytes);
    return LoadLe<uint64_t>(bytes);
  }

  // Uniform in [0, bound), unbiased (Lemire's rejection); bound > 0.
  uint64_t Below(uint64_t bound);

  Seed NewSeed() {
    Seed seed;
    Fill(seed.mutable_view());
    return seed;
  }
};

// The operating system's generator (getrandom). Thread-safe. A call costs about one system call, so
// draw in bulk.
class SystemRandom final : public RandomSource {
 public:
  void Fill(MutableBytes out) override;
};

// Expands one stored seed into a stream: ChaCha20 (RFC 8439) under a key derived from the seed and
// a domain. A party that has stored the seed can draw the same values again after a restart.
// Thread-compatible: use one per thread, each with its own `stream` number.
class SeededRandom final : public RandomSource {
 public:
  SeededRandom(BytesView seed, absl::string_view domain, uint64_t stream = 0);
  void Fill(MutableBytes out) override;

 private:
  static constexpr size_t kBufferBytes = 4096;
  void Refill();
  Seed key_;
  uint64_t next_block_ = 0;
  size_t used_ = kBufferBytes;
  SecretArray<kBufferBytes> buffer_;
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_RANDOM_H_
