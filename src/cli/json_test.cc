#include "src/cli/json.h"

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace shoal::cli {
namespace {

TEST(Json, Utf8) {
  for (const char* good : {"", "bash", "na\xc3\xafve", "\xe2\x82\xac", "\xf0\x9f\x90\x9f",
                           "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
    EXPECT_TRUE(IsUtf8(AsBytes(good))) << good;
  }
  for (const char* bad :
       {"\x80", "\xc3", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf0\x80\x80\xaf",
        "\xf4\x90\x80\x80", "\xff", "a\xe2\x82", "\xe2\x28\xa1", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(AsBytes(bad)));
  }
}

TEST(Json, EveryKindOfMember) {
  EXPECT_EQ(JsonObject().Take(), "{}");
  EXPECT_EQ(JsonObject()
                .Text("a\"b", "line\n\ttab \\ \x01\x7f\r")
                .Blob("key", AsBytes("plain"))
                .Blob("value", AsBytes("\xff\x00"))
                .Number("x", 0.5)
                .Number("y", std::numeric_limits<double>::infinity())
                .Integer("n", ~uint64_t{0})
                .Bool("ok", false)
                .Raw("list", JsonArray(std::vector<std::string>{"1", "2"}))
                .Take(),
            R"({"a\"b":"line\n\ttab \\ \u0001\u007f\r","key":"plain","value_hex":"ff","x":0.5,)"
            R"("y":null,"n":18446744073709551615,"ok":false,"list":[1,2]})");
}

// Any reader of JSON gets the text back, and a terminal is shown nothing that it obeys.
TEST(Json, WhatNobodySeesIsEscaped) {
  EXPECT_EQ(JsonObject()
                .Text("a", "\x1b[2J\xc2\x9b\xe2\x80\xae\xef\xbb\xbf")
                .Text("tag", "\xf3\xa0\x81\xa1")
                .Text("text", "Grüße 漢字 😀")
                .Text("bytes", "\xff\\")
                .Blob("key", AsBytes("li\xe2\x80\x8b"
                                     "b"))
                .Take(),
            R"({"a":"\u001b[2J\u009b\u202e\ufeff","tag":"\udb40\udc61",)"
            R"("text":"Grüße 漢字 😀","bytes":"\\xff\\","key":"li\u200bb"})");
}

}  // namespace
}  // namespace shoal::cli
