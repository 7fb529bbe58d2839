#include "src/net/tls_stream.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <utility>

#include "boost/asio/as_tuple.hpp"
#include "boost/asio/buffer.hpp"
#include "boost/asio/error.hpp"
#include "boost/asio/ssl/context.hpp"
#include "boost/asio/ssl/error.hpp"
#include "boost/asio/use_awaitable.hpp"
#include "boost/asio/write.hpp"
#include "openssl/err.h"
#include "src/base/check.h"
#include "src/net/await.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kLeast = 16 << 10;  // read at a time at first
// Read at a time at most: stays in the second-level cache.
constexpr size_t kMostRead = 64 << 10;
// Bytes written at a time: seven records of 16 KiB. With 22 bytes more for each record they fill
// two segments of the loopback interface, of 65,483 bytes, to 88 percent. Four records would fill
// one segment and put 141 bytes into a second one, which costs as much to send: an eighth more
// processor time for a byte.
constexpr size_t kMostWritten = 7 << 14;

// Sends small messages at once, and fails after TlsStream::kSilence.
void SetOptions(int socket) {
  constexpr int kSeconds = static_cast<int>(TlsStream::kSilence.count());
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof(value));  // hints
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kSeconds / 3);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kSeconds / 6);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * kSeconds);
}

// By default asio hands at most 64 KiB at a time to the system.
constexpr auto kAtOnce = [](const error_code& error, size_t) {
  return error ? size_t{0} : std::numeric_limits<size_t>::max();
};

}  // namespace

BIO_METHOD* TlsStream::Method() {
  // Kept for the life of the process.
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "shoal");
    SHOAL_CHECK(made != nullptr);
    BIO_meth_set_read(made, &ReadIn);
    BIO_meth_set_write(made, &WriteOut);
    BIO_meth_set_ctrl(made, &Control);
    return made;
  }();
  return method;
}

int TlsStream::ReadIn(BIO* bio, char* into, int size) {
  TlsStream& self = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (self.begin_ == self.end_) {
    BIO_set_retry_read(bio);
    return -1;
  }
  const size_t n = std::min(static_cast<size_t>(std::max(size, 0)), self.end_ - self.begin_);
  std::copy_n(self.in_.data() + self.begin_, n, reinterpret_cast<uint8_t*>(into));
  self.begin_ += n;
  return static_cast<int>(n);
}

int TlsStream::WriteOut(BIO* bio, const char* bytes, int size) {
  TlsStream& self = *static_cast<TlsStream*>(BIO_get_data(bio));
  BIO_clear_retry_flags(bio);
  if (size <= 0) return 0;
  try {
    Append(self.out_, {reinterpret_cast<const uint8_t*>(bytes), static_cast<size_t>(size)});
  } catch (const std::bad_alloc&) {
    return -1;  // not through OpenSSL's frames
  }
  return size;
}

long TlsStream::Control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

TlsStream::TlsStream(Socket socket, asio::ssl::context& context)
    : socket_(std::move(socket)), ssl_(SSL_new(context.native_handle())) {
  BIO* const bio = ssl_ == nullptr ? nullptr : BIO_new(Method());
  if (bio == nullptr) throw std::bad_alloc();
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
}

TlsStream::Result TlsStream::Flush() {
  if (out_.empty()) co_return error_code();
  const auto [error, n] =
      co_await asio::async_write(socket_, asio::buffer(out_.data(), out_.size()), kAtOnce, kAwait);
  out_.clear();
  co_return error;
}

TlsStream::Result TlsStream::Fill() {
  if (in_.empty()) in_.resize(kLeast);
  // The buffer grows to what the peer sends at a time.
  if (end_ == in_.size() && in_.size() < kMostRead) in_.resize(2 * in_.size());
  begin_ = end_ = 0;
  const auto [error, n] =
      co_await socket_.async_read_some(asio::buffer(in_.data(), in_.size()), kAwait);
  end_ = n;
  co_return error;
}

TlsStream::Outcome TlsStream::OutcomeOf(int result) const {
  const int what = SSL_get_error(ssl_.get(), result);
  if (what == SSL_ERROR_WANT_READ) return {true, {}};
  if (what == SSL_ERROR_ZERO_RETURN) return {false, asio::error::eof};
  const unsigned long reason = ERR_get_error();
  ERR_clear_error();
  if (reason == 0) return {false, asio::error::connection_aborted};
  return {false, error_code(static_cast<int>(reason), asio::error::get_ssl_category())};
}

TlsStream::Result TlsStream::Advance(Outcome outcome) {
  // Before OpenSSL reads on, or gives up, it may have bytes to send: its part of the handshake, or
  // an alert.
  const error_code flushed = co_await Flush();
  if (!outcome.wants_input) co_return outcome.error;
  if (flushed) co_return flushed;
  co_return co_await Fill();
}

TlsStream::Result TlsStream::Handshake(Role role) {
  SetOptions(socket_.native_handle());
  for (;;) {
    // OpenSSL keeps a queue of errors for each thread, and other connections use this thread, too.
    ERR_clear_error();
    const int result = role == Role::kServer ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get());
    if (result == 1) co_return co_await Flush();
    const Outcome outcome = OutcomeOf(result);
    if (const error_code error = co_await Advance(outcome)) co_return error;
  }
}

TlsStream::Result TlsStream::Read(MutableBytes into) {
  while (!into.empty()) {
    ERR_clear_error();
    size_t n = 0;
    const int result = SSL_read_ex(ssl_.get(), into.data(), into.size(), &n);
    into = into.subspan(n);
    if (result == 1) continue;
    const Outcome outcome = OutcomeOf(result);
    if (const error_code error = co_await Advance(outcome)) co_return error;
  }
  co_return error_code();
}

TlsStream::Result TlsStream::Write(BytesView bytes) {
  while (!bytes.empty()) {
    ERR_clear_error();
    size_t n = 0;
    const int result =
        SSL_write_ex(ssl_.get(), bytes.data(), std::min(bytes.size(), kMostWritten), &n);
    bytes = bytes.subspan(n);
    if (result != 1) {
      const Outcome outcome = OutcomeOf(result);
      if (const error_code error = co_await Advance(outcome)) co_return error;
    } else if (out_.size() >= kMostWritten) {
      if (const error_code error = co_await Flush()) co_return error;
    }
  }
  co_return co_await Flush();
}

void TlsStream::Shrink() {
  if (begin_ == end_ && in_.size() > kLeast) {
    Bytes().swap(in_);
    begin_ = end_ = 0;
  }
  if (out_.empty()) Bytes().swap(out_);
}

bool TlsStream::IsQuiet() {
  if (begin_ != end_ || SSL_has_pending(ssl_.get()) == 1 || !socket_.is_open()) return false;
  char byte;
  const ssize_t n = ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace shoal::net
