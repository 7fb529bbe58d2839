#include "src/net/http_rules.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::net {
namespace {

using shoal::testing::StatusIs;
using namespace std::string_literals;

std::string Post(absl::string_view fields) {
  return absl::StrCat("POST /v1/call HTTP/1.1\r\nHost: door\r\n", fields, "\r\n");
}

TEST(HttpRulesTest, AHeadEndsAtTheFirstEmptyLine) {
  const std::string head = Post("Content-Length: 5\r\n");
  for (size_t size = 0; size < head.size(); ++size) {
    const auto found = FindHead(head.substr(0, size));
    SHOAL_ASSERT_OK(found.status());
    EXPECT_EQ(*found, std::nullopt) << size;
  }
  const auto found = FindHead(head + "\n\0 \r body"s);
  SHOAL_ASSERT_OK(found.status());
  EXPECT_EQ(*found, head.size());
}

// What does so is refused as soon as it has come: its sender may wait for an answer before it sends
// an end of another kind.
TEST(HttpRulesTest, NoByteIsTakenThatBelongsInNoHead) {
  for (const std::string& begun :
       {"GET / HTTP/1.1\n"s, "\n"s, "GET / HTTP/1.1\r\nHost: x\n"s, "GET / HTTP/1.1\rHost"s,
        "GET / HTTP/1.1\r\r\n"s, "GET / HTTP/1.1\r\nX: a\0b"s, "G\0ET"s,
        "GET / HTTP/1.1\r\nX: \x7f"s, "GET / HTTP/1.1\r\nX: \x0b"s, "\x16\x03\x01"s}) {
    EXPECT_THAT(FindHead(begun).status(), StatusIs(absl::StatusCode::kInvalidArgument, ""))
        << begun;
  }
}

TEST(HttpRulesTest, WhatHasOneMeaningIsTaken) {
  for (const std::string& head :
       {Post(""), Post("Content-Length: 0\r\n"), Post("content-length:\t20 \r\n"),
        Post("Transfer-Encoding: chunked\r\n"), Post("tRANSFER-eNCODING:Chunked\t\r\n"),
        Post("X-Empty:\r\nX-Latin: \xe9\r\n!#$%&'*+-.^_`|~: x\r\n"), "GET / HTTP/1.0\r\n\r\n"s,
        "GET / HTTP/1.0\r\nHost: x\r\nContent-Length: 5\r\n\r\n"s,
        "GET http://x/y?z HTTP/1.1\r\nHost: \r\n\r\n"s}) {
    SHOAL_EXPECT_OK(CheckHead(head)) << head;
  }
}

TEST(HttpRulesTest, WhatAnotherProgramMayTakeForAnotherRequestIsRefused) {
  const auto expect_bad = [](const std::string& head, const char* why) {
    EXPECT_THAT(CheckHead(head), StatusIs(absl::StatusCode::kInvalidArgument, why)) << head;
  };
  for (const char* value :
       {"", "gzip", "chunked, chunked", "gzip, chunked", "chunked, gzip", "identity",
        "identity, chunked", "chunked;x=y", "\"chunked\"", "chunked,", ",chunked", "x-chunked",
        "chunked x", "chunke", "chunkedd", "chunked\xa0"}) {
    expect_bad(Post(absl::StrCat("Transfer-Encoding: ", value, "\r\n")), "Transfer-Encoding");
    expect_bad(Post(absl::StrCat("Transfer-Encoding: ", value, "\r\nContent-Length: 5\r\n")), "");
  }
  for (const char* value :
       {"", "+5", "-5", "5,5", "5, 5", "5, 6", "0x5", "5 5", "5.0", "05", "00", "1e1", "5;x",
        "\"5\"", "99999999999999999999", "18446744073709551621", "\xb2"}) {
    expect_bad(Post(absl::StrCat("Content-Length: ", value, "\r\n")), "Content-Length");
  }
  expect_bad(Post("Content-Length: 5\r\nContent-Length: 5\r\n"), "Content-Length twice");
  expect_bad(Post("Content-Length: 5\r\ncontent-length: 6\r\n"), "Content-Length twice");
  for (const char* host : {"a b", "a, b", "u@h", "a/b", "a?b", "\xff", "a\"b"}) {
    expect_bad(absl::StrCat("GET / HTTP/1.1\r\nHost: ", host, "\r\n\r\n"), "Host");
  }
  expect_bad(Post("Connection: keep-alive\r\nconnection: close\r\n"), "Connection twice");
  expect_bad(Post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), "twice");
  expect_bad(Post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), "both");
  expect_bad(Post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), "both");
  expect_bad("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0");
  for (const char* line :
       {"Content-Length : 5", "Content-Length\t: 5", "Transfer-Encoding : chunked", ": x",
        "no colon", "a b: c", "Content-Length\xc2\xa0: 5", "(x): y"}) {
    expect_bad(Post(absl::StrCat(line, "\r\n")), "NAME: VALUE");
  }
  expect_bad(Post("X: y\r\n Content-Length: 5\r\n"), "second line");
  expect_bad(Post("Transfer-Encoding:\r\n chunked\r\n"), "Transfer-Encoding");
  expect_bad(Post("X: y\r\n\tz\r\n"), "second line");
  expect_bad("POST / HTTP/1.1\r\n X: y\r\nHost: x\r\n\r\n", "second line");
  expect_bad("GET / HTTP/1.1\r\n\r\n", "Host");
  expect_bad("GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n", "Host");
  expect_bad("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", "Host");
  for (const char* line :
       {"", " GET / HTTP/1.1", "GET  / HTTP/1.1", "GET / HTTP/1.1 ", "GET /", "GET / x HTTP/1.1",
        "GET\t/\tHTTP/1.1", "G(T / HTTP/1.1", "GET /\xe9 HTTP/1.1", "GET  HTTP/1.1"}) {
    expect_bad(absl::StrCat(line, "\r\nHost: x\r\n\r\n"), "first line");
  }
  for (const char* version :
       {"HTTP/1.2", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.10", "HTTP/11", "ICY/1.1"}) {
    expect_bad(absl::StrCat("GET / ", version, "\r\nHost: x\r\n\r\n"), "HTTP/1.1");
  }
}

