#include "src/machines/chunk_seal.h"

#include <algorithm>
#include <array>

#include "openssl/evp.h"
#include "sodium.h"
#include "src/base/check.h"

namespace shoal::machines {
namespace {

std::array<uint8_t, 12> NonceOf(uint64_t number) {
  std::array<uint8_t, 12> nonce = {};
  StoreLe(nonce.data(), number);
  return nonce;
}

// Fetched once: EVP_aes_256_gcm() has OpenSSL look for its implementation at every use, and a round
// has a key for every transfer.
const EVP_CIPHER* Aes256Gcm() {
  static const EVP_CIPHER* const cipher = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  SHOAL_CHECK(cipher != nullptr);
  return cipher;
}

}  // namespace

void ChunkSeal::FreeContext::operator()(evp_cipher_ctx_st* context) const {
  EVP_CIPHER_CTX_free(context);  // wipes the key
}

ChunkSeal::ChunkSeal() : context_(EVP_CIPHER_CTX_new()) { SHOAL_CHECK(context_ != nullptr); }

ChunkSeal::ChunkSeal(BytesView key, uint64_t first) : ChunkSeal() {
  Begin(key);
  next_ = first;
}

void ChunkSeal::Begin(BytesView key) {
  SHOAL_CHECK(key.size() == 32);
  // Sets the key alone: each chunk sets the direction and its nonce. The cipher is named only once,
  // as OpenSSL would make what it keeps of it anew.
  const EVP_CIPHER* const cipher = keyed_ ? nullptr : Aes256Gcm();
  SHOAL_CHECK(EVP_CipherInit_ex(context_.get(), cipher, nullptr, key.data(), nullptr, 1) == 1);
  keyed_ = true;
  next_ = 0;
}

void ChunkSeal::Seal(BytesView plain, MutableBytes sealed) {
  BeginChunk(sealed);
  Add(plain);
  EndChunk();
}

void ChunkSeal::BeginChunk(MutableBytes sealed) {
  SHOAL_CHECK(keyed_ && sealed.size() >= kTagBytes);
  left_ = sealed;
  const auto nonce = NonceOf(next_++);
  SHOAL_CHECK(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data()) == 1);
}

void ChunkSeal::Add(BytesView plain) {
  if (plain.empty()) return;
  SHOAL_CHECK(plain.size() + kTagBytes <= left_.size());
  int written = 0;
  SHOAL_CHECK(EVP_EncryptUpdate(context_.get(), left_.data(), &written, plain.data(),
                                static_cast<int>(plain.size())) == 1);
  left_ = left_.subspan(plain.size());
}

void ChunkSeal::EndChunk() {
  SHOAL_CHECK(left_.size() == kTagBytes);
  int rest = 0;
  SHOAL_CHECK(EVP_EncryptFinal_ex(context_.get(), left_.data(), &rest) == 1 && rest == 0);
  SHOAL_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, left_.data()) ==
              1);
}

bool ChunkSeal::Open(BytesView sealed, MutableBytes plain) {
  SHOAL_CHECK(keyed_ && sealed.size() == plain.size() + kTagBytes);
  const auto nonce = NonceOf(next_++);
  std::array<uint8_t, kTagBytes> tag;
  std::copy_n(sealed.data() + plain.size(), kTagBytes, tag.data());
  int written = 0, rest = 0;
  SHOAL_CHECK(EVP_DecryptInit_ex(context_.get(), nullptr, nullptr, nullptr, nonce.data()) == 1);
  SHOAL_CHECK(EVP_DecryptUpdate(context_.get(), plain.data(), &written, sealed.data(),
                                static_cast<int>(plain.size())) == 1);
  SHOAL_CHECK(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) ==
              1);
  if (EVP_DecryptFinal_ex(context_.get(), plain.data() + written, &rest) == 1) return true;
  sodium_memzero(plain.data(), plain.size());
  return false;
}

}  // namespace shoal::machines
