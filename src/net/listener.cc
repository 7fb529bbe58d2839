#include "src/net/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <future>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/buffer.hpp"
#include "boost/asio/co_spawn.hpp"
#include "boost/asio/detached.hpp"
#include "boost/asio/strand.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "src/base/bytes.h"
#include "src/base/status_macros.h"
#include "src/net/await.h"
#include "src/net/listen.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// The most that the system takes of an answer before its peer has been sent it.
constexpr int kMostUnsentBytes = 256 << 10;

IpAddress AddressOf(const asio::ip::address& address) {
  return address.is_v4() ? MappedIpv4(address.to_v4().to_bytes()) : address.to_v6().to_bytes();
}

}  // namespace

Listener::Listener() : acceptor_(asio::make_strand(io_)) {}

absl::Status Listener::Start(const std::string& address, size_t threads) {
  SHOAL_RETURN_IF_ERROR(Listen(address, acceptor_));
  boost::system::error_code error;
  port_ = acceptor_.local_endpoint(error).port();
  asio::co_spawn(acceptor_.get_executor(), Accept(shared_from_this()), asio::detached);
  for (size_t i = 0; i < std::max<size_t>(1, threads); ++i) {
    threads_.emplace_back([this] { io_.run(); });
  }
  return absl::OkStatus();
}

void Listener::Stop() {
  // Ends Accept and every session. Then the I/O threads have no work and end.
  asio::post(acceptor_.get_executor(), [this] {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  });
  CutAll();
  for (std::thread& thread : threads_) thread.join();
}

void Listener::CutAll() {
  std::vector<std::shared_ptr<Session>> open;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& [number, session] : sessions_) {
      if (auto alive = session.lock()) open.push_back(std::move(alive));
    }
  }
  for (const auto& session : open) session->Cut();
}

void Listener::Probe() {
  std::promise<void> ran;
  asio::post(acceptor_.get_executor(), [&] {
    const MutexLock lock(mutex_);
    ran.set_value();
  });
  ran.get_future().wait();
}

size_t Listener::connections() const {
  const MutexLock lock(mutex_);
  return sessions_.size();
}

void Listener::LimitUnsent(Socket& socket) {
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kMostUnsentBytes,
               sizeof(kMostUnsentBytes));  // a hint
}

asio::awaitable<void> Listener::Accept(std::shared_ptr<Listener> self) {
  asio::steady_timer pause(self->acceptor_.get_executor());
  while (self->acceptor_.is_open()) {
    auto [error, socket] =
        co_await self->acceptor_.async_accept(asio::make_strand(self->io_), kAwait);
    if (!self->acceptor_.is_open()) co_return;
    if (!error) {
      try {
        self->Take(std::move(socket));
        continue;
      } catch (const std::exception&) {
        // Without memory the server waits, as without descriptors.
      }
    }
    // Give the open connections time to go.
    pause.expires_after(std::chrono::milliseconds(100));
    co_await pause.async_wait(kAwait);
  }
}

void Listener::Take(Socket socket) {
  boost::system::error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;  // gone already
  const uint64_t number = next_session_++;
  const Admission admission = Admit(number, AddressOf(peer.address()), std::move(socket));
  if (admission.session == nullptr) return;
  std::shared_ptr<Session> evicted;
  bool admitted;
  {
    const MutexLock lock(mutex_);
    if (admission.evicted) {
      const auto found = sessions_.find(*admission.evicted);
      if (found != sessions_.end()) evicted = found->second.lock();
    }
    admitted = !stopping_ && sessions_.emplace(number, admission.session).second;
  }
  if (evicted != nullptr) {
    OnEviction();
    evicted->Cut();
  }
  if (admitted) admission.session->Run();
}

Listener::Session::Session(std::shared_ptr<Listener> listener, uint64_t number,
                           Socket::executor_type strand)
    : listener_(std::move(listener)),
      number_(number),
      strand_(std::move(strand)),
      watchdog_(strand_) {}

Listener::Session::~Session() {
  const MutexLock lock(listener_->mutex_);
  listener_->sessions_.erase(number_);
}

void Listener::Session::Run() {
  asio::co_spawn(strand_, Serve(shared_from_this()), asio::detached);
  asio::co_spawn(strand_, Watch(shared_from_this()), asio::detached);
}

void Listener::Session::Cut() {
  Post(weak_from_this(), [](Session& session) { session.Close(); });
}

void Listener::Session::Close() {
  closed_ = true;
  watchdog_.cancel();
  OnClose();
  boost::system::error_code ignored;
  socket().close(ignored);
}

void Listener::Session::DeadlineAt(Clock::time_point when) {
  deadline_ = std::min(when, latest_deadline_);
  watchdog_.cancel();
}

asio::awaitable<void> Listener::Session::Serve(std::shared_ptr<Session> self) {
  try {
    co_await self->Converse();
  } catch (const std::exception&) {
    // Most likely memory is short. This connection ends, and no other.
  }
  self->Close();
}

asio::awaitable<void> Listener::Session::Watch(std::shared_ptr<Session> self) {
  while (!self->closed_) {
    if (Clock::now() < self->deadline_) {
      self->watchdog_.expires_at(self->deadline_);
      co_await self->watchdog_.async_wait(kAwait);
    } else {
      self->deadline_ = Clock::time_point::max();
      self->OnDeadline();
    }
  }
}

asio::awaitable<void> Listener::Session::Linger(std::chrono::milliseconds most) {
  boost::system::error_code ignored;
  socket().shutdown(tcp::socket::shutdown_send, ignored);
  // Not extended by what the peer sends.
  LastDeadline(std::min(most, kLinger));
  Bytes dropped(16 << 10);
  for (;;) {
    const auto [error, n] =
        co_await socket().async_read_some(asio::buffer(dropped.data(), dropped.size()), kAwait);
    if (error) co_return;
  }
}

}  // namespace shoal::net
