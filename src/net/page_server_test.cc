// Pages for monitoring: good requests, and peers that are slow, many or talk something else.
#include "src/net/page_server.h"

#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "boost/asio.hpp"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::net {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

class PageServerTest : public ::testing::Test {
 protected:
  void Start(PageServer::Options options) {
    options.address = "127.0.0.1:0";
    auto server = PageServer::Start(std::move(options), [this](absl::string_view path) {
      ++handled_;
      if (path != "/page") return Page{.status = 404, .body = "no such page\n"};
      return Page{.body = "hello\n"};
    });
    SHOAL_ASSERT_OK(server.status());
    server_ = *std::move(server);
  }

  tcp::socket Connect() {
    tcp::socket socket(io_);
    socket.connect({asio::ip::address_v4::loopback(), server_->port()});
    return socket;
  }
  // All that comes until the server closes the connection.
  static std::string ReadToEnd(tcp::socket& socket) {
    // Only a server that hangs reaches it.
    const timeval limit = {.tv_sec = 120, .tv_usec = 0};
    setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    std::string all;
    char piece[4096];
    ssize_t n;
    while ((n = recv(socket.native_handle(), piece, sizeof(piece), 0)) > 0) all.append(piece, n);
    EXPECT_TRUE(n == 0 || errno == ECONNRESET) << "the connection was not closed";
    return all;
  }
  std::string Ask(const std::string& request) {
    tcp::socket socket = Connect();
    boost::system::error_code ignored;  // the server may have refused it before its end
    asio::write(socket, asio::buffer(request), ignored);
    return ReadToEnd(socket);
  }

  asio::io_context io_;
  std::atomic<int> handled_ = 0;
  std::unique_ptr<PageServer> server_;
};

TEST_F(PageServerTest, PagesAreServedByPath) {
  Start({});
  const std::string page = Ask("GET /page?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(page, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(page, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(page, ::testing::EndsWith("\r\n\r\nhello\n"));
  EXPECT_THAT(Ask("GET http://x/page HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("hello"));
  EXPECT_THAT(Ask("GET /other HTTP/1.1\r\nHost: x\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  const std::string head = Ask("HEAD /page HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(head, ::testing::EndsWith("\r\n\r\n"));
}

TEST_F(PageServerTest, OtherRequestsAreRefusedUnheard) {
  Start({});
  EXPECT_THAT(Ask("POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  // What leaves in doubt where the request ends (http_rules_test.cc has the kinds).
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("GET /page HTTP/1.1\nHost: x\n\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("\x16\x03\x01 this is no HTTP\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(handled_, 0);
}

TEST_F(PageServerTest, NoRequestIsLongerThanAFewKilobytes) {
  Start({});
  std::string longest = "GET /page HTTP/1.1\r\nX: ";
  longest.append(16 << 10, 'x');
  EXPECT_THAT(Ask(longest), Not(HasSubstr("hello"))) << "a field without an end";
  EXPECT_EQ(handled_, 0);
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("hello"));
}

// Whoever connects and says nothing, or not all, is cut. Only then is there a place for others.
TEST_F(PageServerTest, SlowPeersAreCutAndFreeTheirPlaces) {
  Start({.max_connections = 2, .timeout = 500ms});
  tcp::socket silent = Connect();
  tcp::socket slow = Connect();
  asio::write(slow, asio::buffer(std::string("GET /page HTTP")));
  EXPECT_EQ(ReadToEnd(silent), "");
  EXPECT_EQ(ReadToEnd(slow), "");
  EXPECT_THAT(Ask("GET /page HTTP/1.1\r\nHost: x\r\n\r\n"), HasSubstr("hello"));
}

TEST_F(PageServerTest, BeyondThePlacesConnectionsAreClosedAtOnce) {
  Start({.max_connections = 2, .timeout = 1h});
  std::vector<tcp::socket> held;
  for (int i = 0; i < 2; ++i) held.push_back(Connect());
  EXPECT_EQ(Ask("GET /page HTTP/1.1\r\nHost: x\r\n\r\n"), "");
  EXPECT_EQ(handled_, 0);
}

TEST_F(PageServerTest, AnAddressInUseIsSaid) {
  Start({});
  EXPECT_THAT(PageServer::Start({.address = absl::StrCat("127.0.0.1:", server_->port())}, nullptr),
              StatusIs(absl::StatusCode::kAlreadyExists, "the address is in use"));
}

}  // namespace
}  // namespace shoal::net
