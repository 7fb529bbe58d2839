#include "src/parallel/content_mac.h"

#include <algorithm>
#include <utility>

#include "openssl/evp.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/hash.h"
#include "src/base/instruction_set.h"

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

const GhashKernel* Kernel() {
#ifdef __x86_64__
  if (ActiveInstructionSet() == InstructionSet::kAvx512 && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("vpclmulqdq")) {
    return Avx512Ghash();
  }
#endif
  return nullptr;
}

// What GHASH multiplies with: the cipher's image of zeros.
void HashKey(BytesView key, MutableBytes out) {
  EVP_CIPHER_CTX* const context = EVP_CIPHER_CTX_new();
  SHOAL_CHECK(context != nullptr);
  const uint8_t zeros[GhashKernel::kBlockBytes] = {};
  int written = 0;
  SHOAL_CHECK(EVP_EncryptInit_ex(context, EVP_aes_256_ecb(), nullptr, key.data(), nullptr) == 1 &&
              EVP_EncryptUpdate(context, out.data(), &written, zeros, sizeof zeros) == 1 &&
              written == sizeof zeros);
  EVP_CIPHER_CTX_free(context);
}

}  // namespace

void ContentMac::FreeContext::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);  // wipes the key
}

ContentMac::ContentMac(BytesView key, absl::string_view domain, size_t chunk_bytes)
    : domain_(domain), chunk_bytes_(chunk_bytes), keyed_(EVP_CIPHER_CTX_new()), kernel_(Kernel()) {
  SHOAL_CHECK(chunk_bytes >= 1 && chunk_bytes <= kMaxChunkBytes);
  SHOAL_CHECK(keyed_ != nullptr);
  Digest chunk_key = Subkey(key, "shoal content mac chunks v1", domain);
  Digest combine_key = Subkey(key, "shoal content mac combine v1", domain);
  SHOAL_CHECK(EVP_EncryptInit_ex2(keyed_.get(), Gcm(), chunk_key.data(), nullptr, nullptr) == 1);
  combine_key_ = Seed(combine_key);
  if (kernel_ != nullptr) {
    SecretArray<GhashKernel::kBlockBytes> hash_key;
    HashKey(chunk_key, hash_key.mutable_view());
    table_ = std::make_unique<SecretArray<GhashKernel::kTableBytes>>();
    kernel_->prepare(hash_key.data(), table_->data());
    sodium_stackzero(GhashKernel::kStackBytes);
  }
  sodium_memzero(chunk_key.data(), chunk_key.size());
  sodium_memzero(combine_key.data(), combine_key.size());
}

ContentMac::~ContentMac() = default;

ContentMac::OpenTag ContentMac::BeginTag(uint64_t index) const {
  OpenTag tag;
  tag.context.reset(EVP_CIPHER_CTX_new());
  EVP_CIPHER_CTX* const context = tag.context.get();
  SHOAL_CHECK(context != nullptr && EVP_CIPHER_CTX_copy(context, keyed_.get()) == 1);
  const auto nonce = NonceOf(index);
  SHOAL_CHECK(EVP_EncryptInit_ex2(context, nullptr, nullptr, nonce.data(), nullptr) == 1);
  return tag;
}

void ContentMac::AddBlocks(OpenTag& tag, const uint8_t* blocks, size_t n) const {
  kernel_->add(table_->data(), tag.sum.data(), blocks, n);
}

void ContentMac::AddToTag(OpenTag& tag, BytesView piece) const {
  if (kernel_ == nullptr) {
    int written = 0;
    SHOAL_CHECK(EVP_EncryptUpdate(tag.context.get(), nullptr, &written, piece.data(),
                                  static_cast<int>(piece.size())) == 1);
    return;
  }
  constexpr size_t kBlock = GhashKernel::kBlockBytes;
  const size_t had = tag.bytes % kBlock;
  tag.bytes += piece.size();
  if (had > 0) {
    const size_t now = std::min(piece.size(), kBlock - had);
    std::copy_n(piece.data(), now, tag.begun.data() + had);
    piece = piece.subspan(now);
    if (had + now < kBlock) return;
    AddBlocks(tag, tag.begun.data(), 1);
  }
  const size_t whole = piece.size() / kBlock;
  AddBlocks(tag, piece.data(), whole);
  sodium_stackzero(GhashKernel::kStackBytes);
  piece = piece.subspan(whole * kBlock);
  std::ranges::copy(piece, tag.begun.data());
}

