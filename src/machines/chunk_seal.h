// Seals the chunks of one transfer from one machine to another, or of one file.
#ifndef SHOAL_SRC_MACHINES_CHUNK_SEAL_H_
#define SHOAL_SRC_MACHINES_CHUNK_SEAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "src/base/bytes.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace shoal::machines {

// AES-256-GCM under one key at a time; a chunk's number is its nonce. Use one object to seal or one
// to open, never both, and a key for one transfer alone. Movable. Thread-compatible.
class ChunkSeal {
 public:
  static constexpr size_t kTagBytes = 16;

  // Without a key.
  ChunkSeal();
  // `key` is 32 secret bytes. The next chunk has the number `first`.
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
  struct FreeContext {
    void operator()(evp_cipher_ctx_st* context) const;
  };

  std::unique_ptr<evp_cipher_ctx_st, FreeContext> context_;
  bool keyed_ = false;
  uint64_t next_ = 0;
  MutableBytes left_;  // of the chunk that is being sealed
};

}  // namespace shoal::machines

#endif  // SHOAL_SRC_MACHINES_CHUNK_SEAL_H_
