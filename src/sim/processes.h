// Real processes for tests: programs that die with the test, what they said, free ports.
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

// Longer than anything takes on a busy machine.
inline constexpr std::chrono::seconds kLong{25};

// The programs, in the test's data.
std::string Shoal();
std::string Shoald();
std::string LocalChain();

std::string Text(const std::filesystem::path& path);
void WriteText(const std::filesystem::path& path, const std::string& text);

// A program that dies with this test, whatever becomes of it.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  Process(Process&& other) noexcept;
  ~Process() { Kill(); }

  // Both streams so far.
  std::string Output() const { return Text(output_); }
  // The exit code (128 + signal when killed), or nothing when the time is over.
  std::optional<int> Wait(std::chrono::milliseconds limit = kLong);
  bool WaitForOutput(const std::string& part, std::chrono::milliseconds limit = kLong);
  void Signal(int number);
  void Kill();

 private:
  pid_t pid_ = 0;
  int code_ = -1;
  std::filesystem::path output_;
};

// Runs to the end; the exit code and what it said.
struct Result {
  int code;
  std::string output;
};
Result RunToEnd(const std::vector<std::string>& command, std::chrono::milliseconds limit = kLong);

// Without it no test makes sense.
void Require(bool condition, const std::string& output);

// The first of `count` ports in a row that nobody listens on; below those that the system gives to
// clients. They may be taken before they are used: then the test fails and says so.
uint16_t FreePorts(uint32_t count);

}  // namespace shoal::sim

#endif  // SHOAL_SRC_SIM_PROCESSES_H_
