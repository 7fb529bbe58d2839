#include "src/onion/hpke.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "sodium.h"
#include "src/base/check.h"
#include "src/base/inline.h"
#include "src/onion/dispatch.h"
#include "src/onion/kernel.h"
#include "src/onion/key_schedule.h"

namespace shoal::onion {
namespace {

static_assert(kTagBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);

// X25519 of `n` <= kKernelBatch scalars and points, with libsodium where there is no kernel, or
// none that would be faster.
void Multiply(const Kernel* kernel, const uint8_t* scalars, size_t scalar_stride,
              const uint8_t* points, size_t point_stride, uint8_t* products, size_t n) {
  if (kernel != nullptr && n >= kernel->multiply_from) {
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

// What calls leave on the stack: registers that the compiler has spilled, the ends of messages in
// libsodium's Poly1305. The comb's sums reach 77 KiB down (measured). Calls without the curve stay
// within 8 KiB.
constexpr size_t kStackBytes = 96 << 10;
constexpr size_t kFlatStackBytes = 16 << 10;

const uint8_t* At(const Items& items, size_t i) { return items.data + i * items.stride; }
uint8_t* At(const MutableItems& items, size_t i) { return items.data + i * items.stride; }

// ChaCha20-Poly1305 with an empty aad: block 0 of the stream starts with the key of the tag, block
// 1 and what follows cover the message. The same for many messages, block by block.
class Streams {
 public:
  Streams(const Kernel& kernel, const uint8_t* stream_keys, size_t n)
      : kernel_(kernel), stream_keys_(stream_keys), n_(n) {}

  // `ciphertexts` are those of n boxes without enc, their tags follow them.
  void Tags(const uint8_t* ciphertexts, size_t stride, size_t bytes,
            uint8_t tags[kKernelBatch * kTagBytes]) {
    kernel_.stream_block(stream_keys_, 0, blocks_.data(), n_);
    kernel_.tags(blocks_.data(), 64, ciphertexts, stride, bytes, tags, n_);
  }

  // `to` may be `from`.
  void Xor(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride, size_t bytes) {
    uint32_t counter = 1;
    for (size_t at = 0; at < bytes; at += 64) {
      kernel_.stream_block(stream_keys_, counter++, blocks_.data(), n_);
      XorBlock(from + at, from_stride, to + at, to_stride, std::min<size_t>(bytes - at, 64));
    }
  }

 private:
  void XorBlock(const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride,
                size_t bytes) {
    for (size_t i = 0; i < n_; ++i) {
      const uint8_t* stream = blocks_.data() + i * 64;
      size_t b = 0;
      for (; b + 8 <= bytes; b += 8) {
        StoreLe<uint64_t>(to + i * to_stride + b, LoadLe<uint64_t>(from + i * from_stride + b) ^
                                                      LoadLe<uint64_t>(stream + b));
      }
      for (; b < bytes; ++b) to[i * to_stride + b] = from[i * from_stride + b] ^ stream[b];
    }
  }

  const Kernel& kernel_;
  const uint8_t* stream_keys_;
  size_t n_;
  SecretArray<kKernelBatch * 64> blocks_;
};

// Seals messages into boxes, which start with enc. One stream key for each.
SHOAL_NOINLINE void Encrypt(const Kernel* kernel, const uint8_t* stream_keys, Items messages,
                            MutableItems boxes, size_t n) {
  if (kernel == nullptr) {
    for (size_t i = 0; i < n; ++i) {
      const uint8_t* key = stream_keys + i * kKernelStreamKeyBytes;
      SHOAL_CHECK(crypto_aead_chacha20poly1305_ietf_encrypt(
                      At(boxes, i) + kEncBytes, nullptr, At(messages, i), messages.bytes, nullptr,
                      0, nullptr, key + 32, key) == 0);
    }
    return;
  }
  std::array<uint8_t, kKernelBatch * kTagBytes> tags;
  Streams streams(*kernel, stream_keys, n);
  uint8_t* const ciphertexts = boxes.data + kEncBytes;
  streams.Xor(messages.data, messages.stride, ciphertexts, boxes.stride, messages.bytes);
  streams.Tags(ciphertexts, boxes.stride, messages.bytes, tags.data());
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(At(boxes, i) + kEncBytes + messages.bytes, tags.data() + i * kTagBytes, kTagBytes);
  }
}

// Opens boxes. Messages of boxes with a wrong tag are left as garbage: the caller zeroes them.
SHOAL_NOINLINE void Decrypt(const Kernel* kernel, const uint8_t* stream_keys, Items boxes,
                            MutableItems messages, uint8_t* opened, size_t n) {
  if (kernel == nullptr) {
    for (size_t i = 0; i < n; ++i) {
      const uint8_t* key = stream_keys + i * kKernelStreamKeyBytes;
      opened[i] = crypto_aead_chacha20poly1305_ietf_decrypt(
                      At(messages, i), nullptr, nullptr, At(boxes, i) + kEncBytes,
                      boxes.bytes - kEncBytes, nullptr, 0, key + 32, key) == 0;
    }
    return;
  }
  // The tags that would be right are as secret as the keys.
  SecretArray<kKernelBatch * kTagBytes> tags;
  Streams streams(*kernel, stream_keys, n);
  const uint8_t* const ciphertexts = boxes.data + kEncBytes;
  streams.Tags(ciphertexts, boxes.stride, messages.bytes, tags.data());
  for (size_t i = 0; i < n; ++i) {
    opened[i] = crypto_verify_16(At(boxes, i) + kEncBytes + messages.bytes,
                                 tags.data() + i * kTagBytes) == 0;
  }
  streams.Xor(ciphertexts, boxes.stride, messages.data, messages.stride, messages.bytes);
}

// Calls use(begin, n, shared points, encs) for batches of n <= kKernelBatch encapsulations.
template <typename Use>
SHOAL_NOINLINE void Encapsulate(const Recipient& recipient, Items ephemeral_secrets, size_t count,
                                const Use& use) {
  SHOAL_CHECK(ephemeral_secrets.bytes == 32);
  std::array<uint8_t, kKernelBatch * 32> encs;
  SecretArray<kKernelBatch * 32> shared;
  for (size_t begin = 0; begin < count; begin += kKernelBatch) {
    const size_t n = std::min(count - begin, kKernelBatch);
    MultiplyForSeal(recipient, At(ephemeral_secrets, begin), ephemeral_secrets.stride, encs.data(),
                    shared.data(), n);
    use(begin, n, shared.data(), encs.data());
  }
}

void StoreEncs(const uint8_t* from, MutableItems encs, size_t begin, size_t n) {
  for (size_t i = 0; i < n; ++i) std::memcpy(At(encs, begin + i), from + i * 32, kEncBytes);
}

// The same for what was received: use(begin, n, shared points). Shared points of all zeros are
// those of encs of low order.
template <typename Use>
SHOAL_NOINLINE void Decapsulate(const Kernel* kernel, const KeyPair& key, Items encs, size_t count,
                                const Use& use) {
  SecretArray<kKernelBatch * 32> shared;
  for (size_t begin = 0; begin < count; begin += kKernelBatch) {
    const size_t n = std::min(count - begin, kKernelBatch);
    Multiply(kernel, key.secret_key.data(), 0, At(encs, begin), encs.stride, shared.data(), n);
    use(begin, n, shared.data());
  }
}

// Stream keys and exporter secrets of a batch.
struct BatchKeys {
  SecretArray<kKernelBatch * kKernelStreamKeyBytes> stream_keys;
  SecretArray<kKernelBatch * 32> exporter_secrets;

  void MoveTo(size_t i, Context& context) {
    const uint8_t* stream_key = stream_keys.data() + i * kKernelStreamKeyBytes;
    std::memcpy(context.key.data(), stream_key, 32);
    std::memcpy(context.nonce.data(), stream_key + 32, 12);
    std::memcpy(context.exporter_secret.data(), exporter_secrets.data() + i * 32, 32);
  }
};

}  // namespace

void ExportBatch(const Recipient& recipient, const Info& info, absl::string_view exporter_context,
                 Items ephemeral_secrets, MutableItems encs, MutableItems exports, size_t count) {
  const KeySchedule schedule(recipient.table()->kernel, info, recipient.public_key(),
                             exporter_context);
  Encapsulate(
      recipient, ephemeral_secrets, count,
      [&](size_t begin, size_t n, const uint8_t* shared, const uint8_t* from) {
        if (encs.data != nullptr) StoreEncs(from, encs, begin, n);
        schedule.Run(shared, from, 32, {nullptr, nullptr, At(exports, begin), exports.stride}, n);
      });
  sodium_stackzero(kStackBytes);
}

void SealBatch(const Recipient& recipient, const Info& info, absl::string_view exporter_context,
               Items ephemeral_secrets, Items messages, MutableItems boxes, MutableItems exports,
               size_t count) {
  SHOAL_CHECK(info.aead() == Aead::kChaCha20Poly1305);
  SHOAL_CHECK(boxes.bytes == messages.bytes + kSealBytes);
  const Kernel* kernel = recipient.table()->kernel;
  const KeySchedule schedule(kernel, info, recipient.public_key(), exporter_context);
  SecretArray<kKernelBatch * kKernelStreamKeyBytes> stream_keys;
  Encapsulate(
      recipient, ephemeral_secrets, count,
      [&](size_t begin, size_t n, const uint8_t* shared, const uint8_t* encs) {
        StoreEncs(encs, boxes, begin, n);
        uint8_t* out = exports.data == nullptr ? nullptr : At(exports, begin);
        schedule.Run(shared, encs, 32, {stream_keys.data(), nullptr, out, exports.stride}, n);
        Encrypt(kernel, stream_keys.data(), {At(messages, begin), messages.stride, messages.bytes},
                {At(boxes, begin), boxes.stride, boxes.bytes}, n);
      });
  sodium_stackzero(kStackBytes);
}

void DecapsulateBatch(const KeyPair& key, const Info& info, absl::string_view exporter_context,
                      Items encs, MutableItems exports, std::span<uint8_t> alive) {
  const Kernel* kernel = KernelOf(ActiveInstructionSet());
  const KeySchedule schedule(kernel, info, key.public_key, exporter_context);
  Decapsulate(kernel, key, encs, alive.size(), [&](size_t begin, size_t n, const uint8_t* shared) {
    schedule.Run(shared, At(encs, begin), encs.stride,
                 {nullptr, nullptr, At(exports, begin), exports.stride}, n);
    for (size_t i = 0; i < n; ++i) {
      alive[begin + i] = sodium_is_zero(shared + i * 32, 32) == 0;
      if (!alive[begin + i]) std::memset(At(exports, begin + i), 0, kSeedBytes);
    }
  });
  sodium_stackzero(kStackBytes);
}

void OpenBatch(const KeyPair& key, const Info& info, absl::string_view exporter_context,
               Items boxes, MutableItems messages, MutableItems exports,
               std::span<uint8_t> opened) {
  SHOAL_CHECK(info.aead() == Aead::kChaCha20Poly1305);
  SHOAL_CHECK(boxes.bytes >= kSealBytes && messages.bytes == boxes.bytes - kSealBytes);
  const Kernel* kernel = KernelOf(ActiveInstructionSet());
  const KeySchedule schedule(kernel, info, key.public_key, exporter_context);
  SecretArray<kKernelBatch * kKernelStreamKeyBytes> stream_keys;
  Decapsulate(kernel, key, boxes, opened.size(),
              [&](size_t begin, size_t n, const uint8_t* shared) {
                schedule.Run(shared, At(boxes, begin), boxes.stride,
                             {stream_keys.data(), nullptr, At(exports, begin), exports.stride}, n);
                Decrypt(kernel, stream_keys.data(), {At(boxes, begin), boxes.stride, boxes.bytes},
                        {At(messages, begin), messages.stride, messages.bytes}, &opened[begin], n);
                for (size_t i = 0; i < n; ++i) {
                  uint8_t& flag = opened[begin + i];
                  if (sodium_is_zero(shared + i * 32, 32)) flag = 0;
                  if (flag) continue;
                  if (messages.bytes > 0) std::memset(At(messages, begin + i), 0, messages.bytes);
                  std::memset(At(exports, begin + i), 0, kSeedBytes);
                }
              });
  sodium_stackzero(kStackBytes);
}

void SenderContexts(const Recipient& recipient, const Info& info, Items ephemeral_secrets,
                    MutableItems encs, std::span<Context> contexts) {
  SHOAL_CHECK(info.aead() == Aead::kChaCha20Poly1305);
  const KeySchedule schedule(recipient.table()->kernel, info, recipient.public_key(), {});
  BatchKeys keys;
  Encapsulate(recipient, ephemeral_secrets, contexts.size(),
              [&](size_t begin, size_t n, const uint8_t* shared, const uint8_t* from) {
                StoreEncs(from, encs, begin, n);
                schedule.Run(shared, from, 32,
                             {keys.stream_keys.data(), keys.exporter_secrets.data(), nullptr, 0},
                             n);
                for (size_t i = 0; i < n; ++i) keys.MoveTo(i, contexts[begin + i]);
              });
  sodium_stackzero(kStackBytes);
}

void RecipientContexts(const KeyPair& key, const Info& info, Items encs,
                       std::span<Context> contexts, std::span<uint8_t> alive) {
  SHOAL_CHECK(info.aead() == Aead::kChaCha20Poly1305 && alive.size() == contexts.size());
  const Kernel* kernel = KernelOf(ActiveInstructionSet());
  const KeySchedule schedule(kernel, info, key.public_key, {});
  BatchKeys keys;
  Decapsulate(
      kernel, key, encs, contexts.size(), [&](size_t begin, size_t n, const uint8_t* shared) {
        schedule.Run(shared, At(encs, begin), encs.stride,
                     {keys.stream_keys.data(), keys.exporter_secrets.data(), nullptr, 0}, n);
        for (size_t i = 0; i < n; ++i) {
          alive[begin + i] = sodium_is_zero(shared + i * 32, 32) == 0;
          if (alive[begin + i]) keys.MoveTo(i, contexts[begin + i]);
        }
      });
  sodium_stackzero(kStackBytes);
}

void Seal(const Context& context, BytesView message, MutableBytes sealed) {
  SHOAL_CHECK(sealed.size() == message.size() + kTagBytes);
  SHOAL_CHECK(crypto_aead_chacha20poly1305_ietf_encrypt(
                  sealed.data(), nullptr, message.data(), message.size(), nullptr, 0, nullptr,
                  context.nonce.data(), context.key.data()) == 0);
  sodium_stackzero(kFlatStackBytes);
}

bool Open(const Context& context, BytesView sealed, MutableBytes message) {
  SHOAL_CHECK(sealed.size() == message.size() + kTagBytes);
  const bool opened = crypto_aead_chacha20poly1305_ietf_decrypt(
                          message.data(), nullptr, nullptr, sealed.data(), sealed.size(), nullptr,
                          0, context.nonce.data(), context.key.data()) == 0;
  sodium_stackzero(kFlatStackBytes);
  if (!opened) std::ranges::fill(message, 0);
  return opened;
}

void ExportNumbered(const Context& context, absl::string_view prefix, uint32_t first,
                    MutableBytes exports) {
  SHOAL_CHECK(exports.size() % kSeedBytes == 0);
  NumberedExports(KernelOf(ActiveInstructionSet()), Aead::kChaCha20Poly1305,
                  context.exporter_secret.data(), prefix, first, exports.data(),
                  exports.size() / kSeedBytes);
  sodium_stackzero(kFlatStackBytes);
}

}  // namespace shoal::onion
