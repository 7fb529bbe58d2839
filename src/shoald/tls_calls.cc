#include "src/shoald/tls_calls.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/status_macros.h"

namespace shoal::shoald {
namespace {

using wire::FrameType;

constexpr std::chrono::milliseconds kConnect = std::chrono::seconds(10);

// At least a moment, so that a deadline that has passed is one.
std::chrono::milliseconds Left(std::chrono::steady_clock::time_point deadline) {
  const auto left = deadline - std::chrono::steady_clock::now();
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left),
                  std::chrono::milliseconds(1));
}

// The bulk of an answer, with the connection over which it comes. `named` names its errors.
class OwnedBulk final : public ByteSource {
 public:
  OwnedBulk(std::unique_ptr<net::Connection> connection, std::unique_ptr<ByteSource> bulk,
            std::function<absl::Status(const absl::Status&)> named)
      : connection_(std::move(connection)), bulk_(std::move(bulk)), named_(std::move(named)) {}
  uint64_t size() const override { return bulk_->size(); }
  absl::StatusOr<BytesView> Next() override {
    absl::StatusOr<BytesView> piece = bulk_->Next();
    return piece.ok() ? piece : named_(piece.status());
  }

 private:
  const std::unique_ptr<net::Connection> connection_;
  const std::unique_ptr<ByteSource> bulk_;
  const std::function<absl::Status(const absl::Status&)> named_;
};

absl::StatusOr<std::shared_ptr<boost::asio::ssl::context>> ContextOf(
    const roster::TlsIdentity& identity) {
  const net::Identity own = {.certificate_pem = identity.certificate_pem,
                             .private_key_pem = identity.private_key_pem};
  return net::MakeContext(/*server=*/false, &own);
}

wire::FrameLimits LimitsOf(const PeerCall& call) {
  return {.control_bytes = wire::kMaxPeerControlBytes, .bulk_bytes = call.answer_bulk_bytes};
}

std::unique_ptr<ByteSource> NoBulk() { return std::make_unique<BytesSource>(Bytes()); }

}  // namespace

TlsCalls::TlsCalls(const roster::Party& next, const roster::TlsIdentity& identity)
    : next_(next), context_(ContextOf(identity)) {}

absl::Status TlsCalls::Named(const absl::Status& status, uint32_t machine) const {
  const bool silent = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  if (!silent || !absl::StartsWith(status.message(), next_.PeerAddress(machine))) return status;
  return Annotate(status, absl::StrCat("party ", next_.number, " does not answer"));
}

absl::StatusOr<std::unique_ptr<net::Connection>> TlsCalls::Connect(Deadline deadline,
                                                                   std::function<bool()> cancelled,
                                                                   uint32_t machine) const {
  SHOAL_RETURN_IF_ERROR(context_.status());
  auto connection = net::Connection::Connect({.address = next_.PeerAddress(machine),
                                              .pin = next_.tls_certificate_sha256,
                                              .context = *context_,
                                              .connect_timeout = std::min(Left(deadline), kConnect),
                                              .cancelled = std::move(cancelled)});
  if (connection.ok()) return connection;
  // A machine that does not answer is like one that refuses: the link is broken.
  absl::Status failed = connection.status();
  if (absl::IsDeadlineExceeded(failed)) failed = absl::UnavailableError(failed.message());
  return Annotate(failed, absl::StrCat("reaching party ", next_.number));
}

absl::StatusOr<PeerAnswer> TlsCalls::Call(PeerCall call) {
  const Deadline deadline = std::chrono::steady_clock::now() + call.limit;
  if (call.request.type == FrameType::kLiveRounds) return CallWithList(call, deadline);
  std::unique_ptr<net::Connection> connection;
  if (call.request.type == FrameType::kOnline) connection = kept_.Take(call.round_id, call.machine);
  if (connection != nullptr) {
    connection->SetCancelled(std::move(call.cancelled));
  } else {
    SHOAL_ASSIGN_OR_RETURN(connection, Connect(deadline, std::move(call.cancelled), call.machine));
  }
  absl::StatusOr<net::Connection::Streamed> answer =
      connection->CallStreaming(call.request, call.bulk, LimitsOf(call), Left(deadline));
  // A call over a kept connection is not made again over a new one: the other machine may have
  // taken it. The link has broken, as it can at any time, and the frontend repeats the stage.
  if (!answer.ok()) return Named(answer.status(), call.machine);
  if (call.request.type == FrameType::kOffline) {  // no bulk
    kept_.Keep(call.round_id, call.machine, std::move(connection));
    return PeerAnswer{.frame = std::move(answer->frame), .bulk = NoBulk()};
  }
  return PeerAnswer{.frame = std::move(answer->frame),
                    .bulk = std::make_unique<OwnedBulk>(
                        std::move(connection), std::move(answer->bulk),
                        [this, machine = call.machine](const absl::Status& status) {
                          return Named(status, machine);
                        })};
}

absl::StatusOr<PeerAnswer> TlsCalls::CallWithList(const PeerCall& call, Deadline deadline) {
  const MutexLock lock(live_mutex_);
  // A call without time would break the connection that is kept.
  if (std::chrono::steady_clock::now() >= deadline) {
    return absl::DeadlineExceededError("a list of live rounds waited for the one before");
  }
  // The party may have been restarted since the last list: then a new connection is tried, too.
  bool kept = live_connection_ != nullptr;
  absl::StatusOr<wire::Frame> answer;
  do {
    if (live_connection_ == nullptr) {
      SHOAL_ASSIGN_OR_RETURN(live_connection_, Connect(deadline, call.cancelled, call.machine));
    }
    answer = live_connection_->Call(call.request, LimitsOf(call), Left(deadline));
    if (!live_connection_->usable()) live_connection_.reset();
  } while (absl::IsUnavailable(answer.status()) && live_connection_ == nullptr &&
           std::exchange(kept, false));
  if (!answer.ok()) return Named(answer.status(), call.machine);
  return PeerAnswer{.frame = *std::move(answer), .bulk = NoBulk()};
}

}  // namespace shoal::shoald
