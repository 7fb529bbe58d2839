#include "src/net/tls.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "boost/asio/buffer.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/verify_context.hpp"

namespace shoal::net {
namespace ssl = boost::asio::ssl;

absl::StatusOr<std::shared_ptr<ssl::context>> MakeContext(bool server, const Identity* identity) {
  auto context =
      std::make_shared<ssl::context>(server ? ssl::context::tls_server : ssl::context::tls_client);
  SSL_CTX* raw = context->native_handle();
  if (SSL_CTX_set_min_proto_version(raw, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(raw, TLS1_3_VERSION) != 1) {
    return absl::InternalError("TLS 1.3 is not available");
  }
  // AES-128 comes first, as everything else here has 128-bit security (X25519, BLS12-381): longer
  // keys would cost a fifth more work for every byte and protect nothing more.
  if (SSL_CTX_set_ciphersuites(
          raw, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384") != 1) {
    return absl::InternalError("TLS: the cipher suites are not available");
  }
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_num_tickets(raw, 0);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(raw, SSL_MODE_RELEASE_BUFFERS);  // there may be thousands of idle connections
  // The chain of certificates is not checked: the certificate's digest is compared after the
  // handshake.
  context->set_verify_callback([](bool, ssl::verify_context&) { return true; });
  if (!server) context->set_verify_mode(ssl::verify_peer);
  if (identity != nullptr) {
    boost::system::error_code error;
    context->use_certificate_chain(
        boost::asio::buffer(identity->certificate_pem.data(), identity->certificate_pem.size()),
        error);
    if (!error) {
      context->use_private_key(
          boost::asio::buffer(identity->private_key_pem.data(), identity->private_key_pem.size()),
          ssl::context::pem, error);
    }
    if (error || SSL_CTX_check_private_key(raw) != 1) {
      return absl::InvalidArgumentError("TLS: certificate and private key do not fit");
    }
  }
  return context;
}

absl::StatusOr<Digest> PeerCertificateSha256(SSL* handle) {
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(SSL_get1_peer_certificate(handle),
                                                                &X509_free);
  if (certificate == nullptr) return absl::NotFoundError("the peer showed no certificate");
  Digest digest;
  unsigned int length = 0;
  if (X509_digest(certificate.get(), EVP_sha256(), digest.data(), &length) != 1 ||
      length != digest.size()) {
    return absl::InternalError("TLS: no digest of the peer's certificate");
  }
  return digest;
}

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("address '", address, "': expected host:port or [IPv6]:port"));
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return bad;
  absl::string_view host = address.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return bad;
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return bad;
  }
  // Only digits are allowed; SimpleAtoi alone would accept signs and spaces, too.
  const absl::string_view digits = address.substr(colon + 1);
  uint32_t port;
  if (!std::ranges::all_of(digits, absl::ascii_isdigit) || !absl::SimpleAtoi(digits, &port) ||
      port > 65535) {
    return bad;
  }
  const auto fits = [](char c) { return absl::ascii_isgraph(c) && c != '[' && c != ']'; };
  if (!std::ranges::all_of(host, fits)) return bad;
  return HostPort{std::string(host), absl::StrCat(port)};
}

}  // namespace shoal::net
