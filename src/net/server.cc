#include "src/net/server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "boost/asio.hpp"
#include "src/base/status_macros.h"
#include "src/net/listen.h"
#include "src/net/places.h"
#include "src/net/tls_stream.h"
#include "src/parallel/mutex.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

// The server reads bulk in pieces of this size, each under its own deadline. The buffer grows with
// what arrives, so that a header alone allocates nothing.
constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kFirstPieceBytes = 16 << 10;  // of a message that is held whole

// How long a peer that was refused may go on sending before its connection is cut.
constexpr std::chrono::milliseconds kLinger(1000);

// The most that the system takes of an answer before its peer has been sent it. By default it would
// hold megabytes for a peer that reads slowly.
constexpr int kMostUnsentBytes = 256 << 10;

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);

IpAddress AddressOf(const asio::ip::address& address) {
  return address.is_v4() ? MappedIpv4(address.to_v4().to_bytes()) : address.to_v6().to_bytes();
}

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

struct Server::State : std::enable_shared_from_this<Server::State> {
  State(Options o, Handler h)
      : options(std::move(o)),
        handler(std::move(h)),
        places({.connections = options.max_connections,
                .newcomers = options.max_newcomers,
                .buffer_bytes = options.max_buffered_bytes,
                .reserved_bytes = std::min(options.reserved_bytes, options.max_buffered_bytes),
                .shares = options.shares}),
        acceptor(asio::make_strand(io)) {}

  class Session;

  static asio::awaitable<void> Accept(std::shared_ptr<State> self);
  void Admit(tcp::socket socket);
  // Ends Accept and every session. Then the I/O threads have no work and end.
  void Stop();

  const Options options;
  const Handler handler;
  Places places;
  asio::io_context io;
  std::unique_ptr<asio::ssl::context> context;
  tcp::acceptor acceptor;  // used on its own strand alone
  uint16_t port = 0;
  std::atomic<uint64_t> received = 0, sent = 0;

  uint64_t next_session = 0;  // Accept's

  Mutex mutex;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::map<uint64_t, std::weak_ptr<Session>> sessions ABSL_GUARDED_BY(mutex);

  std::vector<std::thread> threads;
};

