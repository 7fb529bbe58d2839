// Runs `shoal query` as a process and kills it (kill -9) at every request that it makes, before or
// after the request is served, at every step of its output, and at random times. The next run must
// continue. In the end there must have been one submission, with one row for every slot.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/client/rollback_anchor.h"
#include "src/client/state.h"
#include "src/client/testing/tls_frontend.h"
#include "src/storage/file.h"
#include "src/wire/text.h"

namespace shoal::commands {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

// More rows than a state file holds itself, in one request with onions and several with answers.
constexpr size_t kRecords = 80'000;
constexpr uint32_t kRowBytes = 320;

class InterruptionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new client::testing::TlsFrontend({.parties = 2,
                                                .dense = true,
                                                .records = kRecords,
                                                .row_bytes = kRowBytes,
                                                .now_s = SystemClock().NowSeconds()});
  }
  static void TearDownTestSuite() { delete server_; }

  InterruptionTest() {
    std::string name = ::testing::TempDir() + "/interrupted.XXXXXX";
    SHOAL_CHECK(::mkdtemp(name.data()) != nullptr);
    directory_ = name;
    const auto pins = roster::PinsOf(frontend().roster().wire().roster());
    SHOAL_CHECK(pins.ok() && wire::WriteTextFile(Path("pins"), *pins).ok());
    std::ofstream(Path("config")) << "frontend: '" << server_->address()
                                  << "' pinned_parties_file: 'pins' state: 'state' timeout_s: 60";
    std::ofstream keys(Path("keys"));
    for (size_t i = 0; i < 30'000; ++i) {
      const size_t key = i * 7919 % (kRecords + 5);  // some are not in the table
      keys << key << "\n";
      absl::StrAppend(
          &expected_, key,
          key < kRecords
              ? absl::StrCat("\tfound\t", client::testing::FakeFrontend::Value(key), "\tyes\n")
              : "\tabsent\t\tyes\n");
    }
    {
      const std::lock_guard lock(server_->mutex());
      frontend().sent.clear();
      round_id_ = frontend().OpenRound();
    }
  }
  ~InterruptionTest() override {
    const std::lock_guard lock(server_->mutex());
    frontend().before = nullptr;
    frontend().after = nullptr;
    frontend().SetState(round_id_, wire::CLOSED);
    fs::remove_all(directory_);
  }

  client::testing::FakeFrontend& frontend() { return server_->frontend(); }
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Text(const std::string& name) const {
    std::ifstream in(Path(name));
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  void Start(uint64_t max_file_bytes = 0) {
    SHOAL_CHECK(pid_ == 0);
    const std::string program = fs::current_path() / "src/shoal/shoal";
    const std::string config = Path("config"), keys = Path("keys"), output = Path("results"),
                      errors = Path("errors");
    const pid_t parent = getpid();
    const pid_t pid = fork();
    SHOAL_CHECK(pid >= 0);
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(126);
      if (max_file_bytes > 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit = {max_file_bytes, max_file_bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
      }
      const int fd = open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(fd, 1);
      dup2(fd, 2);
      execl(program.c_str(), "shoal", "query", "--config", config.c_str(), "--file", keys.c_str(),
            "--output", output.c_str(), nullptr);
      _exit(127);
    }
    pid_ = pid;
  }
  void Kill() {
    if (pid_ != 0) kill(pid_, SIGKILL);
  }
  // The exit code, or 128 + the signal.
  int Wait() {
    int status = 0;
    SHOAL_CHECK(waitpid(pid_, &status, 0) == pid_);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // Kills the process as soon as `now` returns true. Returns the exit code.
  int KillWhen(const std::function<bool()>& now) {
    Start();
    for (;;) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      if (now()) Kill();
      std::this_thread::sleep_for(1ms);
    }
  }
  int RunToEnd() {
    Start();
    return Wait();
  }

  // What must hold in the end.
  void ExpectDoneOnce() {
    EXPECT_EQ(Text("results"), expected_);
    const auto state = client::ReadState(Path("state"), client::AnchorDirectory::OfThisMachine());
    SHOAL_ASSERT_OK(state);
    EXPECT_EQ(state->ledger.submissions(), 1u);
    const std::lock_guard lock(server_->mutex());
    const auto asked = frontend().Asked(round_id_);
    std::set<uint32_t> rows;
    for (const auto& [slot, row] : asked) EXPECT_TRUE(rows.insert(row).second);
    EXPECT_EQ(asked.size(), state->ledger.queries());
    // No onion was submitted twice with different bytes: there are as many slots as queries.
    const auto list = frontend().ListRounds({});
    SHOAL_ASSERT_OK(list);
    for (const wire::RoundInfo& info : list->rounds()) {
      if (info.header().header().counter() == frontend().counter(round_id_)) {
        EXPECT_EQ(info.onions(), asked.size());
      }
    }
    // No file of the round is left.
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      EXPECT_TRUE(std::set<std::string>({"config", "pins", "keys", "results", "errors", "state",
                                         "state.guard", "state.lock", "state.placement.versions"})
                      .contains(name))
          << name;
    }
  }

  static client::testing::TlsFrontend* server_;
  std::string directory_;
  std::string expected_;
  Digest round_id_;
  std::atomic<pid_t> pid_ = 0;
  int requests_ = 0;  // under the server's mutex
};
client::testing::TlsFrontend* InterruptionTest::server_ = nullptr;

