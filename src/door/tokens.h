// Privacy Pass at the door: tokens of type 2, Blind RSA with 2048 bits, which anybody can verify
// with the issuer's public key (RFC 9578, section 6; RFC 9577, "PrivateToken").
//
// A client has the issuer sign a nonce that the issuer does not see, and shows nonce and signature
// here. So issuer and door together cannot tell for whom a token was issued: each token fits each
// issuance equally well. The door needs no secret, and asks nobody.
#ifndef SHOAL_SRC_DOOR_TOKENS_H_
#define SHOAL_SRC_DOOR_TOKENS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "openssl/evp.h"
#include "src/base/bytes.h"

namespace shoal::door {

// What tells tokens of one key apart: the first bytes of a digest of the signed message. Whoever
// finds two tokens with the same has one token less.
using TokenId = std::array<uint8_t, 16>;

// One whose tokens are taken.
struct Issuer {
  std::string name;      // as it calls itself in challenges
  Bytes public_key_der;  // as it publishes it, with the identifier id-RSASSA-PSS
};

// Immutable, thread-safe.
class TokenRules {
 public:
  // `origin` is the name of the door in challenges. INVALID_ARGUMENT: a key that is none of RSA
  // with 2048 bits, or that comes twice; a name that is empty or no host's.
  static absl::StatusOr<TokenRules> Create(std::span<const Issuer> issuers,
                                           const std::string& origin);

  // SHA-256 of each issuer's key, in the issuers' order.
  const std::vector<Digest>& key_ids() const { return key_ids_; }

  // The value of WWW-Authenticate: a challenge for each issuer. It is the same for everybody, and
  // its redemption context is empty, so that tokens can be got long before they are used.
  const std::string& challenges() const { return challenges_; }

  struct Checked {
    size_t issuer;
    TokenId id;
  };
  // The token in the value of Authorization: `PrivateToken token="BASE64URL"`. INVALID_ARGUMENT: no
  // such value, or no token. PERMISSION_DENIED: a token for another challenge, of another issuer,
  // or one that the issuer did not sign. Whether it was spent is another question.
  absl::StatusOr<Checked> Check(absl::string_view authorization) const;

 private:
  struct FreeKey {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  };
  TokenRules() = default;
  std::vector<std::shared_ptr<EVP_PKEY>> keys_;
  std::vector<Digest> key_ids_, challenge_digests_;
  std::string challenges_;
};

// A TokenChallenge of RFC 9577, section 2.1, with an empty redemption context.
Bytes EncodeChallenge(const std::string& issuer, const std::string& origin);

// Whether `signature` is RSASSA-PSS (SHA-384, 48 bytes of salt) of `key` on `message`.
bool VerifyPss(EVP_PKEY* key, BytesView message, BytesView signature);

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_TOKENS_H_
