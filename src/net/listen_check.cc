#include "src/net/listen_check.h"

#include "boost/asio.hpp"
#include "src/net/listen.h"

namespace shoal::net {

absl::Status CheckListen(const std::string& address) {
  boost::asio::io_context io(1);
  boost::asio::ip::tcp::acceptor acceptor(io);
  return Listen(address, acceptor);
}

}  // namespace shoal::net
