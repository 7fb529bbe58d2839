#include "src/shoal/privacy_text.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shoal::commands {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Who followed another advice would tell the server that the lookup failed, and so which row it was
// for, if the server had spoilt the hints of that row.
TEST(PrivacyTextTest, NothingIsAdvisedAfterAFailureThatAServerCouldSee) {
  const std::string text = AfterWrongRecordsText();
  EXPECT_THAT(text, HasSubstr("do not ask again"));
  EXPECT_THAT(text, HasSubstr("do not prepare again"));
  EXPECT_THAT(text, Not(HasSubstr("shoal prepare")));
  EXPECT_THAT(text, Not(HasSubstr("--anew")));
}

}  // namespace
}  // namespace shoal::commands
