#include "src/table/records.h"

#include <string>
#include <vector>

#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"

namespace shoal::table {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TestRandom;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::vector<std::pair<std::string, std::string>> Pairs(const RecordSet& records) {
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t i = 0; i < records.size(); ++i) {
    out.emplace_back(ToString(records.key(i)), ToString(records.value(i)));
  }
  return out;
}
using Expected = std::vector<std::pair<std::string, std::string>>;

TEST(ParseTsv, ReadsKeysAndValues) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const RecordSet records,
                             ParseTsv("a\t1\n\tempty key\nempty value\t\nlast\tno line feed", "f"));
  EXPECT_EQ(
      Pairs(records),
      (Expected{{"a", "1"}, {"", "empty key"}, {"empty value", ""}, {"last", "no line feed"}}));
  EXPECT_EQ(records.Where(3), "f:4");
  SHOAL_ASSERT_OK_AND_ASSIGN(const RecordSet none, ParseTsv("", "f"));
  EXPECT_TRUE(none.empty());
}

TEST(ParseTsv, ReadsEscapes) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const RecordSet records,
                             ParseTsv("a\\tb\\\\\t\\n\\r\\x00\\xfF\n", "f"));
  EXPECT_EQ(Pairs(records), (Expected{{"a\tb\\", std::string("\n\r\0\xff", 4)}}));
}

TEST(ParseTsv, NamesTheMalformedLine) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"a\t1\nb\n", "f:2: no tab"},
      {"a\t1\n\nb\t2\n", "f:2: the line is empty"},
      {"a\t1\t2\n", "f:1: more than one tab"},
      {"a\t1\r\n", "f:1: the line ends with a carriage return"},
      {"a\t1\nb\t\\q\n", "f:2: unknown escape"},
      {"a\\\t1\n", "f:1: unknown escape"},
      {"a\t\\x1\n", "f:1: \\x wants two"},
      {"a\t\\x1g\n", "f:1: \\x wants two"},
      {"a\tb\\\n", "f:1: unknown escape"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseTsv(text, "f"), StatusIs(kInvalid, message)) << text;
  }
}

// UTF-16 without a byte order mark would be a table of keys that nobody asks for.
TEST(Readers, RefuseNulBytes) {
  const std::string utf16("a\0\t\0001\0\n\0b\0\t\0002\0\n\0", 16);
  EXPECT_THAT(ParseTsv(utf16, "f"), StatusIs(kInvalid, "f:1: a NUL byte. Is the text UTF-16?"));
  EXPECT_THAT(ParseCsv(utf16, "f", false), StatusIs(kInvalid, "f:1: a NUL byte"));
  EXPECT_THAT(ParseTsv(std::string("a\t1\nb\t\0\n", 8), "f"),
              StatusIs(kInvalid, "f:2: a NUL byte"));
  SHOAL_EXPECT_OK(ParseTsv("a\t\\x00\n", "f").status());
}

