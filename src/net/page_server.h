// Short pages over plain HTTP/1.1, for an operator's own programs: monitoring and health checks.
#ifndef SHOAL_SRC_NET_PAGE_SERVER_H_
#define SHOAL_SRC_NET_PAGE_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal::net {

struct Page {
  unsigned status = 200;  // of HTTP
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

// Returns the page at a path, without its query: "/metrics". Called on the server's one thread, one
// request after the other.
using PageHandler = std::function<Page(absl::string_view path)>;

// Takes GET and HEAD, without a body, one request on a connection. Whatever a peer sends, it holds
// no more than a few kilobytes and no place for longer than `timeout`.
class PageServer {
 public:
  struct Options {
    std::string address = {};  // host:port; port 0 takes a free one
    size_t max_connections = 16;
    std::chrono::milliseconds timeout{10'000};  // for a whole connection
  };

  // Errors as Listen.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(Options options, PageHandler handler);

  // Cuts all connections. Waits for a handler that is running.
  ~PageServer();

  uint16_t port() const;

 private:
  struct State;
  explicit PageServer(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace shoal::net

#endif  // SHOAL_SRC_NET_PAGE_SERVER_H_
