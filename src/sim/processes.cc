#include "src/sim/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "boost/asio.hpp"
#include "gtest/gtest.h"
#include "src/base/check.h"
#include "src/base/random.h"

namespace shoal::sim {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

const fs::path& BinDir() {
  static const fs::path directory = fs::current_path() / "src";
  return directory;
}

constexpr uint32_t kFirstPort = 20'000, kPorts = 12'000;

// Holds the lock of a block of ports until the descriptor is closed. -1 if somebody else holds it.
int LockPorts(uint16_t first) {
  mkdir(PortLocks().c_str(), 0700);  // may be there already
  const std::string path = absl::StrCat(PortLocks(), "/", first);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  Require(fd >= 0, absl::StrCat(path, ": ", std::strerror(errno)));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return -1;
}

// Whether nobody listens on these ports, who may know nothing of locks.
bool AreFree(uint16_t first, uint32_t count) {
  asio::io_context io;
  for (uint32_t i = 0; i < count; ++i) {
    boost::system::error_code error;
    tcp::acceptor acceptor(io);
    acceptor.open(tcp::v4(), error);
    acceptor.bind({asio::ip::make_address("127.0.0.1"), static_cast<uint16_t>(first + i)}, error);
    if (error) return false;
  }
  return true;
}

}  // namespace

std::string Shoal() { return BinDir() / "shoal/shoal"; }
std::string Shoald() { return BinDir() / "shoald/shoald"; }
std::string LocalChain() { return fs::current_path() / "scripts/local-chain"; }
std::string FaultsLibrary() { return BinDir() / "sim/libfaults.so"; }

std::string Text(const fs::path& path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
void WriteText(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

Process::Process(const std::vector<std::string>& command) {
  static int number = 0;
  output_ = fs::path(::testing::TempDir()) / absl::StrCat("output-", ++number);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  SHOAL_CHECK(pid_ >= 0);
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(126);
  const int fd = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(fd, 1);
  dup2(fd, 2);
  setenv("SHOAL_BIN", BinDir().c_str(), 1);
  execv(argv[0], argv.data());
  _exit(127);
}

Process::Process(Process&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)), code_(other.code_), output_(std::move(other.output_)) {}

std::optional<int> Process::Wait(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (pid_ != 0) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = 0;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      break;
    }
    if (Clock::now() >= deadline) return std::nullopt;
    std::this_thread::sleep_for(5ms);
  }
  return code_;
}

bool Process::WaitForOutput(const std::string& part, std::chrono::milliseconds limit, size_t from) {
  return WaitForAnyOutput({part}, limit, from).has_value();
}

std::optional<size_t> Process::WaitForAnyOutput(const std::vector<std::string>& parts,
                                                std::chrono::milliseconds limit, size_t from) {
  const auto deadline = Clock::now() + limit;
  for (;;) {
    // Before the look: what it has written by its end is then seen.
    const bool last = Wait(0ms).has_value() || Clock::now() >= deadline;
    const std::string output = Output();
    for (size_t i = 0; i < parts.size(); ++i) {
      if (output.find(parts[i], from) != std::string::npos) return i;
    }
    if (last) return std::nullopt;
    std::this_thread::sleep_for(5ms);
  }
}

void Process::Signal(int signal_number) {
  if (pid_ != 0) kill(pid_, signal_number);
}

void Process::Kill() {
  Signal(SIGKILL);
  (void)Wait(10s);
}

Result RunToEnd(const std::vector<std::string>& command, std::chrono::milliseconds limit) {
  Process process(command);
  const std::optional<int> code = process.Wait(limit);
  return {code.value_or(-1), process.Output()};
}

void Require(bool condition, const std::string& output) {
  if (!condition) std::fprintf(stderr, "%s\n", output.c_str());
  SHOAL_CHECK(condition);
}

std::string PortLocks() { return absl::StrCat("/tmp/shoal-ports-", getuid()); }

uint16_t FreePorts(uint32_t count) {
  SHOAL_CHECK(count <= kPortBlock);
  SystemRandom random;
  for (int attempt = 0; attempt < 2000; ++attempt) {
    const auto first =
        static_cast<uint16_t>(kFirstPort + kPortBlock * random.Below(kPorts / kPortBlock));
    const int lock = LockPorts(first);
    if (lock < 0) continue;
    if (AreFree(first, count)) return first;  // the lock lives as long as the program
    close(lock);
  }
  SHOAL_CHECK(false);
}

}  // namespace shoal::sim
