// TLS 1.3 as Shoal uses it: without certificate authorities. A peer is identified by its pinned
// certificate.
#ifndef SHOAL_SRC_NET_TLS_H_
#define SHOAL_SRC_NET_TLS_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "src/base/bytes.h"

// Declared alone, as whoever needs no more than an address or an identity would wait for all of
// asio's headers. Who looks into a context includes
// boost/asio/ssl/context.hpp.
namespace boost::asio::ssl {
class context;
}  // namespace boost::asio::ssl
struct ssl_st;  // OpenSSL's SSL

namespace shoal::net {

// A certificate and its private key, PEM.
struct Identity {
  std::string certificate_pem;
  BytesView private_key_pem;  // must stay valid while a context is made
};

// For any number of connections at a time: making one with an identity costs more than its side of
// a handshake, most of it to read the key. TLS 1.3 alone, no session tickets (a resumed session
// would link a client's connections), no renegotiation. A client's accepts any certificate, as
// connections compare its digest after the handshake. `identity` may be null for a client that has
// none. INVALID_ARGUMENT if certificate and key do not fit.
absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> MakeContext(bool server,
                                                                       const Identity* identity);

// SHA-256 of the DER encoding of the peer's certificate, after the handshake. NOT_FOUND if it
// showed none.
absl::StatusOr<Digest> PeerCertificateSha256(ssl_st* ssl);

// "127.0.0.1:7000", "[::1]:7000", "example.org:7000". INVALID_ARGUMENT otherwise.
struct HostPort {
  std::string host;
  std::string port;
};
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_TLS_H_
