#include "src/parallel/content_mac.h"

#include <algorithm>
#include <utility>

#include "openssl/evp.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"

namespace shoal {
namespace {

constexpr size_t kMaxChunkBytes = size_t{1} << 30;  // EVP counts with ints

Digest Subkey(BytesView key, absl::string_view purpose, absl::string_view domain) {
  return Transcript(purpose, key).Blob(domain).Finish();
}

std::array<uint8_t, 12> NonceOf(uint64_t index) {
  std::array<uint8_t, 12> nonce = {};
  StoreLe(nonce.data(), index);
  return nonce;
}

// Fetched once and kept for the life of the process, as fetching takes locks.
const EVP_CIPHER* Gcm() {
  static const EVP_CIPHER* const cipher = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  SHOAL_CHECK(cipher != nullptr);
  return cipher;
}

}  // namespace

void ContentMac::FreeContext::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);  // wipes the key
}

ContentMac::ContentMac(BytesView key, absl::string_view domain, size_t chunk_bytes)
    : domain_(domain), chunk_bytes_(chunk_bytes), keyed_(EVP_CIPHER_CTX_new()) {
  SHOAL_CHECK(chunk_bytes >= 1 && chunk_bytes <= kMaxChunkBytes);
  SHOAL_CHECK(keyed_ != nullptr);
  Digest chunk_key = Subkey(key, "shoal content mac chunks v1", domain);
  Digest combine_key = Subkey(key, "shoal content mac combine v1", domain);
  SHOAL_CHECK(EVP_EncryptInit_ex2(keyed_.get(), Gcm(), chunk_key.data(), nullptr, nullptr) == 1);
  combine_key_ = Seed(combine_key);
  sodium_memzero(chunk_key.data(), chunk_key.size());
  sodium_memzero(combine_key.data(), combine_key.size());
}

ContentMac::~ContentMac() = default;

ContentMac::Context ContentMac::BeginTag(uint64_t index) const {
  Context context(EVP_CIPHER_CTX_new());
  SHOAL_CHECK(context != nullptr && EVP_CIPHER_CTX_copy(context.get(), keyed_.get()) == 1);
  const auto nonce = NonceOf(index);
  SHOAL_CHECK(EVP_EncryptInit_ex2(context.get(), nullptr, nullptr, nonce.data(), nullptr) == 1);
  return context;
}

void ContentMac::AddToTag(evp_cipher_ctx_st* context, BytesView piece) {
  int written = 0;
  SHOAL_CHECK(EVP_EncryptUpdate(context, nullptr, &written, piece.data(),
                                static_cast<int>(piece.size())) == 1);
}

ContentMac::Tag ContentMac::EndTag(evp_cipher_ctx_st* context) {
  Tag tag;
  int written = 0;
  SHOAL_CHECK(EVP_EncryptFinal_ex(context, tag.data(), &written) == 1 && written == 0);
  SHOAL_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                                  tag.data()) == 1);
  return tag;
}

ContentMac::Tag ContentMac::ChunkTag(uint64_t index, BytesView chunk) const {
  SHOAL_CHECK(!chunk.empty() && chunk.size() <= chunk_bytes_);
  const Context context = BeginTag(index);
  AddToTag(context.get(), chunk);
  return EndTag(context.get());
}

Digest ContentMac::Combine(uint64_t total_bytes, std::span<const Tag> tags) const {
  SHOAL_CHECK(tags.size() == Chunks(total_bytes));
  Transcript transcript("shoal content mac v1", combine_key_.view());
  transcript.U64(chunk_bytes_).U64(total_bytes).BeginBlob(tags.size() * sizeof(Tag));
  for (const Tag& tag : tags) transcript.BlobPiece(tag);
  return transcript.Finish();
}

Digest ContentMac::Of(BytesView content, ThreadPool& pool) const {
  SecretVector<Tag> tags(Chunks(content.size()));
  pool.ParallelFor(tags.size(), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t at = i * chunk_bytes_;
      tags[i] = ChunkTag(i, content.subspan(at, std::min(chunk_bytes_, content.size() - at)));
    }
  });
  return Combine(content.size(), tags);
}

ContentMac::Stream::Stream(const ContentMac& mac, uint64_t first_byte)
    : mac_(&mac),
      first_chunk_(mac.Chunks(first_byte)),
      head_left_(static_cast<size_t>(first_chunk_ * mac.chunk_bytes_ - first_byte)) {}

BytesView ContentMac::Stream::TakeHead(BytesView piece) {
  const size_t now = std::min(piece.size(), head_left_);
  head_.insert(head_.end(), piece.begin(), piece.begin() + static_cast<ptrdiff_t>(now));
  head_left_ -= now;
  return piece.subspan(now);
}

void ContentMac::Stream::Update(BytesView piece) {
  SHOAL_CHECK(!finished_);
  piece = TakeHead(piece);
  total_bytes_ += piece.size();
  while (!piece.empty()) {
    if (chunk_ == nullptr) {
      chunk_ = mac_->BeginTag(first_chunk_ + tags_.size());
      chunk_left_ = mac_->chunk_bytes_;
    }
    const size_t now = std::min(piece.size(), chunk_left_);
    AddToTag(chunk_.get(), piece.first(now));
    piece = piece.subspan(now);
    chunk_left_ -= now;
    if (chunk_left_ == 0) {
      tags_.push_back(EndTag(chunk_.get()));
      chunk_.reset();
    }
  }
}

void ContentMac::Stream::Update(BytesView piece, ThreadPool& pool) {
  piece = TakeHead(piece);
  const size_t first = std::min(piece.size(), chunk_ == nullptr ? 0 : chunk_left_);
  Update(piece.first(first));
  piece = piece.subspan(first);
  const size_t begun = tags_.size(), whole = piece.size() / mac_->chunk_bytes_;
  if (whole > 1) {
    tags_.resize(begun + whole);
    pool.ParallelFor(whole, 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        tags_[begun + i] = mac_->ChunkTag(
            first_chunk_ + begun + i, piece.subspan(i * mac_->chunk_bytes_, mac_->chunk_bytes_));
      }
    });
    total_bytes_ += whole * mac_->chunk_bytes_;
    piece = piece.subspan(whole * mac_->chunk_bytes_);
  }
  Update(piece);
}

Digest ContentMac::Stream::Finish() {
  SHOAL_CHECK(first_chunk_ == 0);
  const SecretVector<Tag> tags = FinishPart();
  return mac_->Combine(total_bytes_, tags);
}

SecretVector<ContentMac::Tag> ContentMac::Stream::FinishPart() {
  SHOAL_CHECK(!finished_);
  finished_ = true;
  if (chunk_ != nullptr) tags_.push_back(EndTag(chunk_.get()));
  chunk_.reset();
  return std::move(tags_);
}

}  // namespace shoal