// One connection. It takes one request at a time: the next one is read when the answer is written.
//
// A session lives as long as its two coroutines, Serve and Watch; nothing else owns it. Serve ends
// in Close, whatever happens, and Close ends Watch.
class Server::State::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<State> server, uint64_t number, Places::Place place, tcp::socket socket)
      : server_(std::move(server)),
        number_(number),
        place_(std::move(place)),
        stream_(std::move(socket), *server_->context),
        watchdog_(stream_.get_executor()),
        answered_(stream_.get_executor()) {}
  ~Session() {
    const MutexLock lock(server_->mutex);
    server_->sessions.erase(number_);
  }

  static void Run(const std::shared_ptr<Session>& self) {
    asio::co_spawn(self->stream_.get_executor(), Serve(self), asio::detached);
    asio::co_spawn(self->stream_.get_executor(), Watch(self), asio::detached);
  }

  // Thread-safe. The posted call owns nothing, as it may stay in the queue of a server that ends.
  static void Cut(const std::shared_ptr<Session>& self) {
    asio::post(self->stream_.get_executor(), [weak = self->weak_from_this()] {
      if (const std::shared_ptr<Session> session = weak.lock()) session->Close();
    });
  }

 private:
  struct Answer {
    wire::Frame frame;
    std::unique_ptr<ByteSource> bulk;
  };

  const Options& options() const { return server_->options; }

  void Deadline(std::chrono::milliseconds timeout) {
    deadline_ = Clock::now() + timeout;
    watchdog_.cancel();
  }
  void Close() {
    closed_ = true;
    watchdog_.cancel();
    answered_.cancel();
    boost::system::error_code ignored;
    stream_.socket().close(ignored);
  }

  // Cuts the connection when a deadline passes. Runs on the same strand as Serve.
  static asio::awaitable<void> Watch(std::shared_ptr<Session> self) {
    while (!self->closed_) {
      if (Clock::now() >= self->deadline_) {
        self->Close();
        co_return;
      }
      self->watchdog_.expires_at(self->deadline_);
      co_await self->watchdog_.async_wait(kUse);
    }
  }

  static asio::awaitable<void> Serve(std::shared_ptr<Session> self) {
    try {
      self->Deadline(self->options().handshake_timeout);
      const auto error = co_await self->stream_.Handshake(TlsStream::Role::kServer);
      if (!error && co_await self->Welcome()) {
        while (!self->closed_ && co_await self->ServeOne()) {
        }
      }
    } catch (const std::exception&) {
      // Most likely memory is short. This connection ends, and no other.
    }
    self->Close();
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

  // Sends the error and ends the connection. For a moment the server reads and drops what the peer
  // still sends, as the system would take the answer back if the connection closed at once.
  asio::awaitable<void> Refuse(const absl::Status& status) {
    // A variable, as gcc 12 destroys a braced temporary of a co_await twice.
    Answer refusal{wire::MakeErrorFrame(status), nullptr};
    if (!co_await Write(std::move(refusal))) co_return;
    boost::system::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    Deadline(std::min(options().progress_timeout, kLinger));
    Bytes dropped(1 << 14);
    for (;;) {
      const auto [error, n] = co_await stream_.socket().async_read_some(
          asio::buffer(dropped.data(), dropped.size()), kUse);
      if (error) co_return;
    }
  }

  // Takes room for `bytes` more of the request that is coming in, or of its answer.
  bool Claim(uint64_t bytes) { return place_.Claim(bytes, room_); }

  asio::awaitable<bool> ServeOne() {
    stream_.Shrink();
    Deadline(place_.welcome() ? options().idle_timeout : options().first_request_timeout);
    wire::FrameHeaderBytes header_bytes;
    if (!co_await Read(header_bytes)) co_return false;
    wire::Frame request;
    absl::Status refused;
    const auto header = wire::ParseFrameHeader(header_bytes);
    refused = header.status();
    if (header.ok()) {
      const auto limits = options().limits(header->type);
      refused = limits.ok() ? wire::CheckLimits(*header, *limits) : limits.status();
    }
    if (refused.ok() && !place_.welcome()) refused = place_.Welcome();
    if (!refused.ok()) {
      // The connection ends here, as nobody reads the rest of the frame.
      co_await Refuse(refused);
      co_return false;
    }
    request.type = header->type;
    room_ = options().in_reserve && options().in_reserve(header->type) ? Places::Room::kReserve
                                                                       : Places::Room::kGeneral;
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
    deadline_ = Clock::time_point::max();  // the handler has no deadline
    watchdog_.cancel();
    // A reply may outlive the connection and the server, so it owns neither.
    Reply reply(
        [weak = weak_from_this()](wire::Frame frame, std::unique_ptr<ByteSource> bulk) {
          const std::shared_ptr<Session> self = weak.lock();
          if (self == nullptr) return;
          asio::post(self->stream_.get_executor(),
                     [weak, answer = Answer{std::move(frame), std::move(bulk)}]() mutable {
                       const std::shared_ptr<Session> session = weak.lock();
                       if (session == nullptr) return;
                       session->answer_ = std::move(answer);
                       session->answered_.cancel();
                     });
        },
        place_.origin());
    if (sink != nullptr) {
      sink->Done(std::move(reply));
      sink.reset();
    } else {
      server_->handler(std::move(request), std::move(reply));
    }
    while (!answer_.has_value() && !closed_) co_await answered_.async_wait(kUse);
    if (closed_) co_return false;
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
    server_->received += into.size();
    co_return true;
  }

  asio::awaitable<bool> ReadInto(uint64_t size, BulkSink& sink) {
    Bytes piece;
    for (uint64_t left = size; left > 0; left -= piece.size()) {
      piece.resize(std::min<uint64_t>(left, kPieceBytes));
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
          std::min<uint64_t>({size - before, std::max(before, kFirstPieceBytes), kPieceBytes});
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
    const wire::FrameHeaderBytes header_bytes = wire::EncodeFrameHeader(header);
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
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPieceBytes, bytes.size()))) {
      Deadline(options().progress_timeout);
      const BytesView piece = bytes.first(std::min(kPieceBytes, bytes.size()));
      const auto error = co_await stream_.Write(piece);
      if (error) co_return false;
      server_->sent += piece.size();
    }
    co_return true;
  }

  const std::shared_ptr<State> server_;
  const uint64_t number_;
  Places::Place place_;
  Places::Room room_ = Places::Room::kGeneral;  // for the request at hand and its answer
  TlsStream stream_;
  asio::steady_timer watchdog_;
  asio::steady_timer answered_;
  Clock::time_point deadline_ = Clock::time_point::max();
  bool closed_ = false;
  std::optional<Answer> answer_;
};

