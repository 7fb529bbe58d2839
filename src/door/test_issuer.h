// An issuer of tokens, for tests. It signs what it sees, as whoever asks is itself: a token looks
// the same as one that was signed blindly.
#ifndef SHOAL_SRC_DOOR_TEST_ISSUER_H_
#define SHOAL_SRC_DOOR_TEST_ISSUER_H_

#include <memory>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "openssl/evp.h"
#include "openssl/rsa.h"
#include "openssl/sha.h"
#include "openssl/x509.h"
#include "src/base/bytes.h"
#include "src/base/check.h"
#include "src/door/tokens.h"

namespace shoal::door {

class TestIssuer {
 public:
  explicit TestIssuer(int bits = 2048) {
    EVP_PKEY_CTX* context = EVP_PKEY_CTX_new_id(EVP_PKEY_RSA_PSS, nullptr);
    EVP_PKEY* key = nullptr;
    SHOAL_CHECK(EVP_PKEY_keygen_init(context) == 1 &&
                EVP_PKEY_CTX_set_rsa_keygen_bits(context, bits) == 1 &&
                EVP_PKEY_CTX_set_rsa_pss_keygen_md(context, EVP_sha384()) == 1 &&
                EVP_PKEY_CTX_set_rsa_pss_keygen_mgf1_md(context, EVP_sha384()) == 1 &&
                EVP_PKEY_CTX_set_rsa_pss_keygen_saltlen(context, 48) == 1 &&
                EVP_PKEY_keygen(context, &key) == 1);
    EVP_PKEY_CTX_free(context);
    key_.reset(key, &EVP_PKEY_free);
    uint8_t* der = nullptr;
    const int size = i2d_PUBKEY(key, &der);
    SHOAL_CHECK(size > 0);
    public_der_.assign(der, der + size);
    OPENSSL_free(der);
  }

  const Bytes& public_der() const { return public_der_; }

  // The token's bytes. The number stands in for the nonce.
  Bytes Token(uint32_t number, const std::string& issuer, const std::string& origin) const {
    Bytes token = {0, 2};
    Bytes nonce(32);
    StoreLe<uint32_t>(nonce.data(), number);
    Append(token, nonce);
    for (const Bytes& digested : {EncodeChallenge(issuer, origin), public_der_}) {
      Digest digest;
      SHA256(digested.data(), digested.size(), digest.data());
      Append(token, digest);
    }
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    size_t size = 256;
    Bytes signature(size);
    SHOAL_CHECK(EVP_DigestSignInit(context, nullptr, EVP_sha384(), nullptr, key_.get()) == 1 &&
                EVP_DigestSign(context, signature.data(), &size, token.data(), token.size()) == 1);
    EVP_MD_CTX_free(context);
    Append(token, signature);
    return token;
  }

  // The value of Authorization.
  static std::string Authorization(BytesView token) {
    std::string text;
    absl::WebSafeBase64Escape(AsText(token), &text);
    return absl::StrCat("PrivateToken token=\"", text, "\"");
  }

 private:
  std::shared_ptr<EVP_PKEY> key_;
  Bytes public_der_;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_TEST_ISSUER_H_
