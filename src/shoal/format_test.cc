#include "src/shoal/format.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace shoal::commands {
namespace {

TEST(Format, Utf8) {
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

TEST(Format, Json) {
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

TEST(Format, ForPeople) {
  EXPECT_EQ(StateName(wire::OPEN_FOR_ONIONS), "open for onions");
  EXPECT_EQ(StateName(static_cast<wire::RoundState>(99)), "state 99");
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
  EXPECT_EQ(BytesText(0), "0 B");
  EXPECT_EQ(BytesText(999), "999 B");
  EXPECT_EQ(BytesText(1234), "1.2 kB");
  EXPECT_EQ(BytesText(123456), "123 kB");
  EXPECT_EQ(BytesText(999'900), "1.0 MB");
  EXPECT_EQ(DurationText(119), "119 s");
  EXPECT_EQ(DurationText(120), "2 min");
  EXPECT_EQ(DurationText(3 * 3600 + 300), "3 h 5 min");
  EXPECT_EQ(DurationText(6 * 86400 + 23 * 3600), "6 d 23 h");
  EXPECT_EQ(Printable("a\x1b[31mb\n"), "a?[31mb?");
}

}  // namespace
}  // namespace shoal::commands
