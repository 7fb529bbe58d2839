#include "src/onion/sealed_box.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/onion/dispatch.h"
#include "src/onion/kernel.h"

namespace shoal::onion {
namespace {

constexpr size_t kNonceBytes = crypto_secretbox_NONCEBYTES;
static_assert(kSealBytes == crypto_box_SEALBYTES);

// The nonce of a sealed box: both public keys, hashed.
void SealNonce(const uint8_t* ephemeral_public, const PublicKey& recipient,
               uint8_t nonce[kNonceBytes]) {
  uint8_t keys[64];
  std::memcpy(keys, ephemeral_public, 32);
  std::memcpy(keys + 32, recipient.data(), 32);
  SHOAL_CHECK(crypto_generichash(nonce, kNonceBytes, keys, sizeof keys, nullptr, 0) == 0);
}

// X25519 of `n` <= kKernelBatch scalars and points, with libsodium where there is no kernel.
void Multiply(const Kernel* kernel, const uint8_t* scalars, size_t scalar_stride,
              const uint8_t* points, size_t point_stride, uint8_t* products, size_t n) {
  if (kernel != nullptr) {
    kernel->multiply(scalars, scalar_stride, points, point_stride, products, n);
    return;
  }
  for (size_t i = 0; i < n; ++i) {
    uint8_t* product = products + i * 32;
    // libsodium reports a point of low order and may leave the product as it was.
    if (crypto_scalarmult(product, scalars + i * scalar_stride, points + i * point_stride) != 0) {
      std::memset(product, 0, 32);
    }
  }
}

void SharedKey(const uint8_t* shared_point, uint8_t* key) {
  const uint8_t zeros[16] = {};
  SHOAL_CHECK(crypto_core_hsalsa20(key, zeros, shared_point, nullptr) == 0);
}

}  // namespace

// Without memory there is no comb: on the portable path, and for keys on the twist.
struct Recipient::Table {
  const Kernel* kernel = nullptr;
  TableMemory memory;
};

namespace {

// The two products of a seal: with the base point and with the recipient.
void MultiplyForSeal(const Recipient& recipient, const uint8_t* scalars, size_t stride,
                     uint8_t* ephemeral_public, uint8_t* shared, size_t n) {
  const Kernel* kernel = recipient.table()->kernel;
  const uint8_t* point = recipient.public_key().data();
  if (kernel == nullptr) {
    for (size_t i = 0; i < n; ++i) {
      SHOAL_CHECK(crypto_scalarmult_base(ephemeral_public + i * 32, scalars + i * stride) == 0);
    }
    Multiply(nullptr, scalars, stride, point, 0, shared, n);
    return;
  }
  const void* tables[2] = {BaseTable(*kernel), recipient.table()->memory.get()};
  uint8_t* products[2] = {ephemeral_public, shared};
  const bool has_comb = tables[1] != nullptr;
  kernel->multiply_fixed(tables, has_comb ? 2 : 1, scalars, stride, products, n);
  if (!has_comb) kernel->multiply(scalars, stride, point, 0, shared, n);
}

}  // namespace

KeyPair KeyPairFromSecret(BytesView secret) {
  KeyPair pair;
  pair.secret_key = Seed(secret);
  SHOAL_CHECK(crypto_scalarmult_base(pair.public_key.data(), secret.data()) == 0);
  return pair;
}

absl::StatusOr<Recipient> Recipient::Create(const PublicKey& public_key) {
  // Every clamped scalar is a multiple of the cofactor: one product tells the order.
  const uint8_t scalar[32] = {};
  uint8_t product[32];
  if (crypto_scalarmult(product, scalar, public_key.data()) != 0) {
    return absl::InvalidArgumentError("onion: public key of low order");
  }
  auto table = std::make_shared<Table>();
  table->kernel = KernelOf(ActiveInstructionSet());
  if (table->kernel != nullptr) {
    table->memory = AllocateTable(*table->kernel);
    if (!table->kernel->build_table(public_key.data(), table->memory.get())) table->memory.reset();
  }
  Recipient recipient;
  recipient.public_key_ = public_key;
  recipient.table_ = std::move(table);
  return recipient;
}

void SealBatch(const Recipient& recipient, Items ephemeral_secrets, Items messages,
               MutableItems boxes, size_t count) {
  SHOAL_CHECK(ephemeral_secrets.bytes == 32);
  SHOAL_CHECK(boxes.bytes == messages.bytes + kSealBytes);
  std::array<uint8_t, kKernelBatch * 32> ephemeral_public;
  SecretArray<kKernelBatch * 32> shared;
  SecretArray<32> key;
  for (size_t begin = 0; begin < count; begin += kKernelBatch) {
    const size_t n = std::min(count - begin, kKernelBatch);
    MultiplyForSeal(recipient, ephemeral_secrets.data + begin * ephemeral_secrets.stride,
                    ephemeral_secrets.stride, ephemeral_public.data(), shared.data(), n);
    for (size_t i = 0; i < n; ++i) {
      uint8_t* box = boxes.data + (begin + i) * boxes.stride;
      std::memcpy(box, ephemeral_public.data() + i * 32, 32);
      uint8_t nonce[kNonceBytes];
      SealNonce(box, recipient.public_key(), nonce);
      SharedKey(shared.data() + i * 32, key.data());
      SHOAL_CHECK(crypto_secretbox_easy(box + 32, messages.data + (begin + i) * messages.stride,
                                        messages.bytes, nonce, key.data()) == 0);
    }
  }
}

void OpenBatch(const KeyPair& key_pair, Items boxes, MutableItems messages,
               std::span<uint8_t> opened) {
  if (boxes.bytes < kSealBytes) {
    SHOAL_CHECK(messages.bytes == 0);
    for (uint8_t& flag : opened) flag = 0;
    return;
  }
  SHOAL_CHECK(messages.bytes == boxes.bytes - kSealBytes);
  const Kernel* kernel = KernelOf(ActiveInstructionSet());
  SecretArray<kKernelBatch * 32> shared;
  SecretArray<32> key;
  for (size_t begin = 0; begin < opened.size(); begin += kKernelBatch) {
    const size_t n = std::min(opened.size() - begin, kKernelBatch);
    const uint8_t* first = boxes.data + begin * boxes.stride;
    Multiply(kernel, key_pair.secret_key.data(), 0, first, boxes.stride, shared.data(), n);
    for (size_t i = 0; i < n; ++i) {
      const uint8_t* box = first + i * boxes.stride;
      uint8_t* message = messages.data + (begin + i) * messages.stride;
      uint8_t nonce[kNonceBytes];
      SealNonce(box, key_pair.public_key, nonce);
      SharedKey(shared.data() + i * 32, key.data());
      // A shared point of zeros: the box's point is of low order, which libsodium refuses.
      const bool ok = !sodium_is_zero(shared.data() + i * 32, 32) &&
                      crypto_secretbox_open_easy(message, box + 32, boxes.bytes - 32, nonce,
                                                 key.data()) == 0;
      if (!ok && messages.bytes > 0) std::memset(message, 0, messages.bytes);
      opened[begin + i] = ok;
    }
  }
}

}  // namespace shoal::onion
