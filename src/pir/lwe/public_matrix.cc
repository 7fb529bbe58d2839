#include "src/pir/lwe/public_matrix.h"

#include <openssl/evp.h>

#include <array>
#include <cstring>

#include "src/base/check.h"
#include "src/base/hash.h"

namespace shoal::pir::lwe {

Digest PublicMatrixSeed(absl::string_view engine, const Digest& table_id, uint32_t level) {
  return Transcript("shoal pir public matrix v1").Blob(engine).Blob(table_id).U64(level).Finish();
}

struct PublicMatrix::Cipher {
  const CounterStream* stream = nullptr;
  uint8_t round_keys[CounterStream::kRoundKeyBytes] = {};
  // OpenSSL's cipher, for neighbouring blocks and for single ones.
  EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
  EVP_CIPHER_CTX* blocks = EVP_CIPHER_CTX_new();
  ~Cipher() {
    EVP_CIPHER_CTX_free(context);
    EVP_CIPHER_CTX_free(blocks);
  }
};

namespace {

// The number of the block of element (k, column).
uint64_t CounterOf(uint32_t k, uint64_t column) { return (uint64_t{k} << 32) + column / 4; }

// Stores that number as a big-endian block.
void StoreCounter(uint32_t k, uint64_t column, uint8_t* block) {
  const uint64_t counter = CounterOf(k, column);
  std::memset(block, 0, 8);
  for (int i = 0; i < 8; ++i) block[8 + i] = static_cast<uint8_t>(counter >> (56 - 8 * i));
}

}  // namespace

PublicMatrix::PublicMatrix(const Digest& seed, const CounterStream* stream)
    : cipher_(std::make_unique<Cipher>()) {
  cipher_->stream = stream;
  if (stream != nullptr) stream->schedule(seed.data(), cipher_->round_keys);
  SHOAL_CHECK(cipher_->context != nullptr && cipher_->blocks != nullptr);
  SHOAL_CHECK(
      EVP_EncryptInit_ex(cipher_->blocks, EVP_aes_128_ecb(), nullptr, seed.data(), nullptr) == 1);
  SHOAL_CHECK(EVP_CIPHER_CTX_set_padding(cipher_->blocks, 0) == 1);
  SHOAL_CHECK(
      EVP_EncryptInit_ex(cipher_->context, EVP_aes_128_ctr(), nullptr, seed.data(), nullptr) == 1);
}
PublicMatrix::~PublicMatrix() = default;
PublicMatrix::PublicMatrix(PublicMatrix&&) noexcept = default;

void PublicMatrix::Expand(uint32_t k, uint64_t first_column, std::span<uint32_t> out) {
  SHOAL_CHECK(first_column % 4 == 0 && (first_column + out.size()) / 4 < (uint64_t{1} << 32));
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  if (cipher_->stream != nullptr && out.size() % 4 == 0) {
    cipher_->stream->fill(cipher_->round_keys, CounterOf(k, first_column), out.size() / 4, bytes);
    return;
  }
  if (out.empty()) return;
  uint8_t block[16];
  StoreCounter(k, first_column, block);
  std::memset(bytes, 0, out.size_bytes());
  int written = 0;
  SHOAL_CHECK(EVP_EncryptInit_ex(cipher_->context, nullptr, nullptr, nullptr, block) == 1);
  SHOAL_CHECK(EVP_EncryptUpdate(cipher_->context, bytes, &written, bytes,
                                static_cast<int>(out.size_bytes())) == 1);
  SHOAL_CHECK(static_cast<size_t>(written) == out.size_bytes());
}

void PublicMatrix::AddScaled(const Kernel& kernel, uint32_t k, uint64_t first_column,
                             uint64_t columns, std::span<const int32_t> factors, uint32_t* sums,
                             uint64_t sums_stride) {
  static_assert(kGroupColumns == 4 * CounterStream::kBatchBlocks);
  SHOAL_CHECK(first_column % 4 == 0 && columns % kGroupColumns == 0 &&
              (first_column + columns) / 4 < (uint64_t{1} << 32) &&
              factors.size() % kRowsTogether == 0);
  if (cipher_->stream != nullptr && factors.size() == kRowsTogether) {
    for (uint32_t i = 0; i < kRowsTogether; ++i) {
      cipher_->stream->add_scaled(cipher_->round_keys, CounterOf(k + i, first_column), columns / 4,
                                  factors[i], sums);
    }
    return;
  }
  // Several queries share the expanded rows.
  rows_.resize(kRowsTogether * columns);
  std::array<const uint32_t*, kRowsTogether> rows;
  for (uint32_t i = 0; i < kRowsTogether; ++i) {
    const std::span<uint32_t> row = std::span(rows_).subspan(i * columns, columns);
    Expand(k + i, first_column, row);
    rows[i] = row.data();
  }
  for (size_t v = 0; v < factors.size() / kRowsTogether; ++v) {
    kernel.add_scaled(rows.data(), &factors[v * kRowsTogether], kRowsTogether, columns,
                      sums + v * sums_stride);
  }
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

}  // namespace shoal::pir::lwe
