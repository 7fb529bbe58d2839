#include "src/base/printable.h"

#include <string>

#include "gtest/gtest.h"
#include "src/base/testing/test_random.h"

namespace shoal {
namespace {

TEST(PrintableTest, TextOfPeopleStaysAsItIs) {
  for (const char* text :
       {"", "libc6 2.36-9+deb12u10", "Grüße 漢字", "हिन्दी עברית 😀", "a\\b \\x1b", "é e\xcc\x81"}) {
    EXPECT_EQ(Printable(text), text);
  }
}

TEST(PrintableTest, WhatATerminalObeysOrNobodySeesIsShown) {
  EXPECT_EQ(Printable("a\x1b[31mb\n\tc\r\x7f"), "a\\x1b[31mb\\n\\tc\\r\\x7f");
  EXPECT_EQ(Printable(absl::string_view("\0x", 2)), "\\x00x");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI of C1
  EXPECT_EQ(Printable("\x9b"
                      "31m"),
            "\\x9b31m");  // and as one byte, of Latin-1
  EXPECT_EQ(Printable("\xe2\x80\xae"
                      "exe.txt"),
            "\\xe2\\x80\\xaeexe.txt");  // from right to left
  EXPECT_EQ(Printable("\xe2\x81\xa6\xe2\x81\xa9"), "\\xe2\\x81\\xa6\\xe2\\x81\\xa9");  // isolates
  EXPECT_EQ(Printable("li\xe2\x80\x8b"
                      "b"),
            "li\\xe2\\x80\\x8bb");  // no width
  EXPECT_EQ(Printable("li\xc2\xad"
                      "b"),
            "li\\xc2\\xadb");                                        // soft hyphen
  EXPECT_EQ(Printable("\xf3\xa0\x81\xa1"), "\\xf3\\xa0\\x81\\xa1");  // a tag, of plane 14
  EXPECT_EQ(Printable("a\xe2\x80\xa8"
                      "b"),
            "a\\xe2\\x80\\xa8"
            "b");  // separator of lines
  EXPECT_EQ(Printable("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xc3"),
            "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80\\xc3");
}

TEST(PrintableTest, KeepsWhatItIsTold) { EXPECT_EQ(Printable("a\nb\tc\r", "\n\t"), "a\nb\tc\\r"); }

TEST(PrintableTest, OnceIsAsGoodAsTwiceAndNothingUnseenIsLeft) {
  shoal::testing::TestRandom random(7);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(random.Below(24));
    random.Fill(bytes);
    const std::string text = Printable(AsText(bytes));
    EXPECT_EQ(Printable(text), text);
    ASSERT_TRUE(IsUtf8(AsBytes(text)));
    for (BytesView rest = AsBytes(text); !rest.empty();) {
      const Character character = FirstCharacter(rest);
      EXPECT_FALSE(IsUnseen(character.code));
      rest = rest.subspan(character.bytes.size());
    }
  }
}

}  // namespace
}  // namespace shoal
