// What the door reads: messages in pieces, origins of pages, what proxies say, and whole
// connections of HTTP and WebSocket.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/base/check.h"
#include "src/door/door.h"
#include "src/door/rules.h"
#include "src/fuzz/target.h"
#include "src/net/testing/raw_tls.h"
#include "src/wire/frame.h"

namespace shoal::fuzz {
namespace {

using wire::FrameType;

Bytes FrameBytes(FrameType type, const std::string& control) {
  const wire::FrameHeaderBytes head = wire::EncodeFrameHeader(
      {.type = type, .control_bytes = static_cast<uint32_t>(control.size()), .bulk_bytes = 0});
  return InputOf(absl::StrCat(AsText(head), control));
}

// The length of a piece in the first byte, then the message.
bool ParseMessage(BytesView input) {
  Cursor cursor(input);
  const size_t piece = size_t{cursor.U8()} + 1;
  const BytesView whole = cursor.rest();
  door::Message message;
  for (size_t at = 0; at < whole.size(); at += piece) {
    if (!message.Add(whole.subspan(at, std::min(piece, whole.size() - at))).ok()) return false;
  }
  if (!message.Finish().ok()) return false;
  SHOAL_CHECK(message.bytes() == ToBytes(whole));
  const auto type = static_cast<uint16_t>(message.type());
  SHOAL_CHECK(type >= 16 && type <= 26);
  return true;
}

bool ParseOrigin(BytesView input) {
  const std::vector<std::string> allowed = {TextOf(input)};
  const auto rules = door::OriginRules::Create(allowed);
  if (!rules.ok()) return false;
  SHOAL_CHECK(rules->Allow(allowed.front()));
  SHOAL_CHECK(allowed.front() == "*" || !rules->Allow(allowed.front() + "/"));
  return true;
}

bool ParseForwarded(BytesView input) {
  AddressRanges proxies;
  SHOAL_CHECK(proxies.Add("10.0.0.0/8").ok());
  const auto address = door::ForwardedAddress(AsText(input), proxies);
  SHOAL_CHECK(!address.has_value() || !proxies.Contains(*address));
  return address.has_value();
}

// A door without a frontend. Whoever tries the input is at an address without a rate.
struct OpenDoor {
  OpenDoor() {
    const std::vector<std::string> allowed = {"https://page.example.org"};
    door::Door::Options options{.address = "127.0.0.1:0",
                                .frontend = {.address = "127.0.0.1:1", .pin = {}},
                                .origins = *door::OriginRules::Create(allowed)};
    SHOAL_CHECK(options.shared_addresses.Add("127.0.0.0/8").ok());
    door = *door::Door::Start(std::move(options), &figures);
  }
  door::Figures figures;
  std::unique_ptr<door::Door> door;
};

std::string Request(const std::string& line, const std::string& fields, BytesView body = {}) {
  return absl::StrCat(line, " HTTP/1.1\r\nHost: door\r\n", fields, "\r\n", AsText(body));
}

}  // namespace

void AddDoorTargets(std::vector<Target>& targets) {
  Bytes small_pieces = {0}, large_pieces = {200};
  Append(small_pieces, FrameBytes(FrameType::kListRounds, ""));
  Append(large_pieces, FrameBytes(FrameType::kSubmitOnions, std::string(500, 'o')));
  targets.push_back(
      {.name = "door_message", .seeds = {small_pieces, large_pieces}, .parse = ParseMessage});
  targets.push_back(
      {.name = "door_origin",
       .seeds = {InputOf("*"), InputOf("https://page.example.org"), InputOf("http://[::1]:8000")},
       .parse = ParseOrigin});
  targets.push_back({.name = "door_forwarded",
                     .seeds = {InputOf("192.0.2.7"), InputOf("x, 2001:db8::1 ,10.1.2.3")},
                     .parse = ParseForwarded});

  const Bytes frame = FrameBytes(FrameType::kListRounds, "");
  const std::string origin = "Origin: https://page.example.org\r\n";
  const std::string length = absl::StrCat("Content-Length: ", frame.size(), "\r\n");
  const std::string upgrade = Request("GET /v1/ws",
                                      "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                                      "Sec-WebSocket-Version: 13\r\n"
                                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
  targets.push_back(
      {.name = "door_connection",
       .seeds = {InputOf(Request("POST /v1/call", length + origin, frame)),
                 InputOf(Request("POST /v1/call", length, frame) +
                         Request("OPTIONS /v1/call", origin)),
                 InputOf(Request("POST /v1/call", "Transfer-Encoding: chunked\r\n",
                                 AsBytes(absl::StrCat("14\r\n", AsText(frame), "\r\n0\r\n\r\n")))),
                 InputOf(upgrade)},
       .parse =
           [open = std::make_shared<OpenDoor>()](BytesView input) {
             net::testing::RawSocket raw(open->door->port());
             boost::system::error_code error;
             boost::asio::write(raw.socket, boost::asio::buffer(input.data(), input.size()), error);
             raw.socket.shutdown(boost::asio::ip::tcp::socket::shutdown_send, error);
             std::string answer;
             boost::asio::read(raw.socket, boost::asio::dynamic_buffer(answer), error);
             return answer.starts_with("HTTP/1.1 503") || answer.starts_with("HTTP/1.1 2") ||
                    answer.starts_with("HTTP/1.1 101");
           },
       .mutations = 500});
}

}  // namespace shoal::fuzz
