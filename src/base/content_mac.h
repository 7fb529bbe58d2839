// A keyed digest for very large byte strings, at the speed of the processor's carry-less
// multiplication: with it a party notices that a list it is given again is not the one it had.
//
// The content is cut into chunks of a fixed size. A chunk's tag is its GMAC (NIST SP 800-38D:
// AES-256-GCM of no plaintext, the chunk as additional data) under the chunk's number as nonce; the
// digest is keyed BLAKE2b of chunk size, total length and all tags. Both keys are derived from the
// caller's for one domain.
//
// What it promises. Let c be the chunk size. Two different contents have, under a random key, the
// same digest with probability at most (c / 16 + 2) / 2^128, or else BLAKE2b with a secret key has
// been told from a random function, or AES-256 from a random permutation. (Contents of different
// lengths differ in what BLAKE2b reads. Of two of the same length some chunk differs, and its two
// tags, under the same nonce, are equal only if a secret field element, the key of GHASH, is a root
// of a polynomial of degree c / 16 + 1 at most.) With the default c that is below 2^-113 for each
// content that an adversary tries, even where it learns whether its try was taken.
//
// What it rests on. The same nonces come back with every content, so the usual promise of GMAC does
// not hold: who sees tags can solve for the key. Tags are therefore secret, as the key is; only the
// digest, which tells nothing of them, is stored. It is not a digest to show to others: compare
// digests of one key on one machine.
#ifndef SHOAL_SRC_BASE_CONTENT_MAC_H_
#define SHOAL_SRC_BASE_CONTENT_MAC_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/base/thread_pool.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace shoal {

// One key, domain and chunk size. Thread-safe. Of, the chunks by number and the Stream give one
// content one digest.
class ContentMac {
 public:
  // Starting a tag costs about as much as 3 KiB of content; a chunk of this size stays in a
  // second-level cache.
  static constexpr size_t kDefaultChunkBytes = size_t{256} << 10;

  using Tag = std::array<uint8_t, 16>;

  // `key` is 32 secret bytes; chunk_bytes is in [1, 2^30] and part of what is digested. Who makes
  // items of a fixed size takes a multiple of it.
  ContentMac(BytesView key, absl::string_view domain, size_t chunk_bytes = kDefaultChunkBytes);
  ~ContentMac();
  ContentMac(const ContentMac&) = delete;
  ContentMac& operator=(const ContentMac&) = delete;

  size_t chunk_bytes() const { return chunk_bytes_; }
  size_t Chunks(uint64_t total_bytes) const {
    return total_bytes / chunk_bytes_ + (total_bytes % chunk_bytes_ != 0);
  }

  // The digest of all of `content`, chunks in parallel.
  Digest Of(BytesView content, ThreadPool& pool) const;

  // For those who have the chunks one by one, on several threads, while they are in the cache:
  // chunk `index` (from 0) is the content from byte index * chunk_bytes on, chunk_bytes long but
  // for the last chunk, which holds what is left and is not empty. A tag is secret.
  Tag ChunkTag(uint64_t index, BytesView chunk) const;
  // The digest from the tags of all chunks, in order. Chunks(total_bytes) of them (checked).
  Digest Combine(uint64_t total_bytes, std::span<const Tag> tags) const;

  // The content in pieces, cut anywhere.
  class Stream;

 private:
  struct FreeContext {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_cipher_ctx_st, FreeContext>;

  // A tag in the making: BeginTag, AddToTag any number of times, EndTag.
  Context BeginTag(uint64_t index) const;
  static void AddToTag(evp_cipher_ctx_st* context, BytesView piece);
  static Tag EndTag(evp_cipher_ctx_st* context);

  size_t chunk_bytes_;
  Context keyed_;  // copied for every tag
  Seed combine_key_;
};

// Thread-compatible. The mac must outlive it.
class ContentMac::Stream {
 public:
  explicit Stream(const ContentMac& mac) : mac_(&mac) {}

  void Update(BytesView piece);
  // The same; chunks that are whole in the piece in parallel.
  void Update(BytesView piece, ThreadPool& pool);
  // Once only.
  Digest Finish();

 private:
  const ContentMac* mac_;
  Context chunk_;          // null between chunks
  size_t chunk_left_ = 0;  // bytes that the chunk still takes
  uint64_t total_bytes_ = 0;
  SecretVector<Tag> tags_;
  bool finished_ = false;
};

}  // namespace shoal

#endif  // SHOAL_SRC_BASE_CONTENT_MAC_H_
