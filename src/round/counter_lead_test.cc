// By how much a round's counter may be ahead of its announcement is one number, kMaxCounterLeadS:
// the protocol's page and the client of the web have the same. Otherwise one client refuses rounds
// that the others take.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "src/round/header.h"

namespace shoal::round {
namespace {

// The number that stands between `before`, which comes once, and `after`, without its separators.
uint64_t NumberIn(const std::string& path, const std::string& before, const std::string& after) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << path;
  EXPECT_EQ(text.find(before, at + 1), std::string::npos) << path;
  if (at == std::string::npos) return 0;
  const size_t begin = at + before.size();
  const std::string number = absl::StrReplaceAll(
      text.substr(begin, text.find(after, begin) - begin), {{",", ""}, {"_", ""}});
  uint64_t value = 0;
  EXPECT_TRUE(absl::SimpleAtoi(number, &value)) << number;
  return value;
}

TEST(CounterLeadTest, IsOneNumber) {
  EXPECT_EQ(NumberIn("docs/protocol.md", "A counter divided by 1,000, rounded down, is at most ",
                     " above announced_s"),
            kMaxCounterLeadS);
  EXPECT_EQ(NumberIn("web/client/deployment.ts", "MAX_COUNTER_LEAD_S = ", "n;"), kMaxCounterLeadS);
}

}  // namespace
}  // namespace shoal::round
