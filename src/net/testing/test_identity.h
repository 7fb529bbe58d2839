// A fresh certificate and key, for tests that use TLS.
#ifndef SHOAL_SRC_NET_TESTING_TEST_IDENTITY_H_
#define SHOAL_SRC_NET_TESTING_TEST_IDENTITY_H_

#include <cstdint>
#include <string>

#include "src/base/check.h"
#include "src/base/testing/test_random.h"
#include "src/net/tls.h"
#include "src/roster/party_keys.h"

namespace shoal::net::testing {

class TestIdentity {
 public:
  // The same number gives the same key.
  explicit TestIdentity(uint64_t number) {
    shoal::testing::TestRandom random(number);
    auto made =
        roster::GenerateTlsIdentity("test-" + std::to_string(number), 1'700'000'000, random);
    SHOAL_CHECK(made.ok());
    tls_ = *std::move(made);
    digest_ = tls_.certificate_sha256();
  }

  // Refers to this object.
  Identity identity() const {
    return {.certificate_pem = tls_.certificate_pem, .private_key_pem = tls_.private_key_pem};
  }
  const Digest& digest() const { return digest_; }
  const roster::TlsIdentity& tls() const { return tls_; }

 private:
  roster::TlsIdentity tls_;
  Digest digest_;
};

}  // namespace shoal::net::testing

#endif  // SHOAL_SRC_NET_TESTING_TEST_IDENTITY_H_
