// What the service manager hears, on a socket of the test's own.
#include "src/shoald/notify.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <future>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal::shoald {
namespace {

using ::testing::MatchesRegex;
using namespace std::chrono_literals;

// As many bytes as a name may have.
constexpr size_t kMostBytes = sizeof(sockaddr_un::sun_path) - 1;

class NotifyTest : public ::testing::Test {
 protected:
  NotifyTest() : name_(absl::StrCat("@shoal-notify-test-", ::getpid(), "-")) {
    name_.resize(kMostBytes, 'x');
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    name_.copy(address.sun_path, name_.size());
    address.sun_path[0] = '\0';
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size())),
              0);
    // Only a message that never comes reaches it.
    const timeval limit = {.tv_sec = 120, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  ~NotifyTest() override { ::close(fd_); }

  std::string Heard() const {
    char message[1024];
    const ssize_t n = ::recv(fd_, message, sizeof(message), 0);
    return n < 0 ? "nothing" : std::string(message, static_cast<size_t>(n));
  }
  bool HearsNothing() const {
    char byte;
    return ::recv(fd_, &byte, 1, MSG_DONTWAIT) < 0;
  }

  std::string name_;
  int fd_;
};

TEST_F(NotifyTest, EveryStateIsOneMessage) {
  const Notifier notifier(name_, std::nullopt);
  notifier.Ready("serves epoch 3");
  EXPECT_EQ(Heard(), "READY=1\nSTATUS=serves epoch 3");
  notifier.Reloading();
  EXPECT_THAT(Heard(), MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]+"));
  notifier.Alive();
  EXPECT_EQ(Heard(), "WATCHDOG=1");
  notifier.Stopping();
  EXPECT_EQ(Heard(), "STOPPING=1");
}

TEST_F(NotifyTest, TheEnvironmentNamesTheManager) {
  ::setenv("NOTIFY_SOCKET", name_.c_str(), 1);
  ::setenv("WATCHDOG_USEC", "30000000", 1);
  EXPECT_EQ(Notifier::FromEnvironment().watchdog(), 30s) << "for whoever reads it";
  ::setenv("WATCHDOG_PID", absl::StrCat(::getpid()).c_str(), 1);
  EXPECT_EQ(Notifier::FromEnvironment().watchdog(), 30s);
  ::setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(Notifier::FromEnvironment().watchdog(), std::nullopt) << "of another process";
  ::unsetenv("WATCHDOG_PID");
  for (const char* none : {"", "0", "x", "-1"}) {
    ::setenv("WATCHDOG_USEC", none, 1);
    EXPECT_EQ(Notifier::FromEnvironment().watchdog(), std::nullopt) << none;
  }
  Notifier::FromEnvironment().Stopping();
  EXPECT_EQ(Heard(), "STOPPING=1");
  ::unsetenv("NOTIFY_SOCKET");
  Notifier::FromEnvironment().Stopping();
  EXPECT_TRUE(HearsNothing());
}

// Nothing is said to another socket, nothing is kept open, and who is there is told.
TEST_F(NotifyTest, ASocketThatIsGoneOrTooLongIsNoHarm) {
  const int before = ::dup(fd_);
  ::close(before);
  Notifier("/no/such/socket", std::nullopt).Stopping();
  for (const size_t more : {1, 2, 100}) {
    Notifier(name_ + std::string(more, 'x'), std::nullopt).Stopping();
  }
  EXPECT_TRUE(HearsNothing());
  const int after = ::dup(fd_);
  ::close(after);
  EXPECT_EQ(after, before) << "the lowest descriptor that is free";
  Notifier(name_, std::nullopt).Stopping();
  EXPECT_EQ(Heard(), "STOPPING=1");
}

TEST_F(NotifyTest, AliveIsSaidAgainAndAgain) {
  const Notifier notifier(name_, 1ms);
  std::atomic<int> probes = 0;
  const Watchdog watchdog(&notifier, [&] { ++probes; });
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(Heard(), "WATCHDOG=1");
    EXPECT_GE(probes, i);
  }
}

// A process whose probe hangs says nothing, whatever its watchdog's thread does.
TEST_F(NotifyTest, AProcessThatIsStuckIsSilent) {
  const Notifier notifier(name_, 1ms);
  std::promise<void> probing, unstuck;
  {
    const Watchdog watchdog(&notifier,
                            [&, stuck = unstuck.get_future().share(), once = false]() mutable {
                              if (!std::exchange(once, true)) probing.set_value();
                              stuck.wait();
                            });
    probing.get_future().wait();
    EXPECT_TRUE(HearsNothing());
    unstuck.set_value();
    EXPECT_EQ(Heard(), "WATCHDOG=1");
  }
}

TEST_F(NotifyTest, WithoutAWatchdogNothingIsProbed) {
  const Notifier notifier(name_, std::nullopt);
  {
    const Watchdog watchdog(&notifier, [] { FAIL(); });
  }
  EXPECT_TRUE(HearsNothing());
}

}  // namespace
}  // namespace shoal::shoald