// Every run is killed at one of the requests, before or after it is served. A run that has made
// that request already is killed at the next one.
TEST_F(InterruptionTest, KilledAtEveryRequest) {
  const std::vector<std::string> order = {"GetDeployment", "ListRounds", "SubmitOnions",
                                          "SubmitQueries", "FetchAnswers"};
  const auto stage_of = [&](const std::string& name) {
    return std::find(order.begin(), order.end(), name) - order.begin();
  };
  std::map<std::string, int> killed_at;
  for (const std::string& target : order) {
    for (const int nth : {1, 2}) {
      for (const bool served : {false, true}) {
        {
          const std::lock_guard lock(server_->mutex());
          requests_ = 0;
          const auto hook = [&, target, nth, served](const std::string& name) {
            if (name == "WaitRound" || name == "GetRowVersions") return absl::OkStatus();
            if (name == target ? ++requests_ == nth : stage_of(name) > stage_of(target)) {
              ++killed_at[absl::StrCat(name, served ? " served" : "")];
              Kill();
              std::this_thread::sleep_for(20ms);  // it is dead before a response can reach it
            }
            return absl::OkStatus();
          };
          frontend().before = served ? nullptr : std::function(hook);
          frontend().after = served ? std::function(hook) : nullptr;
        }
        // A run that makes only one request of a kind goes on to the next kind, and at last to the
        // end.
        const int code = RunToEnd();
        ASSERT_TRUE(code == 128 + SIGKILL || (code == 0 && target == order.back()))
            << target << " " << nth << ": " << Text("errors");
      }
    }
  }
  {
    const std::lock_guard lock(server_->mutex());
    frontend().before = frontend().after = nullptr;
  }
  if (!fs::exists(Path("results"))) {
    EXPECT_EQ(RunToEnd(), 0) << Text("errors");
  }
  for (const std::string& name : order) {
    EXPECT_GE(killed_at[name], 1) << name;
    EXPECT_GE(killed_at[name + " served"], 1) << name;
  }
  ExpectDoneOnce();
}

TEST_F(InterruptionTest, KilledWhileItVerifiesAndWrites) {
  const auto says = [this](const std::string& what) {
    return [this, what] { return absl::StrContains(Text("errors"), what); };
  };
  EXPECT_EQ(KillWhen(says("verifying")), 128 + SIGKILL);
  EXPECT_FALSE(fs::exists(Path("results")));
  {
    // From here on the program must send nothing.
    const std::lock_guard lock(server_->mutex());
    frontend().sent.clear();
    frontend().SetState(round_id_, wire::CLOSED);
  }
  int code = -1;
  for (const size_t bytes : {0u, 1u, 500'000u}) {
    fs::remove(Path("results.part"));
    code = KillWhen([&] {
      std::error_code error;
      const auto size = fs::file_size(Path("results.part"), error);
      return !error && size >= bytes;
    });
    if (code == 0) break;  // it ended before it was killed
  }
  if (code != 0) {
    EXPECT_EQ(RunToEnd(), 0) << Text("errors");
  }
  {
    const std::lock_guard lock(server_->mutex());
    for (const auto& [name, request] : frontend().sent) EXPECT_EQ(name, "HangUp");
  }
  ExpectDoneOnce();
}

TEST_F(InterruptionTest, KilledAtRandomTimes) {
  shoal::testing::TestRandom random(5);
  int code = 128 + SIGKILL;
  for (int run = 0; run < 25 && code != 0; ++run) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(random.Below(400));
    code = KillWhen([&] { return std::chrono::steady_clock::now() >= end; });
    ASSERT_TRUE(code == 0 || code == 128 + SIGKILL) << Text("errors");
  }
  if (code != 0) {
    EXPECT_EQ(RunToEnd(), 0) << Text("errors");
  }
  ExpectDoneOnce();
}

TEST_F(InterruptionTest, AFullDiskIsNamedAndTheNextRunGoesOn) {
  // Room for the state but not for the answers.
  Start(/*max_file_bytes=*/300'000);
  EXPECT_EQ(Wait(), 1);
  EXPECT_THAT(Text("errors"), HasSubstr("state.answers-"));
  EXPECT_EQ(RunToEnd(), 0) << Text("errors");
  ExpectDoneOnce();
}

}  // namespace
}  // namespace shoal::commands
