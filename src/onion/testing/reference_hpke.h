// HPKE (RFC 9180) for one message at a time, written down from the RFC with libsodium's parts and
// nothing of ours: what tests compare batches with.
#ifndef SHOAL_SRC_ONION_TESTING_REFERENCE_HPKE_H_
#define SHOAL_SRC_ONION_TESTING_REFERENCE_HPKE_H_

#include <array>
#include <optional>

#include "absl/strings/string_view.h"
#include "src/base/bytes.h"
#include "src/onion/hpke.h"

namespace shoal::onion::testing {

// All values of the key schedule. The AEAD is not carried: key and nonce are computed for the
// export-only suite too, where the RFC has none.
class ReferenceHpke {
 public:
  // None where the shared point is all zeros.
  static std::optional<ReferenceHpke> Sender(Aead aead, BytesView info, const PublicKey& recipient,
                                             BytesView ephemeral_secret);
  static std::optional<ReferenceHpke> Receiver(Aead aead, BytesView info, const KeyPair& key,
                                               BytesView enc);
  // Whatever the shared point is.
  ReferenceHpke(Aead aead, BytesView info, BytesView shared_point, BytesView enc,
                const PublicKey& recipient);

  const PublicKey& enc() const { return enc_; }
  const Bytes& shared_secret() const { return shared_secret_; }
  const Bytes& key_schedule_context() const { return context_; }
  const Bytes& key() const { return key_; }
  const Bytes& base_nonce() const { return nonce_; }
  const Bytes& exporter_secret() const { return exporter_secret_; }

  Bytes Export(BytesView exporter_context) const;
  // Ciphertext and tag of the first message.
  Bytes Seal(BytesView message, BytesView aad = {}) const;
  std::optional<Bytes> Open(BytesView sealed) const;

 private:
  Bytes suite_;
  PublicKey enc_;
  Bytes shared_secret_, context_, key_, nonce_, exporter_secret_;
};

}  // namespace shoal::onion::testing

#endif  // SHOAL_SRC_ONION_TESTING_REFERENCE_HPKE_H_
