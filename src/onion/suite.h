// What a message's sealing and its key schedule both have of HPKE (RFC 9180): public keys, the two
// suites, and `info`.
#ifndef SHOAL_SRC_ONION_SUITE_H_
#define SHOAL_SRC_ONION_SUITE_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/base/bytes.h"

namespace shoal::onion {

using PublicKey = std::array<uint8_t, 32>;  // X25519, RFC 7748

// The longest exporter context: that of Export() still fits one block of SHA-256.
inline constexpr size_t kMaxExporterContext = 32;

// Which of the two suites: they have different AEAD identifiers, and with them different secrets.
enum class Aead : uint16_t {
  kChaCha20Poly1305 = 0x0003,
  kExportOnly = 0xffff,
};

// What the RFC's `info` adds to the key schedule, hashed once for many messages.
class Info {
 public:
  Info(Aead aead, BytesView info);
  Aead aead() const { return aead_; }
  // key_schedule_context (RFC 9180, section 5.1): mode, psk_id_hash, info_hash.
  const std::array<uint8_t, 65>& key_schedule_context() const { return context_; }

 private:
  Aead aead_;
  std::array<uint8_t, 65> context_;
};

}  // namespace shoal::onion

#endif  // SHOAL_SRC_ONION_SUITE_H_
