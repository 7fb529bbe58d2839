// The door's side of its talk with shoal-ohttp, which has the keys of Oblivious HTTP (RFC 9458).
// What is said is at the head of ohttp/src/main.rs.
#ifndef SHOAL_SRC_DOOR_OHTTP_PIPE_H_
#define SHOAL_SRC_DOOR_OHTTP_PIPE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "boost/asio/any_io_executor.hpp"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/local/stream_protocol.hpp"
#include "src/base/bytes.h"
#include "src/door/rules.h"

namespace shoal::door {

// Of an encapsulated request or response: a frame, and what HPKE and binary HTTP put around it.
inline constexpr size_t kMaxEncapsulatedBytes = kMaxMessageBytes + (12 << 10);

// One request. Each call fails once Close was called. Thread-compatible.
class OhttpPipe {
 public:
  explicit OhttpPipe(boost::asio::any_io_executor executor) : socket_(std::move(executor)) {}

  // The keys for clients (application/ohttp-keys). UNAVAILABLE: shoal-ohttp does not answer.
  boost::asio::awaitable<absl::StatusOr<Bytes>> Keys(const std::string& path);

  struct Opened {
    // A response that is sealed already, to a request for what the door does not have. If it is
    // empty, the request was a call: its token and its frame, which Seal is to answer.
    Bytes sealed;
    std::string authorization;
    Bytes frame;
  };
  // NOT_FOUND: sealed for another key. INVALID_ARGUMENT: no request. UNAVAILABLE as above.
  boost::asio::awaitable<absl::StatusOr<Opened>> Open(const std::string& path, BytesView request);
  // Seals the answer to the request that was opened. `challenges` may be empty.
  boost::asio::awaitable<absl::StatusOr<Bytes>> Seal(uint16_t status, absl::string_view challenges,
                                                     BytesView body);

  void Close();

 private:
  boost::asio::awaitable<absl::Status> Send(const std::string& path, BytesView request);
  boost::asio::awaitable<bool> Read(MutableBytes into);
  // A blob after its length of `length_bytes`.
  boost::asio::awaitable<absl::StatusOr<Bytes>> ReadBlob(size_t length_bytes);

  boost::asio::local::stream_protocol::socket socket_;
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_OHTTP_PIPE_H_
