#include "src/net/server.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/steady_timer.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "src/base/status_macros.h"
#include "src/net/admission.h"
#include "src/net/await.h"
#include "src/net/listener.h"
#include "src/net/tls_stream.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// The server reads bulk in pieces of this size, each under its own deadline. The buffer grows with
// what arrives, so that a header alone allocates nothing.
constexpr size_t kBulkPieceBytes = 1 << 20;
constexpr size_t kFirstPieceBytes = 16 << 10;  // of a message that is held whole

}  // namespace

Reply& Reply::operator=(Reply&& other) noexcept {
  std::swap(send_, other.send_);
  std::swap(from_, other.from_);
  return *this;
}

Reply::~Reply() {
  if (send_) (*this)(absl::InternalError("the request was dropped"));
}

void Reply::operator()(wire::Frame frame, std::unique_ptr<ByteSource> bulk) {
  if (const Send send = std::exchange(send_, nullptr)) send(std::move(frame), std::move(bulk));
}

struct Server::State : Listener {
  State(Options o, Handler h)
      : options(std::move(o)),
        handler(std::move(h)),
        places({.connections = options.max_connections,
                .newcomers = options.max_newcomers,
                .buffer_bytes = options.max_buffered_bytes,
                .reserved_bytes = std::min(options.reserved_bytes, options.max_buffered_bytes),
                .shares = options.shares,
                .group_shares = options.group_shares}) {}

  class Session;

  Admission Admit(uint64_t number, const IpAddress& address, Socket socket) override;

  const Options options;
  const Handler handler;
  AdmissionControl places;
  std::shared_ptr<asio::ssl::context> context;
  std::atomic<uint64_t> received = 0, sent = 0;
};

// It takes one request at a time: the next one is read when the answer is written.
class Server::State::Session : public Listener::Session {
 public:
  Session(State& server, uint64_t number, AdmissionControl::Permit place, tcp::socket socket)
      : Listener::Session(server.shared_from_this(), number, socket.get_executor()),
        server_(server),
        place_(std::move(place)),
        stream_(std::move(socket), *server_.context),
        answered_(stream_.get_executor()) {}

 private:
  struct Answer {
    wire::Frame frame;
    std::unique_ptr<ByteSource> bulk;
    // The beginning of the request that this refuses, if it may be of another version.
    const wire::FrameHeaderBytes* refused = nullptr;
  };

  const Options& options() const { return server_.options; }

  Socket& socket() override { return stream_.socket(); }
  void OnClose() override { answered_.cancel(); }

  asio::awaitable<void> Converse() override {
    Deadline(options().handshake_timeout);
    const auto error = co_await stream_.Handshake(TlsStream::Role::kServer);
    if (error || !co_await Welcome()) co_return;
    while (!closed() && co_await ServeOne()) {
    }
  }

  asio::awaitable<bool> Welcome() {
    if (options().clients.empty()) co_return true;
    const auto digest = PeerCertificateSha256(stream_.native_handle());
    absl::Status refused = absl::UnauthenticatedError(
        "the certificate is none of those that may connect here: "
        "another party, or another roster");
    if (digest.ok() && std::ranges::find(options().clients, *digest) != options().clients.end()) {
      refused = place_.Welcome();
    }
    if (!refused.ok()) co_await Refuse(refused);
    co_return refused.ok();
  }

  // Sends the error and ends the connection.
  asio::awaitable<void> Refuse(const absl::Status& status,
                               const wire::FrameHeaderBytes* request = nullptr) {
    if (options().another_version && wire::IsOfAnotherVersion(status)) {
      options().another_version(status);
    }
    // A variable, as gcc 12 destroys a braced temporary of a co_await twice.
    Answer refusal{wire::MakeErrorFrame(status), nullptr, request};
    if (!co_await Write(std::move(refusal))) co_return;
    co_await Linger(options().progress_timeout);
  }

  // Takes room for `bytes` more of the request that is coming in, or of its answer.
  bool Claim(uint64_t bytes) { return place_.Claim(bytes, room_); }

