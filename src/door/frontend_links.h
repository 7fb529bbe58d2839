// The door's connections to the frontend's port for clients.
#ifndef SHOAL_SRC_DOOR_FRONTEND_LINKS_H_
#define SHOAL_SRC_DOOR_FRONTEND_LINKS_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "boost/asio/awaitable.hpp"
#include "boost/asio/io_context.hpp"
#include "boost/asio/ssl/context.hpp"
#include "src/base/bytes.h"
#include "src/door/figures.h"
#include "src/door/frontend_options.h"
#include "src/net/tls_stream.h"
#include "src/parallel/mutex.h"
#include "src/wire/frame.h"

namespace shoal::door {

// Passes frames on. A connection takes one request at a time and is then free for the next one, of
// whichever client; it says nothing of clients. Thread-safe; must outlive its calls.
class FrontendLinks {
 public:
  using Options = FrontendOptions;
  // One call, for whoever may want to end it.
  class Call {
   public:
    // The call fails soon. To be called on the executor that the call runs on.
    void Cancel();

   private:
    friend class FrontendLinks;
    bool cancelled_ = false;
    std::shared_ptr<net::TlsStream> stream_;  // once it connects
  };

  // INTERNAL: TLS is not available. The pointers must outlive the links.
  static absl::StatusOr<std::unique_ptr<FrontendLinks>> Create(Options options,
                                                               boost::asio::io_context* io,
                                                               Figures* figures);

  // Sends `request`, a whole frame of type `type`, and returns the answer, a whole frame. `claim`
  // takes room for the answer before it is read; if there is none, it is dropped. A connection that
  // turns out to have ended is replaced by a new one, once: requests of clients are idempotent.
  // UNAVAILABLE: the frontend cannot be reached, or is not the pinned one. RESOURCE_EXHAUSTED: all
  // connections are taken, or there is no room. INVALID_ARGUMENT: it is of another version of
  // Shoal.
  boost::asio::awaitable<absl::StatusOr<Bytes>> Forward(BytesView request, wire::FrameType type,
                                                        const std::function<bool(uint64_t)>& claim,
                                                        Call& call);

  // Others take their place: connections that rest end, and those in use with their calls.
  void Retire() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Stream = std::shared_ptr<net::TlsStream>;
  using Clock = std::chrono::steady_clock;
  struct Idle {
    Stream stream;
    Clock::time_point since;
  };

  FrontendLinks(Options options, std::shared_ptr<boost::asio::ssl::context> context,
                boost::asio::io_context* io, Figures* figures);
  // A connection that rests, or nothing.
  Stream TakeIdle() ABSL_LOCKS_EXCLUDED(mutex_);
  // One that may rest now.
  void Keep(Stream stream) ABSL_LOCKS_EXCLUDED(mutex_);
  boost::asio::awaitable<absl::StatusOr<Stream>> Connect(Call& call);
  // NOT_FOUND: the connection ended before the answer began.
  boost::asio::awaitable<absl::StatusOr<Bytes>> Exchange(
      net::TlsStream& stream, BytesView request, wire::FrameType type,
      const std::function<bool(uint64_t)>& claim);

  const Options options_;
  const std::shared_ptr<boost::asio::ssl::context> context_;
  boost::asio::io_context* const io_;
  Figures* const figures_;
  // Connections that are open. Whoever has one owns it, too.
  const std::shared_ptr<std::atomic<size_t>> open_ = std::make_shared<std::atomic<size_t>>(0);
  Mutex mutex_;
  bool retired_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Idle> idle_ ABSL_GUARDED_BY(mutex_);  // the latest last
};

}  // namespace shoal::door

#endif  // SHOAL_SRC_DOOR_FRONTEND_LINKS_H_
