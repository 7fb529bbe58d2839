#include "src/net/connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/connect.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/error.hpp"
#include "src/base/status_macros.h"
#include "src/net/tls_stream.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr size_t kPieceBytes = 1 << 20;
constexpr std::chrono::milliseconds kCancelTick(100);
constexpr wire::FrameLimits kErrorLimits = {.control_bytes = 4096, .bulk_bytes = 0};

// Whether this is the alert of a server that asks for a certificate, to a client that showed none.
bool IsForCertificate(const boost::system::error_code& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) ==
             SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED;
}

}  // namespace

struct Connection::State {
  State(std::string a, std::function<bool()> c) : address(std::move(a)), cancelled(std::move(c)) {}

  // Runs the pending operation until it calls back or the deadline passes. After the deadline it
  // closes the socket and waits for the operation to end. If the operation fails, the socket is
  // left to the caller.
  absl::Status Wait(const std::optional<boost::system::error_code>& result,
                    absl::string_view what) {
    io.restart();
    while (!result.has_value()) {
      const bool stop = cancelled != nullptr && cancelled();
      if (stop || Clock::now() >= deadline) {
        Fail();
        while (!result.has_value() && io.run_one() > 0) {
        }
        if (stop) return absl::CancelledError(absl::StrCat(address, ": ", what, ": cancelled"));
        return absl::DeadlineExceededError(absl::StrCat(address, ": ", what, " took too long"));
      }
      io.run_one_until(cancelled == nullptr ? deadline
                                            : std::min(deadline, Clock::now() + kCancelTick));
    }
    if (!*result) return absl::OkStatus();
    if (IsForCertificate(*result)) {
      return absl::FailedPreconditionError(absl::StrCat(
          address,
          ": only a neighbouring party of the chain connects here, with its certificate. This is a "
          "peer_address of the roster; clients connect to a client_address, which is another "
          "port"));
    }
    return absl::UnavailableError(absl::StrCat(address, ": ", what, ": ", result->message()));
  }

  absl::Status Run(TlsStream::Result operation, absl::string_view what) {
    std::optional<boost::system::error_code> result;
    asio::co_spawn(io, std::move(operation),
                   [&](const std::exception_ptr& thrown, boost::system::error_code error) {
                     result = thrown == nullptr ? error : asio::error::no_memory;
                   });
    return Wait(result, what);
  }

  void Fail() {
    usable = false;
    boost::system::error_code ignored;
    stream->socket().close(ignored);
  }

  bool open() const { return stream->socket().is_open(); }

  absl::Status Write(BytesView bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPieceBytes, bytes.size()))) {
      const BytesView piece = bytes.first(std::min(kPieceBytes, bytes.size()));
      SHOAL_RETURN_IF_ERROR(Run(stream->Write(piece), "sending"));
      sent += piece.size();
    }
    return absl::OkStatus();
  }

  absl::Status Read(MutableBytes into) {
    SHOAL_RETURN_IF_ERROR(Run(stream->Read(into), "waiting for the answer"));
    received += into.size();
    return absl::OkStatus();
  }

  // Reads a frame that `limits` allow, or an ERROR frame, without its bulk: `bulk_bytes` of bulk
  // follow.
  absl::StatusOr<wire::Frame> ReadHead(const wire::FrameLimits& limits, uint64_t& bulk_bytes) {
    wire::FrameHeaderBytes header_bytes;
    SHOAL_RETURN_IF_ERROR(Read(header_bytes));
    const auto header = wire::ParseFrameHeader(header_bytes);
    if (!header.ok()) return Annotate(header.status(), address);
    const bool is_error = header->type == wire::FrameType::kError;
    if (absl::Status fits = wire::CheckLimits(*header, is_error ? kErrorLimits : limits);
        !fits.ok()) {
      return Annotate(fits, address);
    }
    wire::Frame frame;
    frame.type = header->type;
    SHOAL_RETURN_IF_ERROR(ReadGrowing(header->control_bytes, frame.control));
    bulk_bytes = header->bulk_bytes;
    return frame;
  }

  template <typename Buffer>
  absl::Status ReadGrowing(uint64_t size, Buffer& buffer) {
    while (buffer.size() < size) {
      const size_t before = buffer.size();
      const size_t piece = std::min<uint64_t>(size - before, kPieceBytes);
      if (buffer.capacity() < before + piece) {
        buffer.reserve(std::min<uint64_t>(size, 2 * before + piece));
      }
      buffer.resize(before + piece);
      SHOAL_RETURN_IF_ERROR(Read({reinterpret_cast<uint8_t*>(buffer.data()) + before, piece}));
    }
    return absl::OkStatus();
  }

  const std::string address;
  std::function<bool()> cancelled;
  asio::io_context io{1};
  std::shared_ptr<asio::ssl::context> context;
  std::unique_ptr<TlsStream> stream;
  Clock::time_point deadline;
  Digest certificate_sha256;
  bool usable = false;
  uint64_t sent = 0, received = 0;
};