TEST(ParseTsv, NamesOverlongFieldsAndDuplicates) {
  EXPECT_THAT(ParseTsv("a\t1\n" + std::string(kMaxKeyBytes + 1, 'k') + "\tv\n", "f"),
              StatusIs(kInvalid, "f:2: the key has 4097 bytes, more than 4096"));
  EXPECT_THAT(ParseTsv("a\t" + std::string(kMaxValueBytes + 1, 'v'), "f"),
              StatusIs(kInvalid, "f:1: the value has 65536 bytes"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const RecordSet records,
                             ParseTsv("x\t1\nb\t2\na\t3\nb\t4\na\t5\n", "f"));
  EXPECT_THAT(records.CheckUnique(),
              StatusIs(kInvalid, "f:4: the key \"b\" is there twice, first at line 2"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const RecordSet fine, ParseTsv("a\t1\nab\t1\n\t1\n", "f"));
  SHOAL_EXPECT_OK(fine.CheckUnique());
}

TEST(EscapeTsv, IsUndoneByUnescape) {
  TestRandom random(1);
  for (int i = 0; i < 300; ++i) {
    Bytes bytes(random.Below(20));
    random.Fill(bytes);
    const std::string text = EscapeTsv(bytes);
    EXPECT_EQ(text.find_first_of("\t\n\r"), std::string::npos);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Bytes back, UnescapeTsv(text));
    EXPECT_EQ(back, bytes);
  }
}

TEST(EscapeTsv, LeavesTextAlone) {
  EXPECT_EQ(EscapeTsv(AsBytes("libc6 Grüße 漢字 😀")), "libc6 Grüße 漢字 😀");
  EXPECT_EQ(EscapeTsv(AsBytes("\xc3")), "\\xc3");                    // cut off
  EXPECT_EQ(EscapeTsv(AsBytes("\xc0\xaf")), "\\xc0\\xaf");           // overlong
  EXPECT_EQ(EscapeTsv(AsBytes("\xed\xa0\x80")), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(EscapeTsv(AsBytes("\x7f\x1b")), "\\x7f\\x1b");
  EXPECT_EQ(EscapeTsv(AsBytes("\xc2\x9b")), "\\xc2\\x9b");                   // CSI of C1
  EXPECT_EQ(EscapeTsv(AsBytes("a\\\xe2\x80\xae")), "a\\\\\\xe2\\x80\\xae");  // right to left
  EXPECT_EQ(EscapeTsv(AsBytes("\\\\")), "\\\\\\\\");
}

TEST(ParseCsv, ReadsRfc4180) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const RecordSet records,
      ParseCsv("a,1\r\n\"b,\"\"c\"\"\",\"two\r\nlines\"\n,\n\"\",\"x\"\nlast,9", "f", false));
  EXPECT_EQ(
      Pairs(records),
      (Expected{{"a", "1"}, {"b,\"c\"", "two\r\nlines"}, {"", ""}, {"", "x"}, {"last", "9"}}));
  EXPECT_EQ(records.Where(2), "f:4");  // lines inside quotes count
}

TEST(ParseCsv, SkipsAHeaderOfAnyWidth) {
  for (const char* header : {"key,value\n", "one\r\n", "a,b,c,\"d\"\n"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const RecordSet records,
                               ParseCsv(std::string(header) + "k,v\n", "f", true));
    EXPECT_EQ(Pairs(records), (Expected{{"k", "v"}}));
    EXPECT_EQ(records.Where(0), "f:2");
  }
}

TEST(ParseCsv, NamesTheMalformedLine) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"a,1\nb\n", "f:2: fewer than two fields"},
      {"a,1\n\nb,2\n", "f:2: fewer than two fields"},
      {"a,1,2\n", "f:1: more than two fields"},
      {"a,1\nb\"c,2\n", "f:2: a quote inside"},
      {"a,\"1\"x\n", "f:1: text after the closing quote"},
      {"a,1\nb,\"2\n\n", "f:2: the quote is never closed"},
      {"a\rb,1\n", "f:1: a carriage return"},
      {"a,1\r", "f:1: a carriage return"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT(ParseCsv(text, "f", false), StatusIs(kInvalid, message)) << text;
  }
}

// No input makes a reader crash or loop, and an input that is accepted is read completely.
TEST(Readers, SurviveAnyBytes) {
  TestRandom random(2);
  const std::string alphabet = "ab,\t\n\r\"\\x0";
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (uint64_t n = random.Below(12); n > 0; --n) text += alphabet[random.Below(alphabet.size())];
    const auto tsv = ParseTsv(text, "f");
    if (tsv.ok()) {
      EXPECT_EQ(tsv->size() > 0, !text.empty());
    }
    (void)ParseCsv(text, "f", random.Below(2) == 0);
  }
}

}  // namespace
}  // namespace shoal::table