  // Nothing if the connection has ended, or ends with a refusal.
  asio::awaitable<std::optional<wire::FrameHeader>> ReadHeader() {
    Deadline(place_.welcome() ? options().idle_timeout : options().header_timeout);
    wire::FrameHeaderBytes header_bytes;
    if (!co_await Read(MutableBytes(header_bytes).first(1))) co_return std::nullopt;
    if (place_.welcome()) Deadline(options().header_timeout);
    if (!co_await Read(MutableBytes(header_bytes).subspan(1))) co_return std::nullopt;
    const auto header = wire::ParseFrameHeader(header_bytes);
    absl::Status refused = header.status();
    if (header.ok()) {
      const auto limits = options().limits(header->type);
      refused = limits.ok() ? wire::CheckLimits(*header, *limits) : limits.status();
    }
    if (refused.ok() && !place_.welcome()) refused = place_.Welcome();
    if (!refused.ok()) {
      // The connection ends here, as nobody reads the rest of the frame.
      co_await Refuse(refused, &header_bytes);
      co_return std::nullopt;
    }
    co_return *header;
  }

  asio::awaitable<bool> ServeOne() {
    stream_.Shrink();
    const std::optional<wire::FrameHeader> header = co_await ReadHeader();
    if (!header.has_value()) co_return false;
    wire::Frame request;
    request.type = header->type;
    room_ = options().in_reserve && options().in_reserve(header->type)
                ? AdmissionControl::Room::kReserve
                : AdmissionControl::Room::kGeneral;
    if (!co_await ReadGrowing(header->control_bytes, request.control)) co_return false;
    std::unique_ptr<BulkSink> sink;
    if (options().sink) {
      auto made = options().sink(request, header->bulk_bytes);
      if (!made.ok()) {
        co_await Refuse(made.status());
        co_return false;
      }
      sink = *std::move(made);
    }
    if (sink == nullptr) {
      if (!co_await ReadGrowing(header->bulk_bytes, request.bulk)) co_return false;
    } else if (!co_await ReadInto(header->bulk_bytes, *sink)) {
      co_return false;
    }

    answer_.reset();
    answered_.expires_at(Clock::time_point::max());
    NoDeadline();  // the handler has none
    // A reply may outlive the connection and the server, so it owns neither.
    Reply reply(
        [weak = WeakOf(this)](wire::Frame frame, std::unique_ptr<ByteSource> bulk) {
          Post(weak, [answer = Answer{std::move(frame), std::move(bulk)}](Session& self) mutable {
            self.answer_ = std::move(answer);
            self.answered_.cancel();
          });
        },
        place_.origin());
    if (sink != nullptr) {
      sink->Done(std::move(reply));
      sink.reset();
    } else {
      server_.handler(std::move(request), std::move(reply));
    }
    while (!answer_.has_value() && !closed()) co_await answered_.async_wait(kAwait);
    if (closed()) co_return false;
    // Only now: wherever the handler keeps the request, it counts. Nothing but the end of the
    // server closes a connection that waits for its handler.
    place_.Release();
    Answer answer = *std::exchange(answer_, std::nullopt);
    // Peers that read slowly must not make this server hold all their answers. With UNAVAILABLE an
    // honest peer asks again and has lost nothing.
    if (!Claim(answer.frame.control.size() + answer.frame.bulk.size())) {
      answer = Answer{
          wire::MakeErrorFrame(absl::UnavailableError("too many answers at once; try again later")),
          nullptr};
    }
    const bool written = co_await Write(std::move(answer));
    place_.Release();
    co_return written;
  }

  asio::awaitable<bool> Read(MutableBytes into) {
    const auto error = co_await stream_.Read(into);
    if (error) co_return false;
    server_.received += into.size();
    co_return true;
  }

  asio::awaitable<bool> ReadInto(uint64_t size, BulkSink& sink) {
    Bytes piece;
    for (uint64_t left = size; left > 0; left -= piece.size()) {
      piece.resize(std::min<uint64_t>(left, kBulkPieceBytes));
      Deadline(options().progress_timeout);
      if (!co_await Read(piece)) co_return false;
      if (const absl::Status taken = sink.Take(piece); !taken.ok()) {
        co_await Refuse(taken);
        co_return false;
      }
    }
    co_return true;
  }

