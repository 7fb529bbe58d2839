// What a machine tells each other one every few seconds, whether it computes or waits.
#ifndef SHOAL_SRC_MACHINES_SIGN_OF_LIFE_H_
#define SHOAL_SRC_MACHINES_SIGN_OF_LIFE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "src/base/bytes.h"
#include "src/base/random.h"

namespace shoal::machines {

struct SignOfLife {
  static constexpr size_t kSealedBytes = 24 + 8 * 4 + 16;  // nonce, content, tag

  uint64_t number = 0;    // 1, 2, ... : one that is not higher than an earlier one is old
  uint64_t calls = 0;     // exchanges of the round that the sender has begun
  uint64_t sent = 0;      // chunks that the sender has sent to this receiver
  bool worked = false;    // since the sign before, the sender has not waited for anybody
  bool finished = false;  // no sign needs to come after this one
};

// Under a key of sender and receiver, by XChaCha20-Poly1305 with a random nonce: so a key that
// comes again does no harm. kSealedBytes.
Bytes Seal(const SignOfLife& sign, BytesView key, RandomSource& random);
// None if it was not sealed under this key.
std::optional<SignOfLife> OpenSign(BytesView sealed, BytesView key);

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_SIGN_OF_LIFE_H_
