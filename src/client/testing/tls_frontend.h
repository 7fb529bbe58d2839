// A fake frontend behind a real server: over TLS, for clients in this process and in others.
#ifndef SHOAL_SRC_CLIENT_TESTING_TLS_FRONTEND_H_
#define SHOAL_SRC_CLIENT_TESTING_TLS_FRONTEND_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "src/client/testing/fake_frontend.h"
#include "src/net/server.h"
#include "src/roster/party_keys.h"
#include "src/wire/frame.h"

namespace shoal::client::testing {

roster::TlsIdentity MakeTlsIdentity();

// Requests are served one at a time, under `mutex`.
class TlsFrontend {
 public:
  // Serves at a free port of 127.0.0.1, with the certificate that the roster names.
  explicit TlsFrontend(FakeOptions options = {});

  void Serve(const std::string& address, const roster::TlsIdentity& identity,
             uint64_t max_buffered_bytes = std::numeric_limits<uint64_t>::max());
  void Stop() { server_.reset(); }
  const std::string& address() const { return address_; }
  const roster::TlsIdentity& identity() const { return identity_; }

  FakeFrontend& frontend() { return frontend_; }
  std::mutex& mutex() { return mutex_; }
  int Seen(wire::FrameType type);

 private:
  template <typename Request, typename Response>
  void Answer(const wire::Frame& frame, net::Reply& reply,
              absl::StatusOr<Response> (FakeFrontend::*method)(const Request&));
  void Handle(const wire::Frame& frame, net::Reply& reply);

  const roster::TlsIdentity identity_;
  FakeFrontend frontend_;
  std::mutex mutex_;
  std::map<wire::FrameType, int> seen_;
  std::string address_;
  std::unique_ptr<net::Server> server_;
};

}  // namespace shoal::client::testing

#endif  // SHOAL_SRC_CLIENT_TESTING_TLS_FRONTEND_H_
