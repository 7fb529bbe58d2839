#include "src/onion/testing/reference_hpke.h"

#include <algorithm>
#include <initializer_list>

#include "sodium.h"

namespace shoal::onion::testing {
namespace {

Bytes Join(std::initializer_list<BytesView> parts) {
  Bytes joined;
  for (BytesView part : parts) Append(joined, part);
  return joined;
}

Bytes Mac(BytesView key, BytesView message) {
  crypto_auth_hmacsha256_state state;
  Bytes mac(32);
  const uint8_t nothing = 0;  // libsodium takes no null
  crypto_auth_hmacsha256_init(&state, key.empty() ? &nothing : key.data(), key.size());
  crypto_auth_hmacsha256_update(&state, message.data(), message.size());
  crypto_auth_hmacsha256_final(&state, mac.data());
  return mac;
}

// RFC 9180, section 4.
Bytes LabeledExtract(BytesView suite, BytesView salt, absl::string_view label, BytesView ikm) {
  return Mac(salt, Join({AsBytes("HPKE-v1"), suite, AsBytes(label), ikm}));
}
Bytes LabeledExpand(BytesView suite, BytesView prk, absl::string_view label, BytesView info,
                    size_t bytes) {
  const Bytes length = {0, static_cast<uint8_t>(bytes)}, first = {1};
  Bytes out = Mac(prk, Join({length, AsBytes("HPKE-v1"), suite, AsBytes(label), info, first}));
  out.resize(bytes);
  return out;
}

}  // namespace

ReferenceHpke::ReferenceHpke(Aead aead, BytesView info, BytesView shared_point, BytesView enc,
                             const PublicKey& recipient) {
  const Bytes kem = {'K', 'E', 'M', 0x00, 0x20};
  const auto id = static_cast<uint16_t>(aead);
  suite_ = {'H',
            'P',
            'K',
            'E',
            0x00,
            0x20,
            0x00,
            0x01,
            static_cast<uint8_t>(id >> 8),
            static_cast<uint8_t>(id)};
  std::copy(enc.begin(), enc.end(), enc_.begin());
  // Section 4.1.
  const Bytes prk = LabeledExtract(kem, {}, "eae_prk", shared_point);
  shared_secret_ = LabeledExpand(kem, prk, "shared_secret", Join({enc, recipient}), 32);
  // Section 5.1.
  context_ = Join({Bytes{0}, LabeledExtract(suite_, {}, "psk_id_hash", {}),
                   LabeledExtract(suite_, {}, "info_hash", info)});
  const Bytes secret = LabeledExtract(suite_, shared_secret_, "secret", {});
  key_ = LabeledExpand(suite_, secret, "key", context_, 32);
  nonce_ = LabeledExpand(suite_, secret, "base_nonce", context_, 12);
  exporter_secret_ = LabeledExpand(suite_, secret, "exp", context_, 32);
}

std::optional<ReferenceHpke> ReferenceHpke::Sender(Aead aead, BytesView info,
                                                   const PublicKey& recipient,
                                                   BytesView ephemeral_secret) {
  PublicKey enc, shared;
  crypto_scalarmult_base(enc.data(), ephemeral_secret.data());
  if (crypto_scalarmult(shared.data(), ephemeral_secret.data(), recipient.data()) != 0) return {};
  return ReferenceHpke(aead, info, shared, enc, recipient);
}

std::optional<ReferenceHpke> ReferenceHpke::Receiver(Aead aead, BytesView info, const KeyPair& key,
                                                     BytesView enc) {
  PublicKey shared;
  if (crypto_scalarmult(shared.data(), key.secret_key.data(), enc.data()) != 0) return {};
  return ReferenceHpke(aead, info, shared, enc, key.public_key);
}

Bytes ReferenceHpke::Export(BytesView exporter_context) const {
  return LabeledExpand(suite_, exporter_secret_, "sec", exporter_context, 32);
}

Bytes ReferenceHpke::Seal(BytesView message, BytesView aad) const {
  Bytes sealed(message.size() + crypto_aead_chacha20poly1305_ietf_ABYTES);
  crypto_aead_chacha20poly1305_ietf_encrypt(sealed.data(), nullptr, message.data(), message.size(),
                                            aad.data(), aad.size(), nullptr, nonce_.data(),
                                            key_.data());
  return sealed;
}

std::optional<Bytes> ReferenceHpke::Open(BytesView sealed) const {
  if (sealed.size() < crypto_aead_chacha20poly1305_ietf_ABYTES) return {};
  Bytes message(sealed.size() - crypto_aead_chacha20poly1305_ietf_ABYTES);
  if (crypto_aead_chacha20poly1305_ietf_decrypt(message.data(), nullptr, nullptr, sealed.data(),
                                                sealed.size(), nullptr, 0, nonce_.data(),
                                                key_.data()) != 0) {
    return {};
  }
  return message;
}

}  // namespace shoal::onion::testing