ContentMac::Tag ContentMac::EndTag(OpenTag& tag) const {
  Tag out;
  int written = 0;
  EVP_CIPHER_CTX* const context = tag.context.get();
  SHOAL_CHECK(EVP_EncryptFinal_ex(context, out.data(), &written) == 1 && written == 0);
  SHOAL_CHECK(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(out.size()),
                                  out.data()) == 1);
  if (kernel_ == nullptr) return out;
  constexpr size_t kBlock = GhashKernel::kBlockBytes;
  if (const size_t had = tag.bytes % kBlock; had > 0) {
    std::fill(tag.begun.data() + had, tag.begun.data() + kBlock, 0);
    AddBlocks(tag, tag.begun.data(), 1);
  }
  // The last block has the lengths in bits, big endian: of this, and of an empty plaintext.
  std::array<uint8_t, kBlock> lengths = {};
  for (size_t i = 0; i < 8; ++i) lengths[i] = static_cast<uint8_t>(tag.bytes * 8 >> (56 - 8 * i));
  AddBlocks(tag, lengths.data(), 1);
  kernel_->finish(tag.sum.data());
  sodium_stackzero(GhashKernel::kStackBytes);
  for (size_t i = 0; i < kBlock; ++i) out[i] ^= tag.sum.data()[i];
  return out;
}

ContentMac::Tag ContentMac::ChunkTag(uint64_t index, BytesView chunk) const {
  SHOAL_CHECK(!chunk.empty() && chunk.size() <= chunk_bytes_);
  OpenTag tag = BeginTag(index);
  AddToTag(tag, chunk);
  return EndTag(tag);
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

void ContentMac::Stream::Update(BytesView piece) { Add(TakeHead(piece)); }

void ContentMac::Stream::Add(BytesView piece) {
  SHOAL_CHECK(!finished_);
  total_bytes_ += piece.size();
  while (!piece.empty()) {
    if (!chunk_.has_value()) {
      chunk_ = mac_->BeginTag(first_chunk_ + tags_.size());
      chunk_left_ = mac_->chunk_bytes_;
    }
    const size_t now = std::min(piece.size(), chunk_left_);
    mac_->AddToTag(*chunk_, piece.first(now));
    piece = piece.subspan(now);
    chunk_left_ -= now;
    if (chunk_left_ == 0) {
      tags_.push_back(mac_->EndTag(*chunk_));
      chunk_.reset();
    }
  }
}

void ContentMac::Stream::Update(BytesView piece, ThreadPool& pool) {
  UpdateMade(TakeHead(piece), pool, [](size_t, size_t) {});
}

void ContentMac::Stream::UpdateMade(BytesView piece, ThreadPool& pool,
                                    const std::function<void(size_t, size_t)>& make) {
  SHOAL_CHECK(!finished_ && (head_left_ == 0 || piece.empty()));
  const size_t chunk_bytes = mac_->chunk_bytes_;
  const auto add = [&](size_t begin, size_t end) {
    if (begin == end) return;
    make(begin, end);
    Add(piece.subspan(begin, end - begin));
  };
  const size_t first = std::min(piece.size(), chunk_.has_value() ? chunk_left_ : 0);
  add(0, first);
  const size_t begun = tags_.size(), whole = (piece.size() - first) / chunk_bytes;
  tags_.resize(begun + whole);
  pool.ParallelFor(whole, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t at = first + i * chunk_bytes;
      make(at, at + chunk_bytes);
      tags_[begun + i] = mac_->ChunkTag(first_chunk_ + begun + i, piece.subspan(at, chunk_bytes));
    }
  });
  total_bytes_ += whole * chunk_bytes;
  add(first + whole * chunk_bytes, piece.size());
}

Digest ContentMac::Stream::Finish() {
  SHOAL_CHECK(first_chunk_ == 0);
  const SecretVector<Tag> tags = FinishPart();
  return mac_->Combine(total_bytes_, tags);
}

void ContentMac::Stream::Join(Stream next) {
  SHOAL_CHECK(mac_ == next.mac_ && !next.finished_);
  Update(next.head_);
  if (next.total_bytes_ == 0) return;  // no chunk begins there
  SHOAL_CHECK(!chunk_.has_value() && head_left_ == 0 &&
              first_chunk_ + tags_.size() == next.first_chunk_);
  tags_.insert(tags_.end(), next.tags_.begin(), next.tags_.end());
  chunk_ = std::move(next.chunk_);
  chunk_left_ = next.chunk_left_;
  total_bytes_ += next.total_bytes_;
}

SecretVector<ContentMac::Tag> ContentMac::Stream::FinishPart() {
  SHOAL_CHECK(!finished_);
  finished_ = true;
  if (chunk_.has_value()) tags_.push_back(mac_->EndTag(*chunk_));
  chunk_.reset();
  return std::move(tags_);
}

}  // namespace shoal
