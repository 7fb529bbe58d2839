#include "src/base/memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace shoal {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

// The number in a file, or kNoLimit where there is none ("max", or no such file).
uint64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? number : kNoLimit;
}

// What the control group of this process (version 2) may still take.
uint64_t GroupBytes() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    absl::string_view group_path = line;
    if (!absl::ConsumePrefix(&group_path, "0::")) continue;
    const std::string group = absl::StrCat("/sys/fs/cgroup", group_path);
    const uint64_t most = NumberIn(group + "/memory.max");
    const uint64_t used = NumberIn(group + "/memory.current");
    if (most == kNoLimit || used == kNoLimit) return kNoLimit;
    return most - std::min(most, used);
  }
  return kNoLimit;
}

// MemAvailable, or no limit where it cannot be read.
uint64_t MachineBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string line;
  while (std::getline(meminfo, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1) return kib * 1024;
  }
  return kNoLimit;
}

}  // namespace

absl::Status CheckMemory(uint64_t bytes, absl::string_view what) {
  const uint64_t available = std::min(MachineBytes(), GroupBytes());
  if (bytes <= available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("%s takes %d MiB of memory; %d MiB are available", what, bytes >> 20,
                      available >> 20));
}

}  // namespace shoal
