// Seals the chunks of one transfer from one machine to another, or of one file.
#ifndef SHOAL_SRC_MACHINES_CHUNK_SEAL_H_
#define SHOAL_SRC_MACHINES_CHUNK_SEAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/bytes.h"
#include "src/base/secret.h"

struct aegis128l_state;  // libaegis'

namespace shoal::machines {

// AEGIS-128L (draft-irtf-cfrg-aegis-aead; libaegis) with tags of 128 bits, under one key at a time.
// A chunk's nonce is a part of the key and the chunk's number. AEGIS takes a quarter of the time of
// AES-GCM, and needs no more than a key for each transfer makes sure of: under one key and nonce it
// must never seal twice. Use one object to seal or one to open, never both, and a key for one
// transfer alone. Movable. Thread-compatible.
class ChunkSeal {
 public:
  static constexpr size_t kTagBytes = 16;

  // Without a key.
  ChunkSeal();
  // `key` is 32 secret bytes, of which 16 are the cipher's key and 8 begin the nonces. The next
  // chunk has the number `first`.
  explicit ChunkSeal(BytesView key, uint64_t first = 0);

  // The next transfer's key: the next chunk is its first one. Costs less than another object.
  void Begin(BytesView key);

  // Seals the next chunk: `sealed` is kTagBytes longer than `plain` (checked).
  void Seal(BytesView plain, MutableBytes sealed);
  // The same in pieces: BeginChunk, Add any number of times, and EndChunk once all but kTagBytes of
  // `sealed` have been added (checked).
  void BeginChunk(MutableBytes sealed);
  void Add(BytesView plain);
  void EndChunk();
  // Opens the next chunk; false, with `plain` zeroed, if it is not what was sealed as the chunk of
  // this number under this key.
  [[nodiscard]] bool Open(BytesView sealed, MutableBytes plain);

 private:
  static constexpr size_t kCipherKeyBytes = 16, kNoncePrefixBytes = 8;
  using Nonce = SecretArray<16>;
  struct WipeState {
    void operator()(aegis128l_state* state) const;
  };
  // That of the next chunk, whose number it uses up.
  Nonce NextNonce();

  SecretArray<kCipherKeyBytes> key_;
  SecretArray<kNoncePrefixBytes> nonce_prefix_;
  std::unique_ptr<aegis128l_state, WipeState>
      state_;  // of the chunk that is being sealed, or zeros
  bool keyed_ = false;
  uint64_t next_ = 0;
  MutableBytes left_;  // of the chunk that is being sealed
};

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_CHUNK_SEAL_H_
