// What the tests of processes rely on.
#include "src/sim/processes.h"

#include <unistd.h>

#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace shoal::sim {
namespace {

// Two programs that draw ports at the same time, a hundred times each: were they only random, two
// draws would be the same with probability above 0.999.
TEST(FreePorts, NobodyIsGivenTheSamePorts) {
  constexpr int kDraws = 100;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  const auto draw = [](std::set<uint16_t>& ports) {
    for (int i = 0; i < kDraws; ++i) ports.insert(FreePorts(1 + i % kPortBlock));
  };
  std::set<uint16_t> ports;
  if (child == 0) {
    draw(ports);
    for (const uint16_t port : ports) dprintf(ends[1], "%d ", port);
    close(ends[1]);
    pause();  // holds its locks until the parent has drawn too
    _exit(0);
  }
  close(ends[1]);
  draw(ports);
  std::string text;
  char piece[1000];
  for (ssize_t n; (n = read(ends[0], piece, sizeof(piece))) > 0;) text.append(piece, n);
  close(ends[0]);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(ports.size(), size_t{kDraws});
  std::set<uint16_t> theirs;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    int port = 0;
    ASSERT_TRUE(absl::SimpleAtoi(word, &port));
    EXPECT_EQ(port % kPortBlock, 0u);
    EXPECT_FALSE(ports.contains(static_cast<uint16_t>(port))) << port;
    theirs.insert(static_cast<uint16_t>(port));
  }
  EXPECT_EQ(theirs.size(), size_t{kDraws});
}

}  // namespace
}  // namespace shoal::sim