Connection::Connection(std::unique_ptr<State> state) : state_(std::move(state)) {}
Connection::~Connection() = default;

absl::StatusOr<std::unique_ptr<Connection>> Connection::Connect(const Options& options) {
  SHOAL_ASSIGN_OR_RETURN(const HostPort target, ParseHostPort(options.address));
  auto state = std::make_unique<State>(options.address, options.cancelled);
  State& s = *state;
  s.context = options.context;
  if (s.context == nullptr) {
    SHOAL_ASSIGN_OR_RETURN(s.context, MakeContext(/*server=*/false, options.identity));
  }
  s.stream = std::make_unique<TlsStream>(tcp::socket(s.io), *s.context);
  s.deadline = Clock::now() + options.connect_timeout;

  tcp::resolver resolver(s.io);
  std::optional<boost::system::error_code> result;
  tcp::resolver::results_type endpoints;
  resolver.async_resolve(target.host, target.port,
                         [&](const boost::system::error_code& e, tcp::resolver::results_type r) {
                           endpoints = std::move(r);
                           result = e;
                         });
  SHOAL_RETURN_IF_ERROR(s.Wait(result, "finding the address"));
  result.reset();
  asio::async_connect(
      s.stream->socket(), endpoints,
      [&](const boost::system::error_code& e, const tcp::endpoint&) { result = e; });
  SHOAL_RETURN_IF_ERROR(s.Wait(result, "connecting"));
  SHOAL_RETURN_IF_ERROR(
      s.Run(s.stream->Handshake(TlsStream::Role::kClient),
            "TLS handshake (does a Shoal server of this deployment listen there?)"));
  SHOAL_ASSIGN_OR_RETURN(s.certificate_sha256, PeerCertificateSha256(s.stream->native_handle()));
  if (options.pin.has_value() && s.certificate_sha256 != *options.pin) {
    return absl::UnauthenticatedError(
        absl::StrCat(options.address, ": shows certificate ",
                     Hex(BytesView(s.certificate_sha256).first(8)), ".., and the roster pins ",
                     Hex(BytesView(*options.pin).first(8)), "..: not the party that was expected"));
  }
  s.usable = true;
  return std::unique_ptr<Connection>(new Connection(std::move(state)));
}

// Reads the bulk of an answer piece by piece, when it is asked for.
class Connection::AnswerBulk final : public ByteSource {
 public:
  AnswerBulk(State* state, uint64_t size) : state_(state), size_(size) {}
  uint64_t size() const override { return size_; }
  absl::StatusOr<BytesView> Next() override {
    piece_.resize(std::min<uint64_t>(kPieceBytes, size_ - read_));
    if (piece_.empty()) return BytesView();
    if (absl::Status read = state_->Read(piece_); !read.ok()) {
      state_->Fail();
      return read;
    }
    read_ += piece_.size();
    return BytesView(piece_);
  }