TEST(HttpRulesTest, ATargetMayNameTheServer) {
  EXPECT_EQ(PathOf("/v1/call"), "/v1/call");
  EXPECT_EQ(PathOf("/v1/call?x=/y"), "/v1/call");
  EXPECT_EQ(PathOf("http://door.example/v1/call"), "/v1/call");
  EXPECT_EQ(PathOf("HTTPS://[::1]:7443/v1/call?x"), "/v1/call");
  EXPECT_EQ(PathOf("wss://door/v1/ws"), "/v1/ws");
  EXPECT_EQ(PathOf("http://door"), "/");
  EXPECT_EQ(PathOf("http://door?/v1/call"), "/");
  EXPECT_EQ(PathOf("/http://door/v1/call"), "/http://door/v1/call");
  EXPECT_EQ(PathOf("x?://door/v1/call"), "x");
  for (const char* target : {"http:///v1/call", "://x/v1/call", "1http://x/v1/call",
                             "ftp://x/v1/call", "@://x/v1/call"}) {
    EXPECT_EQ(PathOf(target), target);
  }
  EXPECT_EQ(PathOf("*"), "*");
  EXPECT_EQ(PathOf("door:443"), "door:443");
}

TEST(HttpRulesTest, AMediaTypeHasNoCaseAndAnyParameters) {
  for (const char* value : {"message/ohttp-req", "Message/OHTTP-Req", "message/ohttp-req;x=y",
                            "message/ohttp-req ; charset=\"a;b\"", " message/ohttp-req\t"}) {
    EXPECT_TRUE(IsMediaType(value, "message/ohttp-req")) << value;
  }
  for (const char* value : {"", "message", "message/ohttp-res", "message/ohttp-req2",
                            "message/ohttp-req, text/plain", ";message/ohttp-req"}) {
    EXPECT_FALSE(IsMediaType(value, "message/ohttp-req")) << value;
  }
}

}  // namespace
}  // namespace shoal::net
