// Processes for tests: programs that die with the test, their output, and free ports.
#ifndef SHOAL_SRC_SIM_PROCESSES_H_
#define SHOAL_SRC_SIM_PROCESSES_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shoal::sim {

// Longer than anything takes even on a busy machine, so that only a hang reaches it.
inline constexpr std::chrono::seconds kLong{200};

// The programs, in the test's data.
std::string Shoal();
std::string Shoald();
std::string LocalChain();
// To be preloaded into one of them (faults.cc).
std::string FaultsLibrary();

std::string Text(const std::filesystem::path& path);
void WriteText(const std::filesystem::path& path, const std::string& text);

// A program that dies with this test, however the test ends.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  Process(Process&& other) noexcept;
  ~Process() { Kill(); }

  // The output on both streams so far.
  std::string Output() const { return Text(output_); }
  // The exit code (128 + signal if it was killed), or none after `limit`.
  std::optional<int> Wait(std::chrono::milliseconds limit = kLong);
  // Looks at the output from byte `from` on.
  bool WaitForOutput(const std::string& part, std::chrono::milliseconds limit = kLong,
                     size_t from = 0);
  // The same until one of several texts is there. Which one, counted from 0; none if there is none.
  std::optional<size_t> WaitForAnyOutput(const std::vector<std::string>& parts,
                                         std::chrono::milliseconds limit = kLong, size_t from = 0);
  void Signal(int number);
  // 0 once the process is known to have ended.
  pid_t pid() const { return pid_; }
  void Kill();

 private:
  pid_t pid_ = 0;
  int code_ = -1;
  std::filesystem::path output_;
};

// The exit code and output of a program that ran to its end.
struct Result {
  int code;
  std::string output;
};
Result RunToEnd(const std::vector<std::string>& command, std::chrono::milliseconds limit = kLong);

// Ends the test program if the condition is false.
void Require(bool condition, const std::string& output);

// The first of `count` consecutive ports, at most kPortBlock, on which nobody listens, below those
// that the system gives to clients. No other test or study of this user gets them until this
// program ends: each block of ports has a file in PortLocks(), and whoever has the block holds the
// file's lock (flock). experiments/lib/chain.py and experiments/python-client/client_test.sh lock
// the same files.
inline constexpr uint32_t kPortBlock = 10;
uint16_t FreePorts(uint32_t count);
std::string PortLocks();

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_PROCESSES_H_
