#include "src/shoal/format.h"

#include "gtest/gtest.h"

namespace shoal::commands {
namespace {

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
  EXPECT_EQ(Printable("a\x1b[31mb\n"), "a\\x1b[31mb\\n");
}

}  // namespace
}  // namespace shoal::commands
