#include "src/pir/public_matrix.h"

#include <openssl/evp.h>

#include <cstring>

#include "src/base/check.h"
#include "src/base/hash.h"

namespace shoal::pir {

Digest PublicMatrixSeed(absl::string_view engine, const Digest& table_id, uint32_t level) {
  return Transcript("shoal pir public matrix v1").Blob(engine).Blob(table_id).U64(level).Finish();
}

struct PublicMatrix::Cipher {
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  // For blocks that are no neighbours.
  EVP_CIPHER_CTX* blocks = EVP_CIPHER_CTX_new();
  ~Cipher() {
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_CTX_free(blocks);
  }
};

namespace {

// The big-endian number of the block of element (k, column).
void StoreCounter(uint32_t k, uint64_t column, uint8_t* block) {
  const uint64_t counter = (uint64_t{k} << 32) + column / 4;
  std::memset(block, 0, 8);
  for (int i = 0; i < 8; ++i) block[8 + i] = static_cast<uint8_t>(counter >> (56 - 8 * i));
}

}  // namespace

PublicMatrix::PublicMatrix(const Digest& seed) : cipher_(std::make_unique<Cipher>()) {
  SHOAL_CHECK(cipher_->context != nullptr && cipher_->blocks != nullptr);
  SHOAL_CHECK(EVP_EncryptInit_ex(cipher_->blocks, EVP_aes_128_ecb(), nullptr, seed.data(),
                                 nullptr) == 1);
  SHOAL_CHECK(EVP_CIPHER_CTX_set_padding(cipher_->blocks, 0) == 1);
  SHOAL_CHECK(EVP_EncryptInit_ex(cipher_->context, EVP_aes_128_ctr(), nullptr, seed.data(),
                                 nullptr) == 1);
}
PublicMatrix::~PublicMatrix() = default;
PublicMatrix::PublicMatrix(PublicMatrix&&) noexcept = default;

void PublicMatrix::Expand(uint32_t k, uint64_t first_column, std::span<uint32_t> out) {
  SHOAL_CHECK(first_column % 4 == 0 && (first_column + out.size()) / 4 < (uint64_t{1} << 32));
  if (out.empty()) return;
  uint8_t block[16];
  StoreCounter(k, first_column, block);
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  std::memset(bytes, 0, out.size_bytes());
  int written = 0;
  SHOAL_CHECK(EVP_EncryptInit_ex(cipher_->context, nullptr, nullptr, nullptr, block) == 1);
  SHOAL_CHECK(EVP_EncryptUpdate(cipher_->context, bytes, &written, bytes,
                                static_cast<int>(out.size_bytes())) == 1);
  SHOAL_CHECK(static_cast<size_t>(written) == out.size_bytes());
}

void PublicMatrix::ExpandColumn(uint64_t column, std::span<uint32_t> out) {
  SHOAL_CHECK(column / 4 < (uint64_t{1} << 32));
  Bytes blocks(16 * out.size());
  for (size_t k = 0; k < out.size(); ++k) {
    StoreCounter(static_cast<uint32_t>(k), column, blocks.data() + 16 * k);
  }
  int written = 0;
  SHOAL_CHECK(EVP_EncryptUpdate(cipher_->blocks, blocks.data(), &written, blocks.data(),
                                static_cast<int>(blocks.size())) == 1);
  SHOAL_CHECK(static_cast<size_t>(written) == blocks.size());
  for (size_t k = 0; k < out.size(); ++k) {
    std::memcpy(&out[k], blocks.data() + 16 * k + 4 * (column % 4), 4);
  }
}

}  // namespace shoal::pir
