#include "src/door/tokens.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "openssl/err.h"
#include "openssl/rsa.h"
#include "openssl/sha.h"
#include "openssl/x509.h"

namespace shoal::door {
namespace {

constexpr uint16_t kBlindRsa = 2;
constexpr size_t kNonceBytes = 32, kDigestBytes = 32, kSignatureBytes = 256;
constexpr size_t kSignedBytes = 2 + kNonceBytes + 2 * kDigestBytes;
constexpr size_t kTokenBytes = kSignedBytes + kSignatureBytes;
constexpr int kSaltBytes = 48;

Digest Sha256(BytesView bytes) {
  Digest digest;
  SHA256(bytes.data(), bytes.size(), digest.data());
  return digest;
}

// Two bytes, the higher first.
std::string Big16(size_t value) {
  return {static_cast<char>(value >> 8), static_cast<char>(value)};
}

std::string Base64Url(BytesView bytes) {
  // With padding, as RFC 9577 has it.
  std::string text;
  absl::Base64Escape(AsText(bytes), &text);
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}

bool IsName(absl::string_view text) {
  return !text.empty() && text.size() <= 255 && std::ranges::all_of(text, [](unsigned char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-' || c == '.' || c == ':';
  });
}

}  // namespace

Bytes EncodeChallenge(const std::string& issuer, const std::string& origin) {
  constexpr absl::string_view kNoContext("\0", 1);
  return ToBytes(AsBytes(absl::StrCat(Big16(kBlindRsa), Big16(issuer.size()), issuer, kNoContext,
                                      Big16(origin.size()), origin)));
}

bool VerifyPss(EVP_PKEY* key, BytesView message, BytesView signature) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  EVP_PKEY_CTX* options = nullptr;
  const bool verified =
      context != nullptr &&
      EVP_DigestVerifyInit(context.get(), &options, EVP_sha384(), nullptr, key) == 1 &&
      EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1 &&
      EVP_PKEY_CTX_set_rsa_mgf1_md(options, EVP_sha384()) == 1 &&
      EVP_PKEY_CTX_set_rsa_pss_saltlen(options, kSaltBytes) == 1 &&
      EVP_DigestVerify(context.get(), signature.data(), signature.size(), message.data(),
                       message.size()) == 1;
  ERR_clear_error();
  return verified;
}

absl::StatusOr<TokenRules> TokenRules::Create(std::span<const Issuer> issuers,
                                              const std::string& origin) {
  TokenRules rules;
  if (!IsName(origin)) {
    return absl::InvalidArgumentError(
        absl::StrCat("origin '", origin, "': expected a host's name in lower case"));
  }
  for (const Issuer& issuer : issuers) {
    if (!IsName(issuer.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("issuer '", issuer.name, "': expected a host's name in lower case"));
    }
    const uint8_t* at = issuer.public_key_der.data();
    const std::shared_ptr<EVP_PKEY> key(
        d2i_PUBKEY(nullptr, &at, static_cast<long>(issuer.public_key_der.size())), FreeKey());
    ERR_clear_error();
    if (key == nullptr || at != issuer.public_key_der.data() + issuer.public_key_der.size() ||
        EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_RSA_PSS ||
        EVP_PKEY_get_bits(key.get()) != 2048) {
      return absl::InvalidArgumentError(absl::StrCat(
          "issuer '", issuer.name, "': not a public key of RSASSA-PSS with 2048 bits"));
    }
    const Digest id = Sha256(issuer.public_key_der);
    if (std::ranges::find(rules.key_ids_, id) != rules.key_ids_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("issuer '", issuer.name, "': another issuer has the same key"));
    }
    const Bytes challenge = EncodeChallenge(issuer.name, origin);
    absl::StrAppend(&rules.challenges_, rules.challenges_.empty() ? "" : ", ",
                    "PrivateToken challenge=\"", Base64Url(challenge), "\", token-key=\"",
                    Base64Url(issuer.public_key_der), "\"");
    rules.keys_.push_back(key);
    rules.key_ids_.push_back(id);
    rules.challenge_digests_.push_back(Sha256(challenge));
  }
  return rules;
}

absl::StatusOr<TokenRules::Checked> TokenRules::Check(absl::string_view authorization) const {
  const auto malformed = [](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected PrivateToken token=\"...\" with a token of type 2"));
  };
  constexpr absl::string_view kScheme = "privatetoken ", kField = "token=";
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return malformed("authorization");
  absl::string_view value = absl::StripAsciiWhitespace(authorization.substr(kScheme.size()));
  if (!absl::StartsWithIgnoreCase(value, kField)) return malformed("authorization");
  value.remove_prefix(kField.size());
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
    value = value.substr(1, value.size() - 2);
  }
  std::string text;
  if (value.size() > 2 * kTokenBytes || !absl::WebSafeBase64Unescape(value, &text) ||
      text.size() != kTokenBytes) {
    return malformed("token");
  }
  const BytesView token = AsBytes(text);
  if (token[0] != 0 || token[1] != kBlindRsa) return malformed("token");
  const BytesView challenge = token.subspan(2 + kNonceBytes, kDigestBytes);
  const BytesView key_id = token.subspan(2 + kNonceBytes + kDigestBytes, kDigestBytes);
  const auto found = std::ranges::find_if(
      key_ids_, [&](const Digest& id) { return std::ranges::equal(id, key_id); });
  if (found == key_ids_.end()) {
    return absl::PermissionDeniedError("the token is of an issuer, or a key, that is not taken");
  }
  const auto issuer = static_cast<size_t>(found - key_ids_.begin());
  if (!std::ranges::equal(challenge_digests_[issuer], challenge)) {
    return absl::PermissionDeniedError("the token is for another challenge");
  }
  const BytesView message = token.first(kSignedBytes);
  if (!VerifyPss(keys_[issuer].get(), message, token.subspan(kSignedBytes))) {
    return absl::PermissionDeniedError("the token has no signature of its issuer");
  }
  // Not over the signature, of which a message has many.
  const Digest digest = Sha256(message);
  Checked checked{.issuer = issuer, .id = {}};
  std::copy_n(digest.begin(), checked.id.size(), checked.id.begin());
  return checked;
}

}  // namespace shoal::door
