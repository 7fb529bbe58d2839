// A keyed digest for very large byte strings, at the speed of the processor's carry-less
// multiplication: by a kernel of ours (ghash.h) where the machine has its instructions, otherwise
// by OpenSSL. With it a party notices that a repeated list differs from the first one.
//
// The content is cut into chunks of a fixed size. A chunk's tag is its GMAC (NIST SP 800-38D:
// AES-256-GCM of no plaintext, the chunk as additional data) under the chunk's number as nonce; the
// digest is keyed BLAKE2b of chunk size, total length and all tags. Both keys are derived from the
// caller's for one domain.
//
// What it promises. Let c be the chunk size. Under a random key, two different contents have the
// same digest with probability at most (c / 16 + 2) / 2^128, provided that keyed BLAKE2b is
// indistinguishable from a random function, and AES-256 from a random permutation. (Contents of
// different lengths differ in what BLAKE2b reads. Contents of the same length differ in some chunk.
// The two tags of that chunk, under the same nonce, are equal only if the key of GHASH, a secret
// field element, is a root of a polynomial of degree c / 16 + 1 at most.) With the default c that
// is below 2^-115 for each content that an adversary tries, even if the adversary learns whether
// each try was accepted.
//
// What it rests on. Every content uses the same nonces, so the usual promise of GMAC does not hold:
// an adversary that sees tags can solve for the key. Tags are therefore as secret as the key. Only
// the digest, which tells nothing about the tags, is stored. Do not show it to others: it is for
// comparison with other digests under one key at one party. From one machine of a party to another
// tags pass sealed (src/machines).
#ifndef SHOAL_SRC_PARALLEL_CONTENT_MAC_H_
#define SHOAL_SRC_PARALLEL_CONTENT_MAC_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/base/secret.h"
#include "src/parallel/ghash.h"
#include "src/parallel/thread_pool.h"

struct evp_cipher_ctx_st;  // OpenSSL's EVP_CIPHER_CTX

namespace shoal {

// A MAC with one key, domain and chunk size. Thread-safe. There are four ways to digest a content,
// with the same result: `Of`; ChunkTag and Combine; a Stream; streams for parts of it, wherever
// they are, and Combine.
class ContentMac {
 public:
  // Starting a tag costs about as much as 10 KiB of content. At a party of several machines up to a
  // chunk passes from each machine to another one for each content (server/party_content.h).
  static constexpr size_t kDefaultChunkBytes = size_t{64} << 10;

  using Tag = std::array<uint8_t, 16>;

  // `key` is 32 secret bytes; chunk_bytes is in [1, 2^30] and is digested too. A caller whose
  // content consists of items of a fixed size chooses a multiple of that size.
  ContentMac(BytesView key, absl::string_view domain, size_t chunk_bytes = kDefaultChunkBytes);
  ~ContentMac();
  ContentMac(const ContentMac&) = delete;
  ContentMac& operator=(const ContentMac&) = delete;

  // The domain: what the contents are called.
  absl::string_view domain() const { return domain_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  size_t Chunks(uint64_t total_bytes) const {
    return total_bytes / chunk_bytes_ + (total_bytes % chunk_bytes_ != 0);
  }

  // The digest of all of `content`, chunks in parallel.
  Digest Of(BytesView content, ThreadPool& pool) const;

  // For callers that have the chunks one by one, on several threads, while they are in the cache.
  // Chunk `index` (from 0) is the content from byte index * chunk_bytes on; it is chunk_bytes long,
  // or shorter but not empty if it is the last one. A tag is secret.
  Tag ChunkTag(uint64_t index, BytesView chunk) const;
  // The digest from the tags of all chunks, in order. There must be Chunks(total_bytes) tags
  // (checked).
  Digest Combine(uint64_t total_bytes, std::span<const Tag> tags) const;

  // Digests a content in pieces, cut anywhere.
  class Stream;

 private:
  struct FreeContext {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_cipher_ctx_st, FreeContext>;

  // A tag that is being made. With a kernel, OpenSSL makes the tag of no bytes at all, which is
  // what GMAC adds to the hash, and the rest is here.
  struct OpenTag {
    Context context;
    SecretArray<GhashKernel::kBlockBytes> sum;
    SecretArray<GhashKernel::kBlockBytes> begun;  // the first bytes of the next block
    uint64_t bytes = 0;
  };
  // Make one tag: BeginTag, AddToTag any number of times, EndTag.
  OpenTag BeginTag(uint64_t index) const;
  void AddToTag(OpenTag& tag, BytesView piece) const;
  Tag EndTag(OpenTag& tag) const;
  void AddBlocks(OpenTag& tag, const uint8_t* blocks, size_t n) const;

  std::string domain_;
  size_t chunk_bytes_;
  Context keyed_;  // copied for every tag
  Seed combine_key_;
  const GhashKernel* kernel_ = nullptr;
  // Of the kernel; not read without one.
  std::unique_ptr<SecretArray<GhashKernel::kTableBytes>> table_;
};

// Thread-compatible. The mac must outlive it.
class ContentMac::Stream {
 public:
  // For a content, or for the part of it that begins at byte `first_byte`.
  explicit Stream(const ContentMac& mac, uint64_t first_byte = 0);

  void Update(BytesView piece);
  // The same, but chunks that lie wholly in the piece are digested in parallel.
  void Update(BytesView piece, ThreadPool& pool);
  // The same for a piece that `make(begin, end)` writes, range by range: each range is made just
  // before it is digested, on the same thread, while it is in the cache. Ranges begin where the
  // piece or a chunk does. Only for whole contents, or the first part.
  void UpdateMade(BytesView piece, ThreadPool& pool,
                  const std::function<void(size_t begin, size_t end)>& make);
  // Ends a whole content. Call it once.
  Digest Finish();

  // For a part. The first bytes may belong to a chunk that began before the part: they are kept
  // here, for the stream of the part in which the chunk began, which takes them with Update when
  // its own bytes are through.
  BytesView head() const { return head_; }
  // Goes on where `next` ends, which is the stream of the part that follows what has come here
  // (checked).
  void Join(Stream next);
  // Ends a part: the tags of the chunks that begin in it. Call it once.
  SecretVector<Tag> FinishPart();

 private:
  // Keeps what belongs to head(); returns the rest.
  BytesView TakeHead(BytesView piece);
  // Digests what follows the head, from the chunk that has begun on.
  void Add(BytesView piece);

  const ContentMac* mac_;
  uint64_t first_chunk_;  // that begins in the part
  size_t head_left_;      // bytes of head() that are missing
  SecretVector<uint8_t> head_;
  std::optional<OpenTag> chunk_;  // none between chunks
  size_t chunk_left_ = 0;         // missing bytes of the chunk
  uint64_t total_bytes_ = 0;
  SecretVector<Tag> tags_;
  bool finished_ = false;
};

}  // namespace shoal

#endif  // SHOAL_SRC_PARALLEL_CONTENT_MAC_H_
