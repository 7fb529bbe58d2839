// AES-128 under one secret key, for pseudorandom functions that need many blocks: with the widest
// instructions that the processor has, else with OpenSSL.
#ifndef SHOAL_SRC_PIR_AES_AES128_H_
#define SHOAL_SRC_PIR_AES_AES128_H_

#include <cstdint>
#include <memory>

#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/pir/aes/counter_stream.h"

namespace shoal::pir {

// Wipes the key when it dies. Not even const calls may run at the same time, as OpenSSL's context
// is not for several threads.
class Aes128 {
 public:
  static constexpr size_t kBlockBytes = 16;

  // With the fastest stream of this processor.
  explicit Aes128(const SecretArray<16>& key);
  // Null: OpenSSL.
  Aes128(const SecretArray<16>& key, const CounterStream* stream);
  ~Aes128();

  // out[16 * i ..] = AES of the big-endian 128-bit number first + i, which stays below 2^64. Whole
  // blocks (checked).
  void Numbers(uint64_t first, MutableBytes out) const;
  // Replaces every block by its AES. Whole blocks (checked).
  void Encrypt(MutableBytes blocks) const;
  // Writes the number as a block.
  static void StoreNumber(uint64_t number, uint8_t* block);

 private:
  struct OpenSsl;
  const CounterStream* const stream_;
  SecretArray<CounterStream::kRoundKeyBytes> round_keys_;
  std::unique_ptr<OpenSsl> openssl_;  // null with a stream
};

}  // namespace shoal::pir

#endif  // SHOAL_SRC_PIR_AES_AES128_H_
