// TLS over a socket, for messages of many megabytes.
//
// asio::ssl::stream hands every record of 16 KiB to the system separately, and copies it four times
// on the way. For parties, which send hundreds of megabytes a round to their neighbours, that costs
// more than the cipher. Here OpenSSL writes records to one buffer and reads them from another, and
// the system gets several at a time.
#ifndef SHOAL_SRC_NET_TLS_STREAM_H_
#define SHOAL_SRC_NET_TLS_STREAM_H_

#include <openssl/ssl.h>

#include <chrono>
#include <memory>

#include "boost/asio/awaitable.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "src/base/bytes.h"

namespace boost::asio::ssl {
class context;
}  // namespace boost::asio::ssl

namespace shoal::net {

// Runs one operation at a time. An operation fails early when the socket is closed.
// Thread-compatible; must outlive its operations. Buffers at most about 64 KiB for reading and
// twice as much for writing, and less while less is sent.
class TlsStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Result = boost::asio::awaitable<boost::system::error_code>;
  enum class Role { kClient, kServer };

  // The context must outlive the stream. Throws std::bad_alloc.
  TlsStream(Socket socket, boost::asio::ssl::context& context);

  // The connection underneath, to connect and to close it.
  Socket& socket() { return socket_; }
  Socket::executor_type get_executor() { return socket_.get_executor(); }
  SSL* native_handle() { return ssl_.get(); }

  // A connection on which the other machine is silent for this long, to data or to a question
  // whether it is there, fails. Without that a machine that loses power, or a line that is cut,
  // leaves a call waiting until its time is up.
  static constexpr std::chrono::seconds kSilence{30};

  // Each returns success, the system's error or OpenSSL's; asio::error::eof if the peer ended the
  // connection.
  Result Handshake(Role role);
  // Fills all of `into`.
  Result Read(MutableBytes into);
  // Returns when the system has taken everything.
  Result Write(BytesView bytes);

  // Between operations: frees what the buffers have grown by, as a connection may then rest for
  // long beside many others.
  void Shrink();
  // Between operations: true unless the peer has ended the connection, or it has failed, or bytes
  // have come that nobody has read.
  bool IsQuiet();

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  // The functions through which OpenSSL reads from in_ and writes to out_.
  static int ReadIn(BIO* bio, char* into, int size);
  static int WriteOut(BIO* bio, const char* bytes, int size);
  static long Control(BIO* bio, int command, long number, void* pointer);
  static BIO_METHOD* Method();

  // What an SSL function that returned `result` wants, or why it failed. Call it directly after the
  // function, as OpenSSL keeps errors by thread.
  struct Outcome {
    bool wants_input;
    boost::system::error_code error;
  };
  Outcome OutcomeOf(int result) const;
  // Does the I/O that the SSL function wants, or returns its error.
  Result Advance(Outcome outcome);
  Result Flush();
  Result Fill();

  Socket socket_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  Bytes in_, out_;
  size_t begin_ = 0, end_ = 0;  // the unused part of in_
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_TLS_STREAM_H_