 private:
  State* const state_;
  const uint64_t size_;
  uint64_t read_ = 0;
  Bytes piece_;
};

absl::StatusOr<Connection::Streamed> Connection::CallStreaming(const wire::Frame& request,
                                                               ByteSource* bulk,
                                                               const wire::FrameLimits& limits,
                                                               std::chrono::milliseconds timeout) {
  State& s = *state_;
  if (!s.usable) {
    return absl::UnavailableError(absl::StrCat(s.address, ": the connection has failed before"));
  }
  s.deadline = Clock::now() + timeout;
  wire::FrameHeader header = wire::HeaderOf(request);
  if (bulk != nullptr) header.bulk_bytes = bulk->size();
  const wire::FrameHeaderBytes request_header = wire::EncodeFrameHeader(header);
  Bytes head(request_header.begin(), request_header.end());
  Append(head, AsBytes(request.control));
  absl::Status made;  // an error of this side, which the peer does not know of
  const absl::Status sent = [&] {
    SHOAL_RETURN_IF_ERROR(s.Write(head));
    if (bulk == nullptr) return s.Write(request.bulk);
    for (;;) {
      const absl::StatusOr<BytesView> piece = bulk->Next();
      made = piece.status();
      if (!made.ok() || piece->empty()) return made;
      SHOAL_RETURN_IF_ERROR(s.Write(*piece));
    }
  }();
  uint64_t bulk_bytes = 0;
  if (!sent.ok()) {
    // A server that refuses a frame says so and closes the connection without taking the rest: its
    // error may have arrived already.
    if (made.ok() && s.open()) {
      const absl::StatusOr<wire::Frame> refusal = s.ReadHead({}, bulk_bytes);
      s.Fail();
      if (refusal.ok() && refusal->type == wire::FrameType::kError) return wire::ErrorOf(*refusal);
      // What came is no frame of this version: the same request would be refused again.
      if (absl::IsFailedPrecondition(refusal.status()) ||
          absl::IsInvalidArgument(refusal.status())) {
        return refusal.status();
      }
    }
    s.Fail();
    return sent;
  }
  absl::StatusOr<wire::Frame> answer = s.ReadHead(limits, bulk_bytes);
  if (!answer.ok()) {
    s.Fail();
    return answer.status();
  }
  if (answer->type == wire::FrameType::kError) return wire::ErrorOf(*answer);
  if (answer->type != request.type) {
    s.Fail();
    return absl::InternalError(absl::StrCat(s.address, ": answered with a frame of type ",
                                            static_cast<int>(answer->type)));
  }
  return Streamed{.frame = *std::move(answer),
                  .bulk = std::make_unique<AnswerBulk>(&s, bulk_bytes)};
}

absl::StatusOr<wire::Frame> Connection::Call(const wire::Frame& request,
                                             const wire::FrameLimits& limits,
                                             std::chrono::milliseconds timeout) {
  SHOAL_ASSIGN_OR_RETURN(Streamed answer, CallStreaming(request, nullptr, limits, timeout));
  SHOAL_ASSIGN_OR_RETURN(answer.frame.bulk, ReadAll(*answer.bulk));
  return std::move(answer.frame);
}

const Digest& Connection::certificate_sha256() const { return state_->certificate_sha256; }
bool Connection::usable() const { return state_->usable; }
void Connection::Rest() {
  state_->stream->Shrink();
  state_->cancelled = nullptr;
}
bool Connection::IsQuiet() { return state_->usable && state_->stream->IsQuiet(); }
void Connection::SetCancelled(std::function<bool()> cancelled) {
  state_->cancelled = std::move(cancelled);
}
uint64_t Connection::bytes_sent() const { return state_->sent; }
uint64_t Connection::bytes_received() const { return state_->received; }

}  // namespace shoal::net
