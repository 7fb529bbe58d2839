#include "src/client/tls_transport.h"

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"
#include "src/client/framed_transport.h"
#include "src/net/connection.h"
#include "src/net/tls.h"
#include "src/wire/frame.h"

namespace shoal::client {
namespace {

using std::chrono::milliseconds;

constexpr wire::FrameLimits kResponseLimits = {.control_bytes = wire::kMaxClientControlBytes,
                                               .bulk_bytes = 0};

class TlsTransport final : public FramedTransport {
 public:
  TlsTransport(std::string address, std::function<bool()> cancelled)
      : FramedTransport(std::move(address)), cancelled_(std::move(cancelled)) {}

  absl::StatusOr<wire::Frame> CallEngine(const wire::Frame& request,
                                         uint64_t max_bulk_bytes) override {
    return Exchange(request,
                    {.control_bytes = wire::kMaxClientControlBytes, .bulk_bytes = max_bulk_bytes},
                    kCallTimeout);
  }

  absl::Status RequireParty(const roster::Roster& roster, uint32_t party) override {
    pin_ = roster.party(party).tls_certificate_sha256;
    if (connection_ != nullptr && connection_->certificate_sha256() != *pin_) {
      Disconnect();
      return absl::UnauthenticatedError(absl::StrCat(
          address(), " shows another TLS certificate than party ", party,
          " of the roster: something stands between it and this client, or it runs with other "
          "keys"));
    }
    return absl::OkStatus();
  }

  void ForgetParty() override { pin_.reset(); }
  void HangUp() override { Disconnect(); }

  Traffic traffic() const override {
    Traffic traffic = past_;
    if (connection_ != nullptr) {
      traffic.sent += connection_->bytes_sent();
      traffic.received += connection_->bytes_received();
    }
    return traffic;
  }

 private:
  void Disconnect() {
    past_ = traffic();
    connection_.reset();
  }

  absl::StatusOr<wire::Frame> Call(const wire::Frame& request, milliseconds timeout) override {
    return Exchange(request, kResponseLimits, timeout);
  }

  absl::StatusOr<wire::Frame> Exchange(const wire::Frame& request, const wire::FrameLimits& limits,
                                       milliseconds timeout) {
    if (!pin_ && request.type != wire::FrameType::kGetDeployment) {
      return absl::FailedPreconditionError("the party's certificate has not been checked yet");
    }
    if (connection_ != nullptr && !connection_->usable()) Disconnect();
    if (connection_ == nullptr) {
      auto connection =
          net::Connection::Connect({.address = address(), .pin = pin_, .cancelled = cancelled_});
      if (!connection.ok()) return Unreached(connection.status());
      connection_ = *std::move(connection);
    }
    absl::StatusOr<wire::Frame> frame = connection_->Call(request, limits, timeout);
    if (!frame.ok() && !connection_->usable()) return Unreached(frame.status());
    // A server without room for a request closes the connection after its answer, so another
    // attempt on this connection would be lost.
    if (absl::IsUnavailable(frame.status())) Disconnect();
    return frame;
  }

  const std::function<bool()> cancelled_;
  std::optional<Digest> pin_;
  std::unique_ptr<net::Connection> connection_;
  Traffic past_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> ConnectTls(const std::string& address) {
  return ConnectTls(address, nullptr);
}

absl::StatusOr<std::unique_ptr<Transport>> ConnectTls(const std::string& address,
                                                      std::function<bool()> cancelled) {
  SHOAL_RETURN_IF_ERROR(net::ParseHostPort(address).status());
  return std::make_unique<TlsTransport>(address, std::move(cancelled));
}

}  // namespace shoal::client
