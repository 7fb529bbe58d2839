#include "src/net/listen.h"

#include "absl/strings/str_cat.h"
#include "boost/asio/error.hpp"
#include "src/base/status_macros.h"
#include "src/net/tls.h"
#include "src/storage/file.h"

namespace shoal::net {

namespace asio = boost::asio;
using asio::ip::tcp;

absl::Status Listen(const std::string& address, tcp::acceptor& acceptor) {
  SHOAL_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(address));
  boost::system::error_code error;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found = resolver.resolve(
      parsed.host, parsed.port, tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listening on ", address, ": ", error.message()));
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1024, error);
  if (error == asio::error::address_in_use) {
    return absl::AlreadyExistsError(absl::StrCat(
        "listening on ", address, ": the address is in use; is another process running?"));
  }
  if (error) return ErrnoStatus(error.value(), absl::StrCat("listening on ", address));
  return absl::OkStatus();
}

}  // namespace shoal::net