asio::awaitable<void> Server::State::Accept(std::shared_ptr<State> self) {
  asio::steady_timer pause(self->acceptor.get_executor());
  while (self->acceptor.is_open()) {
    auto [error, socket] = co_await self->acceptor.async_accept(asio::make_strand(self->io), kUse);
    if (!self->acceptor.is_open()) co_return;
    if (!error) {
      try {
        self->Admit(std::move(socket));
        continue;
      } catch (const std::exception&) {
        // Without memory the server waits, as without descriptors.
      }
    }
    // Give the open connections time to go.
    pause.expires_after(std::chrono::milliseconds(100));
    co_await pause.async_wait(kUse);
  }
}

void Server::State::Admit(tcp::socket socket) {
  boost::system::error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;  // gone already
  if (options.clients.empty()) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsentBytes,
                 sizeof(kMostUnsentBytes));  // a hint
  }
  const uint64_t number = next_session++;
  Places::Arrival arrival =
      places.Arrive(number, options.shared_addresses.OriginOf(AddressOf(peer.address())));
  const auto session = std::make_shared<Session>(shared_from_this(), number,
                                                 std::move(arrival.place), std::move(socket));
  std::shared_ptr<Session> evicted;
  bool admitted;
  {
    const MutexLock lock(mutex);
    if (arrival.evicted) {
      const auto found = sessions.find(*arrival.evicted);
      if (found != sessions.end()) evicted = found->second.lock();
    }
    admitted = !stopping && sessions.emplace(number, session).second;
  }
  if (evicted != nullptr) Session::Cut(evicted);
  if (admitted) Session::Run(session);
}

void Server::State::Stop() {
  asio::post(acceptor.get_executor(), [this] {
    boost::system::error_code ignored;
    acceptor.close(ignored);
  });
  std::vector<std::shared_ptr<Session>> open;
  {
    const MutexLock lock(mutex);
    stopping = true;
    for (const auto& [number, session] : sessions) {
      if (auto alive = session.lock()) open.push_back(std::move(alive));
    }
  }
  for (const auto& session : open) Session::Cut(session);
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

  SHOAL_RETURN_IF_ERROR(Listen(state->options.address, state->acceptor));
  boost::system::error_code error;
  state->port = state->acceptor.local_endpoint(error).port();

  asio::co_spawn(state->acceptor.get_executor(), State::Accept(state), asio::detached);
  for (size_t i = 0; i < std::max<size_t>(1, state->options.threads); ++i) {
    state->threads.emplace_back([raw = state.get()] { raw->io.run(); });
  }
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

Server::~Server() {
  state_->Stop();
  for (std::thread& thread : state_->threads) thread.join();
}

uint16_t Server::port() const { return state_->port; }
size_t Server::connections() const {
  const MutexLock lock(state_->mutex);
  return state_->sessions.size();
}
uint64_t Server::bytes_received() const { return state_->received; }
uint64_t Server::bytes_sent() const { return state_->sent; }

}  // namespace shoal::net
