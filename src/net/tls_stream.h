// TLS over a socket, for messages of many megabytes.
//
// asio::ssl::stream hands every record of 16 KiB to the system by itself, and copies it four times
// on its way there. Between neighbours, which send each other hundreds of megabytes a round, that
// costs more than the cipher. Here OpenSSL writes its records to one buffer and reads them from
// another, and the system sees several at a time.
#ifndef SHOAL_SRC_NET_TLS_STREAM_H_
#define SHOAL_SRC_NET_TLS_STREAM_H_

#include <memory>

#include "boost/asio.hpp"
#include "boost/asio/ssl.hpp"
#include "src/base/bytes.h"

namespace shoal::net {

// One operation at a time; it ends early, with an error, when the socket is closed. Thread-compatible,
// and outlives its operations. Keeps some 64 KiB of what it reads and twice as much of what it writes at
// most, less while less is sent.
class TlsStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Result = boost::asio::awaitable<boost::system::error_code>;
  enum class Role { kClient, kServer };

  // The context outlives the stream. Throws std::bad_alloc.
  TlsStream(Socket socket, boost::asio::ssl::context& context);

  // Of the connection underneath: to connect, to close.
  Socket& socket() { return socket_; }
  Socket::executor_type get_executor() { return socket_.get_executor(); }
  SSL* native_handle() { return ssl_.get(); }

  // No error, or the system's, or OpenSSL's; asio::error::eof where the peer ended the connection.
  Result Handshake(Role role);
  // All of `into`.
  Result Read(MutableBytes into);
  // Done when the system has taken everything.
  Result Write(BytesView bytes);

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  // OpenSSL's end: reads from in_, writes to out_.
  static int ReadIn(BIO* bio, char* into, int size);
  static int WriteOut(BIO* bio, const char* bytes, int size);
  static long Control(BIO* bio, int command, long number, void* pointer);
  static BIO_METHOD* Method();

  // What an SSL function that returned `result` wants, or why it failed. At once after it: OpenSSL
  // keeps errors by thread.
  struct Outcome {
    bool wants_input;
    boost::system::error_code error;
  };
  Outcome OutcomeOf(int result) const;
  // Makes it possible to try again, or returns the error.
  Result Advance(Outcome outcome);
  Result Flush();
  Result Fill();

  Socket socket_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  Bytes in_, out_;
  size_t begin_ = 0, end_ = 0;  // of what was read and not used, in in_
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_TLS_STREAM_H_
