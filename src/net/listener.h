// What servers of many connections have in common: they take connections on one address, and serve
// each by a session of its own, on the listener's I/O threads.
#ifndef SHOAL_SRC_NET_LISTENER_H_
#define SHOAL_SRC_NET_LISTENER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/post.hpp"
#include "boost/asio/steady_timer.hpp"
#include "src/base/address_block.h"
#include "src/parallel/mutex.h"

namespace shoal::net {

// A server's state derives from it. Its sessions own it, and so does the server until Stop has
// returned. Thread-safe.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  class Session;

  Listener();
  virtual ~Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens on host:port and starts the I/O threads, at least one. Called once. Errors as Listen.
  absl::Status Start(const std::string& address, size_t threads);
  // Cuts all connections and waits for the I/O threads. Called once, after a Start without error.
  void Stop();

  // Returns once the threads have got to it, and hangs if they are stuck: for a watchdog.
  void Probe() ABSL_LOCKS_EXCLUDED(mutex_);

  uint16_t port() const { return port_; }
  // Open now.
  size_t connections() const ABSL_LOCKS_EXCLUDED(mutex_);
  // What the I/O threads run.
  boost::asio::io_context& io() { return io_; }

 protected:
  using Socket = boost::asio::ip::tcp::socket;

  // Has the system take little of an answer before its peer has been sent it. By default it would
  // hold megabytes for a peer that reads slowly.
  static void LimitUnsent(Socket& socket);

  // Makes the session of a connection from `address`. Numbers rise. The session `evicted`, if there
  // is one, has lost its place to it (admission.h), and its connection is cut. No session: the
  // connection is closed at once. May throw std::bad_alloc. Called by one thread at a time.
  struct Admission {
    std::shared_ptr<Session> session;
    std::optional<uint64_t> evicted;
  };
  virtual Admission Admit(uint64_t number, const IpAddress& address, Socket socket) = 0;
  // Told of each connection that is cut because it has lost its place.
  virtual void OnEviction() {}

 private:
  static boost::asio::awaitable<void> Accept(std::shared_ptr<Listener> self);
  void Take(Socket socket) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing is served from then on.
  void CutAll() ABSL_LOCKS_EXCLUDED(mutex_);

  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;  // used on its own strand alone
  uint16_t port_ = 0;
  uint64_t next_session_ = 0;  // Accept's

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<uint64_t, std::weak_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);

  std::vector<std::thread> threads_;
};

// One connection. It has a strand, on which all of it runs but what is marked as thread-safe.
//
// A session lives as long as its two coroutines, Serve and Watch; nothing else owns it. Serve ends
// in Close, whatever happens, and Close ends Watch.
class Listener::Session : public std::enable_shared_from_this<Session> {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Starts the two coroutines.
  void Run();
  // Thread-safe.
  void Cut();

 protected:
  using Socket = Listener::Socket;

  // How long a peer that was refused may go on sending before its connection is cut.
  static constexpr std::chrono::milliseconds kLinger{1000};

  Session(std::shared_ptr<Listener> listener, uint64_t number, Socket::executor_type strand);

  // Serves the connection until it ends. An exception ends this connection, and no other.
  virtual boost::asio::awaitable<void> Converse() = 0;
  virtual Socket& socket() = 0;
  // A deadline has passed.
  virtual void OnDeadline() { Close(); }
  // Ends what the session waits for.
  virtual void OnClose() {}

  uint64_t number() const { return number_; }
  bool closed() const { return closed_; }
  void Close();

  void DeadlineAt(Clock::time_point when);
  void Deadline(std::chrono::milliseconds timeout) { DeadlineAt(Clock::now() + timeout); }
  void NoDeadline() { DeadlineAt(Clock::time_point::max()); }
  // No later deadline counts from then on.
  void LastDeadline(std::chrono::milliseconds timeout) {
    Deadline(timeout);
    latest_deadline_ = deadline_;
  }

  // After a refusal, as the system would take the answer back if the connection closed at once:
  // ends the answer, and for a moment, of `most` at most, reads and drops what the peer still
  // sends.
  boost::asio::awaitable<void> Linger(std::chrono::milliseconds most);

  // For calls that come from other threads later, and may outlive the session and the server. With
  // `Self`, the type of `self`, Post runs `call(Self&)` on the session's strand if the session
  // lives by then. The posted call owns nothing, as it may stay in the queue of a server that ends.
  template <typename Self>
  static std::weak_ptr<Self> WeakOf(Self* self) {
    return std::static_pointer_cast<Self>(self->shared_from_this());
  }
  template <typename Self, typename Call>
  static void Post(const std::weak_ptr<Self>& weak, Call call) {
    const std::shared_ptr<Self> self = weak.lock();
    if (self == nullptr) return;
    boost::asio::post(self->strand_, [weak, call = std::move(call)]() mutable {
      if (const std::shared_ptr<Self> alive = weak.lock()) call(*alive);
    });
  }

 private:
  static boost::asio::awaitable<void> Serve(std::shared_ptr<Session> self);
  // Tells of a deadline that passes.
  static boost::asio::awaitable<void> Watch(std::shared_ptr<Session> self);

  const std::shared_ptr<Listener> listener_;
  const uint64_t number_;
  const Socket::executor_type strand_;
  boost::asio::steady_timer watchdog_;
  Clock::time_point deadline_ = Clock::time_point::max();
  Clock::time_point latest_deadline_ = Clock::time_point::max();
  bool closed_ = false;
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_LISTENER_H_
