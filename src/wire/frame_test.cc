#include "src/wire/frame.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/wire/client.pb.h"

namespace shoal::wire {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(FrameTest, HeaderHasTheDocumentedBytes) {
  const FrameHeaderBytes bytes = EncodeFrameHeader(
      {.type = FrameType::kSubmitOnions, .control_bytes = 0x01020304, .bulk_bytes = 0x1122334455});
  const FrameHeaderBytes expected = {'S', 'H', 'L',  '3',  20,   0,    0,    0, 4, 3,
                                     2,   1,   0x55, 0x44, 0x33, 0x22, 0x11, 0, 0, 0};
  EXPECT_EQ(bytes, expected);
  SHOAL_ASSERT_OK_AND_ASSIGN(const FrameHeader header, ParseFrameHeader(bytes));
  EXPECT_EQ(header.type, FrameType::kSubmitOnions);
  EXPECT_EQ(header.control_bytes, 0x01020304u);
  EXPECT_EQ(header.bulk_bytes, 0x1122334455u);
}

TEST(FrameTest, BadHeadersAreRefused) {
  const FrameHeaderBytes good =
      EncodeFrameHeader({.type = FrameType::kOnline, .control_bytes = 1, .bulk_bytes = 2});
  for (size_t at : {0u, 3u, 6u, 7u}) {
    FrameHeaderBytes bad = good;
    bad[at] ^= 0x80;
    EXPECT_THAT(ParseFrameHeader(bad), StatusIs(kInvalid, "not a message")) << at;
    EXPECT_FALSE(IsOfAnotherVersion(ParseFrameHeader(bad).status())) << at;
  }
  FrameHeaderBytes bad = good;
  bad[5] = 9;
  EXPECT_THAT(ParseFrameHeader(bad), StatusIs(kInvalid, "unknown type"));
}

// Both ends show the text to people, so that it does not depend on who reads it. What refuses an
// earlier version is a frame of that version, which is all that its programs read.
TEST(FrameTest, OtherVersionsAreRefusedByNameInFramesThatTheyRead) {
  const FrameHeader header = {
      .type = FrameType::kGetDeployment, .control_bytes = 5, .bulk_bytes = 0};
  const FrameHeaderBytes own = EncodeFrameHeader(header);
  const struct {
    char digit;
    absl::string_view name;
    bool earlier;
  } versions[] = {{'1', "0.1", true}, {'2', "0.2", true}, {'4', "SHL4", false}};
  for (const auto& version : versions) {
    FrameHeaderBytes other = own;
    other[3] = static_cast<uint8_t>(version.digit);
    const absl::Status refused = ParseFrameHeader(other).status();
    EXPECT_THAT(refused,
                StatusIs(kInvalid, absl::StrCat("a message of Shoal ", version.name,
                                                " came to one of Shoal 0.3, and these do not")));
    EXPECT_TRUE(IsOfAnotherVersion(refused));
    EXPECT_EQ(EncodeRefusalHeader(header, other), version.earlier ? other : own);
  }
  EXPECT_EQ(EncodeRefusalHeader(header, own), own);
  EXPECT_EQ(EncodeRefusalHeader(header, {}), own) << "no frame at all";
}

TEST(FrameTest, LimitsAreChecked) {
  const FrameHeader header = {.type = FrameType::kOnline, .control_bytes = 10, .bulk_bytes = 100};
  SHOAL_EXPECT_OK(CheckLimits(header, {.control_bytes = 10, .bulk_bytes = 100}));
  EXPECT_THAT(CheckLimits(header, {.control_bytes = 9, .bulk_bytes = 100}),
              StatusIs(absl::StatusCode::kResourceExhausted, "at most 9"));
  EXPECT_THAT(CheckLimits(header, {.control_bytes = 10, .bulk_bytes = 99}),
              StatusIs(absl::StatusCode::kResourceExhausted, "at most 10 and 99"));
}

TEST(FrameTest, MessagesComeBackAndOthersAreRefused) {
  WaitRoundRequest request;
  request.set_round_id("id");
  request.set_timeout_ms(7);
  Frame frame = MakeFrame(FrameType::kWaitRound, request, {1, 2});
  WaitRoundRequest back;
  SHOAL_EXPECT_OK(ParseFrame(frame, FrameType::kWaitRound, back));
  EXPECT_EQ(back.timeout_ms(), 7u);
  EXPECT_THAT(ParseFrame(frame, FrameType::kOnline, back), StatusIs(kInvalid, "instead of"));
  frame.control = "\xff";
  EXPECT_THAT(ParseFrame(frame, FrameType::kWaitRound, back), StatusIs(kInvalid, "malformed"));
}

TEST(FrameTest, FieldsAreCountedWithoutParsing) {
  SubmitOnionsRequest request;
  request.set_round_id("id");
  for (int i = 0; i < 9; ++i) request.add_submissions(i % 2 == 0 ? "" : std::string(300, 'x'));
  const Frame frame = MakeFrame(FrameType::kSubmitOnions, request);
  SHOAL_EXPECT_OK(CheckFieldCount(frame, 10));
  EXPECT_THAT(CheckFieldCount(frame, 9), StatusIs(kInvalid, "more than 9 fields"));
  // Fields that the message does not have are counted too. They take memory until it is gone.
  Frame unknown{.type = FrameType::kSubmitOnions, .control = "", .bulk = {}};
  for (int i = 0; i < 5; ++i) unknown.control += std::string("\x78\x01", 2);  // field 15, a varint
  SHOAL_EXPECT_OK(CheckFieldCount(unknown, 5));
  EXPECT_THAT(CheckFieldCount(unknown, 4), StatusIs(kInvalid, "more than 4 fields"));
  SHOAL_EXPECT_OK(
      CheckFieldCount({.type = FrameType::kSubmitOnions, .control = "", .bulk = {}}, 0));
  // Cut off in a length, in a field; no tag; a group, whose fields would not be seen.
  for (const std::string bad : {"\x12", "\x12\x05xxxx", "\xff\xff", "\x13\x14", "\x14", "\x16"}) {
    EXPECT_THAT(CheckFieldCount({.type = FrameType::kSubmitOnions, .control = bad, .bulk = {}}, 10),
                StatusIs(kInvalid, "malformed"));
  }
  // The field number 0, which is no tag.
  const std::string zero(3, '\0');
  EXPECT_THAT(CheckFieldCount({.type = FrameType::kSubmitOnions, .control = zero, .bulk = {}}, 10),
              StatusIs(kInvalid, "malformed"));
}

TEST(FrameTest, ErrorsComeBackAndCannotBeOk) {
  EXPECT_THAT(ErrorOf(MakeErrorFrame(absl::NotFoundError("no slot"))),
              StatusIs(absl::StatusCode::kNotFound, "no slot"));
  EXPECT_EQ(ErrorOf(MakeErrorFrame(absl::NotFoundError(std::string(5000, 'x')))).message().size(),
            1024u);
  // Quotes come through. Control characters do not reach a terminal, and bytes that are not UTF-8
  // do not make the frame unreadable, also where a message is cut.
  EXPECT_EQ(ErrorOf(MakeErrorFrame(absl::NotFoundError("no 'a\\b'"))).message(), "no 'a\\b'");
  EXPECT_EQ(ErrorOf(MakeErrorFrame(absl::NotFoundError("\x1b[31m\xff\n"))).message(), "?[31m??");
  // The names of the sender's files are not sent.
  EXPECT_EQ(ErrorOf(MakeErrorFrame(
                StorageError(absl::StatusCode::kResourceExhausted, "/state/journal: disk full"))),
            absl::ResourceExhaustedError("storage failed"));
  const std::string long_umlauts = std::string(1023, 'x') + "\xc3\xa4";
  EXPECT_EQ(ErrorOf(MakeErrorFrame(absl::NotFoundError(long_umlauts))),
            absl::NotFoundError(std::string(1023, 'x') + "?"));
  Error hostile;
  hostile.set_code(5);
  hostile.set_message("\x1b]0;" + std::string(3000, 'y'));
  const absl::Status cleaned = ErrorOf(MakeFrame(FrameType::kError, hostile));
  EXPECT_EQ(cleaned.message(), "?]0;" + std::string(1020, 'y'));
  EXPECT_THAT(ErrorOf(MakeFrame(FrameType::kOnline, hostile)),
              StatusIs(absl::StatusCode::kInternal, "instead of"));
  for (uint32_t code : {0u, 17u, 4000000000u}) {
    Error error;
    error.set_code(code);
    EXPECT_THAT(ErrorOf(MakeFrame(FrameType::kError, error)),
                StatusIs(absl::StatusCode::kInternal, "proper code"));
  }
}

TEST(FrameTest, RandomHeadersNeverPassUnlessCanonical) {
  testing::TestRandom random(1);
  for (int i = 0; i < 100000; ++i) {
    FrameHeaderBytes bytes =
        EncodeFrameHeader({.type = FrameType::kOnline, .control_bytes = 5, .bulk_bytes = 6});
    bytes[random.Below(bytes.size())] = static_cast<uint8_t>(random.Below(256));
    const auto header = ParseFrameHeader(bytes);
    if (!header.ok()) continue;
    ASSERT_EQ(EncodeFrameHeader(*header), bytes);
  }
}

}  // namespace
}  // namespace shoal::wire
