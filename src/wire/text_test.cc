#include "src/wire/text.h"

#include <string>

#include "src/base/testing/matchers.h"
#include "src/wire/roster.pb.h"

namespace shoal::wire {
namespace {

using ::shoal::testing::StatusIs;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

TEST(ParseText, NamesLineAndColumn) {
  PinnedParties pins;
  EXPECT_THAT(ParseText("deployment: \"a\"\nno_such_field: 1\n", "f", pins),
              StatusIs(kInvalid, "f:2:"));
  EXPECT_THAT(ParseText("deployment: \"a\" deployment: \"b\"", "f", pins),
              StatusIs(kInvalid, "f:1:"));
  EXPECT_THAT(ParseText("minimum_roster_epoch: -1", "f", pins), StatusIs(kInvalid, "f:1:"));
  EXPECT_THAT(ParseText("deployment: \"unfinished", "f", pins), StatusIs(kInvalid, "f:1:"));
  EXPECT_THAT(ParseText("}", "f", pins), StatusIs(kInvalid, "f:1:"));
}

TEST(ParseText, ReadsWhatPrintTextWrites) {
  RosterShare share;
  share.set_party(3);
  share.set_signature(std::string("\0\n\"\xff", 4));
  RosterShare read;
  read.set_party(9);  // replaced
  SHOAL_ASSERT_OK(ParseText("# a comment\n" + PrintText(share), "f", read));
  EXPECT_EQ(read.SerializeAsString(), share.SerializeAsString());
}

TEST(ReadTextFile, NamesTheFile) {
  PinnedParties pins;
  EXPECT_THAT(ReadTextFile("/nonexistent/pins", pins),
              StatusIs(absl::StatusCode::kNotFound, "/nonexistent/pins"));
}

}  // namespace
}  // namespace shoal::wire
