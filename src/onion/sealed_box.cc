#include "src/onion/sealed_box.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/inline.h"
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

// The key of a box, from the product of its points.
void BoxKey(const uint8_t* shared, SecretArray<32>& key) {
  const uint8_t zeros[16] = {};
  SHOAL_CHECK(crypto_core_hsalsa20(key.data(), zeros, shared, nullptr) == 0);
}

// The symmetric part with libsodium: boxes start with their ephemeral keys.
void Encrypt(const uint8_t* shared, const PublicKey& recipient, Items messages, MutableItems boxes,
             size_t n) {
  SecretArray<32> key;
  for (size_t i = 0; i < n; ++i) {
    uint8_t* box = boxes.data + i * boxes.stride;
    uint8_t nonce[kNonceBytes];
    SealNonce(box, recipient, nonce);
    BoxKey(shared + i * 32, key);
    SHOAL_CHECK(crypto_secretbox_easy(box + 32, messages.data + i * messages.stride, messages.bytes,
                                      nonce, key.data()) == 0);
  }
}

void Decrypt(const uint8_t* shared, const PublicKey& recipient, Items boxes, MutableItems messages,
             uint8_t* opened, size_t n) {
  SecretArray<32> key;
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* box = boxes.data + i * boxes.stride;
    uint8_t nonce[kNonceBytes];
    SealNonce(box, recipient, nonce);
    BoxKey(shared + i * 32, key);
    opened[i] = crypto_secretbox_open_easy(messages.data + i * messages.stride, box + 32,
                                           boxes.bytes - 32, nonce, key.data()) == 0;
  }
}

// XSalsa20-Poly1305 as in libsodium's secretbox: the first 32 bytes of the stream are the key of
// the tag, the rest covers the message. The same for many boxes, block by block.
class Streams {
 public:
  Streams(const Kernel& kernel, const uint8_t* shared, const uint8_t* ephemeral, size_t stride,
          const PublicKey& recipient, size_t n)
      : kernel_(kernel), n_(n) {
    kernel_.derive_keys(shared, ephemeral, stride, recipient.data(), keys_.data(), n);
    kernel_.stream_block(keys_.data(), 0, blocks_.data(), n);
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(tag_keys_.data() + i * 32, blocks_.data() + i * 64, 32);
    }
  }

  const uint8_t* tag_key(size_t i) const { return tag_keys_.data() + i * 32; }

  // XORs the stream over the messages. Call it once. `to` may be `from`.
  void Xor(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride, size_t bytes) {
    XorBlock(32, from, from_stride, to, to_stride, std::min<size_t>(bytes, 32));
    uint64_t counter = 1;
    for (size_t at = 32; at < bytes; at += 64) {
      kernel_.stream_block(keys_.data(), counter++, blocks_.data(), n_);
      XorBlock(0, from + at, from_stride, to + at, to_stride, std::min<size_t>(bytes - at, 64));
    }
  }

 private:
  void XorBlock(size_t offset, const uint8_t* from, size_t from_stride, uint8_t* to,
                size_t to_stride, size_t bytes) {
    for (size_t i = 0; i < n_; ++i) {
      const uint8_t* stream = blocks_.data() + i * 64 + offset;
      size_t b = 0;
      for (; b + 8 <= bytes; b += 8) {
        StoreLe<uint64_t>(to + i * to_stride + b, LoadLe<uint64_t>(from + i * from_stride + b) ^
                                                      LoadLe<uint64_t>(stream + b));
      }
      for (; b < bytes; ++b) to[i * to_stride + b] = from[i * from_stride + b] ^ stream[b];
    }
  }

  const Kernel& kernel_;
  size_t n_;
  SecretArray<kKernelBatch * kKernelStreamKeyBytes> keys_;
  SecretArray<kKernelBatch * 32> tag_keys_;
  SecretArray<kKernelBatch * 64> blocks_;
};

void EncryptWithKernel(const Kernel& kernel, const uint8_t* shared, const PublicKey& recipient,
                       Items messages, MutableItems boxes, size_t n) {
  Streams streams(kernel, shared, boxes.data, boxes.stride, recipient, n);
  streams.Xor(messages.data, messages.stride, boxes.data + kSealBytes, boxes.stride,
              messages.bytes);
  for (size_t i = 0; i < n; ++i) {
    uint8_t* box = boxes.data + i * boxes.stride;
    SHOAL_CHECK(
        crypto_onetimeauth(box + 32, box + kSealBytes, messages.bytes, streams.tag_key(i)) == 0);
  }
}

