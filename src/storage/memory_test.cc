#include "src/storage/memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"
#include "src/base/testing/matchers.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using testing::StatusIs;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// A made-up system's files about memory: 1000 MiB are available to all.
class System {
 public:
  System() {
    std::string pattern = ::testing::TempDir() + "/system.XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    Write("proc/meminfo",
          "MemTotal:       4096000 kB\nMemFree:  5 kB\nMemAvailable:   1024000 kB\n");
  }
  ~System() { fs::remove_all(root_); }

  void Write(const std::string& name, const std::string& text) {
    const fs::path path = fs::path(root_) / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // This process is in that group.
  void EnterGroup(const std::string& path) {
    Write("proc/self/cgroup", "4:memory:/elsewhere\n0::" + path + "\n");
  }
  // In MiB; `most` may be "max".
  void MakeGroup(const std::string& path, const std::string& most, uint64_t used, uint64_t inactive,
                 uint64_t active) {
    const auto bytes = [](uint64_t mib) { return std::to_string(mib * kMiB); };
    Write("groups" + path + "/memory.max",
          (most == "max" ? most : bytes(std::stoull(most))) + "\n");
    Write("groups" + path + "/memory.current", bytes(used) + "\n");
    Write("groups" + path + "/memory.stat",
          "anon 1\nfile 999999999999\ninactive_anon 77\ninactive_file " + bytes(inactive) +
              "\nactive_file " + bytes(active) + "\n");
  }
  uint64_t AvailableMiB() const {
    const uint64_t bytes = AvailableMemory(root_ + "/proc", root_ + "/groups");
    EXPECT_EQ(bytes % kMiB, 0u);
    return bytes / kMiB;
  }

 private:
  std::string root_;
};

TEST(AvailableMemory, OfAMachineWithoutGroups) {
  System system;
  EXPECT_EQ(system.AvailableMiB(), 1000u);
  system.EnterGroup("/");
  EXPECT_EQ(system.AvailableMiB(), 1000u);
}

// Files that were read may fill a group up to its limit; nothing must be refused because of them.
TEST(AvailableMemory, FilesPagesAreAvailable) {
  System system;
  system.EnterGroup("/app");
  system.MakeGroup("/app", "500", 500, 0, 0);
  EXPECT_EQ(system.AvailableMiB(), 0u);
  system.MakeGroup("/app", "500", 500, 300, 50);
  EXPECT_EQ(system.AvailableMiB(), 350u);
  system.MakeGroup("/app", "500", 100, 300, 50);
  EXPECT_EQ(system.AvailableMiB(), 500u) << "numbers of different moments";
  system.MakeGroup("/app", "500", 600, 20, 0);
  EXPECT_EQ(system.AvailableMiB(), 0u) << "a limit that was lowered";
  system.MakeGroup("/app", "5000", 100, 0, 0);
  EXPECT_EQ(system.AvailableMiB(), 1000u) << "the machine has less";
}

// A limit on a group holds for all groups below it, whatever their own limits are.
TEST(AvailableMemory, GroupsAboveLimitToo) {
  System system;
  system.EnterGroup("/slice/app/worker");
  system.MakeGroup("/slice", "800", 500, 100, 0);
  system.MakeGroup("/slice/app", "max", 200, 0, 0);
  system.MakeGroup("/slice/app/worker", "700", 200, 0, 0);
  system.MakeGroup("/slice/other", "1", 1, 0, 0);
  EXPECT_EQ(system.AvailableMiB(), 400u);
  system.MakeGroup("/slice/app", "250", 200, 0, 0);
  EXPECT_EQ(system.AvailableMiB(), 50u);
  // A container's own root has a limit as well.
  system.MakeGroup("", "230", 200, 0, 0);
  EXPECT_EQ(system.AvailableMiB(), 30u);
}

TEST(AvailableMemory, WhatCannotBeReadIsNoLimit) {
  System system;
  system.EnterGroup("/gone (deleted)");
  EXPECT_EQ(system.AvailableMiB(), 1000u);
  // As seen from inside another root: nothing outside of the groups' directory is read.
  system.EnterGroup("/../outside");
  system.MakeGroup("/../outside", "1", 0, 0, 0);
  EXPECT_EQ(system.AvailableMiB(), 1000u);
  system.Write("proc/self/cgroup", "nonsense");
  system.Write("proc/meminfo", "MemAvailable: much\n");
  EXPECT_GT(AvailableMemory("/nowhere", "/nowhere"), uint64_t{1} << 60);
}

// The result is in bytes, not in pages or KiB.
TEST(MachineMemory, IsWhatTheSystemTells) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kib = 0;
  ASSERT_TRUE(file >> name >> kib);
  ASSERT_EQ(name, "MemTotal:");
  EXPECT_EQ(MachineMemory(), kib * 1024);
}

TEST(CheckMemory, SmallThingsAreNeverRefused) {
  SHOAL_EXPECT_OK(CheckMemory(kUncheckedMemoryBytes, "a query"));
  EXPECT_THAT(CheckMemory(uint64_t{1} << 60, "a table"),
              StatusIs(absl::StatusCode::kResourceExhausted, "a table takes 1099511627776 MiB"));
}

}  // namespace
}  // namespace shoal
