#include "src/door/frontend_links.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio/as_tuple.hpp"
#include "boost/asio/connect.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "spdlog/spdlog.h"
#include "src/base/status_macros.h"
#include "src/door/rules.h"
#include "src/net/await.h"
#include "src/net/tls.h"

namespace shoal::door {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using net::TlsStream;

// The door's clients learn no more than this of what lies between it and the frontend.
absl::Status Unreachable() {
  return absl::UnavailableError("the frontend does not answer; try again later");
}

// Counts as an open connection for as long as it lives.
class Counted {
 public:
  Counted(std::shared_ptr<std::atomic<size_t>> open, Figures* figures)
      : open_(std::move(open)), figures_(figures), before_((*open_)++) {
    ++figures_->frontend_connections;
  }
  ~Counted() {
    --*open_;
    --figures_->frontend_connections;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  size_t before() const { return before_; }

 private:
  const std::shared_ptr<std::atomic<size_t>> open_;
  Figures* const figures_;
  const size_t before_;  // how many were open
};

struct CountedStream {
  CountedStream(std::shared_ptr<Counted> c, asio::io_context& io, asio::ssl::context& context)
      : counted(std::move(c)), stream(tcp::socket(io), context) {}

  const std::shared_ptr<Counted> counted;
  TlsStream stream;
};

}  // namespace

void FrontendLinks::Call::Cancel() {
  cancelled_ = true;
  if (stream_ == nullptr) return;
  boost::system::error_code ignored;
  stream_->socket().close(ignored);
}

absl::StatusOr<std::unique_ptr<FrontendLinks>> FrontendLinks::Create(Options options,
                                                                     asio::io_context* io,
                                                                     Figures* figures) {
  SHOAL_ASSIGN_OR_RETURN(auto context, net::MakeContext(/*server=*/false, nullptr));
  return std::unique_ptr<FrontendLinks>(
      new FrontendLinks(std::move(options), std::move(context), io, figures));
}

FrontendLinks::FrontendLinks(Options options, std::shared_ptr<asio::ssl::context> context,
                             asio::io_context* io, Figures* figures)
    : options_(std::move(options)), context_(std::move(context)), io_(io), figures_(figures) {}

FrontendLinks::Stream FrontendLinks::TakeIdle() {
  std::vector<Idle> ended;  // without the lock
  const MutexLock lock(mutex_);
  const Clock::time_point oldest = Clock::now() - options_.rest;
  const auto fresh =
      std::ranges::find_if(idle_, [&](const Idle& idle) { return idle.since >= oldest; });
  ended.assign(std::make_move_iterator(idle_.begin()), std::make_move_iterator(fresh));
  idle_.erase(idle_.begin(), fresh);
  while (!idle_.empty()) {
    Idle last = std::move(idle_.back());
    idle_.pop_back();
    if (last.stream->IsQuiet()) return std::move(last.stream);
    ended.push_back(std::move(last));
  }
  return nullptr;
}

void FrontendLinks::Keep(Stream stream) {
  const MutexLock lock(mutex_);
  if (!retired_) idle_.push_back({std::move(stream), Clock::now()});
}

void FrontendLinks::Retire() {
  std::vector<Idle> ended;  // without the lock
  const MutexLock lock(mutex_);
  retired_ = true;
  ended.swap(idle_);
}

asio::awaitable<absl::StatusOr<FrontendLinks::Stream>> FrontendLinks::Connect(Call& call) {
  // Given back when the last owner of the stream lets go of it.
  const auto counted = std::make_shared<Counted>(open_, figures_);
  if (counted->before() >= options_.max_links) {
    co_return absl::ResourceExhaustedError("all connections to the frontend are taken");
  }
  const auto made = std::make_shared<CountedStream>(counted, *io_, *context_);
  const Stream stream(made, &made->stream);
  call.stream_ = stream;
  const auto fail = [&](absl::string_view what, absl::string_view why) -> absl::Status {
    if (!call.cancelled_) {
      spdlog::warn("the frontend at {}: {}: {}", options_.address, std::string(what),
                   std::string(why));
    }
    return Unreachable();
  };
  const auto target = net::ParseHostPort(options_.address);
  if (!target.ok()) co_return target.status();
  tcp::resolver resolver(*io_);
  auto [unresolved, endpoints] =
      co_await resolver.async_resolve(target->host, target->port, net::kAwait);
  if (unresolved || call.cancelled_) co_return fail("finding the address", unresolved.message());
  auto [unconnected, endpoint] =
      co_await asio::async_connect(stream->socket(), endpoints, net::kAwait);
  if (unconnected || call.cancelled_) co_return fail("connecting", unconnected.message());
  ++figures_->frontend_handshakes;
  const auto error = co_await stream->Handshake(TlsStream::Role::kClient);
  if (error) co_return fail("TLS handshake", error.message());
  const auto digest = net::PeerCertificateSha256(stream->native_handle());
  if (!digest.ok() || *digest != options_.pin) {
    co_return fail("certificate",
                   "it is not the one that the roster gives for party 1: another server, or "
                   "another roster");
  }
  co_return stream;
}

asio::awaitable<absl::StatusOr<Bytes>> FrontendLinks::Exchange(
    TlsStream& stream, BytesView request, wire::FrameType type,
    const std::function<bool(uint64_t)>& claim) {
  const absl::Status broken = absl::NotFoundError("the connection has ended");
  // A frontend that refuses a request says so without taking all of it: what it said is read.
  (void)co_await stream.Write(request);
  wire::FrameHeaderBytes head;
  if (co_await stream.Read(head)) co_return broken;
  const auto header = wire::ParseFrameHeader(head);
  if (!header.ok()) co_return header.status();
  if (absl::Status fits = CheckAnswer(*header, type); !fits.ok()) co_return fits;
  if (!claim(header->control_bytes)) {
    co_return absl::ResourceExhaustedError("too many answers at once");
  }
  Bytes answer(head.begin(), head.end());
  answer.resize(head.size() + header->control_bytes);
  if (co_await stream.Read(MutableBytes(answer).subspan(head.size()))) {
    co_return absl::UnavailableError("the frontend's answer broke off");
  }
  co_return answer;
}

asio::awaitable<absl::StatusOr<Bytes>> FrontendLinks::Forward(
    BytesView request, wire::FrameType type, const std::function<bool(uint64_t)>& claim,
    Call& call) {
  for (;;) {
    Stream stream = TakeIdle();
    const bool rested = stream != nullptr;
    if (!rested) {
      auto connected = co_await Connect(call);
      if (!connected.ok()) co_return connected.status();
      stream = *std::move(connected);
    }
    call.stream_ = stream;
    if (call.cancelled_) co_return Unreachable();
    absl::StatusOr<Bytes> answer = co_await Exchange(*stream, request, type, claim);
    call.stream_ = nullptr;
    if (answer.ok()) {
      stream->Shrink();
      Keep(std::move(stream));
      co_return answer;
    }
    // It may have ended while it rested.
    if (absl::IsNotFound(answer.status()) && rested && !call.cancelled_) continue;
    if (absl::IsResourceExhausted(answer.status())) co_return answer.status();
    if (!call.cancelled_) {
      spdlog::warn("the frontend at {}: {}", options_.address,
                   std::string(answer.status().message()));
    }
    // Asking again would not help, and the client's user is to know.
    if (wire::IsOfAnotherVersion(answer.status())) co_return answer.status();
    co_return Unreachable();
  }
}

}  // namespace shoal::door
