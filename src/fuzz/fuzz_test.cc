// Every parser of outside bytes takes what it is meant to take, and no input makes it crash, read
// out of bounds or accept what has another encoding.
#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"
#include "gtest/gtest.h"
#include "src/base/hash.h"
#include "src/base/testing/matchers.h"
#include "src/base/testing/test_random.h"
#include "src/fuzz/mutate.h"
#include "src/fuzz/target.h"
#include "src/storage/file.h"

namespace shoal::fuzz {
namespace {

const std::vector<Target>& All() {
  static const auto* const all = new std::vector<Target>(Targets());
  return *all;
}

TEST(FuzzTest, NamesAreDistinct) {
  std::set<std::string> names;
  for (const Target& target : All()) EXPECT_TRUE(names.insert(target.name).second) << target.name;
}

// A target whose seeds are refused would test nothing but its first comparison.
TEST(FuzzTest, SeedsAreTaken) {
  for (const Target& target : All()) {
    for (size_t i = 0; i < target.seeds.size(); ++i) {
      EXPECT_TRUE(target.parse(target.seeds[i])) << target.name << ", seed " << i;
    }
  }
}

TEST(FuzzTest, MutatedSeedsDoNoHarm) {
  const google::protobuf::LogSilencer silent;
  for (const Target& target : All()) {
    SCOPED_TRACE(target.name);
    testing::TestRandom random(7);
    std::vector<Bytes> seeds = target.seeds;
    if (seeds.empty()) seeds.push_back({});
    uint32_t refused = 0;
    for (uint32_t i = 0; i < target.mutations; ++i) refused += !target.parse(Mutate(seeds, random));
    target.parse({});
    EXPECT_GT(refused, 0u) << "it takes anything";
  }
}

// Inputs that broke a parser once: found/TARGET-ANYTHING.
TEST(FuzzTest, WhatWasFoundDoesNoHarm) {
  for (const auto& file : std::filesystem::directory_iterator("src/fuzz/found")) {
    const std::string name = file.path().filename();
    if (name == "README.md") continue;
    const auto target = std::ranges::find_if(
        All(), [&](const Target& one) { return name.starts_with(one.name + "-"); });
    ASSERT_NE(target, All().end()) << name << " is of no target";
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string input, ReadFile(file.path()));
    target->parse(AsBytes(input));
  }
}

}  // namespace
}  // namespace shoal::fuzz