  template <typename Buffer>
  asio::awaitable<bool> ReadGrowing(uint64_t size, Buffer& buffer) {
    while (buffer.size() < size) {
      const size_t before = buffer.size();
      // Asks for as much again as has come, so that a header does not hold room that others need.
      const size_t piece =
          std::min<uint64_t>({size - before, std::max(before, kFirstPieceBytes), kBulkPieceBytes});
      if (!Claim(piece)) {
        co_await Refuse(absl::UnavailableError("too many requests at once; try again later"));
        co_return false;
      }
      if (buffer.capacity() < before + piece) {
        buffer.reserve(std::min<uint64_t>(size, 2 * before + piece));
      }
      buffer.resize(before + piece);
      Deadline(options().progress_timeout);
      if (!co_await Read({reinterpret_cast<uint8_t*>(buffer.data()) + before, piece})) {
        co_return false;
      }
    }
    co_return true;
  }

  asio::awaitable<bool> Write(Answer answer) {
    if (options().refused && answer.frame.type == wire::FrameType::kError) {
      options().refused(wire::ErrorOf(answer.frame).code());
    }
    wire::FrameHeader header = wire::HeaderOf(answer.frame);
    if (answer.bulk != nullptr) header.bulk_bytes = answer.bulk->size();
    const wire::FrameHeaderBytes header_bytes =
        answer.refused == nullptr ? wire::EncodeFrameHeader(header)
                                  : wire::EncodeRefusalHeader(header, *answer.refused);
    Bytes head(header_bytes.begin(), header_bytes.end());
    Append(head, AsBytes(answer.frame.control));
    if (!co_await WriteBytes(head)) co_return false;
    if (answer.bulk == nullptr) co_return co_await WriteBytes(answer.frame.bulk);
    for (;;) {
      const absl::StatusOr<BytesView> piece = answer.bulk->Next();
      if (!piece.ok()) co_return false;
      if (piece->empty()) co_return true;
      if (!co_await WriteBytes(*piece)) co_return false;
    }
  }

  asio::awaitable<bool> WriteBytes(BytesView bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kBulkPieceBytes, bytes.size()))) {
      Deadline(options().progress_timeout);
      const BytesView piece = bytes.first(std::min(kBulkPieceBytes, bytes.size()));
      const auto error = co_await stream_.Write(piece);
      if (error) co_return false;
      server_.sent += piece.size();
    }
    co_return true;
  }

  State& server_;
  AdmissionControl::Permit place_;
  AdmissionControl::Room room_ =
      AdmissionControl::Room::kGeneral;  // for the request at hand and its answer
  TlsStream stream_;
  asio::steady_timer answered_;
  std::optional<Answer> answer_;
};

Listener::Admission Server::State::Admit(uint64_t number, const IpAddress& address, Socket socket) {
  if (options.clients.empty()) LimitUnsent(socket);
  AdmissionControl::Arrival arrival =
      places.Arrive(number, options.shared_addresses.BlockOf(address));
  return {std::make_shared<Session>(*this, number, std::move(arrival.place), std::move(socket)),
          arrival.evicted};
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(Options options, Handler handler) {
  SHOAL_ASSIGN_OR_RETURN(auto context, MakeContext(/*server=*/true, &options.identity));
  if (!options.clients.empty()) {
    boost::system::error_code error;
    context->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert,
                             error);
    if (error) return absl::InternalError("TLS: cannot ask for client certificates");
  }
  options.identity = {};  // the context has it
  auto state = std::make_shared<State>(std::move(options), std::move(handler));
  state->context = std::move(context);

  SHOAL_RETURN_IF_ERROR(state->Start(state->options.address, state->options.threads));
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::~Server() { state_->Stop(); }

uint16_t Server::port() const { return state_->port(); }
size_t Server::connections() const { return state_->connections(); }
uint64_t Server::bytes_received() const { return state_->received; }
uint64_t Server::bytes_sent() const { return state_->sent; }

}  // namespace shoal::net