// Messages of boxes with a wrong tag are left as garbage: the caller zeroes them.
void DecryptWithKernel(const Kernel& kernel, const uint8_t* shared, const PublicKey& recipient,
                       Items boxes, MutableItems messages, uint8_t* opened, size_t n) {
  Streams streams(kernel, shared, boxes.data, boxes.stride, recipient, n);
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* box = boxes.data + i * boxes.stride;
    opened[i] = crypto_onetimeauth_verify(box + 32, box + kSealBytes, messages.bytes,
                                          streams.tag_key(i)) == 0;
  }
  streams.Xor(boxes.data + kSealBytes, boxes.stride, messages.data, messages.stride,
              messages.bytes);
}

}  // namespace

// `memory` holds the table of the comb. It is null on the portable path and for keys on the twist,
// which are multiplied without a comb.
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
  // Every clamped scalar is a multiple of the cofactor, so the product is zero exactly for points
  // of low order.
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

namespace {

// What a batch leaves on the stack: its own arrays, registers that the compiler has spilled, the
// ends of messages in libsodium's Poly1305. The deepest call is some 20 KiB down.
constexpr size_t kStackBytes = 32 << 10;

// Not inline: what wipes the stack must have its own frame above it.
SHOAL_NOINLINE void Seal(const Recipient& recipient, Items ephemeral_secrets, Items messages,
                         MutableItems boxes, size_t count) {
  SHOAL_CHECK(ephemeral_secrets.bytes == 32);
  SHOAL_CHECK(boxes.bytes == messages.bytes + kSealBytes);
  const Kernel* kernel = recipient.table()->kernel;
  std::array<uint8_t, kKernelBatch * 32> ephemeral_public;
  SecretArray<kKernelBatch * 32> shared;
  for (size_t begin = 0; begin < count; begin += kKernelBatch) {
    const size_t n = std::min(count - begin, kKernelBatch);
    MultiplyForSeal(recipient, ephemeral_secrets.data + begin * ephemeral_secrets.stride,
                    ephemeral_secrets.stride, ephemeral_public.data(), shared.data(), n);
    const Items in = {messages.data + begin * messages.stride, messages.stride, messages.bytes};
    const MutableItems out = {boxes.data + begin * boxes.stride, boxes.stride, boxes.bytes};
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(out.data + i * out.stride, ephemeral_public.data() + i * 32, 32);
    }
    if (kernel == nullptr) {
      Encrypt(shared.data(), recipient.public_key(), in, out, n);
    } else {
      EncryptWithKernel(*kernel, shared.data(), recipient.public_key(), in, out, n);
    }
  }
}

SHOAL_NOINLINE void Open(const KeyPair& key, Items boxes, MutableItems messages,
                         std::span<uint8_t> opened) {
  if (boxes.bytes < kSealBytes) {
    SHOAL_CHECK(messages.bytes == 0);
    for (uint8_t& flag : opened) flag = 0;
    return;
  }
  SHOAL_CHECK(messages.bytes == boxes.bytes - kSealBytes);
  const Kernel* kernel = KernelOf(ActiveInstructionSet());
  SecretArray<kKernelBatch * 32> shared;
  for (size_t begin = 0; begin < opened.size(); begin += kKernelBatch) {
    const size_t n = std::min(opened.size() - begin, kKernelBatch);
    const Items in = {boxes.data + begin * boxes.stride, boxes.stride, boxes.bytes};
    const MutableItems out = {messages.data + begin * messages.stride, messages.stride,
                              messages.bytes};
    uint8_t* flags = opened.data() + begin;
    Multiply(kernel, key.secret_key.data(), 0, in.data, in.stride, shared.data(), n);
    if (kernel == nullptr) {
      Decrypt(shared.data(), key.public_key, in, out, flags, n);
    } else {
      DecryptWithKernel(*kernel, shared.data(), key.public_key, in, out, flags, n);
    }
    for (size_t i = 0; i < n; ++i) {
      // A product of zeros means that the box's point is of low order, which libsodium refuses.
      if (sodium_is_zero(shared.data() + i * 32, 32)) flags[i] = 0;
      if (flags[i] == 0 && out.bytes > 0) std::memset(out.data + i * out.stride, 0, out.bytes);
    }
  }
}

}  // namespace

void SealBatch(const Recipient& recipient, Items ephemeral_secrets, Items messages,
               MutableItems boxes, size_t count) {
  Seal(recipient, ephemeral_secrets, messages, boxes, count);
  sodium_stackzero(kStackBytes);
}

void OpenBatch(const KeyPair& key, Items boxes, MutableItems messages, std::span<uint8_t> opened) {
  Open(key, boxes, messages, opened);
  sodium_stackzero(kStackBytes);
}

}  // namespace shoal::onion
