#include "src/storage/memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// The number in a file; none if the file is missing or says "max".
std::optional<uint64_t> NumberIn(const fs::path& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The number after `name` in a file whose lines have a name and a number.
std::optional<uint64_t> NumberOf(absl::string_view name, const fs::path& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first;
    uint64_t number = 0;
    if (words >> first >> number && first == name) return number;
  }
  return std::nullopt;
}

// Bytes that one control group may still take.
uint64_t GroupBytes(const fs::path& group) {
  const std::optional<uint64_t> most = NumberIn(group / "memory.max");
  const std::optional<uint64_t> used = NumberIn(group / "memory.current");
  if (!most.has_value() || !used.has_value()) return kNoLimit;
  uint64_t kept = *used;
  for (absl::string_view files : {"inactive_file", "active_file"}) {
    kept -= std::min(kept, NumberOf(files, group / "memory.stat").value_or(0));
  }
  return *most - std::min(*most, kept);
}

// The path of this process's group below the groups' directory; "" if the group is outside.
fs::path OwnGroup(const std::string& proc) {
  std::ifstream file(proc + "/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    absl::string_view path = line;
    if (!absl::ConsumePrefix(&path, "0::/")) continue;
    const fs::path group = fs::path(std::string(path)).relative_path();
    return std::find(group.begin(), group.end(), "..") == group.end() ? group : fs::path();
  }
  return {};
}

}  // namespace

uint64_t MachineMemory() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

uint64_t ResidentMemory() { return NumberOf("VmRSS:", "/proc/self/status").value_or(0) * 1024; }

uint64_t AvailableMemory(const std::string& proc, const std::string& groups) {
  uint64_t available = kNoLimit;
  if (const auto kib = NumberOf("MemAvailable:", proc + "/meminfo"); kib.has_value()) {
    available = std::min(*kib, kNoLimit / 1024) * 1024;
  }
  for (fs::path group = OwnGroup(proc);; group = group.parent_path()) {
    available = std::min(available, GroupBytes(groups / group));
    if (group.empty()) return available;
  }
}

absl::Status CheckMemory(uint64_t bytes, absl::string_view what) {
  if (bytes <= kUncheckedMemoryBytes) return absl::OkStatus();
  const uint64_t available = AvailableMemory();
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s takes %d MiB of memory; %d MiB are available", what, bytes >> 20, available >> 20));
}

}  // namespace shoal
